"""Holding out a share of every class."""

import numpy as np
from numpy.typing import NDArray


def stratified(labels: NDArray[np.integer], share: float, seed: int) -> NDArray[np.bool_]:
    """Return a mask that is True for ``share`` of each class, rounded to whole examples."""
    chosen = np.zeros(len(labels), dtype=bool)
    rng = np.random.default_rng(seed)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        chosen[members[: round(share * len(members))]] = True
    return chosen
