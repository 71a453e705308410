"""Dot-product attention, the baseline: softmax(q k / sqrt(d_H)) (Vaswani et al., 2017), and its strong variants.

    logit_ij = scale * q_i.k_j                    scale = d_H^-1/2
    logit_ij = scale * cos(q_i, k_j)              qk_norm (Henry et al., 2020)
    logit_ij = log(n_i) * (one of the above)      ssmax, scalable softmax (Nakanishi, 2025)

n_i is the number of keys that query i may attend to.
"""

import copy
import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from fna_lightning.attention.base import Attention
from fna_lightning.attention.distance import distance_dtype, unit
from fna_lightning.attention.heads import in_distance_dtype, per_head
from fna_lightning.attention.learned import learned_module, refuse_tensor
from fna_lightning.attention.masks import AttentionMask

# Initial scale of cosines, which lie in [-1, 1].
COSINE_SCALE = 10.0


class DotProduct(Attention):
    """Dot-product attention of the Transformer, in the same code path as the other attentions.

    Args:
        scale: positive factor of the dot products, or of the cosines if ``qk_norm``; None is d_H^-1/2, or 10 if
            ``qk_norm``.
        qk_norm: whether queries and keys are normalized to length 1, so that the logits are cosines times the scale.
        ssmax: whether the logits of a query are multiplied by the logarithm of the number of keys it may attend to,
            after padding, causal and other masks, which keeps the attention equally sharp for any number of keys. A
            bias is added after that.
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether tokens may not attend to themselves.
        density_power: exponent of the generalized normalization, see ``Attention``.
        kernel: the implementation, see ``Attention``.
        learn: "scale" learns the scale (an inverse temperature) of each head, initialized with the value above; it
            stays positive. ``MultiheadAttention`` creates one parameter per head; on its own the module has one value
            for all heads.
    """

    def __init__(
        self,
        scale: float | None = None,
        *,
        qk_norm: bool = False,
        ssmax: bool = False,
        dropout: float = 0.0,
        exclude_self: bool = False,
        density_power: float = 0.0,
        kernel: str = "auto",
        learn: Sequence[str] = (),
    ) -> None:
        super().__init__(dropout=dropout, exclude_self=exclude_self, density_power=density_power, kernel=kernel)
        refuse_tensor("scale", scale, "pass learn=['scale'] to learn it")
        if scale is not None and not (scale > 0.0 and math.isfinite(scale)):
            raise ValueError(f"scale must be positive and finite, got {scale}; None is d_H^-1/2, or 10 with qk_norm")
        self.scale = scale
        self.qk_norm = qk_norm
        self.ssmax = ssmax
        self.learned = learned_module(learn, ("scale",))

    def for_heads(self, num_heads: int) -> Self:
        if self.learned is None:
            return self
        attention = copy.deepcopy(self)
        attention.learned = self.learned.for_heads(num_heads)
        return attention

    def learned_values(self, q: Tensor) -> dict[str, Tensor]:
        if self.learned is None:
            return {}
        return {"scale": torch.as_tensor(self.factor(q)).detach().expand(q.size(-3))}

    def factor(self, q: Tensor) -> float | Tensor:
        """Return the scale for these queries: a number, or (H,) numbers if it is learned."""
        initial = self.scale
        if initial is None:
            initial = COSINE_SCALE if self.qk_norm else q.size(-1) ** -0.5
        return initial if self.learned is None else in_distance_dtype(self.learned.scale(initial), q)

    def plain_scale(self, q: Tensor) -> float | Tensor | None:
        return None if self.qk_norm or self.ssmax else self.factor(q)

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = self._normalized(q, k)
        return (q @ k.mT) * per_head(self.factor(q), q)

    def row_factors(self, q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor | None:
        if not self.ssmax:
            return None
        counts = mask.key_counts(q.size(-2), k.size(-2), q.device)
        # A query without keys has no logits, so its factor is arbitrary.
        return counts.clamp(min=1).to(distance_dtype(q)).log()

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        dtype, scale = q.dtype, self.factor(q)
        q, k = self._normalized(q, k)
        if isinstance(scale, Tensor):
            # PyTorch's function takes one scale for all heads, so the scale of each head multiplies its queries.
            q, scale = q * per_head(scale, q), 1.0
        return q.to(dtype), k.to(dtype), scale

    def _normalized(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors whose dot products are scaled, at least in float32 if they are normalized."""
        if not self.qk_norm:
            return q, k
        dtype = distance_dtype(q)
        return unit(q.to(dtype)), unit(k.to(dtype))

    def extra_repr(self) -> str:
        settings = {"scale": (self.scale, None), "qk_norm": (self.qk_norm, False), "ssmax": (self.ssmax, False)}
        parts = [f"{name}={value}" for name, (value, default) in settings.items() if value != default]
        return ", ".join(filter(None, [*parts, super().extra_repr()]))
