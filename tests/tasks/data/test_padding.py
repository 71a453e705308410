"""Padding of token sequences."""

import numpy as np
import torch

from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.data.sequences import Sequences


def test_lists_and_arrays_are_padded_with_zeros() -> None:
    tokens, lengths = pad_tokens([[5, 6, 7], np.asarray([], np.uint16), np.asarray([8], np.uint16)])
    assert tokens.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert lengths.tolist() == [3, 0, 1]
    assert tokens.dtype == lengths.dtype == torch.long


def test_the_minimum_length() -> None:
    assert pad_tokens([[]])[0].tolist() == [[0]]
    assert pad_tokens([[1]], min_length=3)[0].tolist() == [[1, 0, 0]]
    assert pad_tokens([[1, 2, 3, 4]], min_length=3)[0].tolist() == [[1, 2, 3, 4]]
    assert pad_tokens([])[0].shape == (0, 1)


def test_sequences_are_views_into_one_array() -> None:
    sequences = Sequences.of([[1, 2, 3], [], [4, 5]], [0, 1, 0])
    assert [(tokens.tolist(), label) for tokens, label in (sequences[index] for index in range(3))] == [
        ([1, 2, 3], 0),
        ([], 1),
        ([4, 5], 0),
    ]
    subset = sequences.take(np.asarray([2, 0])).truncate(1)
    assert [subset[index][0].tolist() for index in range(len(subset))] == [[4], [1]]
    assert np.shares_memory(subset[0][0], sequences.tokens)
