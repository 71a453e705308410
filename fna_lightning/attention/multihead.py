"""Multi-head attention: query, key and value projections, an attention, and the output projection."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fna_lightning.attention.base import Attention
from fna_lightning.attention.projections import LinearProjection, Projection, linear_map
from fna_lightning.attention.tracing import NotScriptable, Proxy, as_fx_node


class KeyValueCache:
    """Keys and values of the tokens decoded so far, for decoding one token at a time."""

    def __init__(self) -> None:
        self.k: Tensor | None = None
        self.v: Tensor | None = None

    def __len__(self) -> int:
        return 0 if self.k is None else self.k.size(-2)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, H, N, D) keys and values and return all of them."""
        if self.k is not None and self.v is not None:
            k, v = torch.cat([self.k, k], dim=-2), torch.cat([self.v, v], dim=-2)
        self.k, self.v = k, v
        return k, v

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows ``rows`` in that order, as beam search reorders its hypotheses."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[rows], self.v[rows]


class MultiheadAttention(NotScriptable, nn.Module):
    """Multi-head attention with any ``Attention`` between the projected queries and keys.

    Args:
        dim: width of a token.
        num_heads: number of heads; must divide ``dim``.
        attention: the attention between queries and keys; many layers may share one object, and each layer then has
            its own copy of the learned parameters.
        projection: called with ``(dim, num_heads)``, returns the projection to queries and keys.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        attention: Attention,
        projection: Callable[[int, int], Projection] = LinearProjection,
    ) -> None:
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise ValueError(f"dim ({dim}) must be a multiple of num_heads ({num_heads}); change one of them")
        self.num_heads = num_heads
        self.attention = attention.for_heads(num_heads)
        self.projection = projection(dim, num_heads)
        self.value = linear_map(dim)
        self.out = nn.Linear(dim, dim)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Return the (B, N, D) output of the layer.

        Args:
            x: (B, N, D) tokens of the queries.
            context: (B, M, D) tokens of the keys and values; None is ``x`` itself (self-attention).
            mask: boolean, broadcastable to (B, H, N, M), True where attention is allowed.
            is_causal: mask out the tokens that come later.
            cache: self-attention: the earlier tokens, to which the new ones are appended. Cross-attention: keys and
                values of the context, computed on the first call.
        """
        if isinstance(x, Proxy):
            return as_fx_node(self, x, (x, context, mask), is_causal=is_causal, cache=cache)
        if context is not None and cache is not None and cache.k is not None and cache.v is not None:
            q, k, v = self._split(self.projection.query(x)), cache.k, cache.v
        else:
            q, k, v = self.heads(x, context)
            if cache is not None:
                k, v = cache.append(k, v)
        offset = k.size(-2) - q.size(-2) if cache is not None and context is None else 0
        mixed = self.attention(q, k, v, mask, is_causal=is_causal, offset=offset)  # (B, H, N, D_H)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def heads(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, each (B, H, N or M, D_H)."""
        context = x if context is None else context
        q, k = self.projection(x, context)
        return self._split(q), self._split(k), self._split(self.value(context))

    def learned_values(self) -> dict[str, Tensor]:
        """Return the learned values of each head, by name."""
        head_dim = self.value.out_features // self.num_heads
        return self.attention.learned_values(self.value.weight.new_empty(1, self.num_heads, 0, head_dim))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
