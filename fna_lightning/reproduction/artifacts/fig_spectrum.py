"""Weyl's law on the circle: lambda_j grows as j^alpha."""

import torch

from fna_lightning.graph import log_log_slope, weyl_spectrum
from fna_lightning.reproduction.artifact import Finding, Piece, Row
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import curve, legend, panels
from fna_lightning.reproduction.published import paper

NAMES = {"1.2": "fna", "2": "la"}


def run(bench: Bench) -> Finding:
    """Compute slopes at the paper's size."""
    said = paper()["spectrum"]
    finding = Finding()
    figure, (axes,) = panels(1, 5.2)
    for alpha, slopes in said["slopes"].items():
        values = weyl_spectrum(float(alpha))
        curve(axes, NAMES[alpha], list(range(1, 121)), values[1:121].tolist(), f"alpha = {alpha}")
        rank = torch.arange(5, 121, dtype=torch.float64)
        law = values[10] * (rank / 10) ** float(alpha)
        axes.plot(rank, law, ":", color="black", linewidth=1)
        for (first, last), slope in zip(said["windows"], slopes, strict=True):
            ours = log_log_slope(values, first, last)
            label = f"slope, alpha = {alpha}, j = {first} ... {last}"
            finding.rows.append(Row(label, ours, slope, tolerance=said["tolerance"], digits=3))
    axes.set(xscale="log", yscale="log", xlabel="j", ylabel="eigenvalue lambda_j")
    legend(axes)
    finding.figures[bench.save(figure, "spectrum")] = (
        "Eigenvalues on 500 points of the circle; dotted: j^alpha through j = 10."
    )
    finding.notes.append(
        "500 equispaced points, kappa = sqrt(eps), eps = 1e-4. The law says alpha; the slopes are what it comes to at "
        "this size, and they tend to alpha as n grows and eps falls."
    )
    return finding


PIECE = Piece(
    "fig-spectrum", "Weyl's law on the circle", "Eigenvalues grow as j^alpha, by alpha = 1.2 as by alpha = 2.", run
)
