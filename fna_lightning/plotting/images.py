"""Attention drawn over the image it belongs to."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fna_lightning.graph import path_lengths
from fna_lightning.plotting.style import ORANGE, SEQUENTIAL, styled

# from transparent to opaque: patches without attention keep their appearance
GLOW = LinearSegmentedColormap.from_list("glow", [(*to_rgb(ORANGE), 0.0), (*to_rgb(ORANGE), 0.9)])


def grid_side(tokens: int) -> tuple[int, int]:
    """Return the side of the square grid of patches, and the number of tokens before it (0, or 1 for CLS)."""
    side = math.isqrt(tokens)
    first = tokens - side * side
    if side < 1 or first > 1:
        raise ValueError(f"{tokens} tokens do not form a square grid, with or without one token before it")
    return side, first


def patch_attention(weights: Tensor) -> Tensor:
    """Return the attention of the CLS token to each patch of the (g, g) grid; without CLS, the mean over all queries.

    Args:
        weights: (n, n) weights of one head, or the mean of several.
    """
    side, first = grid_side(len(weights))
    received = weights[0, 1:] if first else weights.mean(dim=0)
    return received.reshape(side, side)


def hops_on_grid(weights: Tensor) -> Tensor:
    """Return the hops from CLS to each patch of the (g, g) grid; without CLS, the mean from all other patches."""
    side, first = grid_side(len(weights))
    hops = path_lengths(weights).hops.double()
    hops = hops.masked_fill(hops < 0, math.nan)
    counts = hops[0, 1:] if first else hops.nansum(dim=0) / (hops > 0).sum(dim=0).clamp(min=1)
    return counts.reshape(side, side)


def draw_over_image(axes: Axes, pixels: Tensor, values: Tensor, title: str, *, hops: bool = False) -> None:
    """Draw (g, g) values over a (C, S, S) uint8 image: more opaque for more attention, or one color per hop count."""
    size = pixels.size(-1)
    axes.imshow(_channels_last(pixels).mean(axis=-1), cmap="gray", vmin=0, vmax=255, extent=(0, size, size, 0))
    scale: dict[str, Any] = {"cmap": GLOW, "vmin": 0}
    if hops:
        scale = {"cmap": SEQUENTIAL, "vmin": 1, "vmax": max(2.0, float(values.nan_to_num().max())), "alpha": 0.6}
    overlay = axes.imshow(values.cpu().numpy(), extent=(0, size, size, 0), interpolation="nearest", **scale)
    axes.set_title(title, fontsize="small")
    axes.set_axis_off()
    ticks = MaxNLocator(integer=True) if hops else None
    axes.figure.colorbar(overlay, ax=axes, fraction=0.045, pad=0.03, ticks=ticks).ax.tick_params(labelsize=6)


@styled()
def picture_figure(pixels: Tensor, rows: dict[str, dict[str, Tensor]]) -> Figure:
    """Return a figure with one row per model: the image, the attention of each layer, and the hops of the last layer.

    Args:
        pixels: (C, S, S), uint8.
        rows: for each model, the (n, n) weights of each layer, averaged over heads.
    """
    columns = 2 + max(len(layers) for layers in rows.values())
    figure = Figure(figsize=(1.9 * columns, 2.05 * len(rows)), dpi=110, layout="constrained")
    for row, (label, layers) in enumerate(rows.items()):
        axes = figure.add_subplot(len(rows), columns, row * columns + 1)
        axes.imshow(_channels_last(pixels))
        axes.set_title(label, fontsize="small")
        axes.set_axis_off()
        for column, weights in enumerate(layers.values(), start=2):
            _, first = grid_side(len(weights))
            query = "CLS" if first else "all patches"
            axes = figure.add_subplot(len(rows), columns, row * columns + column)
            draw_over_image(axes, pixels, patch_attention(weights), f"layer {column - 1}: attention of {query}")
        _, first = grid_side(len(weights))
        axes = figure.add_subplot(len(rows), columns, (row + 1) * columns)
        draw_over_image(axes, pixels, hops_on_grid(weights), f"hops from {'CLS' if first else 'others'}", hops=True)
    return figure


def _channels_last(pixels: Tensor) -> Any:
    """Return the pixels as an (S, S, 3) array, the layout of Matplotlib."""
    return pixels.cpu().permute(1, 2, 0).expand(-1, -1, 3).numpy()
