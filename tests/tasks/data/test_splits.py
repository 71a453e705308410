"""Train, validation and test splits."""

import numpy as np
import pytest

from fna_lightning.tasks.data.splits import check_validation_share, split_sizes, stratified, train_or_val_rows

LABELS = np.repeat([0, 1, 2], [40, 100, 8])


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_the_share_is_the_same_for_every_class(share) -> None:
    chosen = stratified(LABELS, share, seed=3)
    assert np.bincount(LABELS[chosen]).tolist() == [round(share * count) for count in (40, 100, 8)]


def test_the_algorithm_has_not_changed() -> None:
    """Published results were measured on these splits."""
    labels = np.asarray([0, 1] * 10)
    assert np.flatnonzero(stratified(labels, 0.3, seed=0)).tolist() == [4, 5, 7, 8, 12, 19]


def test_train_and_val_rows_are_disjoint_and_complete() -> None:
    train, val = (train_or_val_rows(LABELS, split, 0.25, 1) for split in ("train", "val"))
    assert sorted([*train, *val]) == list(range(len(LABELS)))
    assert len(val) == 10 + 25 + 2


def test_blocks_of_successive_examples_stay_together() -> None:
    labels = np.tile(np.repeat([0, 1], 3), 40)  # three of each class in turn
    chosen = stratified(labels, 0.25, seed=2, block=10)
    for label in (0, 1):
        blocks = chosen[labels == label].reshape(-1, 10)
        assert blocks.all(axis=1).sum() == 3  # of 12 blocks
        assert not blocks[~blocks.all(axis=1)].any()


def test_the_last_block_is_cut_so_that_the_share_is_exact() -> None:
    labels = np.zeros(105, dtype=int)
    chosen = stratified(labels, 0.2, seed=0, block=10)
    assert chosen.sum() == 21
    # two whole blocks, and one of which only the beginning is held out
    assert np.abs(np.diff(chosen.astype(int))).sum() <= 6


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_the_share_must_lie_between_0_and_1(share) -> None:
    with pytest.raises(ValueError, match=f"validation must lie between 0 and 1, got {share}; 0.1 holds out 10 %"):
        check_validation_share(share)


def test_sizes_of_generated_splits() -> None:
    assert split_sizes(5, 2) == {"train": 5, "val": 2, "test": 2}
    with pytest.raises(ValueError, match="train_size and eval_size must be at least 1, got 5 and 0"):
        split_sizes(5, 0)
