"""What every text classification data set shares: ragged token arrays, batches, and what a model must know of them."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from fna_lightning.tasks.data.split_data import SplitData
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.training.samplers import LengthGroupedBatchSampler

PAD = 0
UNKNOWN = 1


class TextBatch(NamedTuple):
    """Padded sequences with their labels."""

    tokens: Tensor  # (B, N), 0 where padded
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


@dataclass(frozen=True)
class Sequences(Dataset[tuple[NDArray[np.integer], int]]):
    """Token sequences of different lengths, views into one array, which may be a file."""

    tokens: NDArray[np.integer]
    starts: NDArray[np.integer]
    lengths: NDArray[np.integer]
    labels: NDArray[np.integer]

    @classmethod
    def of(cls, sequences: list[list[int]], labels: list[int]) -> "Sequences":
        """Join lists of token ids."""
        lengths = np.asarray([len(one) for one in sequences], dtype=np.int64)
        tokens = np.fromiter((token for one in sequences for token in one), dtype=np.int32, count=int(lengths.sum()))
        return cls(tokens, lengths.cumsum() - lengths, lengths, np.asarray(labels, dtype=np.int64))

    def take(self, rows: NDArray[np.integer]) -> "Sequences":
        """Return some of the sequences; no token is copied."""
        return Sequences(self.tokens, self.starts[rows], self.lengths[rows], self.labels[rows])

    def cut(self, max_length: int) -> "Sequences":
        """Return the first ``max_length`` tokens of every sequence; no token is copied."""
        return Sequences(self.tokens, self.starts, np.minimum(self.lengths, max_length), self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[NDArray[np.integer], int]:
        start = self.starts[index]
        return self.tokens[start : start + self.lengths[index]], int(self.labels[index])


def pad(examples: list[tuple[NDArray[np.integer], int]], length: int = 1) -> TextBatch:
    """Join examples to one batch, as long as its longest sequence and at least ``length``."""
    lengths = [len(tokens) for tokens, _ in examples]
    padded = np.full((len(examples), max(length, *lengths) if lengths else length), PAD, dtype=np.int64)
    for row, (tokens, _) in zip(padded, examples, strict=True):
        row[: len(tokens)] = tokens
    return TextBatch(torch.from_numpy(padded), torch.tensor(lengths), torch.tensor([label for _, label in examples]))


class TextData(SplitData[Sequences]):
    """A text classification data set.

    A subclass says how many token ids and classes there are, as soon as it is constructed, and hands out its splits.

    Args:
        batch_size: sequences in a batch of one process.
        num_workers: processes that load batches beside the training one.
        pad_to: fewest tokens a batch is padded to; by default a batch is as long as its longest sequence.
    """

    def __init__(self, *, batch_size: int = 32, num_workers: int = 0, pad_to: int = 1) -> None:
        super().__init__(num_workers=num_workers)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self.pad_to = pad_to

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of token ids, padding and unknown included."""

    @property
    @abstractmethod
    def class_names(self) -> list[str]:
        """What the labels 0, 1, ... are called."""

    @property
    @abstractmethod
    def codec(self) -> TextCodec:
        """How a text becomes token ids and a class number a name; the checkpoints of a task carry it."""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def _batches(self, examples: Sequences, **share: Any) -> LengthGroupedBatchSampler:
        return LengthGroupedBatchSampler(examples.lengths, self.batch_size, **share)

    def _join(self) -> Callable[[list[Any]], TextBatch]:
        return partial(pad, length=self.pad_to)
