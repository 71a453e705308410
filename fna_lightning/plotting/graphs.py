"""Pictures of attention as a graph, drawn on given axes: for TensorBoard and for ``analyze``."""

from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fna_lightning.errors import UsageError

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#777777"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE)


def new_figure(width: float = 4.4, height: float = 3.4) -> tuple[Figure, Axes]:
    """Return a figure that no window system knows of, and its axes."""
    figure = Figure(figsize=(width, height), dpi=80)
    # margins that fit these figures: letting matplotlib find them would double the time a drawing takes in training
    figure.subplots_adjust(left=0.16, right=0.86, bottom=0.15, top=0.91)
    return figure, figure.add_subplot()


def draw_spectrum(axes: Axes, values: Tensor, *, label: str | None = None, colour: str = BLUE) -> None:
    """Draw the moduli of eigenvalues, largest first."""
    moduli = values.abs()
    moduli = moduli[moduli.isfinite()].cpu()
    axes.plot(range(len(moduli)), moduli, ".-", color=colour, markersize=4, linewidth=1, label=label)
    axes.set(xlabel="eigenvalue", ylabel="modulus", ylim=(-0.02, 1.05))
    axes.grid(alpha=0.3)


def draw_hops(axes: Axes, hops: Tensor) -> None:
    """Draw an (n, n) hop matrix; unreachable pairs are grey."""
    values = np.ma.masked_less(hops.cpu().numpy(), 0)
    image = axes.imshow(values, cmap="viridis", interpolation="nearest", vmin=0, vmax=max(2, int(values.max() or 0)))
    axes.set_facecolor("#bbbbbb")
    axes.set(xlabel="to token", ylabel="from token")
    axes.figure.colorbar(image, ax=axes, label="hops")


def draw_points(axes: Axes, points: Tensor) -> None:
    """Draw (n, 2) coordinates of tokens, coloured by their place in the sequence."""
    points = points.cpu()
    dots = axes.scatter(points[:, 0], points[:, 1], c=range(len(points)), cmap="viridis", s=14)
    axes.set(xlabel="coordinate 1", ylabel="coordinate 2")
    if points.abs().max() < 1e-9:
        # uniform attention: all tokens in one place, and the rest is rounding
        axes.set(xlim=(-1, 1), ylim=(-1, 1))
    axes.grid(alpha=0.3)
    axes.figure.colorbar(dots, ax=axes, label="place in the sequence")


def draw_two_curves(
    axes: Axes, x: Sequence[float], left: Sequence[float], right: Sequence[float], names: list[str]
) -> None:
    """Draw two curves over one axis, each with a scale of its own; ``names`` are those of x, left and right."""
    axes.plot(x, left, "o-", color=BLUE, markersize=4)
    axes.set(xlabel=names[0])
    axes.set_ylabel(names[1], color=BLUE)
    axes.grid(alpha=0.3)
    other = axes.twinx()
    other.plot(x, right, "s--", color=ORANGE, markersize=4)
    other.set_ylabel(names[2], color=ORANGE)


def draw_alignment(layers: Sequence[Tensor], source: list[str], target: list[str], path: Path | IO[bytes]) -> None:
    """Draw an (n, m) matrix of cross-attention for each layer, side by side, and write them to ``path``.

    Args:
        layers: row i are the weights with which token i of the target looked at the source.
        source: words of the columns.
        target: words of the rows.
        path: a picture file, whose ending says of which kind; PNG if it is open already.
    """
    wide, high = 0.28 * len(source), 0.28 * len(target)
    figure = Figure(figsize=(len(layers) * (wide + 1.0) + 0.8, high + 1.6), dpi=100, layout="constrained")
    for number, (axes, weights) in enumerate(
        zip(figure.subplots(1, len(layers), squeeze=False)[0], layers, strict=True)
    ):
        image = axes.imshow(weights.cpu().numpy(), cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set_xticks(range(len(source)), source, rotation=90)
        axes.set_yticks(range(len(target)), target if number == 0 else [""] * len(target))
        axes.set_title(f"layer {number}")
    figure.colorbar(image, ax=figure.axes, label="weight, mean of heads")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"the picture {path} cannot be written ({error}); name a file that ends in .png") from error
