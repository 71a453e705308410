"""Numerical check of the theorem: the limit of attention as t -> 0 on a non-uniform density."""

import numpy as np
import torch

from fna_lightning.attention import attention_weights
from fna_lightning.reproduction.artifact import Artifact, Result, Row
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import STYLES, legend, panels
from fna_lightning.reproduction.generator import (
    SPACES,
    attention_step,
    expected_order,
    generator_error,
    generator_step,
    measured_order,
)

ALPHAS = (1.2, 1.5, 1.8, 2.0)
KAPPAS = tuple(10.0**-power for power in range(1, 7))
COLORS = dict(zip(ALPHAS, (STYLES[name][0] for name in ("fna", "gaussian", "dp", "la")), strict=True))
TOKENS, KAPPA = 2000, 0.1


def run(context: Context) -> Result:
    """Measure orders of convergence, and compare the calculation with this library's attention weights."""
    result = Result()
    figure, axes = panels(2, 4.6)
    for panel, space in zip(axes, SPACES, strict=True):
        for alpha in ALPHAS:
            errors = [generator_error(alpha, kappa, space) for kappa in KAPPAS]
            times = [kappa**alpha for kappa in KAPPAS]
            panel.loglog(times, errors, "o-", color=COLORS[alpha], markersize=4, label=f"alpha = {alpha:g}")
            order = measured_order(alpha, space)
            label = f"order in t on the {space}, alpha = {alpha:g}"
            result.rows.append(Row(label, order, expected_order(alpha), tolerance=0.02, digits=3))
        panel.set(xlabel="t", ylabel="relative error", title=space)
        legend(panel)
    for alpha in (1.2, 2.0):
        x, change = attention_step(TOKENS, alpha, KAPPA, weights)
        exact = generator_step(alpha, KAPPA, "circle", x)
        error = float(np.abs(change - exact).max() / np.abs(exact).max())
        label = f"attention of {TOKENS} tokens against the integral, kappa = {KAPPA:g}, alpha = {alpha:g}"
        result.rows.append(Row(label, error, 0.0, tolerance=0.01, digits=4))
    result.figures[context.save(figure, "generator")] = (
        "Error of (A f - f) / t against its limit; density 1 + cos(x) / 2, f = sin(x) + cos(2x) / 2."
    )
    result.notes.append(
        "The limit is -(alpha/2) [M(f rho) - f M(rho)] / rho. On the line, where every token has copies at 2 pi m, "
        "M = C (-Laplace)^(alpha/2) with C = pi / (Gamma(1+alpha) sin(pi alpha/2)): the lemma's expression with its "
        "constant. On the circle with its geodesic distance, M lacks the integral over |h| > pi, a bounded operator "
        "(at alpha = 1.2 this reduces the first frequency by 16 % and the fourth by 3 %). For alpha = 2 the limit is "
        "[(f rho)'' - f rho''] / (4 rho). The expected order in t is 2/alpha - 1, and 1 for alpha = 2, so the power "
        "law converges very slowly near alpha = 2. Orders are measured between kappa = 1e-5 and 1e-6."
    )
    return result


def weights(points: np.ndarray, alpha: float, kappa: float) -> np.ndarray:
    """Return this library's attention weights of tokens at the angles ``points``."""
    angle = torch.from_numpy(points)
    x = torch.stack([angle.cos(), angle.sin()], dim=-1)
    return attention_weights(x, x, alpha=alpha, kappa=kappa, manifold="sphere", intrinsic_dim=1.0).numpy()


ARTIFACT = Artifact(
    "generator",
    "The generator of attention (theorem)",
    "(A f - f) / t tends to the fractional Laplacian expression as t -> 0, for any density of tokens.",
    run,
)
