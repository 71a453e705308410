"""Attention masks: a boolean mask, causality and self-exclusion, combined into one boolean matrix.

True means "may attend", as in ``torch.nn.functional.scaled_dot_product_attention``.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class AttentionMask:
    """The keys each query may attend to in one call, stored without building an (n, m) matrix.

    Args:
        allowed: boolean, broadcastable to (..., n, m), True where attention is allowed; None allows every key.
        is_causal: query ``i`` may only attend to the keys ``j <= i + offset``.
        exclude_self: query ``i`` may not attend to key ``i + offset``.
        offset: position of the first query among the keys; nonzero when decoding with a cache.
        bias: added to the logarithm of the kernel, broadcastable to (..., n, m); None adds nothing.
    """

    allowed: Tensor | None = None
    is_causal: bool = False
    exclude_self: bool = False
    offset: int = 0
    bias: Tensor | None = None

    def check(self, n: int, m: int) -> None:
        """Raise if the mask is invalid for ``n`` queries and ``m`` keys."""
        if self.exclude_self and self.offset + n != m:
            raise ValueError(
                f"exclude_self needs self-attention (as many keys as queries), got {n} queries and {m} keys; "
                "leave it off for cross-attention"
            )

    def rows(self, start: int, stop: int) -> "AttentionMask":
        """Return the mask of the queries ``start`` to ``stop``."""
        allowed, bias = (slice_rows(tensor, start, stop) for tensor in (self.allowed, self.bias))
        return replace(self, allowed=allowed, bias=bias, offset=self.offset + start)

    def matrix(self, n: int, m: int, device: torch.device) -> Tensor | None:
        """Return the boolean matrix, broadcastable to (..., n, m), or None if every key is allowed."""
        allowed = self.allowed
        if self.is_causal or self.exclude_self:
            query = torch.arange(self.offset, self.offset + n, device=device)[:, None]
            key = torch.arange(m, device=device)
            if self.is_causal:
                allowed = key <= query if allowed is None else allowed & (key <= query)
            if self.exclude_self:
                allowed = key != query if allowed is None else allowed & (key != query)
        return allowed

    def key_counts(self, n: int, m: int, device: torch.device) -> Tensor:
        """Return the number of keys each of ``n`` queries may attend to, broadcastable to (..., n, 1)."""
        if self.allowed is not None:
            matrix = self.matrix(n, m, device)
            assert matrix is not None, "a boolean mask is a matrix"
            return matrix.expand(*matrix.shape[:-1], m).sum(dim=-1, keepdim=True)
        counts = torch.full((1, 1), m, device=device)
        if self.is_causal:
            counts = torch.arange(self.offset + 1, self.offset + n + 1, device=device).clamp(0, m)[:, None]
        # ``check`` has made sure that every query is one of the keys.
        return counts - 1 if self.exclude_self else counts


def build_mask(
    mask: Tensor | None,
    bias: Tensor | None = None,
    *,
    is_causal: bool = False,
    exclude_self: bool = False,
    offset: int = 0,
) -> AttentionMask:
    """Return the ``AttentionMask`` of these settings.

    Keys with a bias of -inf are masked out, so that a bias, too, can leave a query without any key.
    """
    if bias is not None and bias.is_floating_point():
        finite = bias != -torch.inf
        mask = finite if mask is None else mask & finite
        bias = bias.masked_fill(~finite, 0.0)
    return AttentionMask(mask, is_causal, exclude_self, offset, bias)


def slice_rows(tensor: Tensor | None, start: int, stop: int) -> Tensor | None:
    """Return rows of a tensor that broadcasts to (..., n, m) as a view; the whole tensor if all rows are the same."""
    if tensor is None or tensor.dim() < 2 or tensor.size(-2) == 1:
        return tensor
    return tensor[..., start:stop, :]


def masked_softmax(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the softmax over the last axis; a row without allowed keys is 0, and so is its gradient."""
    if allowed is None:
        return logits.softmax(dim=-1)
    empty = ~allowed.any(dim=-1, keepdim=True)
    return logits.masked_fill(~(allowed | empty), -torch.inf).softmax(dim=-1).masked_fill(empty, 0.0)
