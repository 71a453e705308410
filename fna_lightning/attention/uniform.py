"""Uniform attention, the control: every allowed key has the same weight."""

import torch
from torch import Tensor

from fna_lightning.attention.base import Attention


class Uniform(Attention):
    """The mean of the allowed values; an attention that is no better makes no use of queries and keys."""

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        # Computed from q and k, so that their gradient exists and is 0.
        return (q.sum(dim=-1, keepdim=True) + k.sum(dim=-1)[..., None, :]).expand(*shape, -1, -1) * 0.0

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q * 0.0, k * 0.0, 1.0
