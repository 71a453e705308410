"""The Transformer encoder, around any attention."""

from collections.abc import Callable

from torch import Tensor, nn

from fna_lightning.attention import Attention, LinearProjection, MultiheadAttention, Projection
from fna_lightning.nn.feed_forward import FeedForward
from fna_lightning.nn.residual import ResidualLayer


class EncoderLayer(ResidualLayer):
    """Self-attention and a feed-forward network, each with its residual and layer norm.

    Args:
        self_attn: the multi-head attention.
        feed_forward: the network applied to each token.
        dim: width of a token.
        pre_norm: normalise what enters a sublayer (pre-LN) instead of what leaves its residual (post-LN).
        dropout: probability of dropping a coordinate of a sublayer's result.
        on_sphere: whether the tokens that enter the attention are normalised to length 1.
    """

    def __init__(
        self,
        self_attn: MultiheadAttention,
        feed_forward: nn.Module,
        dim: int,
        *,
        pre_norm: bool = False,
        dropout: float = 0.1,
        on_sphere: bool = False,
    ) -> None:
        super().__init__(pre_norm=pre_norm, dropout=dropout, on_sphere=on_sphere)
        self.self_attn = self_attn
        self.feed_forward = feed_forward
        self.self_attn_norm = nn.LayerNorm(dim)
        self.feed_forward_norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, N, D) tokens to (B, N, D) tokens."""
        x = self._residual(self.self_attn_norm, x, lambda y: self.self_attn(self._asking(y), mask=mask))
        return self._residual(self.feed_forward_norm, x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of encoder layers that share one attention.

    Args:
        attention: the attention of every layer; it has no parameters.
        dim: width of a token.
        depth: number of layers.
        num_heads: number of heads; must divide ``dim``.
        ffn_dim: width of the feed-forward networks.
        projection: makes the map to queries and keys of each layer, such as ``LinearProjection`` or
            ``OrthogonalProjection``.
        pre_norm: pre-LN layers (with a last norm) instead of post-LN.
        activation: of the feed-forward networks: "relu" or "gelu".
        dropout: probability of dropping a coordinate of a sublayer's result.
        on_sphere: whether the tokens that enter an attention are normalised to length 1.
    """

    def __init__(
        self,
        attention: Attention,
        *,
        dim: int = 64,
        depth: int = 1,
        num_heads: int = 1,
        ffn_dim: int = 256,
        projection: Callable[[int, int], Projection] = LinearProjection,
        pre_norm: bool = False,
        activation: str = "relu",
        dropout: float = 0.1,
        on_sphere: bool = False,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self.dim = dim
        self.layers = nn.ModuleList(
            EncoderLayer(
                MultiheadAttention(dim, num_heads, attention, projection),
                FeedForward(dim, ffn_dim, activation=activation, dropout=dropout),
                dim,
                pre_norm=pre_norm,
                dropout=dropout,
                on_sphere=on_sphere,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim) if pre_norm else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, N, D) tokens to (B, N, D) tokens; ``mask`` broadcasts to (B, H, N, N), True = may attend."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)
