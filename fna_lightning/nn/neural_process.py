"""Neural processes: regression from a set of context points, with any attention.

Queries attend to the context only, so a prediction does not depend on which other points are queried.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from fna_lightning.attention import Attention, MultiheadAttention
from fna_lightning.attention.autocast import with_autocast_type
from fna_lightning.attention.linear import Linear
from fna_lightning.nn.gelu import GELU
from fna_lightning.nn.layer import FeedForward


class NeuralProcess(nn.Module, ABC):
    """Base class of networks that map context points and query coordinates to one output per query.

    Args:
        coordinate_dim: number of coordinates of a point.
        value_dim: number of values of a context point.
        out_dim: number of outputs per query.
    """

    head: nn.Module

    def __init__(self, coordinate_dim: int, value_dim: int, out_dim: int) -> None:
        super().__init__()
        for name, size in (("coordinate_dim", coordinate_dim), ("value_dim", value_dim), ("out_dim", out_dim)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        self.coordinate_dim = coordinate_dim
        self.value_dim = value_dim
        self.out_dim = out_dim

    @abstractmethod
    def forward(self, context_x: Tensor, context_y: Tensor, query_x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the (B, N, out_dim) outputs of the queries.

        Args:
            context_x: (B, M, coordinate_dim) coordinates of the context points.
            context_y: (B, M, value_dim) values of the context points.
            query_x: (B, N, coordinate_dim) coordinates of the queries.
            mask: (B, 1, 1, M), False for context points that are padding; None if there is no padding.
        """

    def _predict(self, x: Tensor) -> Tensor:
        """Return the output of ``head`` in the type of its parameters, also under autocast: bfloat16 has two digits."""
        with with_autocast_type(None, x.device):
            return self.head(x.to(next(self.head.parameters()).dtype))


class KeyValueAttention(MultiheadAttention):
    """Multi-head attention whose context is (B, M, 2 D): the tokens of the keys, then those of the values."""

    def heads(self, x: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        if context is None:
            raise ValueError("KeyValueAttention needs a context of keys and values; use MultiheadAttention without one")
        keys, values = context.chunk(2, dim=-1)
        q, k = self.projection(x, keys)
        return self._split(q), self._split(k), self._split(self.value(values))


class AttentiveProcess(NeuralProcess):
    """Attentive neural process with one attention layer.

    Keys and queries are coordinates mapped by a shared network; values are coordinates and values of the context
    points. There is no residual connection from the query, so a prediction depends on the attention alone.

    Args:
        attention: the attention of the queries to the context.
        coordinate_dim: number of coordinates of a point.
        value_dim: number of values of a context point.
        out_dim: number of outputs per query.
        dim: width of keys, queries and values.
        num_heads: number of heads; must divide ``dim``.
        head_dim: width of the hidden layer of the output network.
    """

    def __init__(
        self,
        attention: Attention,
        coordinate_dim: int,
        value_dim: int,
        out_dim: int,
        dim: int = 32,
        num_heads: int = 4,
        head_dim: int = 64,
    ) -> None:
        super().__init__(coordinate_dim, value_dim, out_dim)
        self.coordinates = _mlp(coordinate_dim, dim, dim)
        self.values = _mlp(coordinate_dim + value_dim, dim, dim)
        self.cross_attn = KeyValueAttention(dim, num_heads, attention)
        self.head = _mlp(dim, head_dim, out_dim)

    def forward(self, context_x: Tensor, context_y: Tensor, query_x: Tensor, mask: Tensor | None = None) -> Tensor:
        keys = self.coordinates(context_x)
        values = self.values(torch.cat([context_x, context_y], dim=-1))
        context = torch.cat([keys, values], dim=-1)
        return self._predict(self.cross_attn(self.coordinates(query_x), context, mask))


class TransformerProcess(NeuralProcess):
    """Transformer neural process: context and queries are tokens, and every token attends to the context only.

    A token is the coordinates, the values and a flag that is 1 for context points; values and flag of a query are 0.

    Args:
        attention: the attention of every layer.
        coordinate_dim: number of coordinates of a point.
        value_dim: number of values of a context point.
        out_dim: number of outputs per query.
        dim: width of a token.
        num_heads: number of heads; must divide ``dim``.
        depth: number of layers.
        ffn_dim: width of the hidden layer of the feed-forward networks.
    """

    def __init__(
        self,
        attention: Attention,
        coordinate_dim: int,
        value_dim: int,
        out_dim: int,
        dim: int = 64,
        num_heads: int = 4,
        depth: int = 2,
        ffn_dim: int = 128,
    ) -> None:
        super().__init__(coordinate_dim, value_dim, out_dim)
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self.embedding = Linear(coordinate_dim + value_dim + 1, dim)
        self.layers = nn.ModuleList(ContextLayer(attention, dim, num_heads, ffn_dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = Linear(dim, out_dim)

    def forward(self, context_x: Tensor, context_y: Tensor, query_x: Tensor, mask: Tensor | None = None) -> Tensor:
        size = context_x.size(-2)
        flag = context_y.new_ones(*context_y.shape[:-1], 1)
        context = torch.cat([context_x, context_y, flag], dim=-1)
        blank = query_x.new_zeros(*query_x.shape[:-1], self.value_dim + 1)
        x = self.embedding(torch.cat([context, torch.cat([query_x, blank], dim=-1)], dim=-2))
        for layer in self.layers:
            x = layer(x, size, mask)
        return self._predict(self.norm(x[:, size:]))


class ContextLayer(nn.Module):
    """Pre-LN Transformer layer in which all tokens attend to the first tokens, which are the context.

    Args:
        attention: the attention between queries and keys.
        dim: width of a token.
        num_heads: number of heads; must divide ``dim``.
        ffn_dim: width of the hidden layer of the feed-forward network.
    """

    def __init__(self, attention: Attention, dim: int, num_heads: int, ffn_dim: int) -> None:
        super().__init__()
        self.cross_attn = MultiheadAttention(dim, num_heads, attention)
        self.cross_attn_norm = nn.LayerNorm(dim)
        self.feed_forward = FeedForward(dim, ffn_dim, activation="gelu")
        self.feed_forward_norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, context_size: int, mask: Tensor | None = None) -> Tensor:
        """Map (B, M + N, D) tokens, of which the first ``context_size`` are the context, to new tokens."""
        y = self.cross_attn_norm(x)
        x = x + self.cross_attn(y, y[:, :context_size], mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


def _mlp(in_dim: int, hidden_dim: int, out_dim: int) -> nn.Sequential:
    return nn.Sequential(Linear(in_dim, hidden_dim), GELU(), Linear(hidden_dim, out_dim))
