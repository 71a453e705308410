"""Time and memory against the length of the sequence, on logarithmic axes, with their slopes."""

from collections.abc import Mapping
from pathlib import Path

import torch

from fna_lightning.graph import fit_slope


def slope(points: Mapping[int, float]) -> float | None:
    """Return the slope of log y over log n by least squares; None for fewer than two positive points."""
    positive = {n: y for n, y in points.items() if y > 0.0}
    if len(positive) < 2:
        return None
    return fit_slope(torch.tensor(list(positive)), torch.tensor(list(positive.values()), dtype=torch.float64))


def plot(path: Path, panels: Mapping[str, Mapping[str, Mapping[int, float]]]) -> None:
    """Write a PNG with one panel for each quantity, and in it one line for each name, {n: value}."""
    from matplotlib.figure import Figure

    from fna_lightning.plotting.style import COLORS, styled

    with styled():
        figure = Figure(figsize=(5.0 * len(panels), 4.6), dpi=120, layout="constrained")
        for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            for number, (name, points) in enumerate(lines.items()):
                shown = {n: y for n, y in points.items() if y > 0.0}
                steep = slope(shown)
                label = name if steep is None else f"{name} (slope {steep:.2f})"
                # the second round of colors has dashed lines
                line = "-" if number < len(COLORS) else "--"
                axes.loglog(list(shown), list(shown.values()), line, marker="o", label=label)
            axes.set(xlabel="tokens n", title=title)
            axes.grid(visible=True, which="both", alpha=0.3)
            # below: nowhere inside is free of lines for certain
            axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14))
        figure.savefig(path, bbox_inches="tight")
