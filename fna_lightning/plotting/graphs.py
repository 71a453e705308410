"""Figures of attention graphs, drawn on Matplotlib axes: for TensorBoard and for ``analyze``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fna_lightning.errors import UsageError

BLUE, ORANGE, GREEN, PURPLE, GRAY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#777777"
COLORS = (BLUE, ORANGE, GREEN, PURPLE)


def new_figure(width: float = 4.4, height: float = 3.4) -> tuple[Figure, Axes]:
    """Return a figure that is not attached to a window system, and its axes."""
    figure = Figure(figsize=(width, height), dpi=80)
    # fixed margins that fit these figures: computing them automatically would double the drawing time during training
    figure.subplots_adjust(left=0.16, right=0.86, bottom=0.15, top=0.91)
    return figure, figure.add_subplot()


def draw_spectrum(axes: Axes, values: Tensor, *, label: str | None = None, color: str = BLUE) -> None:
    """Draw the moduli of eigenvalues that are sorted by modulus, largest first."""
    moduli = values.abs()
    moduli = moduli[moduli.isfinite()].cpu()
    axes.plot(range(len(moduli)), moduli, ".-", color=color, markersize=4, linewidth=1, label=label)
    axes.set(xlabel="eigenvalue", ylabel="modulus", ylim=(-0.02, 1.05))
    axes.grid(alpha=0.3)


def draw_hops(axes: Axes, hops: Tensor) -> None:
    """Draw an (n, n) hop matrix; unreachable pairs are gray."""
    values = np.ma.masked_less(hops.cpu().numpy(), 0)
    image = axes.imshow(values, cmap="viridis", interpolation="nearest", vmin=0, vmax=max(2, int(values.max() or 0)))
    axes.set_facecolor("#bbbbbb")
    axes.set(xlabel="to token", ylabel="from token")
    axes.figure.colorbar(image, ax=axes, label="hops")


def draw_heads(axes: Axes, values: Mapping[tuple[str, int], float], name: str) -> None:
    """Draw a heat map with one row per layer and one column per head.

    Args:
        axes: where to draw.
        values: value of each (layer, head), layer by layer.
        name: what the values are.
    """
    layers = list(dict.fromkeys(layer for layer, _ in values))
    grid = np.full((len(layers), 1 + max(head for _, head in values)), np.nan)
    for (layer, head), value in values.items():
        grid[layers.index(layer), head] = value
    image = axes.imshow(np.ma.masked_invalid(grid), cmap="viridis", interpolation="nearest", aspect="auto")
    axes.set_facecolor("#bbbbbb")
    axes.set(xlabel="head", ylabel="attention layer", title=name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.figure.colorbar(image, ax=axes)


def draw_points(axes: Axes, points: Tensor) -> None:
    """Draw (n, 2) coordinates of tokens, colored by their position in the sequence."""
    points = points.cpu()
    dots = axes.scatter(points[:, 0], points[:, 1], c=range(len(points)), cmap="viridis", s=14)
    axes.set(xlabel="coordinate 1", ylabel="coordinate 2")
    if points.abs().max() < 1e-9:
        # under uniform attention all tokens coincide up to rounding, which must not fill the axes
        axes.set(xlim=(-1, 1), ylim=(-1, 1))
    axes.grid(alpha=0.3)
    axes.figure.colorbar(dots, ax=axes, label="position in the sequence")


def draw_two_curves(
    axes: Axes, x: Sequence[float], left: Sequence[float], right: Sequence[float], names: list[str]
) -> None:
    """Draw two curves with separate y axes; ``names`` are the labels of x, left and right."""
    axes.plot(x, left, "o-", color=BLUE, markersize=4)
    axes.set(xlabel=names[0])
    axes.set_ylabel(names[1], color=BLUE)
    axes.grid(alpha=0.3)
    other = axes.twinx()
    other.plot(x, right, "s--", color=ORANGE, markersize=4)
    other.set_ylabel(names[2], color=ORANGE)


def alignment_figure(layers: Sequence[Tensor], source: list[str], target: list[str]) -> Figure:
    """Return a figure with the (n, m) cross-attention matrix of each layer, side by side.

    Args:
        layers: in each matrix, row i holds the weights of target token i over the source tokens.
        source: labels of the columns.
        target: labels of the rows.
    """
    width, height = 0.28 * len(source), 0.28 * len(target)
    figure = Figure(figsize=(len(layers) * (width + 1.0) + 0.8, height + 1.6), dpi=100, layout="constrained")
    for number, (axes, weights) in enumerate(
        zip(figure.subplots(1, len(layers), squeeze=False)[0], layers, strict=True)
    ):
        image = axes.imshow(weights.cpu().numpy(), cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set_xticks(range(len(source)), source, rotation=90)
        axes.set_yticks(range(len(target)), target if number == 0 else [""] * len(target))
        axes.set_title(f"layer {number}")
    figure.colorbar(image, ax=figure.axes, label="weight, mean of heads")
    return figure


def draw_alignment(layers: Sequence[Tensor], source: list[str], target: list[str], path: Path) -> None:
    """Write ``alignment_figure`` to the file ``path``; its suffix determines the format."""
    try:
        alignment_figure(layers, source, target).savefig(path, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise UsageError(f"the picture {path} cannot be written ({error}); name a file that ends in .png") from error
