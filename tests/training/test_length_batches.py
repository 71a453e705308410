"""Batches by length: every sequence once, little padding, shared out among ranks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fna_lightning.tasks.text.data import Sequences, pad
from fna_lightning.training.samplers import LengthGroupedBatchSampler

sizes = st.integers(0, 300)


@given(count=sizes, batch_size=st.integers(1, 40), world=st.integers(1, 5), epoch=st.integers(0, 3))
def test_evaluation_sees_every_sequence_once(count: int, batch_size: int, world: int, epoch: int) -> None:
    lengths = np.random.default_rng(count).integers(1, 500, count)
    seen: list[int] = []
    for rank in range(world):
        batches = LengthGroupedBatchSampler(lengths, batch_size, shuffle=False, rank=rank, world_size=world)
        batches.set_epoch(epoch)
        mine = list(batches)
        assert len(mine) == len(batches)
        assert all(0 < len(batch) <= batch_size for batch in mine)
        seen += [index for batch in mine for index in batch]
    assert sorted(seen) == list(range(count))


@given(count=sizes, batch_size=st.integers(1, 40), world=st.integers(1, 5))
def test_ranks_together_train_on_the_batches_of_one(count: int, batch_size: int, world: int) -> None:
    lengths = np.random.default_rng(count).integers(1, 500, count)
    one = list(LengthGroupedBatchSampler(lengths, batch_size * world, shuffle=True, seed=7))
    ranks = [
        list(LengthGroupedBatchSampler(lengths, batch_size, shuffle=True, seed=7, rank=rank, world_size=world))
        for rank in range(world)
    ]
    assert len({len(mine) for mine in ranks}) == 1
    together = [sorted(index for batch in step for index in batch) for step in zip(*ranks, strict=True)]
    # a last batch smaller than the number of ranks is left out, or some rank would have no share
    assert sorted(together) == sorted(sorted(batch) for batch in one if len(batch) >= world)
    announced = [
        len(LengthGroupedBatchSampler(lengths, batch_size, shuffle=True, rank=rank, world_size=world))
        for rank in range(world)
    ]
    assert announced == [len(mine) for mine in ranks]


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    lengths = np.arange(1, 201)
    batches = LengthGroupedBatchSampler(lengths, 8, shuffle=True, seed=1)
    first = list(batches)
    assert list(batches) == first
    batches.set_epoch(1)
    assert list(batches) != first
    assert list(LengthGroupedBatchSampler(lengths, 8, shuffle=True, seed=2)) != first


def test_little_of_a_batch_is_padding() -> None:
    lengths = np.random.default_rng(0).integers(20, 500, 5000)
    batches = list(LengthGroupedBatchSampler(lengths, 32, shuffle=True))
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded / lengths.sum() < 1.05


def test_padding_keeps_the_tokens_and_an_empty_text() -> None:
    sequences = Sequences.of([[5, 6, 7], [], [8]], [1, 0, 1])
    batch = pad([sequences[i] for i in range(3)])
    assert batch.tokens.tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert batch.lengths.tolist() == [3, 0, 1]
    assert batch.labels.tolist() == [1, 0, 1]
    assert pad([sequences[1]]).tokens.tolist() == [[0]]
