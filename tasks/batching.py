"""Batches of sequences of about the same length, so that little of a batch is padding."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fna_lightning.epoch_batches import EpochBatches


class LengthBatches(EpochBatches):
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
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        super().__init__(shuffle=shuffle, seed=seed, rank=rank, world_size=world_size)
        self.lengths = np.asarray(lengths)
        self.batch_size = batch_size

    def __len__(self) -> int:
        count, full = len(self.lengths), self.batch_size * self.world_size
        rest = count % full
        return count // full + (rest >= self.world_size if self.shuffle else rest > self.rank)

    def __iter__(self) -> Iterator[list[int]]:
        full = self.batch_size * self.world_size
        order = self._order(full)
        batches = [order[start : start + full] for start in range(0, len(order), full)]
        yield from self._shares(batches, np.random.default_rng([self.seed, self.epoch, 1]))

    def _shares(self, batches: Sequence[NDArray[np.integer]], rng: np.random.Generator) -> Iterator[list[int]]:
        """Yield what this rank takes of each batch, in an order drawn from ``rng`` if they are shuffled."""
        if self.shuffle:
            # a rank without a share would wait for the others' gradients for ever
            batches = [batch for batch in batches if len(batch) >= self.world_size]
            batches = [batches[i] for i in rng.permutation(len(batches))]
        for batch in batches:
            share = batch[self.rank :: self.world_size]
            if len(share):
                yield share.tolist()

    def _order(self, full: int) -> NDArray[np.integer]:
        """Return all indices so that runs of ``full`` have similar lengths."""
        if not self.shuffle:
            return np.argsort(-self.lengths, kind="stable")
        order = np.random.default_rng([self.seed, self.epoch, 0]).permutation(len(self.lengths))
        pool = full * self.POOL
        pools = [order[start : start + pool] for start in range(0, len(order), pool)]
        return np.concatenate([one[np.argsort(-self.lengths[one], kind="stable")] for one in pools]) if pools else order
