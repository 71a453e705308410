"""An epoch that is continued by other numbers of processes and batch sizes uses every example once."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
# batch size, number of processes, and the share of its batches that a part does before it stops
parts = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3), st.floats(0.0, 0.99)), min_size=2, max_size=4)


@pytest.mark.parametrize("kind", SAMPLERS)
@given(plan=parts)
def test_parts_of_an_epoch_use_every_example_once(kind: str, plan: list[tuple[int, int, float]]) -> None:
    used: list[int] = []
    progress = None
    for number, (size, ranks, share) in enumerate(plan):
        samplers = [SAMPLERS[kind](size, rank, ranks) for rank in range(ranks)]
        for sampler in samplers:
            sampler.set_epoch(3)
        # all ranks must agree on the place, or they would wait for each other
        places = {(0, 0) if progress is None else sampler.resume(progress) for sampler in samplers}
        ((done, skipped),) = places
        batches = [list(sampler)[skipped:] for sampler in samplers]
        (count,) = {len(own) for own in batches}
        assert count > 0
        taken = count if number == len(plan) - 1 else int(share * count)
        used += [index for own in batches for batch in own[:taken] for index in batch]
        progress = samplers[0].progress(done + taken)
    counted = Counter(used)
    most = max(ranks for _, ranks, _ in plan)
    # the last batch of an epoch is dropped, or filled up, where it has fewer examples than there are processes
    assert (COUNT - len(counted)) + (len(used) - len(counted)) < most


@pytest.mark.parametrize("kind", SAMPLERS)
@given(size=st.integers(1, 20), share=st.floats(0.0, 0.99))
def test_the_same_batches_keep_their_order(kind: str, size: int, share: float) -> None:
    sampler, resumed = (SAMPLERS[kind](size, 0, 1) for _ in range(2))
    sampler.set_epoch(3)
    resumed.set_epoch(3)
    batches = list(sampler)
    done = int(share * len(batches))
    assert resumed.resume(sampler.progress(done)) == (done, done)
    assert list(resumed) == batches
    # the next epoch is a whole one again
    resumed.set_epoch(4)
    assert len(list(resumed)) == len(resumed)
