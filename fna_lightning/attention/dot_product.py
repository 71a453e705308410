"""Dot-product attention, the baseline: softmax(q k / sqrt(d_H)) (Vaswani et al., 2017)."""

from torch import Tensor

from fna_lightning.attention.base import Attention


class DotProduct(Attention):
    """The Transformer's own attention, in the code path of all others."""

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT) * q.size(-1) ** -0.5

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q, k, q.size(-1) ** -0.5
