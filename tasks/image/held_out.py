"""Splits of an image data set, where a missing validation or test split is held out of the training images."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.splits import SPLITS

Rows = dict[str, NDArray[np.integer]]


def check_held_out(held_out: float) -> float:
    """Return ``held_out`` if two such shares leave something to train on, else raise ValueError."""
    if not 0.0 < held_out < 0.5:
        raise ValueError(f"held_out must lie between 0 and 0.5, got {held_out}; 0.1 holds out 10 % of each class")
    return held_out


def consecutive_rows(sizes: Mapping[str, int]) -> Rows:
    """Return the rows of splits of these sizes that are stored one after another."""
    rows: Rows = {}
    start = 0
    for name, size in sizes.items():
        rows[name] = np.arange(start, start + size)
        start += size
    return rows


def with_held_out(rows: Rows, labels: NDArray[np.integer], held_out: float, seed: int, class_names: list[str]) -> Rows:
    """Return the rows of the splits "train", "val" and "test".

    A random share of each class of the training images, but at least one image, becomes each split that is missing.

    Args:
        rows: the rows of the splits that exist, "train" at least.
        labels: the labels of all rows.
        held_out: share of each class that becomes a missing split.
        seed: random seed of the choice.
        class_names: names of the labels, for error messages.
    """
    missing = [name for name in SPLITS if name not in rows]
    if not missing:
        return rows
    parts: dict[str, list[NDArray[np.integer]]] = {name: [] for name in ("train", *missing)}
    rng = np.random.default_rng(seed)
    for label, class_name in enumerate(class_names):
        members = rng.permutation(rows["train"][labels[rows["train"]] == label])
        size = max(1, round(held_out * len(members)))
        if len(members) <= size * len(missing):
            raise UsageError(
                f"class {class_name!r} has {len(members)} training image{'s' if len(members) != 1 else ''}, too few to "
                f"hold out {size} for {' and '.join(missing)} each; add images to the class or remove it"
            )
        for name in missing:
            parts[name].append(members[:size])
            members = members[size:]
        parts["train"].append(members)
    return {**rows, **{name: np.sort(np.concatenate(chosen)) for name, chosen in parts.items()}}
