"""Transformer encoder with any attention."""

from dataclasses import dataclass

from torch import Tensor, nn

from fna_lightning.attention import Attention
from fna_lightning.nn.layer import LayerConfig, ResidualLayer


class EncoderLayer(ResidualLayer):
    """Self-attention and a feed-forward network, each with a residual connection and a layer norm.

    Args:
        attention: the attention between queries and keys.
        config: settings of the layer.
    """

    def __init__(self, attention: Attention, config: LayerConfig) -> None:
        super().__init__(config)
        self.self_attn = config.self_attn(attention)
        self.feed_forward = config.feed_forward()
        self.self_attn_norm = nn.LayerNorm(config.dim)
        self.feed_forward_norm = nn.LayerNorm(config.dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, N, D) tokens to (B, N, D) tokens."""
        x = self.apply_sublayer(self.self_attn_norm, x, lambda y: self.self_attn(self.attention_input(y), mask=mask))
        return self.apply_sublayer(self.feed_forward_norm, x, self.feed_forward)


class Encoder(nn.Module):
    """Stack of encoder layers that share one attention.

    Args:
        attention: the attention of every layer; a setting that it learns is learned by each layer separately.
        layer: settings of every layer.
        depth: number of layers.
    """

    def __init__(self, attention: Attention, layer: LayerConfig = LayerConfig(), depth: int = 1) -> None:  # noqa: B008 - frozen
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self.dim = layer.dim
        self.layers = nn.ModuleList(EncoderLayer(attention, layer) for _ in range(depth))
        self.norm = layer.final_norm()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, N, D) tokens to (B, N, D) tokens; ``mask`` broadcasts to (B, H, N, N), True = may attend."""
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


@dataclass(frozen=True)
class EncoderConfig(LayerConfig):
    """Settings of an encoder: those of its layers (see ``LayerConfig``) and their number. Builds it when called.

    Args:
        depth: number of layers.
    """

    depth: int = 1

    def __call__(self, attention: Attention) -> Encoder:
        """Build the encoder."""
        return Encoder(attention, self, self.depth)
