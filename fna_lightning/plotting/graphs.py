"""Figures of attention graphs, drawn on Matplotlib axes: for TensorBoard and for ``analyze``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fna_lightning.errors import UsageError
from fna_lightning.plotting.style import BLUE, MISSING, ORANGE, SEQUENTIAL, new_figure, short_label, styled

# most tokens of a matrix whose labels are readable
MOST_LABELS = 40
# tokens of a diffusion map that get a label, farthest from the others first
LABELED_POINTS = 10


def matrix_figure(words: Sequence[str] | None, tokens: int) -> tuple[Figure, Axes]:
    """Return a figure for an (n, n) matrix, large enough for the labels of its tokens if there are few of them."""
    if words is None or tokens > MOST_LABELS:
        return new_figure(4.6, 4.0)
    side = max(3.0, 0.16 * tokens)
    figure = Figure(figsize=(side + 1.6, side + 1.3), dpi=90, layout="constrained")
    return figure, figure.add_subplot()


def draw_spectrum(axes: Axes, values: Tensor, *, label: str | None = None, color: str = BLUE) -> None:
    """Draw the moduli of eigenvalues that are sorted by modulus, largest first."""
    moduli = values.abs()
    moduli = moduli[moduli.isfinite()].cpu()
    axes.plot(range(len(moduli)), moduli, ".-", color=color, linewidth=1, label=label)
    axes.set(xlabel="eigenvalue, largest first", ylabel="modulus", ylim=(-0.02, 1.05))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)


def draw_hops(axes: Axes, hops: Tensor, words: Sequence[str] | None = None) -> None:
    """Draw an (n, n) hop matrix with one color for each number of hops; unreachable pairs are gray.

    Args:
        axes: where to draw.
        hops: number of hops; -1 for unreachable pairs.
        words: the tokens, written at the axes if there are at most 40.
    """
    values = np.ma.masked_less(hops.cpu().numpy(), 0)
    most = max(2, int(values.max() or 0))
    colors = mpl.colormaps[SEQUENTIAL].resampled(most + 1)
    image = axes.imshow(values, cmap=colors, interpolation="nearest", vmin=-0.5, vmax=most + 0.5)
    _finish_matrix(axes, words, len(hops))
    axes.figure.colorbar(image, ax=axes, label="hops", ticks=MaxNLocator(integer=True, nbins=8))


def draw_weights(axes: Axes, weights: Tensor, words: Sequence[str] | None = None) -> None:
    """Draw an (n, n) attention matrix; row i holds the weights of query i. Arguments as in ``draw_hops``."""
    values = weights.cpu().numpy()
    image = axes.imshow(values, cmap=SEQUENTIAL, interpolation="nearest", vmin=0.0)
    _finish_matrix(axes, words, len(values))
    axes.figure.colorbar(image, ax=axes, label="weight")


def draw_heads(axes: Axes, values: Mapping[tuple[str, int], float]) -> None:
    """Draw a heat map with one row per layer and one column per head.

    Args:
        axes: where to draw.
        values: value of each (layer, head), layer by layer.
    """
    layers = list(dict.fromkeys(layer for layer, _ in values))
    grid = np.full((len(layers), 1 + max(head for _, head in values)), np.nan)
    for (layer, head), value in values.items():
        grid[layers.index(layer), head] = value
    image = axes.imshow(np.ma.masked_invalid(grid), cmap=SEQUENTIAL, interpolation="nearest", aspect="auto")
    axes.set_facecolor(MISSING)
    axes.set(xlabel="head", ylabel="attention layer")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.figure.colorbar(image, ax=axes)


def draw_points(axes: Axes, points: Tensor, words: Sequence[str] | None = None) -> None:
    """Draw (n, 2) coordinates of tokens, colored by their position in the sequence.

    Args:
        axes: where to draw.
        points: the coordinates.
        words: the tokens; those farthest from the center are labeled.
    """
    points = points.cpu()
    dots = axes.scatter(points[:, 0], points[:, 1], c=range(len(points)), cmap=SEQUENTIAL, s=16)
    axes.set(xlabel="coordinate 1", ylabel="coordinate 2")
    if points.abs().max() < 1e-9:
        # under uniform attention all tokens coincide up to rounding, which must not fill the axes
        axes.set(xlim=(-1, 1), ylim=(-1, 1))
    elif words is not None:
        axes.margins(0.12)
        distance = (points - points.median(dim=0).values).norm(dim=-1)
        for index in distance.argsort(descending=True)[:LABELED_POINTS].tolist():
            x, y = points[index].tolist()
            # labels point to the middle, so that they stay inside the axes
            shift, side = (-3, "right") if x > sum(axes.get_xlim()) / 2 else (3, "left")
            axes.annotate(short_label(words[index]), (x, y), (shift, 3), "data", "offset points", ha=side, fontsize=7)
    axes.grid(alpha=0.3)
    axes.figure.colorbar(dots, ax=axes, label="position in the sequence", ticks=MaxNLocator(integer=True))


def draw_two_curves(
    axes: Axes, x: Sequence[float], left: Sequence[float], right: Sequence[float], names: list[str]
) -> None:
    """Draw two curves with separate y axes; ``names`` are the labels of x, left and right."""
    axes.plot(x, left, "o-", color=BLUE)
    axes.set(xlabel=names[0])
    axes.set_ylabel(names[1], color=BLUE)
    axes.grid(alpha=0.3)
    other = axes.twinx()
    other.spines["right"].set_visible(True)
    other.plot(x, right, "s--", color=ORANGE)
    other.set_ylabel(names[2], color=ORANGE)


@styled()
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
        image = axes.imshow(weights.cpu().numpy(), cmap=SEQUENTIAL, vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set_xticks(range(len(source)), map(short_label, source), rotation=90)
        axes.set_yticks(range(len(target)), map(short_label, target) if number == 0 else [""] * len(target))
        axes.set_title(f"layer {number}")
    figure.colorbar(image, ax=figure.axes, label="weight, mean of heads")
    return figure


def draw_alignment(layers: Sequence[Tensor], source: list[str], target: list[str], path: Path) -> None:
    """Write ``alignment_figure`` to the file ``path``; its suffix determines the format."""
    try:
        alignment_figure(layers, source, target).savefig(path, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise UsageError(f"the picture {path} cannot be written ({error}); name a file that ends in .png") from error


def _finish_matrix(axes: Axes, words: Sequence[str] | None, tokens: int) -> None:
    axes.set_facecolor(MISSING)
    axes.set(xlabel="to token", ylabel="from token")
    if words is not None and tokens <= MOST_LABELS:
        labels = [short_label(word) for word in words[:tokens]]
        axes.set_xticks(range(tokens), labels, rotation=90, fontsize=7)
        axes.set_yticks(range(tokens), labels, fontsize=7)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
