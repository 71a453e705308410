"""Sharing data out among processes: each example once in an evaluation, the batches of one process in training."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from fna_lightning.errors import UsageError
from fna_lightning.training.samplers import Batches, EpochBatchSampler


class RankBatchSampler(EpochBatchSampler):
    """The batches of one process of several; together they are those of one process with a larger batch.

    Args:
        count: examples.
        batch_size: examples in a batch of one process.
        shuffle: whether they are in random order, a new one each epoch.
        drop_last: whether a last batch that is not full is left out.
        seed: of the random order, the same in every process.
        rank: which share this process takes.
        world_size: number of processes.
    """

    def __init__(
        self, count: int, batch_size: int, *, shuffle: bool, drop_last: bool, seed: int, rank: int, world_size: int
    ) -> None:
        super().__init__(batch_size, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size)
        self._count = count
        self.drop_last = drop_last

    @property
    def count(self) -> int:
        return self._count

    def __len__(self) -> int:
        full = self.batch_size * self.world_size
        rest = 0 if self.drop_last else self.count % full
        # in training a rank without a share would wait for the others' gradients for ever
        return self.count // full + (rest >= self.world_size if self.shuffle else rest > self.rank)

    def global_batches(self) -> Batches:
        order = np.arange(self.count)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(self.count)
        full = self.batch_size * self.world_size
        smallest = full if self.drop_last else self.world_size if self.shuffle else 1
        batches = [order[start : start + full] for start in range(0, self.count, full)]
        return [batch for batch in batches if len(batch) >= smallest]

    def subset(self, indices: NDArray[np.integer], *, batch_size: int, world_size: int) -> Self:
        sampler = type(self)(
            len(indices),
            batch_size,
            shuffle=self.shuffle,
            drop_last=self.drop_last,
            seed=self.seed,
            rank=0,
            world_size=world_size,
        )
        sampler.set_epoch(self.epoch)
        return sampler


def share(loader: Any, who: str, *, seed: int, rank: int, world_size: int) -> Any:
    """Return a loader that yields this process's share of ``loader``; one that shares itself is returned as it is."""
    if isinstance(loader, list | tuple):
        return type(loader)(share(one, who, seed=seed, rank=rank, world_size=world_size) for one in loader)
    if isinstance(loader, dict):
        return {key: share(one, who, seed=seed, rank=rank, world_size=world_size) for key, one in loader.items()}
    batches = getattr(loader, "batch_sampler", None)
    if any(_knows_ranks(one) for one in (loader, batches, getattr(loader, "sampler", None))):
        return _not_empty(loader, who, world_size)
    plain = isinstance(loader, DataLoader) and type(batches) is BatchSampler
    if not plain or type(loader.sampler) not in (SequentialSampler, RandomSampler):
        kind = "an IterableDataset" if isinstance(getattr(loader, "dataset", None), IterableDataset) else "its sampler"
        raise UsageError(
            f"{who} would give all of its examples to each of the {world_size} processes, and {kind} cannot be shared "
            "from outside; give the sampler rank and world_size (as LengthGroupedBatchSampler has) or use one process"
        )
    shared = RankBatchSampler(
        len(loader.dataset),
        loader.batch_size,
        shuffle=isinstance(loader.sampler, RandomSampler),
        drop_last=loader.drop_last,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )
    same: dict[str, Any] = {name: getattr(loader, name) for name in KEPT if getattr(loader, name, None) is not None}
    return _not_empty(DataLoader(loader.dataset, batch_sampler=shared, **same), who, world_size)


KEPT = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context"),
    *("generator", "prefetch_factor", "persistent_workers"),
)


def shared_loaders(data: Any, *, seed: int, rank: int, world_size: int) -> dict[str, Callable[[], Any]]:
    """Return the loader methods of a data module so that each hands out this process's share."""

    def sharing(name: str) -> Callable[[], Any]:
        make = getattr(data, name)
        who = f"{type(data).__name__}.{name}"
        return lambda: share(make(), who, seed=seed, rank=rank, world_size=world_size)

    return {f"{stage}_dataloader": sharing(f"{stage}_dataloader") for stage in ("train", "val", "test", "predict")}


def _knows_ranks(sampler: Any) -> bool:
    return hasattr(sampler, "rank") and (hasattr(sampler, "world_size") or hasattr(sampler, "num_replicas"))


def _not_empty(loader: Any, who: str, world_size: int) -> Any:
    try:
        size = len(loader.dataset)
    except (TypeError, AttributeError, NotImplementedError):
        return loader
    if size < world_size:
        raise UsageError(
            f"{who} has {size} examples for {world_size} processes, and one without any could not take part; use at "
            f"most {max(1, size)} processes"
        )
    return loader
