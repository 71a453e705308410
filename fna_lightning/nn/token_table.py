"""Token vectors, and vectors of pairs of neighboring tokens such as "not good"."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Token id of padding.
PAD = 0
# Large and odd, so that pairs of small ids spread over the whole table.
HASH_FACTORS = (1_000_003, 7_919)


class TokenTable(nn.Embedding):
    """A learned vector per token id and, optionally, one per pair of a token and the next one.

    Pairs are hashed into a table as in fastText (Joulin et al., 2017, "Bag of tricks for efficient text
    classification"), so different pairs may share a row. The vectors of padding are 0 and stay 0.

    Args:
        vocab_size: number of token ids; id 0 is padding.
        dim: width of a token.
        std: standard deviation of the initial vectors; with a smaller one, rare tokens learn faster.
        pairs: rows of the table of pairs; 0 for no table.
        dropout: probability of dropping a whole token in training.
    """

    def __init__(self, vocab_size: int, dim: int, *, std: float = 1.0, pairs: int = 0, dropout: float = 0.0) -> None:
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        if not std > 0.0:
            raise ValueError(f"std must be positive, got {std}")
        if pairs < 0 or pairs == 1:
            raise ValueError(f"pairs must be 0 (no table) or at least 2 (row {PAD} is for padding), got {pairs}")
        super().__init__(vocab_size, dim, padding_idx=PAD)
        self.pairs = nn.Embedding(pairs, dim, padding_idx=PAD) if pairs else None
        self.dropout = dropout
        with torch.no_grad():
            self.weight *= std
            if self.pairs is not None:
                self.pairs.weight *= std

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, N) ids to (B, N, D) vectors."""
        x = super().forward(tokens)
        if self.pairs is not None:
            x = x + self.pairs(pair_rows(tokens, self.pairs.num_embeddings))
        if self.training and self.dropout:
            x = x * F.dropout(torch.ones_like(x[..., :1]), self.dropout)
        return x


def pair_rows(tokens: Tensor, rows: int) -> Tensor:
    """Return the (B, N) table rows of each token and the next one; the row of padding where there is no pair."""
    following = F.pad(tokens[:, 1:], (0, 1), value=PAD)
    hashed = 1 + (tokens * HASH_FACTORS[0] + following * HASH_FACTORS[1]) % (rows - 1)
    return torch.where((tokens == PAD) | (following == PAD), PAD, hashed)
