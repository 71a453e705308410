"""Figures of fields: predicted maps, and the error against the number of context points."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from fna_lightning.plotting.graphs import BLUE, COLORS, ORANGE

Values = NDArray[np.floating]
# Above this number of context points they are drawn smaller.
MANY_POINTS = 500


def error_curve(curves: Mapping[str, Mapping[int, float]], label: str) -> Figure:
    """Return a figure of the error against the number of context points, with logarithmic axes.

    Args:
        curves: for each label, the error by number of context points.
        label: name of the error.
    """
    figure = Figure(figsize=(4.8, 3.4), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    sizes = sorted({size for curve in curves.values() for size in curve})
    for number, (name, curve) in enumerate(curves.items()):
        color = COLORS[number % len(COLORS)]
        axes.plot(list(curve), list(curve.values()), "o-", color=color, markersize=4, label=name or None)
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
        axes.legend(frameon=False)
    return figure


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
    scale = {"cmap": "viridis", "vmin": low, "vmax": high}
    image = axes.pcolormesh(grid[0], grid[1], mean.T, shading="nearest", **scale)
    axes.scatter(points[:, 0], points[:, 1], c=points[:, 2], s=size, edgecolors="white", linewidths=0.4, **scale)
    figure.colorbar(image, ax=axes, label=names[2])
    _finish_map(axes, f"{names[2]} predicted from {len(points)} points", names)
    if deviation is not None:
        axes = figure.add_subplot(1, panels, 2)
        image = axes.pcolormesh(grid[0], grid[1], deviation.T, shading="nearest", cmap="magma")
        axes.scatter(points[:, 0], points[:, 1], s=size / 3.0, color="white", linewidths=0.0)
        figure.colorbar(image, ax=axes, label=f"standard deviation of {names[2]}")
        _finish_map(axes, "uncertainty", names)
    return figure


def _finish_map(axes: Axes, title: str, names: Sequence[str]) -> None:
    axes.set(xlabel=names[0], ylabel=names[1])
    axes.set_title(title, fontsize="medium")


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
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    return figure
