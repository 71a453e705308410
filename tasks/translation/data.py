"""What every translation data set shares: pairs of token sequences, token-bucketed batches, and their texts."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from fna_lightning.tasks.data.split_data import SplitData
from fna_lightning.tasks.text.data import PAD, Sequences
from fna_lightning.tasks.translation.codec import BEGIN, END, TranslationCodec
from fna_lightning.training.samplers import LengthGroupedBatchSampler, TokenBatchSampler

# token ids of a source and of a target, and the number of the pair in its split
Pair = tuple[NDArray[np.integer], NDArray[np.integer], int]


class TranslationBatch(NamedTuple):
    """Padded pairs of sequences; a source ends with END, a target begins with BEGIN and ends with END."""

    source: Tensor  # (B, M), 0 where padded
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, N + 1), 0 where padded
    target_lengths: Tensor  # (B,) tokens to be said, END included
    number: Tensor  # (B,) of the pair in its split


@dataclass(frozen=True)
class Pairs(Dataset[Pair]):
    """Sequences and their translations."""

    source: Sequences
    target: Sequences

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Pair:
        return self.source[index][0], self.target[index][0], index


def pad_pairs(pairs: list[Pair]) -> TranslationBatch:
    """Join pairs to one batch, each side as long as its longest sequence."""
    source, source_lengths = pad_rows([[*source.tolist(), END] for source, _, _ in pairs])
    target, target_lengths = pad_rows([[BEGIN, *target.tolist(), END] for _, target, _ in pairs])
    index = torch.tensor([index for _, _, index in pairs])
    return TranslationBatch(source, source_lengths, target, target_lengths - 1, index)


def pad_rows(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Return rows of token ids as one tensor, and their lengths."""
    lengths = [len(row) for row in rows]
    padded = np.full((len(rows), max(lengths, default=0)), PAD, dtype=np.int64)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    return torch.from_numpy(padded), torch.tensor(lengths)


class TranslationData(SplitData[Pairs]):
    """A translation data set.

    A subclass says how many token ids there are, as soon as it is constructed, and hands out its splits.

    Args:
        batch_tokens: most tokens in a batch of one process, padding included, counted on its longer side.
        batch_size: sentences in a batch instead, as some papers count.
        num_workers: processes that load batches beside the training one.
    """

    def __init__(self, *, batch_tokens: int = 4096, batch_size: int | None = None, num_workers: int = 0) -> None:
        super().__init__(num_workers=num_workers)
        if batch_tokens < 1 or (batch_size is not None and batch_size < 1):
            raise ValueError(f"batch_tokens and batch_size must be at least 1, got {batch_tokens} and {batch_size}")
        self.batch_tokens = batch_tokens
        self.batch_size = batch_size

    @property
    @abstractmethod
    def source_vocab_size(self) -> int:
        """Number of token ids of the source, the special ones included."""

    @property
    @abstractmethod
    def target_vocab_size(self) -> int:
        """Number of token ids of the target, the special ones included."""

    @property
    @abstractmethod
    def codec(self) -> TranslationCodec:
        """How texts become token ids and token ids texts; the checkpoints of a task carry it."""

    @cached_property
    def shared_codec(self) -> TranslationCodec:
        """The codec, made once: reading its tokenizers takes as long as translating a few sentences."""
        return self.codec

    @abstractmethod
    def texts(self, name: str) -> tuple[list[str], list[str]]:
        """Return the sources and the translations of a split as they were written."""

    def _batches(self, examples: Pairs, **share: Any) -> LengthGroupedBatchSampler:
        longer = np.maximum(examples.source.lengths, examples.target.lengths) + 1
        if self.batch_size is not None:
            return LengthGroupedBatchSampler(longer, self.batch_size, **share)
        shorter = np.minimum(examples.source.lengths, examples.target.lengths) + 1
        return TokenBatchSampler(longer, shorter, self.batch_tokens, **share)

    def _join(self) -> Callable[[list[Pair]], TranslationBatch]:
        return pad_pairs
