"""Batch sampler of examples that exist in several variants, of which each epoch takes one at random."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fna_lightning.training.samplers import Batches, EpochBatchSampler


class VariantBatchSampler(EpochBatchSampler):
    """The batches of a sampler, with a random variant of each example, which depends only on the seed and the epoch.

    Variant v of example i has the index ``v * num_examples + i`` in the data set. All batches have the order of the
    sampler, so an epoch is continued in the middle with the same variants.

    Args:
        sampler: sampler of the examples.
        variants: number of variants of each example.
    """

    def __init__(self, sampler: EpochBatchSampler, variants: int) -> None:
        super().__init__(
            sampler.batch_size,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
            rank=sampler.rank,
            world_size=sampler.world_size,
        )
        if variants < 1:
            raise ValueError(f"variants must be at least 1, got {variants}")
        self.source = sampler
        self.variants = variants

    @property
    def num_examples(self) -> int:
        return self.source.num_examples

    def __len__(self) -> int:
        return len(self.source)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.source.set_epoch(epoch)

    def global_batches(self) -> Batches:
        return self.source.global_batches()

    def __iter__(self) -> Iterator[list[int]]:
        # The third number makes them independent of the order of the examples
        rng = np.random.default_rng([self.seed, self.epoch, 2])
        first = rng.integers(self.variants, size=self.num_examples) * self.num_examples
        for batch in super().__iter__():
            yield [index + int(first[index]) for index in batch]

    def select(self, indices: NDArray[np.integer], batch_size: int, **settings: Any) -> Self:
        return type(self)(self.source.select(indices, batch_size, **settings), self.variants)
