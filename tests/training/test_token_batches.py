"""Token-bucketed batches: every pair once, no batch too large, as many in every epoch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fna_lightning.training.samplers import TokenBatchSampler

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=200)


def made(lengths: list[int], tokens: int, **more: object) -> TokenBatchSampler:
    longer = np.asarray(lengths)
    return TokenBatchSampler(longer, np.maximum(longer // 2, 1), tokens, **more)  # type: ignore[arg-type]


@given(lengths=LENGTHS, tokens=st.integers(1, 300), epoch=st.integers(0, 5), shuffle=st.booleans())
def test_every_pair_once_and_no_batch_too_large(lengths, tokens, epoch, shuffle) -> None:
    batches = made(lengths, tokens, shuffle=shuffle)
    batches.set_epoch(epoch)
    found = list(batches)
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    assert len(found) == len(batches)
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= tokens


@given(lengths=LENGTHS, tokens=st.integers(40, 200), world=st.integers(2, 4), shuffle=st.booleans())
def test_ranks_share_every_batch(lengths, tokens, world, shuffle) -> None:
    ranks = [made(lengths, tokens, shuffle=shuffle, rank=rank, world_size=world) for rank in range(world)]
    shares = [list(one) for one in ranks]
    assert [len(one) for one in ranks] == [len(share) for share in shares]
    seen = [index for share in shares for batch in share for index in batch]
    assert len(seen) == len(set(seen))
    if shuffle:
        # gradients are exchanged: as many batches on every rank, at the price of a last one that is too small
        assert len({len(share) for share in shares}) == 1
        assert len(lengths) - len(seen) < world
    else:
        assert len(seen) == len(lengths)


def test_epochs_differ_and_repeat() -> None:
    lengths = list(np.random.default_rng(0).integers(3, 20, 300))
    batches = made(lengths, 100, shuffle=True, seed=1)
    first = list(batches)
    assert list(batches) == first
    batches.set_epoch(1)
    assert list(batches) != first
    assert {frozenset(batch) for batch in batches} != {frozenset(batch) for batch in first}


def test_no_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        made([1], 0, shuffle=False)
