"""An attention is a class with ``log_kernel``; masks, normalisation and the general kernels come with the base."""

import torch
from torch import Tensor

from fna_lightning.attention import Attention


class Cauchy(Attention):
    """Attention by the Cauchy kernel: the weight of a key is 1 / (1 + (distance / kappa)^2).

    Args:
        kappa: the distance at which the weight has halved.
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
