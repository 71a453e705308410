"""Pairs of neighbouring tokens as features: "not good" is more than "not" and "good"."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# odd and large, so that pairs of small ids spread over the whole table
FACTORS = (1_000_003, 7_919)


class Bigrams(nn.Module):
    """One vector for each pair (a token and the next one), by hashing into a table, as fastText does.

    Joulin et al., 2017, "Bag of tricks for efficient text classification". Different pairs may share a row.

    Args:
        rows: size of the table; row 0 stays 0 and stands for pairs with padding.
        dim: width of a token.
    """

    def __init__(self, rows: int, dim: int) -> None:
        super().__init__()
        if rows < 2:
            raise ValueError(f"a table of bigrams needs at least 2 rows, got {rows}")
        self.table = nn.Embedding(rows, dim, padding_idx=0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map (B, N) ids, 0 where padded, to the (B, N, D) vectors of each token with the one after it."""
        return self.table(self.rows(tokens))

    def rows(self, tokens: Tensor) -> Tensor:
        """Return the (B, N) rows of the pairs; the last token of a sequence has no pair."""
        after = F.pad(tokens[:, 1:], (0, 1))
        hashed = 1 + (tokens * FACTORS[0] + after * FACTORS[1]) % (self.table.num_embeddings - 1)
        return torch.where((tokens == 0) | (after == 0), 0, hashed)
