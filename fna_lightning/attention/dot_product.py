"""Dot-product attention, the baseline: softmax(q k / sqrt(d_H)) (Vaswani et al., 2017)."""

from torch import Tensor

from fna_lightning.attention.base import Attention


class DotProduct(Attention):
    """Dot-product attention of the Transformer, in the same code path as the other attentions.

    Args:
        scale: factor of the dot products; None is d_H^-1/2.
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether tokens may not attend to themselves.
        density_power: exponent of the generalized normalization, see ``Attention``.
        kernel: the implementation, see ``Attention``.
    """

    def __init__(
        self,
        scale: float | None = None,
        *,
        dropout: float = 0.0,
        exclude_self: bool = False,
        density_power: float = 0.0,
        kernel: str = "auto",
    ) -> None:
        super().__init__(dropout=dropout, exclude_self=exclude_self, density_power=density_power, kernel=kernel)
        self.scale = scale

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT) * self._scale(q)

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q, k, self._scale(q)

    def _scale(self, q: Tensor) -> float:
        return q.size(-1) ** -0.5 if self.scale is None else self.scale
