"""Batch samplers: a new random order each epoch, split over processes, resumable in the middle of an epoch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Batches = Sequence[NDArray[np.integer]]
# batch_size and world_size of the processes that trained one part of an epoch, and the number of examples they used
Part = dict[str, int]


class EpochBatchSampler(ABC):
    """Base class of batch samplers whose order depends only on the seed and the epoch.

    A global batch holds the examples of one step of all processes, and each process takes every ``world_size``-th
    example of it. The processes together train on the batches of one process with ``world_size`` times the batch size.

    Args:
        batch_size: size of the batch of one process, in the unit of the subclass.
        shuffle: whether examples are in random order, a new one each epoch.
        seed: seed of the random order, the same in every process.
        rank: rank of this process.
        world_size: number of processes.
    """

    def __init__(self, batch_size: int, *, shuffle: bool, seed: int, rank: int, world_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        # Lightning calls set_epoch of `batch_sampler.sampler`.
        self.sampler = self
        # parts of this epoch that were trained with another batch size or number of processes
        self._parts: list[Part] = []

    @abstractmethod
    def global_batches(self) -> Batches:
        """Return the indices of each global batch of this epoch."""

    @abstractmethod
    def select(self, indices: NDArray[np.integer], batch_size: int, **settings: Any) -> Self:
        """Return a sampler of the same class over the examples ``indices``, which it numbers 0, 1, ... in this order.

        ``settings`` are the keyword arguments of the base class.
        """

    @property
    @abstractmethod
    def num_examples(self) -> int:
        """Number of examples."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Select the random order of this epoch."""
        if epoch != self.epoch:
            self._parts = []
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._remaining_batches(self._parts):
            local_batch = batch[self.rank :: self.world_size]
            if len(local_batch):
                yield local_batch.tolist()

    def shuffled(self, batches: Batches, rng: np.random.Generator) -> Batches:
        """Return batches in random order if this sampler shuffles, without those too small for every process."""
        if not self.shuffle:
            return batches
        # In training, a process without examples would never join the gradient exchange of the others.
        batches = [batch for batch in batches if len(batch) >= self.world_size]
        return [batches[i] for i in rng.permutation(len(batches))]

    def progress(self, batches: int) -> list[Part]:
        """Return which examples of this epoch are used after ``batches`` batches, for ``resume``."""
        remaining = self._remaining_batches(self._parts)
        done = remaining[: batches - self._offset(remaining)]
        layout = {"batch_size": self.batch_size, "world_size": self.world_size}
        return [*self._parts, {**layout, "examples": sum(map(len, done))}]

    def resume(self, parts: list[Part]) -> tuple[int, int]:
        """Continue an epoch that was interrupted, with any batch size and number of processes.

        If the batches done so far are batches of this sampler too, the order stays the same and the caller skips them.
        Otherwise the unused examples are grouped into new batches.

        Args:
            parts: result of ``progress`` of a sampler in the same epoch.

        Returns:
            The number of batches of the epoch that count as done, and how many of them the caller has to skip.
        """
        *earlier, last = parts
        own = self._remaining_batches(earlier)
        boundaries = np.cumsum([0, *map(len, own)])
        done = int(np.searchsorted(boundaries, last["examples"]))
        previous = self._remaining_batches(earlier, last["batch_size"], last["world_size"])
        aligned = done < len(own) and boundaries[done] == last["examples"] and len(previous) >= done
        if aligned and all(np.array_equal(own[i], previous[i]) for i in range(done)):
            self._parts = earlier
            return self._offset(own) + done, done
        self._parts = parts
        return self._offset(self._remaining_batches(parts)), 0

    def _offset(self, remaining: Batches) -> int:
        """Return the number of batches of the epoch that count as done before the remaining ones."""
        return max(0, len(self) - len(remaining)) if self._parts else 0

    def _remaining_batches(
        self, parts: list[Part], batch_size: int | None = None, world_size: int | None = None
    ) -> Batches:
        """Return the global batches left after ``parts``; their size defaults to that of this sampler."""
        layout = {"batch_size": batch_size or self.batch_size, "world_size": world_size or self.world_size}
        unused = np.arange(self.num_examples)
        used = unused[:0]
        for part in parts:
            sampler = self._subset(unused, batch_size=part["batch_size"], world_size=part["world_size"])
            order = np.concatenate([unused[:0], *sampler.global_batches()])[: part["examples"]]
            used = np.concatenate([used, unused[order]])
            unused = np.delete(unused, order)
        if len(unused) < self.world_size:
            # Every process needs an example in the last step of the epoch, so a few are used twice.
            unused = np.concatenate([used[len(used) + len(unused) - self.world_size :], unused])
        batches = [unused[batch] for batch in self._subset(unused, **layout).global_batches()]
        # A sampler that drops its last batch may have none left, but Lightning ends an epoch only after a batch.
        return batches if batches or not parts else [unused]

    def _subset(self, indices: NDArray[np.integer], *, batch_size: int, world_size: int) -> Self:
        sampler = self.select(indices, batch_size, shuffle=self.shuffle, seed=self.seed, rank=0, world_size=world_size)
        sampler.set_epoch(self.epoch)
        return sampler


