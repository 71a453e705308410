"""Surveys of a real surface: windows of an elevation model, or of photographs, read at scattered points."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import EpisodeArrays, EpisodeConfig, Points
from fna_lightning.tasks.fields.surveys import cut, standardized, survey_points

# Side of a window in samples of the surface.
WINDOW = 128
# Columns of the elevation model: the west trains, the east tests, and no window crosses the gap between them.
WEST_END, EAST_START = 250, 260


class Terrain(FieldData):
    """Surveys of the elevation model that Matplotlib ships; the west trains and validates, the east tests.

    Each episode is a random window, flipped and transposed at random, measured at the points of a survey. Values are
    standardized by the context.

    Args:
        survey: how points are chosen in training: "levy", a Levy flight with clusters and gaps of all sizes, or "even".
        eval_surveys: surveys of the evaluation sets; None takes ``survey``.
        episodes: numbers of points and of episodes.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    surveys = ("levy", "even")
    value_name = "elevation"

    def __init__(
        self,
        *,
        survey: str = "levy",
        eval_surveys: list[str] | None = None,
        episodes: EpisodeConfig = EpisodeConfig(),  # noqa: B008 - frozen
        batch_size: int = 16,
        seed: int | None = None,
    ) -> None:
        super().__init__(episodes=episodes, batch_size=batch_size, seed=seed)
        self.choose_surveys(survey, eval_surveys)

    @property
    def codec(self) -> FieldCodec:
        return FieldCodec(["x", "y"], [self.value_name])

    def surface(self, split: str) -> NDArray[np.float32]:
        """Return the 2-D surface that the windows of a split are taken from."""
        elevation = elevation_sample()
        return elevation[:, EAST_START:] if split == "test" else elevation[:, :WEST_END]

    def generate(self, rng: np.random.Generator, count: int, context: int, survey: str, split: str) -> EpisodeArrays:
        x = survey_points(survey, rng, count, context + self.episodes.queries)
        values = read_windows(rng, self.surface(split), x)
        return standardized(cut(x, values[..., None], context))


class Photographs(Terrain):
    """Surveys of two gray photographs of scikit-learn; the first one trains and validates, the second one tests.

    Args:
        survey: how points are chosen in training: "levy", a Levy flight with clusters and gaps of all sizes, or "even".
        eval_surveys: surveys of the evaluation sets; None takes ``survey``.
        episodes: numbers of points and of episodes.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    value_name = "brightness"

    def surface(self, split: str) -> NDArray[np.float32]:
        return gray_photographs()[int(split == "test")]


@cache
def elevation_sample() -> NDArray[np.float32]:
    """Return the standardized elevations of Matplotlib's sample of the Jacksboro fault."""
    from matplotlib.cbook import get_sample_data

    # The function also opens other kinds of files, hence its other types.
    archive: Any = get_sample_data("jacksboro_fault_dem.npz")
    with archive:
        elevation = np.asarray(archive["elevation"], dtype=np.float64)
    return ((elevation - elevation.mean()) / elevation.std()).astype(np.float32)


@cache
def gray_photographs() -> list[NDArray[np.float32]]:
    """Return the standardized brightness of the sample photographs."""
    gray = [photograph.mean(axis=-1) for photograph in sample_photographs()]
    return [((brightness - brightness.mean()) / brightness.std()).astype(np.float32) for brightness in gray]


@cache
def sample_photographs() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the (427, 640, 3) photographs china.jpg and flower.jpg of scikit-learn."""
    from sklearn.datasets import load_sample_images

    china, flower = load_sample_images().images
    return china, flower


def read_windows(rng: np.random.Generator, surface: NDArray[np.float32], x: Points) -> Points:
    """Return the (count, points) values of one random window per episode at positions ``x`` in [-1, 1]^2.

    A window is flipped and transposed at random. Values between samples are interpolated bilinearly.
    """
    count = len(x)
    rows, columns = surface.shape
    corner = np.stack(
        [rng.integers(0, rows - WINDOW + 1, count), rng.integers(0, columns - WINDOW + 1, count)], axis=-1
    )
    flips = rng.choice(np.array([-1.0, 1.0], dtype=np.float32), (count, 1, 2))
    transposed = rng.random(count) < 0.5
    local = np.where(transposed[:, None, None], x[..., ::-1], x) * flips
    position = (local + 1.0) * (0.5 * (WINDOW - 1))
    whole = np.minimum(position.astype(np.int64), WINDOW - 2)
    row_part, column_part = np.moveaxis(position - whole, -1, 0)
    row, column = np.moveaxis(whole + corner[:, None], -1, 0)
    upper = surface[row, column] * (1.0 - column_part) + surface[row, column + 1] * column_part
    lower = surface[row + 1, column] * (1.0 - column_part) + surface[row + 1, column + 1] * column_part
    return upper * (1.0 - row_part) + lower * row_part
