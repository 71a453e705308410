"""Padding of token sequences to a batch."""

from fna_lightning.tasks.data.sequences import Sequences
from fna_lightning.tasks.text.data import pad


def test_padding_keeps_the_tokens_and_an_empty_text() -> None:
    sequences = Sequences.of([[5, 6, 7], [], [8]], [1, 0, 1])
    batch = pad([sequences[i] for i in range(3)])
    assert batch.tokens.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert batch.lengths.tolist() == [3, 0, 1]
    assert batch.labels.tolist() == [1, 0, 1]
    assert pad([sequences[1]]).tokens.tolist() == [[0]]
