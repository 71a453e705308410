"""Train, validation and test splits."""

import numpy as np
from numpy.typing import NDArray

SPLITS = ("train", "val", "test")


def stratified(labels: NDArray[np.integer], share: float, seed: int) -> NDArray[np.bool_]:
    """Return a mask that is True for a random ``share`` of each class, rounded to whole examples."""
    chosen = np.zeros(len(labels), dtype=bool)
    rng = np.random.default_rng(seed)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        chosen[members[: round(share * len(members))]] = True
    return chosen


def train_or_val_rows(labels: NDArray[np.integer], split: str, share: float, seed: int) -> NDArray[np.integer]:
    """Return the rows of the split "val", a stratified ``share`` of ``labels``, or those of the split "train"."""
    held_out = stratified(labels, share, seed)
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
