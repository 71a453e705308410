"""The Transformer decoder, around any attention: it looks back at its own tokens and across at the encoder's."""

from collections.abc import Callable

from torch import Tensor, nn

from fna_lightning.attention import Attention, KeyValueCache, LinearProjection, MultiheadAttention, Projection
from fna_lightning.nn.decoder_state import DecoderState
from fna_lightning.nn.feed_forward import FeedForward
from fna_lightning.nn.residual import ResidualLayer


class DecoderLayer(ResidualLayer):
    """Causal self-attention, cross-attention and a feed-forward network, each with its residual and layer norm.

    Under fractional attention the cross-attention is a function of the distance from decoder queries to encoder keys.

    Args:
        self_attn: the multi-head attention among the decoder's tokens.
        cross_attn: the multi-head attention from the decoder's tokens to the encoder's.
        feed_forward: the network applied to each token.
        dim: width of a token.
        pre_norm: normalise what enters a sublayer (pre-LN) instead of what leaves its residual (post-LN).
        dropout: probability of dropping a coordinate of a sublayer's result.
        on_sphere: whether the tokens that enter an attention are normalised to length 1.
    """

    def __init__(
        self,
        self_attn: MultiheadAttention,
        cross_attn: MultiheadAttention,
        feed_forward: nn.Module,
        dim: int,
        *,
        pre_norm: bool = False,
        dropout: float = 0.1,
        on_sphere: bool = False,
    ) -> None:
        super().__init__(pre_norm=pre_norm, dropout=dropout, on_sphere=on_sphere)
        self.self_attn = self_attn
        self.cross_attn = cross_attn
        self.feed_forward = feed_forward
        self.self_attn_norm = nn.LayerNorm(dim)
        self.cross_attn_norm = nn.LayerNorm(dim)
        self.feed_forward_norm = nn.LayerNorm(dim)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        *,
        own: KeyValueCache | None = None,
        across: KeyValueCache | None = None,
    ) -> Tensor:
        """Map (B, N, D) tokens of the target to (B, N, D) tokens.

        Padding at the end of the target needs no mask: no real token looks so far ahead.

        Args:
            x: the target.
            memory: (B, M, D) tokens of the encoder.
            mask: broadcasts to (B, H, N, M), True where a token of the encoder may be attended to.
            own: earlier tokens of the target, to which these are added.
            across: keys and values of ``memory``, computed on the first call. With caches ``x`` is one token of each
                of W hypotheses, (B * W, 1, D).
        """
        x = self._residual(self.self_attn_norm, x, lambda y: self.self_attn(self._asking(y), is_causal=True, cache=own))
        x = self._residual(self.cross_attn_norm, x, lambda y: self._look_across(self._asking(y), memory, mask, across))
        return self._residual(self.feed_forward_norm, x, self.feed_forward)

    def _look_across(self, x: Tensor, memory: Tensor, mask: Tensor | None, across: KeyValueCache | None) -> Tensor:
        if across is None:
            return self.cross_attn(x, memory, mask)
        # the hypotheses of one sentence ask the same keys, so they are queries of one sequence: (B, W, D)
        together = x.view(memory.size(0), -1, x.size(-1))
        return self.cross_attn(together, memory, mask, cache=across).view_as(x)


class Decoder(nn.Module):
    """A stack of decoder layers that share two attentions.

    Args:
        attention: the attention among the decoder's tokens in every layer; it has no parameters.
        cross_attention: the attention from the decoder's tokens to the encoder's.
        dim: width of a token.
        depth: number of layers.
        num_heads: number of heads; must divide ``dim``.
        ffn_dim: width of the feed-forward networks.
        projection: makes the map to queries and keys of each self-attention, such as
            ``LinearProjection`` or ``OrthogonalProjection``.
        cross_projection: the same of each cross-attention.
        pre_norm: pre-LN layers (with a last norm) instead of post-LN.
        dropout: probability of dropping a coordinate of a sublayer's result.
        on_sphere: whether the tokens that enter an attention are normalised to length 1.
    """

    def __init__(
        self,
        attention: Attention,
        cross_attention: Attention,
        *,
        dim: int = 64,
        depth: int = 1,
        num_heads: int = 1,
        ffn_dim: int = 256,
        projection: Callable[[int, int], Projection] = LinearProjection,
        cross_projection: Callable[[int, int], Projection] = LinearProjection,
        pre_norm: bool = False,
        dropout: float = 0.1,
        on_sphere: bool = False,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        _check(attention, cross_attention)
        self.dim = dim
        self.layers = nn.ModuleList(
            DecoderLayer(
                MultiheadAttention(dim, num_heads, attention, projection),
                MultiheadAttention(dim, num_heads, cross_attention, cross_projection),
                FeedForward(dim, ffn_dim, dropout=dropout),
                dim,
                pre_norm=pre_norm,
                dropout=dropout,
                on_sphere=on_sphere,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim) if pre_norm else nn.Identity()

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, N, D) tokens to (B, N, D); ``mask`` broadcasts to (B, H, N, M), True = may attend to ``memory``."""
        for layer in self.layers:
            x = layer(x, memory, mask)
        return self.norm(x)

    def step(self, x: Tensor, state: DecoderState) -> Tensor:
        """Map the next token of each hypothesis, (R, 1, D), to (R, 1, D), and remember it in ``state``."""
        for layer, own, across in zip(self.layers, state.self_attn, state.cross_attn, strict=True):
            x = layer(x, state.memory, state.mask, own=own, across=across)
        return self.norm(x)


def _check(attention: Attention, cross_attention: Attention) -> None:
    """Raise if an attention cannot do its part in a decoder."""
    if attention.density_power:
        raise ValueError(
            f"a decoder's self-attention takes density_power = 0, got {attention.density_power}: the density of the "
            "tokens to come is not known; give the decoder an attention of its own"
        )
    if cross_attention.exclude_self or cross_attention.density_power:
        raise ValueError(
            f"cross-attention takes neither exclude_self nor density_power, got {cross_attention}: its queries and "
            "keys are different tokens; give it an attention of its own"
        )
