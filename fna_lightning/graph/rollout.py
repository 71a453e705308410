"""Attention rollout (Abnar and Zuidema, 2020): how much each input token contributes to the last layer's outputs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fna_lightning.graph.checks import check_weights


def rollout(layers: Sequence[Tensor] | Tensor, lengths: Tensor | None = None, *, residual: float = 0.5) -> Tensor:
    """Return the product of (1 - residual) A + residual I over the layers, last layer leftmost.

    Row i of the result is the share of each input token in output i, if the residual connection carries the share
    ``residual`` of each token past each layer. Average the heads first, or roll out each head separately.

    Args:
        layers: the weights of each layer, first layer first, each (..., n, n).
        lengths: number of real tokens of each sequence, see ``check_weights``; padding gets weight 0.
        residual: share of the residual connection, in [0, 1].

    Returns:
        float64 (..., n, n), row-stochastic as the layers are.
    """
    if not 0.0 <= residual <= 1.0:
        raise ValueError(f"residual must lie in [0, 1], got {residual}; 0.5 weighs attention and residual equally")
    if len(layers) == 0:
        raise ValueError("rollout needs at least one layer, got 0; pass the weights of each layer, first layer first")
    result: Tensor | None = None
    for layer in layers:
        matrices = check_weights(layer, lengths)
        mixed = torch.zeros(matrices.values.shape, dtype=torch.float64)
        for indices, block in matrices.blocks():
            n = block.size(-1)
            mixed[indices, :n, :n] = (1.0 - residual) * block + residual * torch.eye(n, dtype=torch.float64)
        mixed = matrices.restore(mixed)
        if result is not None and result.shape != mixed.shape:
            raise ValueError(f"layers must agree in shape, got {tuple(result.shape)} and {tuple(mixed.shape)}")
        result = mixed if result is None else mixed @ result
    assert result is not None
    return result
