"""Which keys a query may see: one boolean matrix out of padding, causality and self-exclusion.

True means "may attend", as in ``torch.nn.functional.scaled_dot_product_attention``.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class AttentionMask:
    """What restricts attention in one call, before any (n, m) matrix is built.

    Args:
        mask: boolean, broadcastable to (..., n, m); None allows everything.
        is_causal: query ``i`` sees the keys ``j <= i + offset``.
        exclude_self: query ``i`` does not see key ``i + offset``.
        offset: place of the first query among the keys; not 0 when decoding with a cache.
        bias: added to the logarithm of the kernel, broadcastable to (..., n, m); None adds nothing.
    """

    mask: Tensor | None = None
    is_causal: bool = False
    exclude_self: bool = False
    offset: int = 0
    bias: Tensor | None = None

    def check(self, n: int, m: int) -> None:
        """Raise if the restrictions make no sense for ``n`` queries and ``m`` keys."""
        if self.exclude_self and self.offset + n != m:
            raise ValueError(
                f"exclude_self needs self-attention (as many keys as queries), got {n} queries and {m} keys; "
                "leave it off for cross-attention"
            )

    def rows(self, start: int, stop: int) -> "AttentionMask":
        """Return the restriction of the queries ``start`` to ``stop``."""
        mask, bias = (rows_of(one, start, stop) for one in (self.mask, self.bias))
        return replace(self, mask=mask, bias=bias, offset=self.offset + start)

    def matrix(self, n: int, m: int, device: torch.device) -> Tensor | None:
        """Return the boolean matrix, broadcastable to (..., n, m), or None if every key is visible."""
        allowed = self.mask
        if self.is_causal or self.exclude_self:
            query = torch.arange(self.offset, self.offset + n, device=device)[:, None]
            key = torch.arange(m, device=device)
            if self.is_causal:
                allowed = key <= query if allowed is None else allowed & (key <= query)
            if self.exclude_self:
                allowed = key != query if allowed is None else allowed & (key != query)
        return allowed


def restrict(
    mask: Tensor | None,
    bias: Tensor | None = None,
    *,
    is_causal: bool = False,
    exclude_self: bool = False,
    offset: int = 0,
) -> AttentionMask:
    """Return the restrictions; where ``bias`` is -inf a key is hidden, so that a row may be empty with a bias too."""
    if bias is not None and bias.is_floating_point():
        finite = bias != -torch.inf
        mask = finite if mask is None else mask & finite
        bias = bias.masked_fill(~finite, 0.0)
    return AttentionMask(mask, is_causal, exclude_self, offset, bias)


def rows_of(given: Tensor | None, start: int, stop: int) -> Tensor | None:
    """Return rows of a tensor that broadcasts to (..., n, m), as a view; the whole if it is the same for all rows."""
    if given is None or given.dim() < 2 or given.size(-2) == 1:
        return given
    return given[..., start:stop, :]


def masked_softmax(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the softmax over the last axis; a row that may attend to nothing is 0, and so is its gradient."""
    if allowed is None:
        return logits.softmax(dim=-1)
    empty = ~allowed.any(dim=-1, keepdim=True)
    return logits.masked_fill(~(allowed | empty), -torch.inf).softmax(dim=-1).masked_fill(empty, 0.0)
