"""Base class of data modules with the splits "train", "val" and "test"."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import lightning as L
from torch.utils.data import DataLoader, Dataset

from fna_lightning.training.samplers import EpochBatchSampler

Split = TypeVar("Split", bound=Dataset)


class SplitData(L.LightningDataModule, ABC, Generic[Split]):
    """A data set with the splits "train", "val" and "test"; predictions are made for "test".

    A subclass provides the splits, a batch sampler and a collate function. Each process of a run gets its share of
    every batch.

    Args:
        num_workers: number of worker processes of each loader.
    """

    def __init__(self, *, num_workers: int = 0) -> None:
        super().__init__()
        self.num_workers = num_workers

    @abstractmethod
    def split(self, name: str) -> Split:
        """Return the split "train", "val" or "test"."""

    @abstractmethod
    def _batches(self, examples: Split, **share: Any) -> EpochBatchSampler:
        """Return the batch sampler of a split; ``share`` holds shuffle, seed, rank and world_size."""

    @abstractmethod
    def _join(self) -> Callable[[list[Any]], Any]:
        """Return the collate function; it must be picklable for worker processes."""

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.split("train"), shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.split("val"))

    def test_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.split("test"))

    def predict_dataloader(self) -> DataLoader[Any]:
        return self._loader(self.split("test"))

    def _loader(self, examples: Split, *, shuffle: bool = False) -> DataLoader[Any]:
        rank, world_size = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        # Lightning's own samplers take the same seed.
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        return DataLoader(
            examples,
            batch_sampler=self._batches(examples, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size),
            collate_fn=self._join(),
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            # Lightning copies a batch from pinned memory to the GPU while the GPU computes.
            pin_memory=self.trainer is not None and self.trainer.strategy.root_device.type == "cuda",
        )
