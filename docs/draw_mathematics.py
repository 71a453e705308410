"""Draws the figures of mathematics.md with this package: python docs/draw_mathematics.py."""

from pathlib import Path

import torch
from matplotlib.figure import Figure

from fna_lightning import attention_weights
from fna_lightning.attention import Fractional
from fna_lightning.graph import row_entropy, weyl_spectrum
from fna_lightning.plotting.style import BLUE, GREEN, ORANGE, styled

IMAGES = Path(__file__).parent / "images"
ALPHAS = (1.2, 1.6, 2.0)
COLORS = (BLUE, ORANGE, GREEN)


@styled()
def kernels() -> Figure:
    """Kernel against distance; on logarithmic axes a power law is a straight line."""
    figure = Figure(figsize=(8, 3.2), dpi=110, layout="constrained")
    axes = figure.subplots(1, 2)
    distance = torch.logspace(-2, 2, 400)
    for alpha, color in zip(ALPHAS, COLORS, strict=True):
        attention = Fractional(alpha, kappa=1.0, intrinsic_dim=1.0)
        kernel = attention.log_profile(distance, 1.0, 1.0 + alpha).exp()
        for panel in axes:
            panel.plot(distance, kernel, color=color, label=f"alpha = {alpha:g}")
    axes[0].set(xlim=(0, 5), xlabel="distance / kappa", ylabel="kernel")
    axes[1].set(xscale="log", yscale="log", ylim=(1e-6, 2), xlabel="distance / kappa")
    axes[0].legend()
    for panel in axes:
        panel.grid(alpha=0.3)
    return figure


@styled()
def clusters() -> Figure:
    """Attention between three clusters of tokens; only the power law connects the clusters."""
    generator = torch.Generator().manual_seed(0)
    means = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 3.0**0.5]]).repeat_interleave(6, dim=0)
    x = (means + 0.5 * torch.randn(18, 2, generator=generator)).double()
    figure = Figure(figsize=(8, 3.2), dpi=110, layout="constrained")
    for axes, alpha in zip(figure.subplots(1, 2), (1.2, 2.0), strict=True):
        weights = attention_weights(x, x, alpha=alpha, kappa=1.0)
        for i in range(18):
            for j in range(18):
                if i != j and weights[i, j] > 1e-4:
                    axes.plot(*x[[i, j]].T, color=BLUE, alpha=min(1.0, float(4 * weights[i, j])), linewidth=1)
        axes.scatter(*x.T, color=ORANGE, s=25, zorder=3)
        between = weights[:6, 6:].sum(-1).mean().item()
        axes.set(title=f"alpha = {alpha:g}: {between:.1e} of a row leaves the cluster", xticks=[], yticks=[])
    return figure


@styled()
def weyl() -> Figure:
    """Spectrum of attention on a circle, which grows as j to the power alpha."""
    figure = Figure(figsize=(4.6, 3.4), dpi=110, layout="constrained")
    axes = figure.subplots()
    for alpha, color in zip(ALPHAS, COLORS, strict=True):
        values = weyl_spectrum(alpha)
        j = torch.arange(1, 101)
        axes.loglog(j, values[1:101], ".", color=color, markersize=3, label=f"alpha = {alpha:g}")
        axes.loglog(j, values[10] * (j / 10.0) ** alpha, color=color, linewidth=1, alpha=0.6)
    axes.set(xlabel="j", ylabel="eigenvalue of the generator")
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


@styled()
def scale() -> Figure:
    """Row entropy against kappa, from the sharpest power law to uniform attention."""
    generator = torch.Generator().manual_seed(0)
    figure = Figure(figsize=(4.6, 3.4), dpi=110, layout="constrained")
    axes = figure.subplots()
    kappas = torch.logspace(-2, 4, 40)
    for width, color in ((8, BLUE), (64, GREEN)):
        q, k = torch.randn(2, 1, 64, width, generator=generator).double().unbind()
        entropy = [row_entropy(Fractional(1.2, kappa.item()).weights(q, k)).item() for kappa in kappas]
        axes.semilogx(kappas, entropy, color=color, label=f"d_H = {width}")
        for rule, style in (("text", ":"), ("vision", "--")):
            axes.axvline(Fractional(1.2, rule).scale(q), color=color, linestyle=style, linewidth=1)
    axes.set(xlabel="kappa (dotted: text rule, dashed: vision rule)", ylabel="row entropy / log n")
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


FIGURES = (kernels, clusters, weyl, scale)

if __name__ == "__main__":
    for draw in FIGURES:
        draw().savefig(IMAGES / f"{draw.__name__}.png")
