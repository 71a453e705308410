"""Train, validation and test splits."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError

SPLITS = ("train", "val", "test")
# names of the splits in other data sets
SPLIT_NAMES = {"train": ("train",), "val": ("val", "validation", "valid", "dev"), "test": ("test",)}
# the options of a data module that define each split, without "--data."
OPTIONS = {"train": "path", "val": "validation", "test": "test"}


def stratified(labels: NDArray[np.integer], share: float, seed: int, block: int = 1) -> NDArray[np.bool_]:
    """Return a mask that is True for a random ``share`` of each class, rounded to whole examples.

    Blocks of ``block`` successive examples of a class are chosen together.
    """
    chosen = np.zeros(len(labels), dtype=bool)
    rng = np.random.default_rng(seed)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        blocks = [members[start : start + block] for start in range(0, len(members), block)]
        members = np.concatenate([blocks[number] for number in rng.permutation(len(blocks))])
        chosen[members[: round(share * len(members))]] = True
    return chosen


def train_or_val_rows(
    labels: NDArray[np.integer], split: str, share: float, seed: int, block: int = 1
) -> NDArray[np.integer]:
    """Return the rows of the split "val", a stratified ``share`` of ``labels``, or those of the split "train"."""
    held_out = stratified(labels, share, seed, block)
    return np.flatnonzero(held_out if split == "val" else ~held_out)


def check_validation_share(validation: float) -> None:
    """Raise a ``ValueError`` unless ``validation`` is a share between 0 and 1."""
    if not 0.0 < validation < 1.0:
        raise ValueError(
            f"validation must lie between 0 and 1, got {validation}; 0.1 holds out 10 % of the training examples"
        )


def split_sizes(train_size: int, eval_size: int) -> dict[str, int]:
    """Return the number of examples in each split of a generated data set; "val" and "test" have ``eval_size``."""
    if min(train_size, eval_size) < 1:
        raise ValueError(f"train_size and eval_size must be at least 1, got {train_size} and {eval_size}")
    return {"train": train_size, "val": eval_size, "test": eval_size}


def hold_out(labels: NDArray[np.integer], shares: Mapping[str, float], seed: int, name: str) -> dict[str, NDArray]:
    """Return the rows of each split: a random share of all rows for those in ``shares``, the others for "train".

    Each class has nearly the same share in every split, and at least one row in "train".

    Args:
        labels: class of each row.
        shares: share of the rows of each split that is held out, "val" or "test".
        seed: random seed.
        name: what error messages call the data set.

    Raises:
        UsageError: if a split would be empty.
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # grouped by class, in random order within a class
    first = np.diff(labels[order], prepend=-1) != 0
    kept, free = order[first], order[~first]
    rows = {}
    for split, share in shares.items():
        count = round(share * len(labels))
        if not 0 < count <= len(free):
            option = OPTIONS[split]
            raise UsageError(
                f"{name} has {len(labels)} rows, which is too few to hold out {share:.0%} of them for {option}; add "
                f"rows, or set --data.{option} to another share or to a file"
            )
        # evenly spaced rows of the order above have the same share of every class
        chosen = np.zeros(len(free), dtype=bool)
        chosen[((np.arange(count) + 0.5) * len(free) / count).astype(int)] = True
        rows[split] = np.sort(free[chosen])
        free = free[~chosen]
    return {"train": np.sort(np.concatenate([kept, free])), **rows}
