"""Parts shared by the layers of the encoder and the decoder."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from fna_lightning.attention import Attention, LinearProjection, MultiheadAttention, Projection
from fna_lightning.attention.distance import unit
from fna_lightning.attention.linear import Linear
from fna_lightning.nn.dropout import Dropout
from fna_lightning.nn.gelu import GELU

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": GELU}


class FeedForward(nn.Sequential):
    """Two linear layers with an activation in between, applied to each token.

    Args:
        dim: width of a token.
        ffn_dim: width of the hidden layer.
        activation: "relu" or "gelu".
        dropout: dropout probability of the hidden layer.
    """

    def __init__(self, dim: int, ffn_dim: int, *, activation: str = "relu", dropout: float = 0.0) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; choose one of {', '.join(ACTIVATIONS)}")
        widen = Linear(dim, ffn_dim)
        # Column-major storage: for narrow tokens, the matrix products of the backward pass take a third of the time.
        widen.weight = nn.Parameter(widen.weight.detach().t().contiguous().t())
        super().__init__(widen, ACTIVATIONS[activation](), Dropout(dropout), Linear(ffn_dim, dim))


@dataclass(frozen=True)
class LayerConfig:
    """Settings of a Transformer layer, shared by encoder and decoder.

    Args:
        dim: width of a token.
        num_heads: number of heads; must divide ``dim``.
        ffn_dim: width of the hidden layer of the feed-forward network.
        projection: builds the projection to queries and keys from ``(dim, num_heads)``, such as ``LinearProjection``
            or ``OrthogonalProjection``.
        activation: activation of the feed-forward network, "relu" or "gelu".
        dropout: dropout probability of the output of each sublayer and of the feed-forward network.
        pre_norm: normalize the input of each sublayer (pre-LN) instead of the output of its residual (post-LN).
        on_sphere: normalize the tokens that enter an attention to length 1.
    """

    dim: int = 64
    num_heads: int = 1
    ffn_dim: int = 256
    projection: Callable[[int, int], Projection] = LinearProjection
    activation: str = "relu"
    dropout: float = 0.1
    pre_norm: bool = False
    on_sphere: bool = False

    def self_attn(self, attention: Attention) -> MultiheadAttention:
        """Build the multi-head self-attention of a layer."""
        return MultiheadAttention(self.dim, self.num_heads, attention, self.projection)

    def feed_forward(self) -> FeedForward:
        """Build the feed-forward network of a layer."""
        return FeedForward(self.dim, self.ffn_dim, activation=self.activation, dropout=self.dropout)

    def final_norm(self) -> nn.Module:
        """Build the norm after the last layer: pre-LN needs one, post-LN does not."""
        return nn.LayerNorm(self.dim) if self.pre_norm else nn.Identity()


class ResidualLayer(nn.Module):
    """Base class of layers: each sublayer has a residual connection and a layer norm.

    Args:
        config: settings of the layer.
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm
        self.on_sphere = config.on_sphere
        self.dropout = Dropout(config.dropout)

    def apply_sublayer(self, norm: nn.Module, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``x`` plus the output of ``sublayer``, normalized before or after according to ``pre_norm``."""
        if self.pre_norm:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def attention_input(self, x: Tensor) -> Tensor:
        """Return the tokens that enter an attention, normalized to length 1 if ``on_sphere``."""
        return unit(x) if self.on_sphere else x
