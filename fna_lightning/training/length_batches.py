"""Batches of sequences of about the same length, so that little of a batch is padding."""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from fna_lightning.training.samplers import Batches, EpochBatchSampler


class LengthGroupedBatchSampler(EpochBatchSampler):
    """A batch sampler that groups sequences of similar length; each rank takes its share of every batch.

    The order depends on the seed and the epoch only, so a resumed run sees what the interrupted one would have seen,
    and ``world_size`` ranks together see the batches of one process with ``world_size`` times the batch size.

    Args:
        lengths: length of each sequence.
        batch_size: sequences in a batch of one rank.
        shuffle: whether sequences and batches are in random order, a new one each epoch.
        seed: of the random order.
        rank: which share this process takes.
        world_size: number of processes.
    """

    # batches sorted by length among each other before they are shuffled: large enough to save padding, small enough
    # to leave the order random
    POOL = 50

    def __init__(
        self,
        lengths: NDArray[np.integer],
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(batch_size, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size)
        self.lengths = np.asarray(lengths)

    @property
    def count(self) -> int:
        return len(self.lengths)

    def __len__(self) -> int:
        full = self.batch_size * self.world_size
        rest = self.count % full
        return self.count // full + (rest >= self.world_size if self.shuffle else rest > self.rank)

    def global_batches(self) -> Batches:
        full = self.batch_size * self.world_size
        order = self._order(full)
        batches = [order[start : start + full] for start in range(0, len(order), full)]
        return self.shuffled(batches, np.random.default_rng([self.seed, self.epoch, 1]))

    def subset(self, indices: NDArray[np.integer], *, batch_size: int, world_size: int) -> Self:
        sampler = type(self)(
            self.lengths[indices], batch_size, shuffle=self.shuffle, seed=self.seed, world_size=world_size
        )
        sampler.set_epoch(self.epoch)
        return sampler

    def _order(self, full: int) -> NDArray[np.integer]:
        """Return all indices so that runs of ``full`` have similar lengths."""
        if not self.shuffle:
            return np.argsort(-self.lengths, kind="stable")
        order = np.random.default_rng([self.seed, self.epoch, 0]).permutation(self.count)
        pool = full * self.POOL
        pools = [order[start : start + pool] for start in range(0, len(order), pool)]
        sorted_pools = [indices[np.argsort(-self.lengths[indices], kind="stable")] for indices in pools]
        return np.concatenate(sorted_pools) if pools else order
