"""Attention rollout: where information of the last layer comes from (Abnar and Zuidema, 2020)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fna_lightning.graph.checks import check_walks


def rollout(layers: Sequence[Tensor] | Tensor, lengths: Tensor | None = None, *, residual: float = 0.5) -> Tensor:
    """Return the product of (1 - residual) A + residual I over the layers, last layer leftmost.

    Row i of the result says how much of each input token is in output i, if the residual stream carries ``residual``
    of a token past each layer. Average heads before, or roll each head out on its own.

    Args:
        layers: the weights of each layer, first layer first, each (..., n, n).
        lengths: real tokens of each sequence, see ``check_walks``; padding gets weight 0.
        residual: share of the residual connection, in [0, 1].

    Returns:
        float64 (..., n, n), row-stochastic as the layers are.
    """
    if not 0.0 <= residual <= 1.0:
        raise ValueError(f"residual must lie in [0, 1], got {residual}; 0.5 weighs a layer and its bypass the same")
    if len(layers) == 0:
        raise ValueError("rollout needs at least one layer, got 0; pass the weights of each layer, first layer first")
    result: Tensor | None = None
    for layer in layers:
        walks = check_walks(layer, lengths)
        step = torch.zeros(walks.matrices.shape, dtype=torch.float64)
        for where, block in walks.blocks():
            n = block.size(-1)
            step[where, :n, :n] = (1.0 - residual) * block + residual * torch.eye(n, dtype=torch.float64)
        step = walks.restore(step)
        if result is not None and result.shape != step.shape:
            raise ValueError(f"layers must agree in shape, got {tuple(result.shape)} and {tuple(step.shape)}")
        result = step if result is None else step @ result
    assert result is not None
    return result
