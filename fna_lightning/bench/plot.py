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
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(6.0 * len(panels), 5.5), squeeze=False)
    for axis, (title, lines) in zip(axes[0], panels.items(), strict=True):
        for name, points in lines.items():
            shown = {n: y for n, y in points.items() if y > 0.0}
            steep = slope(shown)
            label = name if steep is None else f"{name} (slope {steep:.2f})"
            axis.loglog(list(shown), list(shown.values()), marker="o", label=label)
        axis.set(xlabel="tokens n", title=title)
        axis.grid(visible=True, which="both", alpha=0.3)
        # below: nowhere inside is free of lines for certain
        axis.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
