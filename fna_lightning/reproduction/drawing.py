"""Figure styles: every attention has the same color and marker in all figures."""

import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fna_lightning.plotting.style import BLUE, GRAY, GREEN, ORANGE, PURPLE
from fna_lightning.reproduction.artifact import Row

# attention: (color, marker); the colors are distinguishable with color blindness, the markers in print
STYLES = {
    "fna": (BLUE, "o"),
    "la": (GREEN, "s"),
    "dp": (ORANGE, "^"),
    "uniform": (GRAY, "D"),
    "qknorm": (ORANGE, "v"),
    "learned": (BLUE, "P"),
    "gaussian": (PURPLE, "v"),
    "baseline": (GRAY, "x"),
}
# characters of a line of a label below the horizontal axis
LABEL_WIDTH = 13


def panels(count: int, width: float = 4.4, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` axes in a row."""
    figure = Figure(figsize=(width * count, height), layout="constrained")
    axes = [figure.add_subplot(1, count, position + 1) for position in range(count)]
    for panel in axes:
        panel.grid(alpha=0.3)
    return figure, axes


def legend(axes: Axes, size: int = 8) -> None:
    """Add a legend if anything is drawn; runs may be missing."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=size)


def curve(axes: Axes, name: str, x: Sequence[float], y: Sequence[float], label: str, *, dashed: bool = False) -> None:
    """Draw one curve in the style of an attention."""
    color, marker = STYLES[name]
    axes.plot(x, y, "--" if dashed else "-", color=color, marker=marker, markersize=4, label=label)


def draw_rows(axes: Axes, rows: Sequence[Row], names: Sequence[str], ylabel: str) -> None:
    """Draw our means with their intervals, and the paper's values as black bars."""
    for position, (row, name) in enumerate(zip(rows, names, strict=True)):
        color, marker = STYLES[name]
        if row.ours is not None:
            axes.errorbar(
                [position], [row.ours], [row.half_width or 0.0], fmt=marker, color=color, capsize=4, markersize=6
            )
        if isinstance(row.paper, tuple):
            axes.fill_between([position - 0.3, position + 0.3], *row.paper, color="black", alpha=0.2, linewidth=0)
        elif row.paper is not None:
            axes.plot([position - 0.3, position + 0.3], [row.paper] * 2, color="black", linewidth=2)
    axes.set_xticks(range(len(rows)), [_in_lines(row.label) for row in rows], fontsize=8)
    axes.set_xlim(-0.6, len(rows) - 0.4)
    axes.set_ylabel(ylabel)
    if any(row.paper is not None for row in rows):
        axes.plot([], [], color="black", linewidth=2, label="paper")
    legend(axes)


def _in_lines(label: str) -> str:
    """Return a label in lines that are narrow enough to stand side by side."""
    parts = label.replace(" (", "\n(").replace(", ", "\n").split("\n")
    return "\n".join(line for part in parts for line in textwrap.wrap(part, LABEL_WIDTH))


def draw_epochs(axes: Axes, curves: Mapping[str, tuple[str, Mapping[int, float]]], ylabel: str) -> None:
    """Draw curves by epoch; ``curves`` maps a label to (attention, {epoch: value})."""
    for label, (name, values) in curves.items():
        curve(axes, name, [epoch + 1 for epoch in values], list(values.values()), label, dashed=label.startswith("op"))
    axes.set(xlabel="epoch", ylabel=ylabel)
    legend(axes)
