"""Multi-head attention: query, key and value projections, an attention, and the output projection."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fna_lightning.attention.base import Attention
from fna_lightning.attention.kernels.cpu.decode import run_cached, run_shared
from fna_lightning.attention.linear import Linear
from fna_lightning.attention.projections import LinearProjection, Projection, linear_map
from fna_lightning.attention.tracing import NotScriptable, Proxy, as_fx_node

# Tokens of each sequence for which a cache takes memory in advance.
MORE_TOKENS = 32


class KeyValueCache:
    """Keys and values of the tokens decoded so far, for decoding one token at a time.

    Tokens are never moved: hypotheses of a beam search share their past, so a table says where the tokens of each
    hypothesis are.
    """

    def __init__(self) -> None:
        self._tensors: tuple[Tensor, Tensor] | None = None  # (B, H, N, d) keys and (B, H, N, d_v) values
        self._memory: Tensor | None = None  # (P, H, d + d_v), of which the first `_used` rows are tokens
        self._used = 0
        self._width = 0  # d
        self._slots: Tensor | None = None  # (N, B) int32, rows of the memory
        self._counts: Tensor | None = None  # (B,) int32, number of keys that may be attended to

    def __len__(self) -> int:
        if self._slots is not None:
            return self._slots.size(0)
        return 0 if self._tensors is None else self._tensors[0].size(-2)

    @property
    def tensors(self) -> tuple[Tensor, Tensor] | None:
        """(B, H, N, d) keys and (B, H, N, d_v) values; None if there are none."""
        if self._tensors is None and self._memory is not None and self._slots is not None:
            tokens = self._memory[self._slots.mT].transpose(1, 2)  # (B, H, N, d + d_v)
            self._tensors = tokens[..., : self._width], tokens[..., self._width :]
        return self._tensors

    def append(self, k: Tensor, v: Tensor) -> None:
        """Add (B, H, N, d) keys and (B, H, N, d_v) values."""
        self._check(k, v)
        if len(self) == 0:
            self._tensors = k, v
            return
        if self._slots is None:
            assert self._tensors is not None
            self._store(*self._tensors)
        self._store(k, v)
        self._tensors = None

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows ``rows`` in that order, as beam search reorders its hypotheses."""
        if self._slots is not None:
            self._slots = self._slots[:, rows]
            self._tensors = None
        elif self._tensors is not None:
            k, v = self._tensors
            self._tensors = k[rows], v[rows]
            self._counts = None if self._counts is None else self._counts[rows]

    def restrict(self, mask: Tensor | None) -> None:
        """Remember how many keys each row may attend to, if ``mask`` allows the first keys of each row."""
        assert self._tensors is not None
        k = self._tensors[0]
        shape = k.size(0), 1, 1, k.size(2)
        if mask is None:
            self._counts = torch.full((k.size(0),), k.size(2), dtype=torch.int32, device=k.device)
        elif k.is_cpu and mask.shape == shape and mask.dtype is torch.bool:
            counts = mask.sum(dim=-1, dtype=torch.int32).view(-1)
            if torch.equal(mask[:, 0, 0], torch.arange(k.size(2)) < counts[:, None]):
                self._counts = counts

    def attended_by_few(self, q: Tensor, attention: Attention) -> Tensor | None:
        """Return the output of a few queries per row under the mask of ``restrict``, or None if C cannot."""
        if self._tensors is None or self._counts is None:
            return None
        return run_shared(attention, q, *self._tensors, self._counts)

    def attended_by(self, q: Tensor, attention: Attention) -> Tensor | None:
        """Return the (B, H, 1, d_v) output of one query per row that attends to all tokens, or None if C cannot."""
        if self._memory is None or self._slots is None or q.size(-2) != 1:
            return None
        return run_cached(attention, q, self._memory, self._width, self._slots)

    def _check(self, k: Tensor, v: Tensor) -> None:
        """Raise ValueError if keys and values do not belong together, or not to those in the cache."""
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError(f"k has {k.size(-2)} keys and v has {v.size(-2)} values: {(*k.shape,)} and {(*v.shape,)}")
        if self._slots is not None and self._memory is not None:
            batch, heads, widths = self._slots.size(1), self._memory.size(1), self._memory.size(2)
        elif self._tensors is not None:
            batch, heads = self._tensors[0].shape[:2]
            widths = self._tensors[0].size(-1) + self._tensors[1].size(-1)
        else:
            return
        if (k.size(0), k.size(1), k.size(-1) + v.size(-1)) != (batch, heads, widths):
            raise ValueError(
                f"{(*k.shape,)} keys and {(*v.shape,)} values do not continue the cache, which has {batch} rows of "
                f"{heads} heads; reorder the cache with the hypotheses"
            )

    def _store(self, k: Tensor, v: Tensor) -> None:
        """Write tokens to the memory and their rows to the table."""
        batch, heads, length, width = k.shape
        used, self._used, self._width = self._used, self._used + length * batch, width
        if torch.is_grad_enabled() and (k.requires_grad or v.requires_grad):
            rows = torch.cat([k, v], dim=-1).permute(2, 0, 1, 3).flatten(0, 1)
            self._memory = rows if self._memory is None else torch.cat([self._memory[:used], rows])
        else:
            if self._memory is None or len(self._memory) < self._used:
                # Memory that is not written to is not taken from the system.
                larger = k.new_empty(2 * self._used + MORE_TOKENS * batch, heads, width + v.size(-1))
                if self._memory is not None:
                    larger[:used] = self._memory[:used]
                self._memory = larger
            new = self._memory[used : self._used].view(length, batch, heads, -1)
            torch.cat([k.permute(2, 0, 1, 3), v.permute(2, 0, 1, 3)], dim=-1, out=new)
        slots = torch.arange(used, self._used, dtype=torch.int32, device=k.device).view(length, batch)
        self._slots = slots if self._slots is None else torch.cat([self._slots, slots])


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
        self.out = Linear(dim, dim)

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
        if cache is None:
            mixed = self.attention(*self.heads(x, context), mask, is_causal=is_causal)  # (B, H, N, D_H)
        elif context is None:
            mixed = self._attend_to_earlier(*self.heads(x), mask, is_causal, cache)
        else:
            mixed = self._attend_to_context(x, context, mask, is_causal, cache)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _attend_to_earlier(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, cache: KeyValueCache
    ) -> Tensor:
        cache.append(k, v)
        out = cache.attended_by(q, self.attention) if mask is None else None
        if out is not None:
            return out
        assert cache.tensors is not None
        offset = len(cache) - q.size(-2)
        out = self.attention(q, *cache.tensors, mask, is_causal=is_causal, offset=offset)
        assert isinstance(out, Tensor)
        return out

    def _attend_to_context(
        self, x: Tensor, context: Tensor, mask: Tensor | None, is_causal: bool, cache: KeyValueCache
    ) -> Tensor:
        if cache.tensors is None:
            q, k, v = self.heads(x, context)
            cache.append(k, v)
            cache.restrict(mask)
        else:
            q = self._split(self.projection.query(x))
            k, v = cache.tensors
        out = None if is_causal else cache.attended_by_few(q, self.attention)
        if out is not None:
            return out
        out = self.attention(q, k, v, mask, is_causal=is_causal)
        assert isinstance(out, Tensor)
        return out

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
