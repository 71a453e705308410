"""Row-stochastic matrices: some with known eigenvalues, some random from a seed."""

import math

import torch
from torch import Tensor

from fna_lightning import attention_weights


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_matrix(n: int, seed: int, *, sharpness: float = 1.0, tied: bool = False) -> Tensor:
    """Return a float64 row-stochastic matrix with positive entries; tied ones are reversible."""
    logits = sharpness * torch.randn(n, n, generator=generator(seed), dtype=torch.float64)
    return ((logits + logits.mT) / math.sqrt(2) if tied else logits).softmax(dim=-1)


def tokens(n: int, width: int, seed: int) -> Tensor:
    return torch.randn(n, width, generator=generator(seed), dtype=torch.float64)


def attention(name: str, n: int, seed: int, *, width: int = 16, tied: bool = False) -> Tensor:
    """Return the attention of random tokens: "fna" (text kappa), "sharp" (kappa 1), "gauss" (alpha 2) or "dot"."""
    q = tokens(n, width, seed)
    k = q if tied else tokens(n, width, seed + 1)
    if name == "dot":
        return (q @ k.mT / math.sqrt(width)).softmax(dim=-1)
    alpha = 2.0 if name == "gauss" else 1.2
    return attention_weights(q, k, alpha=alpha, kappa=1.0 if name == "sharp" else "text")


def ring(n: int) -> Tensor:
    """Return the walk on a ring with one step to either neighbor: eigenvalues cos(2 pi k / n)."""
    matrix = torch.zeros(n, n, dtype=torch.float64)
    i = torch.arange(n)
    matrix[i, (i + 1) % n] += 0.5
    matrix[i, (i - 1) % n] += 0.5
    return matrix


def directed_ring(n: int, stay: float) -> Tensor:
    """Return a ring that stays or steps forward: complex eigenvalues stay + (1 - stay) exp(2 pi i k / n)."""
    matrix = stay * torch.eye(n, dtype=torch.float64)
    i = torch.arange(n)
    matrix[i, (i + 1) % n] += 1 - stay
    return matrix


def two_clusters(size: int, leave: float) -> Tensor:
    """Return two clusters, uniform inside, that switch with probability ``leave``: eigenvalues 1, 1 - 2 leave, 0."""
    inside = torch.full((size, size), (1 - leave) / size, dtype=torch.float64)
    across = torch.full((size, size), leave / size, dtype=torch.float64)
    return torch.cat([torch.cat([inside, across], dim=1), torch.cat([across, inside], dim=1)])
