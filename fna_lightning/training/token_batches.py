"""Batches of about the same number of tokens: few long pairs or many short ones."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from fna_lightning.training.length_batches import LengthGroupedBatchSampler
from fna_lightning.training.samplers import Batches


class TokenBatchSampler(LengthGroupedBatchSampler):
    """A batch sampler that cuts pairs, sorted by length, where a batch is full.

    Where to cut depends on the lengths alone, so every epoch has as many batches; which of the pairs of one length go
    together is random. Ranks share batches as in ``LengthGroupedBatchSampler``.

    Args:
        lengths: length of the longer side of each pair.
        others: length of the shorter side.
        batch_tokens: most tokens in a batch of one rank, padding included, counted on the longer side; a pair that is
            longer by itself is a batch of its own.
        shuffle: whether pairs and batches are in random order, a new one each epoch.
        seed: of the random order.
        rank: which share this process takes.
        world_size: number of processes.
    """

    # standard deviation, in tokens, of what is added to the shorter side before sorting by it: little padding, and
    # still other neighbours in every epoch
    NOISE = 2.0

    def __init__(
        self,
        lengths: NDArray[np.integer],
        others: NDArray[np.integer],
        batch_tokens: int,
        *,
        shuffle: bool,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(lengths, batch_tokens, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size)
        self.others = np.asarray(others)
        self.cuts = cut(np.sort(self.lengths)[::-1], batch_tokens, world_size)

    def __len__(self) -> int:
        sizes = np.diff(self.cuts)
        return int((sizes >= self.world_size).sum() if self.shuffle else (sizes > self.rank).sum())

    def global_batches(self) -> Batches:
        rng = np.random.default_rng([self.seed, self.epoch])
        noise = rng.normal(0.0, self.NOISE, len(self.others)) if self.shuffle else 0.0
        order = np.lexsort((-(self.others + noise), -self.lengths))
        batches = [order[start:stop] for start, stop in zip(self.cuts[:-1], self.cuts[1:], strict=True)]
        return self.shuffled(batches, rng)

    def subset(self, indices: NDArray[np.integer], *, batch_size: int, world_size: int) -> Self:
        sampler = type(self)(
            self.lengths[indices],
            self.others[indices],
            batch_size,
            shuffle=self.shuffle,
            seed=self.seed,
            world_size=world_size,
        )
        sampler.set_epoch(self.epoch)
        return sampler


def cut(lengths: NDArray[np.integer], batch_tokens: int, world_size: int) -> NDArray[np.integer]:
    """Return where batches begin in pairs sorted from long to short, and where the last one ends."""
    cuts = [0]
    while cuts[-1] < len(lengths):
        longest = max(int(lengths[cuts[-1]]), 1)
        # the first pair of a batch is its longest; each rank takes as many pairs as fit
        cuts.append(min(cuts[-1] + max(batch_tokens // longest, 1) * world_size, len(lengths)))
    return np.asarray(cuts)
