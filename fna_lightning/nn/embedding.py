"""Embedding of token ids."""

from collections.abc import Callable

from torch import Tensor, nn

from fna_lightning.attention.distance import unit
from fna_lightning.nn.dropout import Dropout
from fna_lightning.nn.positions import Positions
from fna_lightning.nn.token_table import TokenTable


class Embedding(nn.Module):
    """Token and position embeddings.

    Args:
        vocab_size: number of token ids; id 0 is padding.
        dim: width of a token.
        max_length: maximum number of tokens of a sequence.
        positions: see ``Positions``.
        dropout: dropout probability.
        on_sphere: normalize every token to length 1, as attention on the sphere expects.
        table: builds the table of token vectors from ``(vocab_size, dim)``.
        scale: factor of the token vectors. A table that also scores the next token is initialized with small values
            and needs the square root of the width here.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        *,
        max_length: int = 512,
        positions: str = "sinusoidal",
        dropout: float = 0.1,
        on_sphere: bool = False,
        table: Callable[[int, int], TokenTable] = TokenTable,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.tokens = table(vocab_size, dim)
        self.positions = Positions(positions, max_length, dim)
        self.dropout = Dropout(dropout)
        self.on_sphere = on_sphere
        self.scale = scale

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Map (B, N) ids at the positions from ``start`` on to (B, N, D) vectors."""
        x = self.tokens(tokens)
        x = self.dropout(self.positions(x if self.scale == 1.0 else x * self.scale, start))
        return unit(x) if self.on_sphere else x
