"""Padding of token sequences to the tensors a model takes."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fna_lightning.nn.token_table import PAD


def pad_tokens(
    sequences: Sequence[Sequence[int] | NDArray[np.integer]], *, min_length: int = 1
) -> tuple[Tensor, Tensor]:
    """Return (B, N) token ids, padded with ``PAD``, and the (B,) lengths of the sequences.

    Args:
        sequences: token ids of each sequence.
        min_length: minimum of N; N is otherwise the length of the longest sequence.
    """
    lengths = [len(sequence) for sequence in sequences]
    padded = np.full((len(sequences), max([min_length, *lengths])), PAD, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded), torch.tensor(lengths, dtype=torch.long)
