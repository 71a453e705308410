"""Example of an attention: implement ``log_kernel``; the base class adds masks, normalization and kernels."""

import torch
from torch import Tensor

from fna_lightning.attention import Attention


class Cauchy(Attention):
    """Attention with the Cauchy kernel: the unnormalized weight of a key is 1 / (1 + (distance / kappa)^2).

    Args:
        kappa: the distance at which the weight is half of its maximum.
    """

    def __init__(self, kappa: float = 1.0) -> None:
        super().__init__()
        if not kappa > 0.0:
            raise ValueError(f"kappa must be positive, got {kappa}")
        self.kappa = kappa

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        return -torch.log1p((torch.cdist(q, k) / self.kappa).square())

    def extra_repr(self) -> str:
        return f"kappa={self.kappa:g}"
