"""Figures of fields: predicted maps, weights over a map, and curves against the number of context points."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from fna_lightning.plotting.style import BLUE, COLORS, MISSING, ORANGE, SECONDARY, SEQUENTIAL, styled

Values = NDArray[np.floating]
# Above this number of context points they are drawn smaller.
MANY_POINTS = 500


@dataclass(frozen=True)
class WeightPanel:
    """The weights of one query in one head: a title, the (2,) query and the (M,) weights of the context points."""

    title: str
    query: Values
    weights: Values


@styled()
def curve_figure(curves: Mapping[str, Mapping[int, float]], label: str) -> Figure:
    """Return a figure of a quantity against the number of context points, with logarithmic axes.

    Args:
        curves: for each label, the values by number of context points.
        label: name of the quantity.
    """
    figure = Figure(figsize=(4.8, 3.4), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    sizes = sorted({size for curve in curves.values() for size in curve})
    for number, (name, curve) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        axes.plot(list(curve), list(curve.values()), "o-", color=color, label=name or None)
    axes.set(xlabel="context points", ylabel=label, xscale="log")
    if all(value > 0.0 for curve in curves.values() for value in curve.values()):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    # Labels of sizes that are close to the next one would overlap with it.
    crowded = [size * 1.3 > following for size, following in itertools.pairwise([*sizes, math.inf])]
    axes.set_xticks(sizes, ["" if close else str(size) for size, close in zip(sizes, crowded, strict=True)])
    axes.grid(alpha=0.3)
    if any(curves):
        axes.legend()
    return figure


@styled()
def map_figure(
    grid: Sequence[Values], mean: Values, deviation: Values | None, points: Values, names: Sequence[str]
) -> Figure:
    """Return a figure of a predicted field on a grid, with the measured points.

    Args:
        grid: the coordinates of the grid along each axis; one or two axes.
        mean: predicted values on the grid, with one dimension per axis.
        deviation: predicted standard deviations, or None.
        points: (n, axes + 1) coordinates and values of the measured points.
        names: names of the coordinates and of the value.
    """
    if len(grid) == 1:
        return _profile_figure(grid[0], mean, deviation, points, names)
    panels = 1 if deviation is None else 2
    figure = Figure(figsize=(5.4 * panels, 4.4), dpi=130, layout="constrained")
    size = 14.0 if len(points) <= MANY_POINTS else 3.0
    axes = figure.add_subplot(1, panels, 1)
    low, high = min(mean.min(), points[:, 2].min()), max(mean.max(), points[:, 2].max())
    scale = {"cmap": SEQUENTIAL, "vmin": low, "vmax": high}
    image = axes.pcolormesh(grid[0], grid[1], mean.T, shading="nearest", **scale)
    axes.scatter(points[:, 0], points[:, 1], c=points[:, 2], s=size, edgecolors="white", linewidths=0.4, **scale)
    figure.colorbar(image, ax=axes, label=names[2])
    _finish_map(axes, f"{names[2]} predicted from {len(points)} points", names)
    if deviation is not None:
        axes = figure.add_subplot(1, panels, 2)
        image = axes.pcolormesh(grid[0], grid[1], deviation.T, shading="nearest", cmap=SECONDARY)
        axes.scatter(points[:, 0], points[:, 1], s=size / 3.0, color="white", linewidths=0.0)
        figure.colorbar(image, ax=axes, label=f"standard deviation of {names[2]}")
        _finish_map(axes, "Uncertainty", names)
    return figure


@styled()
def weights_figure(context: Values, rows: Sequence[Sequence[WeightPanel]]) -> Figure:
    """Return a figure of attention weights over the context points, with one row of panels for each query.

    The area and color of a point show its weight. A circle around the query encloses the nearest points that have half
    of the weight.

    Args:
        context: (M, 2) coordinates of the context points.
        rows: the panels; all rows have the same titles.
    """
    columns = len(rows[0])
    width, height = np.ptp(context, axis=0)
    panel_height = 2.6 * float(np.clip(height / max(width, np.finfo(np.float32).tiny), 0.4, 1.6))
    figure = Figure(figsize=(2.6 * columns, panel_height * len(rows) + 0.9), dpi=130, layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for number, panels in enumerate(rows):
        for axes, panel in zip(grid[number], panels, strict=True):
            _weight_panel(axes, context, panel)
            if number == 0:
                axes.set_title(panel.title, loc="center")
    figure.suptitle("Weights of a query (cross) on the points;\nthe circle holds half of the weight")
    return figure


def half_weight_radius(distances: Values, weights: Values) -> float:
    """Return the distance within which a query has half of its weight."""
    order = np.argsort(distances)
    cumulative = np.cumsum(weights[order])
    return float(distances[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])])


def _weight_panel(axes: Axes, context: Values, panel: WeightPanel) -> None:
    share = panel.weights / max(panel.weights.max(), np.finfo(np.float32).tiny)
    radius = half_weight_radius(np.linalg.norm(context - panel.query, axis=1), panel.weights)
    axes.scatter(context[:, 0], context[:, 1], s=3.0, color=MISSING, linewidths=0.0)
    order = np.argsort(share)
    x, y = context[order].T
    axes.scatter(x, y, s=40.0 * share[order], c=share[order], cmap=f"{SEQUENTIAL}_r", vmin=0.0, vmax=1.0)
    axes.add_patch(Circle((panel.query[0], panel.query[1]), radius, fill=False, color=ORANGE, linewidth=1.2))
    axes.plot(*panel.query, "x", color=ORANGE, markersize=7, markeredgewidth=1.8)
    entropy = -np.sum(panel.weights * np.log(np.maximum(panel.weights, np.finfo(np.float32).tiny)))
    axes.text(0.03, 0.97, f"{np.exp(entropy):.1f} neighbors", transform=axes.transAxes, va="top", fontsize="x-small")
    low, high = context.min(axis=0), context.max(axis=0)
    margin = 0.05 * (high - low)
    axes.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(True)


def _finish_map(axes: Axes, title: str, names: Sequence[str]) -> None:
    axes.set(xlabel=names[0], ylabel=names[1])
    axes.set_title(title)


def _profile_figure(x: Values, mean: Values, deviation: Values | None, points: Values, names: Sequence[str]) -> Figure:
    """Return a figure of a field with one coordinate: a curve with an interval of two standard deviations."""
    figure = Figure(figsize=(6.4, 4.0), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    axes.plot(x, mean, color=BLUE, label="predicted")
    if deviation is not None:
        low, high = mean - 2.0 * deviation, mean + 2.0 * deviation
        axes.fill_between(x, low, high, color=BLUE, alpha=0.2, label="± 2 standard deviations")
    axes.plot(points[:, 0], points[:, 1], ".", color=ORANGE, label="measured")
    axes.set(xlabel=names[0], ylabel=names[1])
    axes.legend()
    axes.grid(alpha=0.3)
    return figure
