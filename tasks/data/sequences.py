"""Token sequences of different lengths in one array."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset


@dataclass(frozen=True)
class Sequences(Dataset[tuple[NDArray[np.integer], int]]):
    """Token sequences and their labels. Sequences are views into one array, which may be memory-mapped.

    Args:
        tokens: the token ids of all sequences, concatenated.
        starts: index in ``tokens`` of the first token of each sequence.
        lengths: number of tokens of each sequence.
        labels: label of each sequence.
    """

    tokens: NDArray[np.integer]
    starts: NDArray[np.integer]
    lengths: NDArray[np.integer]
    labels: NDArray[np.integer]

    @classmethod
    def of(cls, sequences: list[list[int]], labels: list[int]) -> "Sequences":
        """Concatenate lists of token ids."""
        lengths = np.asarray([len(sequence) for sequence in sequences], dtype=np.int64)
        flat = (token for sequence in sequences for token in sequence)
        tokens = np.fromiter(flat, dtype=np.int32, count=int(lengths.sum()))
        return cls(tokens, lengths.cumsum() - lengths, lengths, np.asarray(labels, dtype=np.int64))

    def take(self, rows: NDArray[np.integer]) -> "Sequences":
        """Return the sequences at ``rows`` without copying tokens."""
        return Sequences(self.tokens, self.starts[rows], self.lengths[rows], self.labels[rows])

    def truncate(self, max_length: int) -> "Sequences":
        """Return the first ``max_length`` tokens of every sequence without copying tokens."""
        return Sequences(self.tokens, self.starts, np.minimum(self.lengths, max_length), self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.integer], int]:
        start = self.starts[index]
        return self.tokens[start : start + self.lengths[index]], int(self.labels[index])
