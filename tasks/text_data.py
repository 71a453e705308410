"""What every text classification data set shares: ragged token arrays, batches, and what a model must know of them."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fna_lightning.tasks.batching import LengthBatches

PAD = 0
UNKNOWN = 1


class TextBatch(NamedTuple):
    """Padded sequences with their labels."""

    tokens: Tensor  # (B, N), 0 where padded
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


@dataclass(frozen=True)
class Sequences(Dataset[tuple[NDArray[np.integer], int]]):
    """Token sequences of different lengths, end to end in one array."""

    tokens: NDArray[np.integer]
    starts: NDArray[np.integer]  # one more than there are sequences
    labels: NDArray[np.integer]

    @classmethod
    def of(cls, sequences: list[list[int]], labels: list[int]) -> "Sequences":
        """Join lists of token ids."""
        starts = np.cumsum([0, *map(len, sequences)])
        tokens = np.fromiter((token for one in sequences for token in one), dtype=np.int32, count=int(starts[-1]))
        return cls(tokens, starts, np.asarray(labels, dtype=np.int64))

    @property
    def lengths(self) -> NDArray[np.integer]:
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.integer], int]:
        return self.tokens[self.starts[index] : self.starts[index + 1]], int(self.labels[index])


def pad(examples: list[tuple[NDArray[np.integer], int]]) -> TextBatch:
    """Join examples to one batch, as long as its longest sequence (and at least one token)."""
    lengths = [len(tokens) for tokens, _ in examples]
    padded = np.full((len(examples), max(1, *lengths)) if lengths else (0, 1), PAD, dtype=np.int64)
    for row, (tokens, _) in zip(padded, examples, strict=True):
        row[: len(tokens)] = tokens
    return TextBatch(torch.from_numpy(padded), torch.tensor(lengths), torch.tensor([label for _, label in examples]))


class TextData(L.LightningDataModule, ABC):
    """A text classification data set.

    A subclass says how many token ids and classes there are, as soon as it is constructed, and hands out its splits.

    Args:
        batch_size: sequences in a batch of one process.
        num_workers: processes that load batches beside the training one.
    """

    def __init__(self, *, batch_size: int = 32, num_workers: int = 0) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self.num_workers = num_workers

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of token ids, padding and unknown included."""

    @property
    @abstractmethod
    def class_names(self) -> list[str]:
        """What the labels 0, 1, ... are called."""

    @abstractmethod
    def split(self, name: str) -> Sequences:
        """Return the split "train", "val" or "test"."""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def train_dataloader(self) -> DataLoader[Any]:
        return self._loader("train", shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self._loader("val")

    def test_dataloader(self) -> DataLoader[Any]:
        return self._loader("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        return self._loader("test")

    def _loader(self, name: str, *, shuffle: bool = False) -> DataLoader[Any]:
        sequences = self.split(name)
        rank, world_size = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        # the seed of the run, as Lightning's own samplers take it
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        batches = LengthBatches(
            sequences.lengths, self.batch_size, shuffle=shuffle, seed=seed, rank=rank, world_size=world_size
        )
        return DataLoader(
            sequences,
            batch_sampler=batches,
            collate_fn=pad,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
        )
