"""Base class of every attention: a positive kernel between queries and keys, given by its logarithm.

Row-normalizing a positive kernel is a softmax of its logarithm, so a subclass supplies only ``log_kernel``. Masks,
normalization, dropout and the weight matrix for the graph callbacks are implemented here once. They stay finite where
``kernel / kernel.sum()`` underflows.

Shapes: B batch, H heads, N queries, M keys, D head width.
"""

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fna_lightning.attention.inputs import check_queries_and_keys, heads_per_key_head, repeat_heads, same_dtype
from fna_lightning.attention.kernels import Call, check_kernel_name, compute
from fna_lightning.attention.kernels.base import Radial
from fna_lightning.attention.masks import AttentionMask, build_mask, masked_softmax
from fna_lightning.attention.tracing import NotScriptable, Proxy, as_fx_node


class Attention(NotScriptable, nn.Module, ABC):
    """Averages values with weights given by a positive kernel between queries and keys.

    An attention has no parameters by default, so one object can serve all layers and can replace another one in a
    trained model. An attention with learned parameters creates a copy for each layer, see ``for_heads``.
    A query that may attend to no key gets output 0 and gradient 0, with every kernel.

    Args:
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether tokens may not attend to themselves.
        density_power: the exponent ``a`` of the generalized normalization D^-a C D^-a; 0 leaves the kernel unchanged,
            1 removes the sampling density of the tokens. Needs self-attention.
        kernel: the implementation: a name of ``available_kernels()``, or "auto" for the fastest one that supports the
            call.
    """

    def __init__(
        self, *, dropout: float = 0.0, exclude_self: bool = False, density_power: float = 0.0, kernel: str = "auto"
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        if not 0.0 <= density_power <= 1.0:
            raise ValueError(f"density_power must lie in [0, 1] (0 = none, 1 = density removed), got {density_power}")
        check_kernel_name(kernel)
        self.dropout = dropout
        self.exclude_self = exclude_self
        self.density_power = density_power
        self.kernel = kernel

    @abstractmethod
    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the (B, H, N, M) logarithms of the kernel for (B, H, N, D) queries and (B, H, M, D) keys."""

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Return (q', k', scale) with ``scale * q' @ k'.mT`` = ``log_kernel`` up to a constant per row, or None.

        An attention with such a form can run on PyTorch's fused kernels. With grouped heads, k has fewer heads than q,
        see ``forward``, and so has k'.
        """
        return None

    def plain_scale(self, q: Tensor) -> float | Tensor | None:
        """Return the scale, a number or (H,) numbers, if the logits are ``scale * q @ k.mT`` for every mask, or None.

        In contrast to ``as_dot_product``, queries and keys are not transformed, so cached keys are used as they are.
        """
        return None

    def for_heads(self, num_heads: int) -> Self:
        """Return the attention of one layer with ``num_heads`` heads: itself, or a copy with its own parameters."""
        return self

    def learned_values(self, q: Tensor) -> dict[str, Tensor]:
        """Return the learned (H,) values by name, for queries with the shape of ``q``; callbacks log them."""
        return {}

    def row_factors(self, q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor | None:
        """Return (..., N, 1) factors by which the kernel's logarithms of each query are multiplied, or None.

        They depend on the mask, which ``log_kernel`` does not see.
        """
        return None

    @property
    def observes_keys(self) -> bool:
        """Whether ``observe_keys`` needs the keys; if not, grouped keys need not be repeated for it."""
        return False

    def observe_keys(self, k: Tensor, mask: AttentionMask) -> None:
        """Update running estimates from the keys; called before an evaluation in training mode if it needs them."""

    def radial(self, q: Tensor) -> Radial | None:
        """Return the kernel for queries with the shape of ``q`` as a function of a distance, or None.

        An attention with such a form can run on the C kernel and on FlexAttention.
        """
        return None

    def weights(
        self,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        offset: int = 0,
        bias: Tensor | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Return the (B, H, N, M) row-stochastic matrix.

        Args:
            q: (B, H, N, D) queries.
            k: (B, H, M, D) keys.
            mask: broadcastable to (B, H, N, M): boolean, True where attention is allowed, or floating-point, added to
                the logarithm of the kernel; -inf masks out a key.
            is_causal: mask out the keys that come after their query.
            offset: position of the first query among the keys.
            bias: as a floating-point mask, in addition to ``mask``.
            enable_gqa: grouped heads: the keys and values may have G heads where G divides H, and query head h uses
                key head h // (H // G).
        """
        attention_mask = self.mask_for(q, k, mask, is_causal=is_causal, offset=offset, bias=bias, enable_gqa=enable_gqa)
        if enable_gqa:
            k = repeat_heads(k, heads_per_key_head(q, k))
        q, k = same_dtype(q, k)
        return self.masked_weights(q, k, attention_mask, self.log_density(q, k, attention_mask))

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        offset: int = 0,
        bias: Tensor | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Return the (B, H, N, D_v) weighted means of the (B, H, M, D_v) values; arguments as for ``weights``."""
        if isinstance(q, Proxy):
            masking = {"is_causal": is_causal, "offset": offset, "bias": bias, "enable_gqa": enable_gqa}
            return as_fx_node(self, q, (q, k, v, mask), **masking)
        attention_mask = self.mask_for(q, k, mask, is_causal=is_causal, offset=offset, bias=bias, enable_gqa=enable_gqa)
        group_size = heads_per_key_head(q, k) if enable_gqa else 1
        return compute(Call(self, q, k, v, attention_mask, self.dropout if self.training else 0.0, group_size))

    def mask_for(
        self,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None,
        *,
        is_causal: bool = False,
        offset: int = 0,
        bias: Tensor | None = None,
        enable_gqa: bool = False,
    ) -> AttentionMask:
        """Return the mask of one call, after checking it against the queries and keys."""
        check_queries_and_keys(q, k, mask, bias, offset, enable_gqa=enable_gqa)
        if mask is not None and mask.is_floating_point():
            bias = mask if bias is None else mask + bias
            mask = None
        attention_mask = build_mask(mask, bias, is_causal=is_causal, exclude_self=self.exclude_self, offset=offset)
        attention_mask.check(q.size(-2), k.size(-2))
        if self.density_power and q.size(-2) != k.size(-2):
            raise ValueError(
                f"density_power needs self-attention (as many keys as queries), got {q.size(-2)} queries and "
                f"{k.size(-2)} keys; set it to 0 for cross-attention"
            )
        return attention_mask

    def log_density(self, q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor | None:
        """Return log D_jj as (..., 1, M), or None if ``density_power`` is 0.

        ``density_power`` times this value is subtracted from the logits.
        """
        if not self.density_power:
            return None
        return self.row_log_sums(q, k, mask).mT

    def row_log_sums(self, q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor:
        """Return log sum_j C_ij over the allowed keys as (..., N, 1); 0 where no key is allowed."""
        logits = self._logits(q, k, mask)
        allowed = mask.matrix(q.size(-2), k.size(-2), q.device)
        if allowed is None:
            return logits.logsumexp(dim=-1, keepdim=True)
        empty = ~allowed.any(dim=-1, keepdim=True)
        sums = logits.masked_fill(~(allowed | empty), -torch.inf).logsumexp(dim=-1, keepdim=True)
        return sums.masked_fill(empty, 0.0)

    def _logits(self, q: Tensor, k: Tensor, mask: AttentionMask) -> Tensor:
        logits = self.log_kernel(q, k)
        factors = self.row_factors(q, k, mask)
        if factors is not None:
            logits = logits * factors
        return logits if mask.bias is None else logits + mask.bias

    def masked_weights(self, q: Tensor, k: Tensor, mask: AttentionMask, log_density: Tensor | None) -> Tensor:
        """Return the weights of the queries ``q``, which may be a block of all queries."""
        logits = self._logits(q, k, mask)
        if log_density is not None:
            logits = logits - self.density_power * log_density
        return masked_softmax(logits, mask.matrix(q.size(-2), k.size(-2), q.device))

    def weighted_mean(
        self, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, log_density: Tensor | None, dropout: float
    ) -> Tensor:
        """Return the output of the queries ``q``, which may be a block of all queries, by the reference formula."""
        weights = self.masked_weights(q, k, mask, log_density)
        return (F.dropout(weights, dropout) @ v.to(weights.dtype)).to(v.dtype)

    def extra_repr(self) -> str:
        """Return the settings that differ from the defaults, for logs, test ids and tables."""
        defaults = {"dropout": 0.0, "exclude_self": False, "density_power": 0.0, "kernel": "auto"}
        return ", ".join(
            f"{name}={getattr(self, name)}" for name, default in defaults.items() if getattr(self, name) != default
        )
