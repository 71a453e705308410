"""Attention core for third-party models: takes projected q, k, v.

The model keeps its own projections. ``introspection`` hooks this module to record or ablate the attention of such a
model, as it hooks ``MultiheadAttention`` in the models of this library.
"""

import itertools

from torch import Tensor, nn

from fna_lightning.attention.base import Attention
from fna_lightning.attention.inputs import heads_per_key_head
from fna_lightning.attention.kernels import Call, compute
from fna_lightning.attention.tracing import NotScriptable, Proxy, as_fx_node


class ExternalAttention(NotScriptable, nn.Module):
    """Attention core for third-party models: takes projected q, k, v.

    Args:
        attention: the attention; learned parameters are created here, one per head.
        num_heads: number of query heads.
        head_dim: width of a query.
    """

    def __init__(self, attention: Attention, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.attention = attention.for_heads(num_heads)
        self.num_heads = num_heads
        self.head_dim = head_dim

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        bias: Tensor | None = None,
        is_causal: bool = False,
        dropout: float = 0.0,
        is_self: bool | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Return the (B, H, N, D_v) weighted means of the values.

        Args:
            q: (B, H, N, D) queries.
            k: (B, H, M, D) keys.
            v: (B, H, M, D_v) values.
            mask: broadcastable to (B, H, N, M): boolean, True where attention is allowed, or floating-point, added to
                the logarithm of the kernel.
            bias: as a floating-point mask, in addition to ``mask``.
            is_causal: mask out the keys that come after their query.
            dropout: probability of dropping a weight.
            is_self: whether queries and keys come from the same tokens; None if the caller does not know. The output
                does not depend on it: hooks need it to know whether the weights form a graph of tokens.
            enable_gqa: grouped heads: k and v may have fewer heads than q, see ``Attention.weights``.
        """
        if isinstance(q, Proxy):
            options = {"bias": bias, "is_causal": is_causal, "dropout": dropout, "is_self": is_self}
            return as_fx_node(self, q, (q, k, v, mask), **options, enable_gqa=enable_gqa)
        attention_mask = self.attention.mask_for(q, k, mask, is_causal=is_causal, bias=bias, enable_gqa=enable_gqa)
        group_size = heads_per_key_head(q, k) if enable_gqa else 1
        return compute(Call(self.attention, q, k, v, attention_mask, dropout, group_size))

    def learned_values(self) -> dict[str, Tensor]:
        """Return the learned values of each head, by name."""
        tensor = next(itertools.chain(self.parameters(), self.buffers()), None)
        if tensor is None:
            return {}
        return self.attention.learned_values(tensor.new_empty(1, self.num_heads, 0, self.head_dim))

    def extra_repr(self) -> str:
        return f"{self.num_heads} heads of width {self.head_dim}"
