"""The probe set: a few validation sequences, the same throughout training."""

from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from fna_lightning.utils.trees import map_leaves


def probe_indices(size: int, count: int) -> list[int]:
    """Return ``count`` indices spread evenly over ``size`` examples; all of them if there are fewer."""
    count = min(size, count)
    return [number * size // count for number in range(count)]


def probe_batch(loaders: Any, count: int, *, rank: int = 0, world_size: int = 1) -> Any:
    """Return this process's part of the probe set as one batch; None if it has no part.

    If the data set can be indexed, the processes together hold the same examples whatever their number. Otherwise each
    process takes the beginning of its first batch.

    Args:
        loaders: the validation loader, or several of them, of which the first is used.
        count: number of examples of the probe set.
        rank: rank of this process.
        world_size: number of processes.
    """
    loader = _first_loader(loaders)
    if loader is None:
        raise ValueError("there is no validation data to take a probe from; give the data module a val_dataloader")
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        indices = probe_indices(len(loader.dataset), count)[rank::world_size]  # type: ignore[arg-type]
        return loader.collate_fn([loader.dataset[index] for index in indices]) if indices else None
    share = len(range(rank, count, world_size))
    batch = next(iter(loader), None) if share else None
    return map_leaves(lambda leaf: leaf[:share] if isinstance(leaf, Tensor) and leaf.ndim else leaf, batch)


def _first_loader(loaders: Any) -> Any:
    while isinstance(loaders, list | tuple | dict):
        loaders = next(iter(loaders.values() if isinstance(loaders, dict) else loaders), None)
    return loaders
