"""The theorem's check: attention as t -> 0 on a density that is not uniform."""

import numpy as np
import torch

from fna_lightning.attention import attention_weights
from fna_lightning.reproduction.artifact import Finding, Piece, Row
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import LOOKS, legend, panels
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
COLOURS = dict(zip(ALPHAS, (LOOKS[name][0] for name in ("fna", "gaussian", "dp", "la")), strict=True))
TOKENS, KAPPA = 2000, 0.1


def run(bench: Bench) -> Finding:
    """Measure orders of convergence, and hold the calculation against real attention weights."""
    finding = Finding()
    figure, axes = panels(2, 4.6)
    for place, space in enumerate(SPACES):
        for alpha in ALPHAS:
            errors = [generator_error(alpha, kappa, space) for kappa in KAPPAS]
            times = [kappa**alpha for kappa in KAPPAS]
            axes[place].loglog(times, errors, "o-", color=COLOURS[alpha], markersize=4, label=f"alpha = {alpha:g}")
            order = measured_order(alpha, space)
            label = f"order in t on the {space}, alpha = {alpha:g}"
            finding.rows.append(Row(label, order, expected_order(alpha), tolerance=0.02, digits=3))
        axes[place].set(xlabel="t", ylabel="relative error", title=space)
        legend(axes[place])
    for alpha in (1.2, 2.0):
        x, change = attention_step(TOKENS, alpha, KAPPA, weights)
        exact = generator_step(alpha, KAPPA, "circle", x)
        apart = float(np.abs(change - exact).max() / np.abs(exact).max())
        label = f"attention of {TOKENS} tokens against the integral, kappa = {KAPPA:g}, alpha = {alpha:g}"
        finding.rows.append(Row(label, apart, 0.0, tolerance=0.01, digits=4))
    finding.figures[bench.save(figure, "generator")] = (
        "Error of (A f - f) / t against its limit; density 1 + cos(x) / 2, f = sin(x) + cos(2x) / 2."
    )
    finding.notes.append(
        "The limit is -(alpha/2) [M(f rho) - f M(rho)] / rho. On the line, where every token has its copies at 2 pi m, "
        "M = C (-Laplace)^(alpha/2) with C = pi / (Gamma(1+alpha) sin(pi alpha/2)): the lemma's expression with its "
        "constant. On the circle with its geodesic distance M lacks the integral over |h| > pi, a bounded operator "
        "(at alpha = 1.2 it takes 16 % from the first frequency and 3 % from the fourth). For alpha = 2 the limit is "
        "[(f rho)'' - f rho''] / (4 rho). Expected orders in t: 2/alpha - 1, and 1 for alpha = 2: near alpha = 2 the "
        "power law converges very slowly. Orders are measured between kappa = 1e-5 and 1e-6."
    )
    return finding


def weights(points: np.ndarray, alpha: float, kappa: float) -> np.ndarray:
    """Return the attention weights of tokens at angles ``points`` by this library."""
    angle = torch.from_numpy(points)
    x = torch.stack([angle.cos(), angle.sin()], dim=-1)
    return attention_weights(x, x, alpha=alpha, kappa=kappa, manifold="sphere", intrinsic_dim=1.0).numpy()


PIECE = Piece(
    "generator",
    "The generator of attention (theorem)",
    "(A f - f) / t tends to the fractional Laplacian expression as t -> 0, on any density of tokens.",
    run,
)
