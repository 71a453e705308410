"""Base class of batch samplers: a new random order each epoch, shared among processes, resumable in the middle."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

Batches = Sequence[NDArray[np.integer]]
# a part of an epoch: batch_size and world_size of its processes, and how many examples they used
Part = dict[str, int]


class EpochBatchSampler(ABC):
    """A batch sampler of one process of several; its order depends on the seed and the epoch only.

    Args:
        batch_size: size of a batch of one process, in the unit of the subclass.
        shuffle: whether examples are in random order, a new one each epoch.
        seed: of the random order, the same in every process.
        rank: which share this process takes.
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
        # Lightning announces the epoch to `batch_sampler.sampler`
        self.sampler = self
        # parts of this epoch that earlier processes did with batches of another size
        self._parts: list[Part] = []

    @abstractmethod
    def global_batches(self) -> Batches:
        """Return the indices of each batch of this epoch, those of all processes together."""

    @abstractmethod
    def subset(self, indices: NDArray[np.integer], *, batch_size: int, world_size: int) -> Self:
        """Return a sampler of the same kind over some of the examples; it numbers them 0, 1, ... in this order."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of examples."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the random order of this epoch."""
        if epoch != self.epoch:
            self._parts = []
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._remaining_batches(self._parts):
            share = batch[self.rank :: self.world_size]
            if len(share):
                yield share.tolist()

    def shuffled(self, batches: Batches, rng: np.random.Generator) -> Batches:
        """Return batches in random order if this sampler shuffles; batches too small for every process are dropped."""
        if not self.shuffle:
            return batches
        # in training, a process without a share would wait for the gradients of the others forever
        batches = [batch for batch in batches if len(batch) >= self.world_size]
        return [batches[i] for i in rng.permutation(len(batches))]

    def progress(self, batches: int) -> list[Part]:
        """Return which examples of this epoch are used after ``batches`` batches, for ``resume``."""
        remaining = self._remaining_batches(self._parts)
        done = remaining[: batches - self._offset(remaining)]
        layout = {"batch_size": self.batch_size, "world_size": self.world_size}
        return [*self._parts, {**layout, "examples": sum(map(len, done))}]

    def resume(self, parts: list[Part]) -> tuple[int, int]:
        """Continue an epoch that other processes have begun, with any batch size and number of processes.

        If the batches are the same as theirs, their order stays the same and the caller skips those that are done.
        Otherwise the examples that are not used yet are grouped anew.

        Args:
            parts: from ``progress`` of a sampler of the same epoch.

        Returns:
            The number of batches of the epoch that count as done, and how many of them the caller has to skip.
        """
        *earlier, last = parts
        mine = self._remaining_batches(earlier)
        sizes = np.cumsum([0, *map(len, mine)])
        done = int(np.searchsorted(sizes, last["examples"]))
        theirs = self._remaining_batches(earlier, last["batch_size"], last["world_size"])
        same = done < len(mine) and sizes[done] == last["examples"] and len(theirs) >= done
        if same and all(np.array_equal(mine[i], theirs[i]) for i in range(done)):
            self._parts = earlier
            return self._offset(mine) + done, done
        self._parts = parts
        return self._offset(self._remaining_batches(parts)), 0

    def _offset(self, remaining: Batches) -> int:
        """Return how many batches of the epoch count as done before those that remain."""
        return max(0, len(self) - len(remaining)) if self._parts else 0

    def _remaining_batches(
        self, parts: list[Part], batch_size: int | None = None, world_size: int | None = None
    ) -> Batches:
        """Return the batches of all processes that remain after ``parts``; their size is ours unless it is given."""
        size = {"batch_size": batch_size or self.batch_size, "world_size": world_size or self.world_size}
        unused = np.arange(self.count)
        used = unused[:0]
        for part in parts:
            sampler = self.subset(unused, batch_size=part["batch_size"], world_size=part["world_size"])
            order = np.concatenate([unused[:0], *sampler.global_batches()])[: part["examples"]]
            used = np.concatenate([used, unused[order]])
            unused = np.delete(unused, order)
        if len(unused) < self.world_size:
            # every process needs an example for the last step of the epoch, so some are used twice
            unused = np.concatenate([used[len(used) + len(unused) - self.world_size :], unused])
        batches = [unused[batch] for batch in self.subset(unused, **size).global_batches()]
        # a sampler that drops its last batch may leave none, but the epoch has to end with a batch
        return batches if batches or not parts else [unused]
