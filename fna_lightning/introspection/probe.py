"""The probe set: a few validation sequences, the same all through training."""

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, IterableDataset


def probe_indices(size: int, count: int) -> list[int]:
    """Return ``count`` places spread evenly over ``size`` examples, all of them if there are fewer."""
    count = min(size, count)
    return [place * size // count for place in range(count)]


def probe_batch(loaders: Any, count: int, *, rank: int = 0, world_size: int = 1) -> Any:
    """Return this process's part of the probe set as one batch; None if nothing is left for it.

    Together the processes hold the same examples whatever their number, as long as the data set can be indexed;
    otherwise each takes the beginning of its first batch.

    Args:
        loaders: the validation loader, or several of them, of which the first is taken.
        count: examples of the probe set.
        rank: number of this process.
        world_size: number of processes.
    """
    loader = _first(loaders)
    if loader is None:
        raise ValueError("there is no validation data to take a probe from; give the data module a val_dataloader")
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        mine = probe_indices(len(loader.dataset), count)[rank::world_size]  # type: ignore[arg-type]
        return loader.collate_fn([loader.dataset[index] for index in mine]) if mine else None
    share = len(range(rank, count, world_size))
    batch = next(iter(loader), None) if share else None
    return tree_map(lambda leaf: leaf[:share] if isinstance(leaf, Tensor) and leaf.ndim else leaf, batch)


def _first(loaders: Any) -> Any:
    while isinstance(loaders, list | tuple | dict):
        loaders = next(iter(loaders.values() if isinstance(loaders, dict) else loaders), None)
    return loaders
