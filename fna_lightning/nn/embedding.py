"""Token ids to vectors."""

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
        max_length: longest sequence.
        positions: see ``Positions``.
        dropout: probability of dropping a coordinate.
        on_sphere: whether every token is normalised to length 1, as attention on the sphere expects.
        table: makes the vectors of tokens from the number of token ids and the width.
        scale: what the vectors of tokens are multiplied by; a table that also scores the next token is kept small and
            takes the square root of the width here.
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
        """Map (B, N) ids to (B, N, D) vectors."""
        x = self.tokens(tokens)
        x = self.dropout(self.positions(x if self.scale == 1.0 else x * self.scale, start))
        return unit(x) if self.on_sphere else x
