"""Eighteen tokens in three clusters: who attends to whom."""

import math

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from fna_lightning.attention import attention_weights
from fna_lightning.reproduction.artifact import Finding, Piece, Row, Table
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import LOOKS, panels
from fna_lightning.reproduction.published import paper

MEANS = ((3.0, 0.0), (-3.0, 0.0), (0.0, math.sqrt(3.0)))
EACH = 6
DRAWS = 200
KAPPA = math.sqrt(0.1)
ALPHAS = {"fna": 1.2, "la": 2.0}


def tokens(seed: int) -> Tensor:
    """Return (18, 2) points from three Gaussians of covariance 1/4."""
    means = np.repeat(MEANS, EACH, axis=0)
    return torch.from_numpy(means + 0.5 * np.random.default_rng(seed).normal(size=means.shape))


def between() -> Tensor:
    """Return the (18, 18) mask of pairs of different clusters."""
    cluster = torch.arange(len(MEANS) * EACH) // EACH
    return cluster[:, None] != cluster


def run(bench: Bench) -> Finding:
    """Draw one cloud, and count joined pairs over many."""
    threshold = float(paper()["tokens"]["threshold"])
    finding = Finding()
    figure, axes = panels(2, 4.8, 2.6)
    across = between()
    lines = []
    for place, (name, alpha) in enumerate(ALPHAS.items()):
        _draw(
            axes[place], tokens(0), attention_weights(tokens(0), tokens(0), alpha=alpha, kappa=KAPPA), threshold, name
        )
        axes[place].set_title(f"alpha = {alpha:g}")
        for rule in (KAPPA, "text"):
            found = [attention_weights(x, x, alpha=alpha, kappa=rule)[across] for x in map(tokens, range(DRAWS))]
            weights = torch.stack(found)
            joined = (weights >= threshold).double().mean().item()
            if rule == KAPPA:
                expected = 1.0 if name == "fna" else 0.0
                label = f"share of pairs of different clusters that are joined, alpha = {alpha:g}"
                finding.rows.append(Row(label, joined, expected, tolerance=0.05, digits=3))
                if name == "fna":
                    smallest = weights.amin(dim=1).median().item() * 1e5
                    label = "smallest weight times 1e5, alpha = 1.2, median of clouds"
                    finding.rows.append(Row(label, smallest, threshold * 1e5, tolerance=1.0))
            scale = "sqrt(0.1)" if rule == KAPPA else "the rule for text"
            numbers = [weights.min(), weights.median(), weights.max()]
            lines.append([f"alpha = {alpha:g}", scale, f"{joined:.3f}", *(f"{one.item():.1e}" for one in numbers)])
    columns = ["", "kappa", "joined", "smallest", "median", "largest"]
    finding.tables.append(Table(f"weights between clusters, {DRAWS} clouds", columns, lines))
    finding.figures[bench.save(figure, "tokens")] = f"Weights of at least {threshold:g} in one cloud; wider is more."
    finding.notes.append(
        f"Joined: a weight of at least {threshold:g}, the paper's drawing threshold. The paper gives no kappa; "
        "sqrt(0.1) makes FNA's smallest weight what the paper says. The tolerance of 1e-5 is the spread between "
        "clouds. With the rule for text the Gaussian joins clusters too: what vanishes with alpha = 2 depends on kappa."
    )
    return finding


def _draw(axes: Axes, x: Tensor, weights: Tensor, threshold: float, name: str) -> None:
    for i in range(len(x)):
        for j in range(i):
            weight = max(weights[i, j].item(), weights[j, i].item())
            if weight >= threshold:
                width = 0.3 + 0.5 * math.log10(weight / threshold)
                axes.plot(*x[[i, j]].T, color=LOOKS[name][0], linewidth=width, alpha=0.5, zorder=1)
    axes.scatter(x[:, 0], x[:, 1], color="black", s=18, zorder=2)
    axes.set_aspect("equal")


PIECE = Piece(
    "fig-tokens",
    "Eighteen tokens in three clusters",
    "Between clusters there are weights by alpha = 1.2 and none by alpha = 2.",
    run,
)
