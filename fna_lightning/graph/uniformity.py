"""How close attention is to uniform; read these beside the spectral gap, which is largest for uniform attention."""

import math

import torch
from torch import Tensor

from fna_lightning.graph.checks import check_weights


def row_entropy(weights: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the mean entropy of the rows divided by log n: 1 for uniform attention, 0 if each query has one key.

    A sequence of one token has entropy 1. Arguments as in ``spectral_gap``.
    """

    def entropy(block: Tensor) -> Tensor:
        n = block.size(-1)
        return torch.special.entr(block).sum(dim=-1).mean(dim=-1) / math.log(n) if n > 1 else block.new_ones(len(block))

    return check_weights(weights, lengths).scalars(entropy)


def tv_to_uniform(weights: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the mean total-variation distance of the rows to uniform: 0 for uniform, 1 - 1/n for one key per query.

    Arguments as in ``spectral_gap``.
    """

    def distance(block: Tensor) -> Tensor:
        return (block - 1.0 / block.size(-1)).abs().sum(dim=-1).mean(dim=-1) / 2

    return check_weights(weights, lengths).scalars(distance)


def effective_rank(weights: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the exponential of the entropy of the singular values, scaled to sum 1 (Roy and Vetterli, 2007).

    1 for uniform attention, n for a permutation. Arguments as in ``spectral_gap``.
    """

    def rank(block: Tensor) -> Tensor:
        values = torch.linalg.svdvals(block)
        return torch.special.entr(values / values.sum(dim=-1, keepdim=True)).sum(dim=-1).exp()

    return check_weights(weights, lengths).scalars(rank)


def effective_neighbors(weights: Tensor) -> Tensor:
    """Return the exponential of the entropy of each row: the number of keys that share the weight of a query.

    1 if a query attends to one key, m if it attends to m keys equally. Keys with weight 0 (padding) do not count.

    Args:
        weights: (..., n, m) attention weights; queries and keys may be different tokens.

    Returns:
        (..., n) numbers.
    """
    if weights.dim() < 2:
        raise ValueError(f"weights must be (..., n, m), got {tuple(weights.shape)}")
    return torch.special.entr(weights.detach().double()).sum(dim=-1).exp()
