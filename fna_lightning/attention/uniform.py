"""Uniform attention, the control: every visible key has the same weight."""

import torch
from torch import Tensor

from fna_lightning.attention.base import Attention


class Uniform(Attention):
    """The mean of the visible values: what any attention must beat to have looked at the tokens at all."""

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        # attached to q and k, so that their gradient exists and is 0
        return (q.sum(dim=-1, keepdim=True) + k.sum(dim=-1)[..., None, :]).expand(*shape, -1, -1) * 0.0

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q * 0.0, k * 0.0, 1.0
