"""Batch sampler of a limited validation or test: a fixed random sample comes first."""

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fna_lightning.training.samplers import Batches, EpochBatchSampler, Part


class SampledBatchSampler(EpochBatchSampler):
    """The batches of a sampler for evaluation, in an order that begins with a random sample of the examples.

    The first ``limit`` batches hold a sample that depends only on the number of examples and its size: it is the same
    in every epoch, for every seed, and for any number of processes with the same global batch. A limited validation
    would otherwise measure the longest sequences, which may all have one label. The other examples follow.

    Args:
        sampler: sampler that does not shuffle.
        limit: number of batches of the sample, at least 1 and at most the number of batches of the sampler.
    """

    # Not the seed of the run, so that runs with different seeds are compared on the same examples.
    SAMPLE_SEED = 0

    def __init__(self, sampler: EpochBatchSampler, limit: int) -> None:
        if sampler.shuffle:
            raise ValueError("the sampler must not shuffle, because the sample is the same in every epoch")
        if not 1 <= limit <= len(sampler):
            raise ValueError(f"limit must lie between 1 and the {len(sampler)} batches of the sampler, got {limit}")
        settings = {"seed": sampler.seed, "rank": sampler.rank, "world_size": sampler.world_size}
        super().__init__(sampler.batch_size, shuffle=False, **settings)
        self.source = sampler
        self.limit = limit

    @property
    def num_examples(self) -> int:
        return self.source.num_examples

    def __len__(self) -> int:
        """Return the number of batches of the source; Lightning computes a fractional limit from it."""
        return len(self.source)

    def global_batches(self) -> Batches:
        return self._all_batches

    @cached_property
    def _all_batches(self) -> Batches:
        order = np.random.default_rng(self.SAMPLE_SEED).permutation(self.num_examples)
        size = self._sample_size(order)
        # Sorted, so that the batches do not depend on the order of the permutation.
        return [*self._grouped(np.sort(order[:size])), *self._grouped(np.sort(order[size:]))]

    def select(self, indices: NDArray[np.integer], batch_size: int, **settings: Any) -> Self:
        raise TypeError("a sample of a sample is not defined")

    def _remaining_batches(
        self, parts: list[Part], batch_size: int | None = None, world_size: int | None = None
    ) -> Batches:
        # An evaluation always starts at its first batch.
        return self.global_batches()

    def _grouped(self, indices: NDArray[np.integer]) -> Batches:
        """Return global batches of these examples, grouped as the source groups its own."""
        if not len(indices):
            return []
        share = {"shuffle": False, "seed": self.seed, "rank": 0, "world_size": self.world_size}
        return [indices[batch] for batch in self.source.select(indices, self.batch_size, **share).global_batches()]

    def _sample_size(self, order: NDArray[np.integer]) -> int:
        """Return the largest number of examples that fit into ``limit`` batches."""
        smallest, largest = 1, self.num_examples
        while smallest < largest:
            middle = (smallest + largest + 1) // 2
            if len(self._grouped(np.sort(order[:middle]))) <= self.limit:
                smallest = middle
            else:
                largest = middle - 1
        return smallest
