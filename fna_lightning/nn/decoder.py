"""Transformer decoder with any attention: causal self-attention and cross-attention to the encoder."""

from collections.abc import Callable

from torch import Tensor, nn

from fna_lightning.attention import Attention, KeyValueCache, LinearProjection, MultiheadAttention, Projection
from fna_lightning.nn.layer import LayerConfig, ResidualLayer


class DecoderLayer(ResidualLayer):
    """Causal self-attention, cross-attention and a feed-forward network, each with a residual and a layer norm.

    With fractional attention, the weights of the cross-attention depend on the distance between decoder queries and
    encoder keys.

    Args:
        attention: the attention among the tokens of the target.
        cross_attention: the attention from the tokens of the target to those of the encoder.
        config: settings of the layer.
        cross_projection: builds the projection to queries and keys of the cross-attention.
    """

    def __init__(
        self,
        attention: Attention,
        cross_attention: Attention,
        config: LayerConfig,
        cross_projection: Callable[[int, int], Projection] = LinearProjection,
    ) -> None:
        super().__init__(config)
        self.self_attn = config.self_attn(attention)
        self.cross_attn = MultiheadAttention(config.dim, config.num_heads, cross_attention, cross_projection)
        self.feed_forward = config.feed_forward()
        self.self_attn_norm = nn.LayerNorm(config.dim)
        self.cross_attn_norm = nn.LayerNorm(config.dim)
        self.feed_forward_norm = nn.LayerNorm(config.dim)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        *,
        self_cache: KeyValueCache | None = None,
        cross_cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Map (B, N, D) tokens of the target to (B, N, D) tokens.

        Padding at the end of the target needs no mask, because causal attention hides it from the real tokens.

        Args:
            x: tokens of the target.
            memory: (B, M, D) output of the encoder.
            mask: broadcasts to (B, H, N, M), True where a token of ``memory`` may be attended to.
            self_cache: keys and values of the earlier tokens of the target; those of ``x`` are appended.
            cross_cache: keys and values of ``memory``, computed on the first call. With caches, ``x`` holds one token
                of each of W hypotheses, (B * W, 1, D).
        """

        def attend(y: Tensor) -> Tensor:
            return self.self_attn(self.attention_input(y), is_causal=True, cache=self_cache)

        def attend_to_memory(y: Tensor) -> Tensor:
            return self._cross_attend(self.attention_input(y), memory, mask, cross_cache)

        x = self.apply_sublayer(self.self_attn_norm, x, attend)
        x = self.apply_sublayer(self.cross_attn_norm, x, attend_to_memory)
        return self.apply_sublayer(self.feed_forward_norm, x, self.feed_forward)

    def _cross_attend(self, x: Tensor, memory: Tensor, mask: Tensor | None, cache: KeyValueCache | None) -> Tensor:
        if cache is None:
            return self.cross_attn(x, memory, mask)
        # All hypotheses of a sentence attend to the same keys, so they are the queries of one sequence: (B, W, D).
        queries = x.view(memory.size(0), -1, x.size(-1))
        return self.cross_attn(queries, memory, mask, cache=cache).view_as(x)


class DecoderState:
    """Key-value caches of all decoder layers for a batch of sentences with the same number of hypotheses each.

    The keys and values of a source sentence are stored once and shared by its hypotheses.

    Args:
        memory: (S, M, D) output of the encoder.
        mask: (S, 1, 1, M), True at real tokens.
        depth: number of decoder layers.
    """

    def __init__(self, memory: Tensor, mask: Tensor | None, depth: int) -> None:
        self.memory = memory
        self.mask = mask
        self.width = 1
        self.self_attn = [KeyValueCache() for _ in range(depth)]
        self.cross_attn = [KeyValueCache() for _ in range(depth)]

    def __len__(self) -> int:
        """Number of tokens of the target in the caches."""
        return len(self.self_attn[0])

    def select(self, rows: Tensor) -> "DecoderState":
        """Keep the hypotheses ``rows``, (sentences, hypotheses); each row of ``rows`` belongs to one sentence."""
        sentences = rows[:, 0] // self.width
        for cache in self.self_attn:
            cache.reorder(rows.flatten())
        if len(sentences) != len(self.memory):
            self.memory = self.memory[sentences]
            self.mask = None if self.mask is None else self.mask[sentences]
            for cache in self.cross_attn:
                cache.reorder(sentences)
        self.width = rows.size(1)
        return self


class Decoder(nn.Module):
    """Stack of decoder layers that share one self-attention and one cross-attention.

    Args:
        attention: the attention among the tokens of the target in every layer.
        cross_attention: the attention from the tokens of the target to those of the encoder.
        layer: settings of every layer; its ``projection`` is that of the self-attention.
        depth: number of layers.
        cross_projection: builds the projection to queries and keys of each cross-attention.
    """

    def __init__(
        self,
        attention: Attention,
        cross_attention: Attention,
        layer: LayerConfig = LayerConfig(),  # noqa: B008 - frozen
        depth: int = 1,
        cross_projection: Callable[[int, int], Projection] = LinearProjection,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        check_decoder_attentions(attention, cross_attention)
        self.dim = layer.dim
        self.layers = nn.ModuleList(
            DecoderLayer(attention, cross_attention, layer, cross_projection) for _ in range(depth)
        )
        self.norm = layer.final_norm()

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, N, D) tokens to (B, N, D); ``mask`` broadcasts to (B, H, N, M), True = may attend to ``memory``."""
        for layer in self.layers:
            x = layer(x, memory, mask)
        return self.norm(x)

    def step(self, x: Tensor, state: DecoderState) -> Tensor:
        """Map the next token of each hypothesis, (R, 1, D), to (R, 1, D), and append it to the caches of ``state``."""
        for layer, self_cache, cross_cache in zip(self.layers, state.self_attn, state.cross_attn, strict=True):
            x = layer(x, state.memory, state.mask, self_cache=self_cache, cross_cache=cross_cache)
        return self.norm(x)


def check_decoder_attentions(attention: Attention, cross_attention: Attention) -> None:
    """Raise ValueError if a decoder cannot use these attentions."""
    if attention.density_power:
        raise ValueError(
            f"the self-attention of a decoder needs density_power = 0, got {attention.density_power}: the density "
            "would depend on later tokens; give the decoder an attention of its own"
        )
    if cross_attention.exclude_self or cross_attention.density_power:
        raise ValueError(
            f"cross-attention takes neither exclude_self nor density_power, got {cross_attention}: its queries and "
            "keys are different tokens; give the cross-attention an attention of its own"
        )
