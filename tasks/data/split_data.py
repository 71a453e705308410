"""What every data set here shares: three splits, and a loader of each that gives a process its share."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import lightning as L
from torch.utils.data import DataLoader, Dataset

from fna_lightning.training.length_batches import LengthGroupedBatchSampler

Split = TypeVar("Split", bound=Dataset)


class SplitData(L.LightningDataModule, ABC, Generic[Split]):
    """A data set in the splits "train", "val" and "test"; predictions are made for the last.

    A subclass hands out its splits and says how their examples are grouped and joined to batches.

    Args:
        num_workers: processes that load batches beside the training one.
    """

    def __init__(self, *, num_workers: int = 0) -> None:
        super().__init__()
        self.num_workers = num_workers

    @abstractmethod
    def split(self, name: str) -> Split:
        """Return the split "train", "val" or "test"."""

    @abstractmethod
    def _batches(self, examples: Split, **share: Any) -> LengthGroupedBatchSampler:
        """Return the sampler of a split; ``share`` is what it must know of shuffling and of other processes."""

    @abstractmethod
    def _join(self) -> Callable[[list[Any]], Any]:
        """Return the function that joins examples to a batch; it travels to the processes that load."""

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
        # the seed of the run, as Lightning's own samplers take it
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        return DataLoader(
            examples,
            batch_sampler=self._batches(examples, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size),
            collate_fn=self._join(),
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )
