"""A place in somebody else's model where an attention is computed.

The model keeps its own projections; here queries, keys and values meet. Whoever wants to see or to cut the attention of
a model hooks its sites, as they hook the ``MultiheadAttention`` of ours.
"""

from torch import Tensor, nn

from fna_lightning.attention.base import Attention
from fna_lightning.attention.kernels import Call, compute


class ExternalAttention(nn.Module):
    """Computes an attention between heads that were made elsewhere.

    Args:
        attention: the attention; what it learns, it learns here, for these heads.
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
    ) -> Tensor:
        """Return the (B, H, N, D_v) weighted means of the values.

        Args:
            q: (B, H, N, D) queries.
            k: (B, H, M, D) keys.
            v: (B, H, M, D_v) values.
            mask: boolean, broadcastable to (B, H, N, M), True where attention is allowed.
            bias: added to the logarithm of the kernel, broadcastable to (B, H, N, M).
            is_causal: hide the keys that come after their query.
            dropout: probability of dropping a weight.
            is_self: whether queries and keys are the same tokens; None if the caller cannot tell. Nothing is computed
                from it: watchers need it to know a walk.
        """
        seen = self.attention.visibility(q, k, mask, is_causal=is_causal, bias=bias)
        return compute(Call(self.attention, q, k, v, seen, dropout))

    def learned_values(self) -> dict[str, Tensor]:
        """Return alpha and kappa of each head, if they are learned."""
        like = next((one for one in self.parameters()), None)
        if like is None:
            return {}
        return self.attention.learned_values(like.new_empty(1, self.num_heads, 0, self.head_dim))

    def extra_repr(self) -> str:
        return f"{self.num_heads} heads of width {self.head_dim}"
