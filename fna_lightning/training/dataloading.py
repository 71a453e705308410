"""The loaders of a run: those of any data module, sharded over the processes and resumable.

``RunData`` is the only place that prepares loaders for a run. The training command wraps the data module in it and
passes it to the trainer.
"""

import functools
import os
from typing import Any, Protocol, runtime_checkable

import lightning as L
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, SequentialSampler

from fna_lightning.checkpoints.exact.dataloader import ResumableDataLoader
from fna_lightning.errors import UsageError
from fna_lightning.training.sampled_batches import SampledBatchSampler
from fna_lightning.training.samplers import EpochBatchSampler, RankBatchSampler

LOADERS = ("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader")

# Setting of the trainer that limits the batches of an evaluation. A limited prediction keeps the order of the data.
LIMITS = {"val_dataloader": "limit_val_batches", "test_dataloader": "limit_test_batches"}

# arguments of a DataLoader that a copy with another batch sampler keeps
KEPT = (
    *("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context"),
    *("generator", "prefetch_factor", "persistent_workers"),
)


@runtime_checkable
class BatchBoundaryCallback(Protocol):
    """A callback that acts between two training batches, such as ``LastCheckpoint``."""

    def on_batch_boundary(self, trainer: L.Trainer) -> None:
        """Called before each training batch is fetched, when the previous step is complete."""


class RunData(L.LightningDataModule):
    """A data module whose loaders are sharded over the processes of the run and resumable.

    It is a transparent proxy: every attribute except the four loader methods is that of the wrapped data module, so
    hooks and callbacks can use ``trainer.datamodule`` as if it were the wrapped one.

    Args:
        data: data module of any class.
    """

    def __init__(self, data: L.LightningDataModule) -> None:
        # Not super().__init__(): all attributes are those of the wrapped data module.
        object.__setattr__(self, "_wrapped_data", data)

    def __getattribute__(self, name: str) -> Any:
        data = object.__getattribute__(self, "_wrapped_data")
        if name == "__reduce_ex__":
            # A copy in a spawned process is wrapped again.
            return lambda protocol: (RunData, (data,))
        attribute = getattr(data, name)
        if name not in LOADERS:
            return attribute

        # functools.wraps lets Lightning see whether the wrapped data module defines this loader.
        @functools.wraps(attribute)
        def prepared_loader() -> Any:
            return prepare_loader(attribute(), data.trainer, name, f"{type(data).__name__}.{name}")

        return prepared_loader

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_wrapped_data"), name, value)


def prepare_loader(loader: Any, trainer: L.Trainer, method: str, source: str) -> Any:
    """Return the loader as this process of a run uses it.

    Args:
        loader: loader, or list or dictionary of loaders, of a data module.
        trainer: trainer of the run.
        method: name of the method that made the loader, e.g. "train_dataloader".
        source: name of the loader in error messages.
    """
    if trainer.world_size > 1:
        # Lightning's own samplers take the same seed.
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        loader = shard_loader(loader, source, seed=seed, rank=trainer.global_rank, world_size=trainer.world_size)
    if method in LIMITS:
        return sample_loader(loader, getattr(trainer, LIMITS[method], 1.0))
    callbacks = [callback for callback in trainer.callbacks if isinstance(callback, BatchBoundaryCallback)]  # type: ignore[attr-defined]
    if method != "train_dataloader" or not callbacks:
        return loader
    if isinstance(loader, list | tuple | dict):
        raise UsageError(
            f"{source} returns {len(loader)} loaders, but only one can be resumed; return one loader, or set "
            "--trainer.enable_checkpointing=false"
        )

    def between_batches() -> None:
        for callback in callbacks:
            callback.on_batch_boundary(trainer)

    return ResumableDataLoader(loader, between_batches)


