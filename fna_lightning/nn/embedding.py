"""Token ids to vectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fna_lightning.attention.distance import unit
from fna_lightning.nn.bigrams import Bigrams
from fna_lightning.nn.positions import Positions


class Embedding(nn.Module):
    """Token and position embeddings.

    Args:
        vocab_size: number of token ids; id 0 is padding.
        dim: width of a token.
        max_length: longest sequence.
        positions: see ``Positions``.
        dropout: probability of dropping a coordinate.
        token_dropout: probability of dropping a whole token; its position stays.
        bigrams: rows of the table of hashed token pairs; 0 for none.
        on_sphere: whether every token is normalised to length 1, as attention on the sphere expects.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        *,
        max_length: int = 512,
        positions: str = "sinusoidal",
        dropout: float = 0.1,
        token_dropout: float = 0.0,
        bigrams: int = 0,
        on_sphere: bool = False,
    ) -> None:
        super().__init__()
        if not 0.0 <= token_dropout < 1.0:
            raise ValueError(f"token_dropout must lie in [0, 1), got {token_dropout}")
        self.tokens = nn.Embedding(vocab_size, dim, padding_idx=0)
        self.bigrams = Bigrams(bigrams, dim) if bigrams else None
        self.positions = Positions(positions, max_length, dim)
        self.dropout = nn.Dropout(dropout)
        self.token_dropout = token_dropout
        self.on_sphere = on_sphere

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Map (B, N) ids to (B, N, D) vectors."""
        x = self.tokens(tokens)
        if self.bigrams is not None:
            x = x + self.bigrams(tokens)
        if self.training and self.token_dropout:
            x = x * F.dropout(torch.ones_like(x[..., :1]), self.token_dropout)
        x = self.dropout(self.positions(x, start))
        return unit(x) if self.on_sphere else x
