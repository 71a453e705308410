"""Weyl's law on the circle: lambda_j grows as j^alpha."""

import torch

from fna_lightning.graph import log_log_slope, weyl_spectrum
from fna_lightning.reproduction.artifact import Artifact, Result, Row
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import curve, legend, panels
from fna_lightning.reproduction.paper import paper_values

STYLE_OF_ALPHA = {"1.2": "fna", "2": "la"}


def run(context: Context) -> Result:
    """Compute the slopes for the paper's number of points."""
    published = paper_values()["spectrum"]
    result = Result()
    figure, (axes,) = panels(1, 5.2)
    for alpha, slopes in published["slopes"].items():
        eigenvalues = weyl_spectrum(float(alpha))
        curve(axes, STYLE_OF_ALPHA[alpha], list(range(1, 121)), eigenvalues[1:121].tolist(), f"alpha = {alpha}")
        rank = torch.arange(5, 121, dtype=torch.float64)
        power_law = eigenvalues[10] * (rank / 10) ** float(alpha)
        axes.plot(rank, power_law, ":", color="black", linewidth=1)
        for (first, last), slope in zip(published["windows"], slopes, strict=True):
            ours = log_log_slope(eigenvalues, first, last)
            label = f"slope, alpha = {alpha}, j = {first} ... {last}"
            result.rows.append(Row(label, ours, slope, tolerance=published["tolerance"], digits=3))
    axes.set(xscale="log", yscale="log", xlabel="j", ylabel="eigenvalue lambda_j")
    legend(axes)
    result.figures[context.save(figure, "spectrum")] = (
        "Eigenvalues for 500 points on the circle; dotted: j^alpha through j = 10."
    )
    result.notes.append(
        "500 equispaced points, kappa = sqrt(eps), eps = 1e-4. The asymptotic slope is alpha; the slopes in the table "
        "are those at this size, and they tend to alpha as n grows and eps decreases."
    )
    return result


ARTIFACT = Artifact(
    "fig-spectrum", "Weyl's law on the circle", "Eigenvalues grow as j^alpha, for alpha = 1.2 and for alpha = 2.", run
)