def shard_loader(loader: Any, source: str, *, seed: int, rank: int, world_size: int) -> Any:
    """Return a loader that yields the share of this process; one that knows its rank is returned as it is.

    In an evaluation, every example belongs to exactly one process. In training, the processes together see the batches
    of one process.

    Args:
        loader: loader, or list or dictionary of loaders.
        source: name of the loader in error messages.
        seed: seed of the random order, the same in every process.
        rank: rank of this process.
        world_size: number of processes.
    """
    if isinstance(loader, list | tuple):
        return type(loader)(shard_loader(part, source, seed=seed, rank=rank, world_size=world_size) for part in loader)
    if isinstance(loader, dict):
        return {
            key: shard_loader(part, source, seed=seed, rank=rank, world_size=world_size) for key, part in loader.items()
        }
    batch_sampler = getattr(loader, "batch_sampler", None)
    if any(_knows_rank(owner) for owner in (loader, batch_sampler, getattr(loader, "sampler", None))):
        return _require_examples(loader, source, world_size)
    if not _is_plain(loader, SequentialSampler, RandomSampler):
        iterable = isinstance(getattr(loader, "dataset", None), IterableDataset)
        raise UsageError(
            f"{source} would give all of its examples to each of the {world_size} processes, and "
            f"{'an IterableDataset' if iterable else 'its sampler'} cannot be sharded from outside; give the sampler "
            "rank and world_size (as LengthGroupedBatchSampler has) or use one process"
        )
    sampler = RankBatchSampler(
        len(loader.dataset),
        loader.batch_size,
        shuffle=isinstance(loader.sampler, RandomSampler),
        drop_last=loader.drop_last,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )
    return _require_examples(_with_sampler(loader, sampler), source, world_size)


def sample_loader(loader: Any, limit: float) -> Any:
    """Return a loader whose batches up to ``limit`` are a fixed random sample of the data.

    A loader that is not limited, shuffles, or has a sampler of another class is returned as it is.

    Args:
        loader: loader, or list or dictionary of loaders, of an evaluation.
        limit: ``limit_val_batches`` or ``limit_test_batches`` of the trainer: an integer is a number of batches, a
            float is a share of them.
    """
    if isinstance(loader, list | tuple):
        return type(loader)(sample_loader(part, limit) for part in loader)
    if isinstance(loader, dict):
        return {key: sample_loader(part, limit) for key, part in loader.items()}
    sampler = getattr(loader, "batch_sampler", None)
    if isinstance(loader, DataLoader) and _is_plain(loader, SequentialSampler):
        settings = {"shuffle": False, "drop_last": loader.drop_last, "seed": 0, "rank": 0, "world_size": 1}
        sampler = RankBatchSampler(len(loader.dataset), loader.batch_size, **settings)  # type: ignore[arg-type]
    if not isinstance(loader, DataLoader) or not isinstance(sampler, EpochBatchSampler) or sampler.shuffle:
        return loader
    count = limit if isinstance(limit, int) else int(len(sampler) * limit)
    if not 0 < count < len(sampler):
        return loader
    return _with_sampler(loader, SampledBatchSampler(sampler, count))


def count_examples(loader: Any, batches: float) -> tuple[int, int] | None:
    """Return how many examples the first batches of a loader hold in all processes, and how many the data set has.

    Args:
        loader: loader of an evaluation.
        batches: number of batches that are evaluated in each process.

    Returns:
        The two numbers, or None if the loader does not tell them.
    """
    sampler = getattr(loader, "batch_sampler", None)
    if isinstance(sampler, EpochBatchSampler):
        return sum(map(len, sampler.global_batches()[: int(batches)])), sampler.num_examples
    if isinstance(loader, DataLoader) and _is_plain(loader, SequentialSampler, RandomSampler):
        total = len(loader.dataset)  # type: ignore[arg-type]
        return min(int(batches) * (loader.batch_size or 1), total), total
    return None


def _is_plain(loader: Any, *samplers: type) -> bool:
    """Whether a loader uses PyTorch's own batches of examples in the order of one of ``samplers``."""
    plain = isinstance(loader, DataLoader) and type(getattr(loader, "batch_sampler", None)) is BatchSampler
    return plain and type(loader.sampler) in samplers


def _with_sampler(loader: DataLoader[Any], sampler: EpochBatchSampler) -> DataLoader[Any]:
    """Return a copy of a loader with another batch sampler."""
    kept: dict[str, Any] = {name: getattr(loader, name) for name in KEPT if getattr(loader, name, None) is not None}
    return DataLoader(loader.dataset, batch_sampler=sampler, **kept)


def _knows_rank(sampler: Any) -> bool:
    return hasattr(sampler, "rank") and (hasattr(sampler, "world_size") or hasattr(sampler, "num_replicas"))


def _require_examples(loader: Any, source: str, world_size: int) -> Any:
    """Return the loader if its data set, when its size is known, has an example for every process."""
    try:
        size = len(loader.dataset)
    except (TypeError, AttributeError, NotImplementedError):
        return loader
    if size < world_size:
        raise UsageError(
            f"{source} has {size} examples for {world_size} processes, but every process needs at least one; use at "
            f"most {max(1, size)} processes"
        )
    return loader
