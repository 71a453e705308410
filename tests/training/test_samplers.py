"""Batch samplers: every example once, split over ranks, resumable with another batch size and number of processes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fna_lightning.training.sampled_batches import SampledBatchSampler
from fna_lightning.training.samplers import (
    EpochBatchSampler,
    LengthGroupedBatchSampler,
    RankBatchSampler,
    TokenBatchSampler,
)

COUNT = 103
SOURCE, TARGET = np.random.default_rng(0).integers(1, 40, (2, COUNT))
SAMPLERS: dict[str, Callable[[int, int, int], EpochBatchSampler]] = {
    "length": lambda size, rank, ranks: LengthGroupedBatchSampler(
        SOURCE, size, shuffle=True, rank=rank, world_size=ranks
    ),
    "token": lambda size, rank, ranks: TokenBatchSampler(
        np.maximum(SOURCE, TARGET), np.minimum(SOURCE, TARGET), 20 * size, shuffle=True, rank=rank, world_size=ranks
    ),
    "rank": lambda size, rank, ranks: RankBatchSampler(
        COUNT, size, shuffle=True, drop_last=False, seed=0, rank=rank, world_size=ranks
    ),
}
# for each part of an epoch: batch size, number of processes, and the share of its batches done before it stops
PARTS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3), st.floats(0.0, 0.99)), min_size=2, max_size=4)


@pytest.mark.parametrize("name", SAMPLERS)
@given(parts=PARTS)
def test_parts_of_an_epoch_use_every_example_once(name: str, parts: list[tuple[int, int, float]]) -> None:
    used: list[int] = []
    progress = None
    for number, (size, ranks, share) in enumerate(parts):
        samplers = [SAMPLERS[name](size, rank, ranks) for rank in range(ranks)]
        for sampler in samplers:
            sampler.set_epoch(3)
        # All ranks must agree on the position, or they would wait for each other.
        positions = {(0, 0) if progress is None else sampler.resume(progress) for sampler in samplers}
        ((done, skipped),) = positions
        batches = [list(sampler)[skipped:] for sampler in samplers]
        (count,) = {len(rank_batches) for rank_batches in batches}
        assert count > 0
        taken = count if number == len(parts) - 1 else int(share * count)
        used += [index for rank_batches in batches for batch in rank_batches[:taken] for index in batch]
        progress = samplers[0].progress(done + taken)
    counts = Counter(used)
    most_ranks = max(ranks for _, ranks, _ in parts)
    # The last batch of an epoch is dropped, or filled up, if it has fewer examples than there are processes.
    assert (COUNT - len(counts)) + (len(used) - len(counts)) < most_ranks


@pytest.mark.parametrize("name", SAMPLERS)
@given(size=st.integers(1, 20), share=st.floats(0.0, 0.99))
def test_the_same_batch_size_keeps_the_order(name: str, size: int, share: float) -> None:
    sampler, resumed = (SAMPLERS[name](size, 0, 1) for _ in range(2))
    sampler.set_epoch(3)
    resumed.set_epoch(3)
    batches = list(sampler)
    done = int(share * len(batches))
    assert resumed.resume(sampler.progress(done)) == (done, done)
    assert list(resumed) == batches
    # The next epoch is a whole one again.
    resumed.set_epoch(4)
    assert len(list(resumed)) == len(resumed)


COUNTS = st.integers(0, 300)


@given(count=COUNTS, batch_size=st.integers(1, 40), world_size=st.integers(1, 5), epoch=st.integers(0, 3))
def test_evaluation_uses_every_sequence_once(count: int, batch_size: int, world_size: int, epoch: int) -> None:
    lengths = np.random.default_rng(count).integers(1, 500, count)
    used: list[int] = []
    for rank in range(world_size):
        sampler = LengthGroupedBatchSampler(lengths, batch_size, shuffle=False, rank=rank, world_size=world_size)
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert all(0 < len(batch) <= batch_size for batch in batches)
        used += [index for batch in batches for index in batch]
    assert sorted(used) == list(range(count))


@given(count=COUNTS, batch_size=st.integers(1, 40), world_size=st.integers(1, 5))
def test_ranks_together_train_on_the_batches_of_one_process(count: int, batch_size: int, world_size: int) -> None:
    lengths = np.random.default_rng(count).integers(1, 500, count)
    single = list(LengthGroupedBatchSampler(lengths, batch_size * world_size, shuffle=True, seed=7))
    samplers = [
        LengthGroupedBatchSampler(lengths, batch_size, shuffle=True, seed=7, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    ranks = [list(sampler) for sampler in samplers]
    assert len({len(batches) for batches in ranks}) == 1
    together = [sorted(index for batch in step for index in batch) for step in zip(*ranks, strict=True)]
    # A last batch smaller than the number of ranks is left out, or some rank would have no examples.
    assert sorted(together) == sorted(sorted(batch) for batch in single if len(batch) >= world_size)
    assert [len(sampler) for sampler in samplers] == [len(batches) for batches in ranks]


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    lengths = np.arange(1, 201)
    sampler = LengthGroupedBatchSampler(lengths, 8, shuffle=True, seed=1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert list(LengthGroupedBatchSampler(lengths, 8, shuffle=True, seed=2)) != first


def test_grouping_by_length_saves_padding() -> None:
    lengths = np.random.default_rng(0).integers(20, 500, 5000)
    batches = list(LengthGroupedBatchSampler(lengths, 32, shuffle=True))
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded / lengths.sum() < 1.05


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=200)


def token_sampler(lengths: list[int], tokens: int, **settings: Any) -> TokenBatchSampler:
    longer = np.asarray(lengths)
    return TokenBatchSampler(longer, np.maximum(longer // 2, 1), tokens, **settings)


@given(lengths=LENGTHS, tokens=st.integers(1, 300), epoch=st.integers(0, 5), shuffle=st.booleans())
def test_every_pair_once_and_no_batch_too_large(lengths: list[int], tokens: int, epoch: int, shuffle: bool) -> None:
    sampler = token_sampler(lengths, tokens, shuffle=shuffle)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert len(batches) == len(sampler)
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= tokens


@given(lengths=LENGTHS, tokens=st.integers(40, 200), world_size=st.integers(2, 4), shuffle=st.booleans())
def test_ranks_share_every_token_batch(lengths: list[int], tokens: int, world_size: int, shuffle: bool) -> None:
    samplers = [
        token_sampler(lengths, tokens, shuffle=shuffle, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    shares = [list(sampler) for sampler in samplers]
    assert [len(sampler) for sampler in samplers] == [len(share) for share in shares]
    used = [index for share in shares for batch in share for index in batch]
    assert len(used) == len(set(used))
    if shuffle:
        # Gradients are exchanged, so every rank has the same number of batches; a last batch too small is dropped.
        assert len({len(share) for share in shares}) == 1
        assert len(lengths) - len(used) < world_size
    else:
        assert len(used) == len(lengths)


def test_token_batches_differ_between_epochs_and_repeat_within_one() -> None:
    lengths = list(np.random.default_rng(0).integers(3, 20, 300))
    sampler = token_sampler(lengths, 100, shuffle=True, seed=1)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    assert {frozenset(batch) for batch in sampler} != {frozenset(batch) for batch in first}


def test_a_batch_of_zero_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        token_sampler([1], 0, shuffle=False)


def sampled(name: str, size: int, ranks: int, limit: int) -> list[SampledBatchSampler]:
    """Return the samplers of all processes for an evaluation of ``limit`` batches."""
    samplers = []
    for rank in range(ranks):
        source = SAMPLERS[name](size, rank, ranks)
        source.shuffle = False
        samplers.append(SampledBatchSampler(source, limit))
    return samplers


@pytest.mark.parametrize("name", SAMPLERS)
@given(size=st.integers(2, 9), ranks=st.integers(1, 3), limit=st.integers(1, 3))
def test_a_sample_and_the_rest_are_all_examples_once(name: str, size: int, ranks: int, limit: int) -> None:
    samplers = sampled(name, size, ranks, limit)
    assert sorted(index for sampler in samplers for batch in sampler for index in batch) == list(range(COUNT))


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sample_is_the_same_in_every_epoch_and_for_every_seed(name: str) -> None:
    (first,), (second,) = sampled(name, 5, 1, 3), sampled(name, 5, 1, 3)
    second.set_epoch(4)
    second.source.seed = 8
    assert list(first) == list(second) == list(first)


@pytest.mark.parametrize("name", ["length", "rank"])
def test_processes_with_the_same_global_batch_evaluate_the_same_sample(name: str) -> None:
    (single,) = sampled(name, 8, 1, 3)
    samples = []
    for samplers in ([single], sampled(name, 4, 2, 3), sampled(name, 2, 4, 3)):
        batches = [batch for sampler in samplers for batch in list(sampler)[:3]]
        samples.append(sorted(index for batch in batches for index in batch))
    assert len(samples[0]) == 24
    assert samples[0] == samples[1] == samples[2]


def test_a_sample_represents_classes_that_the_order_separates() -> None:
    # as IMDb: the first half is negative, and all long texts have the maximum length
    sampler = LengthGroupedBatchSampler(np.full(1000, 512), 16, shuffle=False)
    limited = list(SampledBatchSampler(sampler, 10))[:10]
    assert {index < 500 for batch in list(sampler)[:10] for index in batch} == {True}
    share = sum(index < 500 for batch in limited for index in batch) / 160
    assert 0.4 < share < 0.6


def test_batches_of_a_sample_are_grouped_by_length() -> None:
    sampler = LengthGroupedBatchSampler(SOURCE, 10, shuffle=False)
    lengths = SOURCE[[index for batch in list(SampledBatchSampler(sampler, 4))[:4] for index in batch]]
    assert lengths.tolist() == sorted(lengths, reverse=True)


@pytest.mark.parametrize("limit", [0, 12])
def test_a_sample_has_at_least_one_and_at_most_all_batches(limit: int) -> None:
    with pytest.raises(ValueError, match=f"between 1 and the 11 batches of the sampler, got {limit}"):
        SampledBatchSampler(LengthGroupedBatchSampler(SOURCE, 10, shuffle=False), limit)
