"""Attention drawn over the picture it looks at."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from torch import Tensor

from fna_lightning.graph import path_lengths
from fna_lightning.plotting.graphs import ORANGE

# from nothing to one colour: what is not looked at stays as it is
GLOW = LinearSegmentedColormap.from_list("glow", [(*to_rgb(ORANGE), 0.0), (*to_rgb(ORANGE), 0.9)])


def grid_side(tokens: int) -> tuple[int, int]:
    """Return the side of the square grid of so many tokens, and how many (0 or 1: CLS) come before it."""
    side = math.isqrt(tokens)
    first = tokens - side * side
    if side < 1 or first > 1:
        raise ValueError(f"{tokens} tokens are no square grid, with or without one token before it")
    return side, first


def where_it_looks(walk: Tensor) -> Tensor:
    """Return, on the (g, g) grid, how much the CLS token looks at each patch; without CLS, how much all do on average.

    Args:
        walk: (n, n) weights of one head, or the mean of several.
    """
    side, first = grid_side(len(walk))
    seen = walk[0, 1:] if first else walk.mean(dim=0)
    return seen.reshape(side, side)


def hops_on_grid(walk: Tensor) -> Tensor:
    """Return, on the (g, g) grid, the hops from CLS to each patch; without CLS, the mean over all other patches."""
    side, first = grid_side(len(walk))
    hops = path_lengths(walk).hops.double()
    hops = hops.masked_fill(hops < 0, math.nan)
    reached = hops[0, 1:] if first else hops.nansum(dim=0) / (hops > 0).sum(dim=0).clamp(min=1)
    return reached.reshape(side, side)


def draw_over_image(axes: Axes, pixels: Tensor, values: Tensor, title: str, *, hops: bool = False) -> None:
    """Draw (g, g) values over a (C, S, S) uint8 picture: brighter for more attention, or a colour for each hop."""
    size = pixels.size(-1)
    axes.imshow(_shown(pixels).mean(axis=-1), cmap="gray", vmin=0, vmax=255, extent=(0, size, size, 0))
    scale: dict[str, Any] = {"cmap": GLOW, "vmin": 0}
    if hops:
        scale = {"cmap": "viridis", "vmin": 1, "vmax": max(2.0, float(values.nan_to_num().max())), "alpha": 0.6}
    painted = axes.imshow(values.cpu().numpy(), extent=(0, size, size, 0), interpolation="nearest", **scale)
    axes.set_title(title, fontsize="small")
    axes.set_axis_off()
    axes.figure.colorbar(painted, ax=axes, fraction=0.045, pad=0.03).ax.tick_params(labelsize=6)


def picture_figure(pixels: Tensor, rows: dict[str, dict[str, Tensor]]) -> Figure:
    """Return a figure with one row a model: the picture, where each layer looks, and the hops of the last layer.

    Args:
        pixels: (C, S, S), uint8.
        rows: for each model, the (n, n) mean over heads of each of its layers.
    """
    columns = 2 + max(len(layers) for layers in rows.values())
    figure = Figure(figsize=(1.9 * columns, 2.05 * len(rows)), dpi=110, layout="constrained")
    for row, (label, layers) in enumerate(rows.items()):
        axes = figure.add_subplot(len(rows), columns, row * columns + 1)
        axes.imshow(_shown(pixels))
        axes.set_title(label, fontsize="small")
        axes.set_axis_off()
        for column, walk in enumerate(layers.values(), start=2):
            _, first = grid_side(len(walk))
            what = "CLS looks" if first else "all look"
            axes = figure.add_subplot(len(rows), columns, row * columns + column)
            draw_over_image(axes, pixels, where_it_looks(walk), f"layer {column - 1}: where {what}")
        _, first = grid_side(len(walk))
        axes = figure.add_subplot(len(rows), columns, (row + 1) * columns)
        draw_over_image(axes, pixels, hops_on_grid(walk), f"hops from {'CLS' if first else 'others'}", hops=True)
    return figure


def _shown(pixels: Tensor) -> Any:
    """Return (S, S, 3) numbers, as matplotlib takes them."""
    return pixels.cpu().permute(1, 2, 0).expand(-1, -1, 3).numpy()
