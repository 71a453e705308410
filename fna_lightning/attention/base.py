"""The contract every attention meets: a positive kernel between queries and keys, given by its logarithm.

Row-normalising a positive kernel is a softmax of its logarithm, so a kind of attention supplies only ``log_kernel``.
Masks, normalisation, dropout and the matrix the graph callbacks look at are written once, here, and stay finite where
``kernel / kernel.sum()`` underflows.

Shapes: B batch, H heads, N queries, M keys, D head width.
"""

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fna_lightning.attention.inputs import check_queries_and_keys, same_type
from fna_lightning.attention.kernels import Call, check_kernel_name, compute
from fna_lightning.attention.masks import AttentionMask, masked_softmax, restrict
from fna_lightning.attention.radial import Radial


class Attention(nn.Module, ABC):
    """Weighs values by a positive kernel between queries and keys.

    It owns no parameters, so one object serves all layers and can be exchanged under trained weights. (One that learns
    its own numbers gives each layer its own: ``for_heads``.)
    A query that may attend to nothing gets output 0 and gradient 0, with every kernel.

    Args:
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether a token is hidden from itself.
        density_power: the exponent ``a`` of the generalised normalisation D^-a C D^-a; 0 leaves the kernel as it is,
            1 removes the sampling density of the tokens. Needs self-attention.
        kernel: how it is computed: a name of ``available_kernels()``, or "auto" for the fastest that can.
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
        """Map (B, H, N, D) queries and (B, H, M, D) keys to (B, H, N, M) logarithms of the kernel."""

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Return (q', k', scale) with ``scale * q' @ k'.mT`` = ``log_kernel`` up to a constant in each row, or None.

        An attention that can be written so runs on PyTorch's fused kernels.
        """
        return None

    def for_heads(self, num_heads: int) -> Self:
        """Return this attention for one layer of ``num_heads`` heads: itself, or a copy with parameters of its own."""
        return self

    def learned_values(self, q: Tensor) -> dict[str, Tensor]:
        """Return what this attention learns as (H,) numbers by name, for queries like ``q``; callbacks log them."""
        return {}

    def radial(self, q: Tensor) -> Radial | None:
        """Return the kernel for queries like ``q`` as a function of a distance, or None.

        An attention that can be written so runs on the C kernel and on FlexAttention.
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
    ) -> Tensor:
        """Return the (B, H, N, M) row-stochastic matrix.

        Args:
            q: (B, H, N, D) queries.
            k: (B, H, M, D) keys.
            mask: boolean, broadcastable to (B, H, N, M), True where attention is allowed.
            is_causal: hide the keys that come after their query.
            offset: place of the first query among the keys.
            bias: added to the logarithm of the kernel, broadcastable to (B, H, N, M); -inf hides a key.
        """
        seen = self.visibility(q, k, mask, is_causal=is_causal, offset=offset, bias=bias)
        q, k = same_type(q, k)
        return self.visible_weights(q, k, seen, self.log_density(q, k, seen))

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
    ) -> Tensor:
        """Return the (B, H, N, D_v) weighted means of the (B, H, M, D_v) values; arguments as for ``weights``."""
        seen = self.visibility(q, k, mask, is_causal=is_causal, offset=offset, bias=bias)
        return compute(Call(self, q, k, v, seen, self.dropout if self.training else 0.0))

    def visibility(
        self,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None,
        *,
        is_causal: bool = False,
        offset: int = 0,
        bias: Tensor | None = None,
    ) -> AttentionMask:
        """Return the checked restrictions of one call."""
        check_queries_and_keys(q, k, mask, bias, offset)
        seen = restrict(mask, bias, is_causal=is_causal, exclude_self=self.exclude_self, offset=offset)
        seen.check(q.size(-2), k.size(-2))
        if self.density_power and q.size(-2) != k.size(-2):
            raise ValueError(
                f"density_power needs self-attention (as many keys as queries), got {q.size(-2)} queries and "
                f"{k.size(-2)} keys; set it to 0 for cross-attention"
            )
        return seen

    def log_density(self, q: Tensor, k: Tensor, seen: AttentionMask) -> Tensor | None:
        """Return log D_jj as (..., 1, M), to be taken ``density_power`` times from every logit; None if it is 0."""
        if not self.density_power:
            return None
        return self.row_log_sums(q, k, seen).mT

    def row_log_sums(self, q: Tensor, k: Tensor, seen: AttentionMask) -> Tensor:
        """Return log sum_j C_ij over the visible keys as (..., N, 1); 0 where none is visible."""
        logits = self._logits(q, k, seen)
        allowed = seen.matrix(q.size(-2), k.size(-2), q.device)
        if allowed is None:
            return logits.logsumexp(dim=-1, keepdim=True)
        empty = ~allowed.any(dim=-1, keepdim=True)
        sums = logits.masked_fill(~(allowed | empty), -torch.inf).logsumexp(dim=-1, keepdim=True)
        return sums.masked_fill(empty, 0.0)

    def _logits(self, q: Tensor, k: Tensor, seen: AttentionMask) -> Tensor:
        logits = self.log_kernel(q, k)
        return logits if seen.bias is None else logits + seen.bias

    def visible_weights(self, q: Tensor, k: Tensor, seen: AttentionMask, log_density: Tensor | None) -> Tensor:
        """Return the weights of the queries ``q``, which may be a block of all queries."""
        logits = self._logits(q, k, seen)
        if log_density is not None:
            logits = logits - self.density_power * log_density
        return masked_softmax(logits, seen.matrix(q.size(-2), k.size(-2), q.device))

    def weighted_mean(
        self, q: Tensor, k: Tensor, v: Tensor, seen: AttentionMask, log_density: Tensor | None, dropout: float
    ) -> Tensor:
        """Return the written-out output of the queries ``q``, which may be a block of all queries."""
        weights = self.visible_weights(q, k, seen, log_density)
        return (F.dropout(weights, dropout) @ v.to(weights.dtype)).to(v.dtype)

    def extra_repr(self) -> str:
        """Name what differs from the defaults; logs, test ids and tables show it."""
        shown = {"dropout": 0.0, "exclude_self": False, "density_power": 0.0, "kernel": "auto"}
        return ", ".join(
            f"{name}={getattr(self, name)}" for name, usual in shown.items() if getattr(self, name) != usual
        )
