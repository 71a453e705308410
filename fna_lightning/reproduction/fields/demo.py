"""Demonstration: four attentions reconstruct real terrain from scattered measurements."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fna_lightning.introspection.maps import evaluating
from fna_lightning.plotting.style import styled
from fna_lightning.reproduction.fields.attentions import ATTENTIONS
from fna_lightning.reproduction.fields.figures import plain_ticks
from fna_lightning.reproduction.fields.scales import FIELD_SCALES
from fna_lightning.reproduction.fields.tasks import TASKS, curve_sizes
from fna_lightning.reproduction.fields.training import FieldRun, split_errors, train_field
from fna_lightning.tasks.fields.episodes import EpisodeConfig
from fna_lightning.tasks.fields.surveys import cut, standardized, survey_points
from fna_lightning.tasks.fields.task import FieldRegression
from fna_lightning.tasks.fields.terrain import WINDOW, Terrain, read_windows

# attention: start value of its learned scale
STARTS = {"fna": 0.1, "qk-norm": 20.0, "gaussian": 0.5, "uniform": 0.0}
STEPS, EPISODES = 1000, 128
EPISODE_SIZES = EpisodeConfig(eval_context=(16, 64, 256, 1024))
# Number of Levy flights, measurements on each of them, and random seed, of the map in the figure.
MAP_FLIGHTS, FLIGHT_POINTS, MAP_SEED = 4, 256, 0

Map = NDArray[np.floating]


@dataclass(frozen=True)
class Terrains:
    """The map in the figure; values are standardized by the measurements.

    Attributes:
        points: (n, 2) positions of the measurements in [-1, 1]^2.
        values: (n, 1) measured values.
        grid: (side * side, 2) positions of the grid.
        truth: (side, side) true values on the grid.
    """

    points: Map
    values: Map
    grid: Map
    truth: Map


@dataclass(frozen=True)
class Reconstruction:
    """What one attention makes of the measurements.

    Attributes:
        attention: name of the attention.
        errors: mean squared error on test episodes by number of measurements.
        image: (side, side) predicted values of the map in the figure.
        seconds: time of training and evaluation.
    """

    attention: str
    errors: dict[int, float]
    image: Map
    seconds: float


def example_terrain() -> Terrains:
    """Return a window of the test terrain, measured along a few Levy flights."""
    rng = np.random.default_rng(MAP_SEED)
    points = survey_points("levy", rng, MAP_FLIGHTS, FLIGHT_POINTS).reshape(1, -1, 2)
    axis = np.linspace(-1.0, 1.0, WINDOW, dtype=np.float32)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(1, -1, 2)
    x = np.concatenate([points, grid], axis=1)
    values = read_windows(rng, Terrain().surface("test"), x)[..., None]
    episode = standardized(cut(x, values, points.shape[1]))
    return Terrains(points[0], episode.context_y[0], grid[0], episode.query_y.reshape(WINDOW, WINDOW))


def reconstruct(attention: str, terrain: Terrains, steps: int = STEPS) -> Reconstruction:
    """Train one attention on the west of the terrain and reconstruct the map, which is in the east."""
    started = time.perf_counter()
    scale = replace(FIELD_SCALES["small"], steps=steps, episodes=EPISODES)
    run = FieldRun("terrain", attention, STARTS[attention], 0, "test", scale)
    data = replace(TASKS["terrain"], episodes=EPISODE_SIZES).data(scale, run.seed)
    task = train_field(run, data)
    errors = split_errors(task, data, "test")
    means = {size: float(np.mean(errors[name])) for size, name in curve_sizes(errors).items()}
    image = predict_grid(task, terrain)
    return Reconstruction(attention, means, image, time.perf_counter() - started)


def predict_grid(task: FieldRegression, terrain: Terrains) -> Map:
    """Return the predicted values on the grid."""
    x, y, grid = (torch.from_numpy(array).float()[None] for array in (terrain.points, terrain.values, terrain.grid))
    with torch.no_grad(), evaluating(task):
        parts = [task.predict_field(x, y, queries)[0] for queries in grid.split(4096, dim=1)]
    return np.asarray(torch.cat(parts, dim=1)[0, :, 0]).reshape(terrain.truth.shape)


def map_error(terrain: Terrains, image: Map) -> float:
    """Return the mean squared error on the map."""
    return float(np.square(image - terrain.truth).mean())


@styled()
def demo_figure(terrain: Terrains, reconstructions: list[Reconstruction]) -> Figure:
    """Return the truth with the measurements, the reconstructions, and the error against the number of points."""
    figure = Figure(figsize=(12.0, 7.6), dpi=110, layout="constrained")
    low, high = np.quantile(terrain.truth, [0.005, 0.995])
    options: dict[str, Any] = {"cmap": "gist_earth", "vmin": low, "vmax": high}
    options |= {"origin": "lower", "extent": (-1.0, 1.0, -1.0, 1.0)}
    axes = figure.add_subplot(2, 3, 1)
    axes.imshow(terrain.truth.T, **options)
    axes.plot(*terrain.points.T, ".", color="white", markersize=4, markeredgecolor="black", markeredgewidth=0.4)
    axes.set_title(f"terrain, {len(terrain.points)} measurements")
    for place, item in zip((2, 3, 5, 6), reconstructions, strict=False):
        panel = figure.add_subplot(2, 3, place)
        panel.imshow(item.image.T, **options)
        label = ATTENTIONS[item.attention].label
        panel.set_title(f"{label}: error {map_error(terrain, item.image):.3f}")
    for panel in figure.axes:
        panel.set_xticks([])
        panel.set_yticks([])
    axes = figure.add_subplot(2, 3, 4)
    for item in reconstructions:
        color, marker = ATTENTIONS[item.attention].style
        label = ATTENTIONS[item.attention].label
        axes.plot([*item.errors], [*item.errors.values()], color=color, marker=marker, label=label)
    axes.set(xlabel="measurements n", ylabel="mean squared error", xscale="log", yscale="log")
    axes.set_title(f"{EPISODES} surveys of test terrain, trained with n = 64")
    plain_ticks(axes, EPISODE_SIZES.eval_context)
    axes.legend()
    return figure
