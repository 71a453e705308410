"""Attention weights between eighteen tokens in three clusters."""

import math

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from fna_lightning.attention import attention_weights
from fna_lightning.reproduction.artifact import Artifact, Result, Row, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import STYLES, panels
from fna_lightning.reproduction.paper import paper_values

MEANS = ((3.0, 0.0), (-3.0, 0.0), (0.0, math.sqrt(3.0)))
TOKENS_PER_CLUSTER = 6
DRAWS = 200
KAPPA = math.sqrt(0.1)
ALPHAS = {"fna": 1.2, "la": 2.0}


def tokens(seed: int) -> Tensor:
    """Return (18, 2) points from three Gaussians of covariance 1/4."""
    means = np.repeat(MEANS, TOKENS_PER_CLUSTER, axis=0)
    return torch.from_numpy(means + 0.5 * np.random.default_rng(seed).normal(size=means.shape))


def pairs_across_clusters() -> Tensor:
    """Return the (18, 18) mask of pairs in different clusters."""
    cluster = torch.arange(len(MEANS) * TOKENS_PER_CLUSTER) // TOKENS_PER_CLUSTER
    return cluster[:, None] != cluster


def run(context: Context) -> Result:
    """Draw one sample, and count connected pairs over many."""
    threshold = float(paper_values()["tokens"]["threshold"])
    result, lines = Result(), []
    figure, axes = panels(2, 4.8, 2.6)
    across = pairs_across_clusters()
    for panel, (name, alpha) in zip(axes, ALPHAS.items(), strict=True):
        sample = tokens(0)
        _draw(panel, sample, attention_weights(sample, sample, alpha=alpha, kappa=KAPPA), threshold, name)
        panel.set_title(f"alpha = {alpha:g}")
        for kappa in (KAPPA, "text"):
            weights = torch.stack(
                [attention_weights(x, x, alpha=alpha, kappa=kappa)[across] for x in map(tokens, range(DRAWS))]
            )
            connected = (weights >= threshold).double().mean().item()
            if kappa == KAPPA:
                result.rows += _rows(name, alpha, weights, connected, threshold)
            kappa_label = "sqrt(0.1)" if kappa == KAPPA else "the rule for text"
            numbers = [f"{value.item():.1e}" for value in (weights.min(), weights.median(), weights.max())]
            lines.append([f"alpha = {alpha:g}", kappa_label, f"{connected:.3f}", *numbers])
    columns = ["", "kappa", "connected", "smallest", "median", "largest"]
    result.tables.append(Table(f"weights between clusters, {DRAWS} samples", columns, lines))
    result.figures[context.save(figure, "tokens")] = (
        f"Weights of at least {threshold:g} in one sample; wider lines are larger weights."
    )
    result.notes.append(
        f"Connected: a weight of at least {threshold:g}, the paper's drawing threshold. The paper gives no kappa; with "
        "sqrt(0.1) the smallest weight of FNA is the one the paper states. The tolerance of 1e-5 is the spread between "
        "samples. With the rule for text the Gaussian also connects clusters, so what vanishes with alpha = 2 depends "
        "on kappa."
    )
    return result


def _rows(name: str, alpha: float, weights: Tensor, connected: float, threshold: float) -> list[Row]:
    label = f"share of pairs of different clusters that are connected, alpha = {alpha:g}"
    rows = [Row(label, connected, 1.0 if name == "fna" else 0.0, tolerance=0.05, digits=3)]
    if name == "fna":
        smallest = weights.amin(dim=1).median().item() * 1e5
        label = "smallest weight times 1e5, alpha = 1.2, median over samples"
        rows.append(Row(label, smallest, threshold * 1e5, tolerance=1.0))
    return rows


def _draw(panel: Axes, x: Tensor, weights: Tensor, threshold: float, name: str) -> None:
    for i in range(len(x)):
        for j in range(i):
            weight = max(weights[i, j].item(), weights[j, i].item())
            if weight >= threshold:
                width = 0.3 + 0.5 * math.log10(weight / threshold)
                panel.plot(*x[[i, j]].T, color=STYLES[name][0], linewidth=width, alpha=0.5, zorder=1)
    panel.scatter(x[:, 0], x[:, 1], color="black", s=18, zorder=2)
    panel.set_aspect("equal")


ARTIFACT = Artifact(
    "fig-tokens",
    "Eighteen tokens in three clusters",
    "There are weights between clusters with alpha = 1.2 and none with alpha = 2.",
    run,
)