class RankBatchSampler(EpochBatchSampler):
    """Batches of equal size in sequential or random order.

    Args:
        num_examples: number of examples.
        batch_size: examples in the batch of one process.
        shuffle: whether examples are in random order, a new one each epoch.
        drop_last: whether a last batch that is not full is left out.
        seed: seed of the random order, the same in every process.
        rank: rank of this process.
        world_size: number of processes.
    """

    def __init__(
        self,
        num_examples: int,
        batch_size: int,
        *,
        shuffle: bool,
        drop_last: bool,
        seed: int,
        rank: int,
        world_size: int,
    ) -> None:
        super().__init__(batch_size, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size)
        self._num_examples = num_examples
        self.drop_last = drop_last

    @property
    def num_examples(self) -> int:
        return self._num_examples

    def __len__(self) -> int:
        full = self.batch_size * self.world_size
        rest = 0 if self.drop_last else self.num_examples % full
        return self.num_examples // full + (rest >= self.world_size if self.shuffle else rest > self.rank)

    def global_batches(self) -> Batches:
        order = np.arange(self.num_examples)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(self.num_examples)
        full = self.batch_size * self.world_size
        smallest = full if self.drop_last else self.world_size if self.shuffle else 1
        batches = [order[start : start + full] for start in range(0, self.num_examples, full)]
        return [batch for batch in batches if len(batch) >= smallest]

    def select(self, indices: NDArray[np.integer], batch_size: int, **settings: Any) -> Self:
        return type(self)(len(indices), batch_size, drop_last=self.drop_last, **settings)


class LengthGroupedBatchSampler(EpochBatchSampler):
    """Batches of sequences of similar length, so that little of a batch is padding.

    Args:
        lengths: length of each sequence.
        batch_size: sequences in the batch of one process.
        shuffle: whether sequences and batches are in random order, a new one each epoch.
        seed: seed of the random order.
        rank: rank of this process.
        world_size: number of processes.
    """

    # Number of batches that are sorted by length together: large enough to save padding, small enough to keep the
    # order random.
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
    def num_examples(self) -> int:
        return len(self.lengths)

    def __len__(self) -> int:
        full = self.batch_size * self.world_size
        rest = self.num_examples % full
        return self.num_examples // full + (rest >= self.world_size if self.shuffle else rest > self.rank)

    def global_batches(self) -> Batches:
        full = self.batch_size * self.world_size
        order = self._order(full)
        batches = [order[start : start + full] for start in range(0, len(order), full)]
        return self.shuffled(batches, np.random.default_rng([self.seed, self.epoch, 1]))

    def select(self, indices: NDArray[np.integer], batch_size: int, **settings: Any) -> Self:
        return type(self)(self.lengths[indices], batch_size, **settings)

    def _order(self, full: int) -> NDArray[np.integer]:
        """Return all indices in an order in which runs of ``full`` have similar lengths."""
        if not self.shuffle:
            return np.argsort(-self.lengths, kind="stable")
        order = np.random.default_rng([self.seed, self.epoch, 0]).permutation(self.num_examples)
        pool = full * self.POOL
        pools = [order[start : start + pool] for start in range(0, len(order), pool)]
        sorted_pools = [indices[np.argsort(-self.lengths[indices], kind="stable")] for indices in pools]
        return np.concatenate(sorted_pools) if pools else order


class TokenBatchSampler(LengthGroupedBatchSampler):
    """Batches of about the same number of tokens: few long pairs or many short ones.

    Pairs are sorted by length and split where a batch is full. The boundaries depend on the lengths alone, so every
    epoch has the same number of batches; which pairs of one length share a batch is random.

    Args:
        lengths: length of the longer side of each pair.
        others: length of the shorter side.
        batch_tokens: maximum number of tokens in the batch of one process, padding included, counted on the longer
            side. A pair that is longer than that is a batch by itself.
        settings: shuffle, seed, rank and world_size of ``LengthGroupedBatchSampler``.
    """

    # Standard deviation, in tokens, of the noise added to the shorter side before sorting by it: little padding, but
    # different batches in every epoch.
    NOISE = 2.0

    def __init__(
        self,
        lengths: NDArray[np.integer],
        others: NDArray[np.integer],
        batch_tokens: int,
        **settings: Any,
    ) -> None:
        super().__init__(lengths, batch_tokens, **settings)
        self.others = np.asarray(others)
        self.boundaries = token_boundaries(np.sort(self.lengths)[::-1], batch_tokens, self.world_size)

    def __len__(self) -> int:
        sizes = np.diff(self.boundaries)
        return int((sizes >= self.world_size).sum() if self.shuffle else (sizes > self.rank).sum())

    def global_batches(self) -> Batches:
        rng = np.random.default_rng([self.seed, self.epoch])
        noise = rng.normal(0.0, self.NOISE, len(self.others)) if self.shuffle else 0.0
        order = np.lexsort((-(self.others + noise), -self.lengths))
        limits = zip(self.boundaries[:-1], self.boundaries[1:], strict=True)
        return self.shuffled([order[start:stop] for start, stop in limits], rng)

    def select(self, indices: NDArray[np.integer], batch_size: int, **settings: Any) -> Self:
        return type(self)(self.lengths[indices], self.others[indices], batch_size, **settings)


def token_boundaries(lengths: NDArray[np.integer], batch_tokens: int, world_size: int) -> NDArray[np.integer]:
    """Return where global batches begin in pairs sorted from long to short, and where the last one ends."""
    boundaries = [0]
    while boundaries[-1] < len(lengths):
        longest = max(int(lengths[boundaries[-1]]), 1)
        # The first pair of a batch is its longest, so it limits the number of pairs of each process.
        size = max(batch_tokens // longest, 1) * world_size
        boundaries.append(min(boundaries[-1] + size, len(lengths)))
    return np.asarray(boundaries)
