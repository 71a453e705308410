"""Token vectors, and vectors of pairs and triples of neighboring tokens such as "not good"."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Token id of padding.
PAD = 0
# Large and odd, so that pairs and triples of small ids spread over the whole table.
HASH_FACTORS = (1_000_003, 7_919, 15_485_863)


class TokenTable(nn.Embedding):
    """A learned vector per token id and, optionally, one per pair and per triple of neighboring tokens.

    Pairs and triples are hashed into tables as in fastText (Joulin et al., 2017, "Bag of tricks for efficient text
    classification"), so different pairs may share a row. The vectors of padding are 0 and stay 0.

    Args:
        vocab_size: number of token ids; id 0 is padding.
        dim: width of a token.
        std: standard deviation of the initial vectors; with a smaller one, rare tokens learn faster.
        pairs: rows of the table of pairs; 0 for no table.
        triples: rows of the table of triples; 0 for no table.
        dropout: probability of dropping a whole token in training.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        *,
        std: float = 1.0,
        pairs: int = 0,
        triples: int = 0,
        dropout: float = 0.0,
    ) -> None:
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        if not std > 0.0:
            raise ValueError(f"std must be positive, got {std}")
        check_rows("pairs", pairs)
        check_rows("triples", triples)
        super().__init__(vocab_size, dim, padding_idx=PAD)
        self.pairs = nn.Embedding(pairs, dim, padding_idx=PAD) if pairs else None
        self.triples = nn.Embedding(triples, dim, padding_idx=PAD) if triples else None
        self.dropout = dropout
        with torch.no_grad():
            self.weight *= std
            if self.pairs is not None:
                self.pairs.weight *= std
            if self.triples is not None:
                self.triples.weight *= std

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, N) ids to (B, N, D) vectors."""
        x = super().forward(tokens)
        if self.pairs is not None:
            x = x + self.pairs(ngram_rows(tokens, 2, self.pairs.num_embeddings))
        if self.triples is not None:
            x = x + self.triples(ngram_rows(tokens, 3, self.triples.num_embeddings))
        if self.training and self.dropout:
            x = x * F.dropout(torch.ones_like(x[..., :1]), self.dropout)
        return x


def ngram_rows(tokens: Tensor, order: int, rows: int) -> Tensor:
    """Return the (B, N) table rows of each token and the ``order - 1`` next ones; the row of padding at the end."""
    hashed, complete = tokens * HASH_FACTORS[0], tokens != PAD
    for shift in range(1, order):
        following = F.pad(tokens[:, shift:], (0, min(shift, tokens.size(1))), value=PAD)
        hashed = hashed + following * HASH_FACTORS[shift]
        complete = complete & (following != PAD)
    return torch.where(complete, 1 + hashed % (rows - 1), PAD)


def check_rows(name: str, rows: int) -> None:
    """Raise a ``ValueError`` if a table of pairs or triples cannot have this number of rows."""
    if rows < 0 or rows == 1:
        raise ValueError(f"{name} must be 0 (no table) or at least 2 (row {PAD} is for padding), got {rows}")
