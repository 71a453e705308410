"""Base class of text classification data sets, and their batches."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fna_lightning.tasks.data.classification import ClassificationData
from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.data.sequences import Sequences
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.training.samplers import LengthGroupedBatchSampler


class TextBatch(NamedTuple):
    """Padded token sequences and their labels."""

    tokens: Tensor  # (B, N), 0 for padding
    lengths: Tensor  # (B,)
    labels: Tensor  # (B,)


def pad(examples: list[tuple[NDArray[np.integer], int]], length: int = 1) -> TextBatch:
    """Collate examples to a batch that is as long as its longest sequence and at least ``length``."""
    tokens, lengths = pad_tokens([sequence for sequence, _ in examples], min_length=length)
    return TextBatch(tokens, lengths, torch.tensor([label for _, label in examples]))


class TextData(ClassificationData[Sequences]):
    """A text classification data set.

    A subclass knows its vocabulary size and class names as soon as it is constructed, and returns its splits.

    Args:
        batch_size: sequences per batch and process.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
        pad_to: minimum length of a batch; by default a batch is as long as its longest sequence.
    """

    def __init__(self, *, batch_size: int = 32, num_workers: int = 0, pad_to: int = 1) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers)
        self.pad_to = pad_to

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of token ids, including padding and unknown."""

    @property
    @abstractmethod
    def codec(self) -> TextCodec:
        """The codec that is stored in checkpoints."""

    def _batches(self, examples: Sequences, **share: Any) -> LengthGroupedBatchSampler:
        return LengthGroupedBatchSampler(examples.lengths, self.batch_size, **share)

    def _join(self) -> Callable[[list[Any]], TextBatch]:
        return partial(pad, length=self.pad_to)
