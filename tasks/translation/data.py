"""Base class of translation data sets, and their batches."""

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

from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.data.sequences import Sequences
from fna_lightning.tasks.data.split_data import SplitData
from fna_lightning.tasks.translation.codec import BEGIN, END, TranslationCodec
from fna_lightning.training.samplers import EpochBatchSampler, LengthGroupedBatchSampler, TokenBatchSampler
from fna_lightning.training.variant_batches import VariantBatchSampler

# token ids of a source and of a target, and the index of the pair in its split
Pair = tuple[NDArray[np.integer], NDArray[np.integer], int]


class TranslationBatch(NamedTuple):
    """Padded pairs of sequences. A source ends with END; a target begins with BEGIN and ends with END."""

    source: Tensor  # (B, M), 0 for padding
    source_lengths: Tensor  # (B,)
    target: Tensor  # (B, N + 1), 0 for padding
    target_lengths: Tensor  # (B,) number of tokens to predict, including END
    number: Tensor  # (B,) index of the pair in its split
    # (T,) positions of the tokens to predict among all B * N; known here, because a boolean mask would wait for a GPU
    predicted: Tensor


@dataclass(frozen=True)
class Pairs(Dataset[Pair]):
    """Source sequences and their translations.

    Args:
        source: the sources; with several variants, all pairs in their first variant, then all in their second one.
        target: the translations, in the same order.
        variants: number of tokenizations of each pair.
    """

    source: Sequences
    target: Sequences
    variants: int = 1

    def __len__(self) -> int:
        """Return the number of pairs, each counted once."""
        return len(self.source) // self.variants

    def __getitem__(self, index: int) -> Pair:
        return self.source[index][0], self.target[index][0], index % len(self)

    def max_lengths(self) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """Return the lengths of each source and target in their longest variant."""
        source, target = (side.lengths.reshape(self.variants, -1).max(0) for side in (self.source, self.target))
        return source, target


def pad_pairs(pairs: list[Pair]) -> TranslationBatch:
    """Collate pairs to a batch; each side is as long as its longest sequence."""
    source, source_lengths = pad_tokens([[*source.tolist(), END] for source, _, _ in pairs])
    target, target_lengths = pad_tokens([[BEGIN, *target.tolist(), END] for _, target, _ in pairs])
    index = torch.tensor([index for _, _, index in pairs])
    target_lengths -= 1
    real = torch.arange(target.size(1) - 1) < target_lengths[:, None]  # (B, N)
    predicted = real.flatten().nonzero().flatten()
    return TranslationBatch(source, source_lengths, target, target_lengths, index, predicted)


class TranslationData(SplitData[Pairs]):
    """A translation data set.

    A subclass knows its vocabulary sizes as soon as it is constructed, and returns its splits.

    Args:
        batch_tokens: maximum number of tokens per batch and process, including padding, on the longer side.
        batch_size: sentences per batch and process; replaces ``batch_tokens``.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
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
        """Number of source token ids, including the special tokens."""

    @property
    @abstractmethod
    def target_vocab_size(self) -> int:
        """Number of target token ids, including the special tokens."""

    @property
    @abstractmethod
    def codec(self) -> TranslationCodec:
        """The codec that is stored in checkpoints."""

    @cached_property
    def shared_codec(self) -> TranslationCodec:
        """The codec, constructed once: loading its tokenizers takes as long as translating a few sentences."""
        return self.codec

    @abstractmethod
    def texts(self, name: str) -> tuple[list[str], list[str]]:
        """Return the original sources and translations of a split."""

    def _batches(self, examples: Pairs, **share: Any) -> EpochBatchSampler:
        # A batch fits with any variant of its pairs, and every epoch has the same number of batches.
        lengths = examples.max_lengths()
        longer, shorter = np.maximum(*lengths) + 1, np.minimum(*lengths) + 1
        sampler: EpochBatchSampler = (
            TokenBatchSampler(longer, shorter, self.batch_tokens, **share)
            if self.batch_size is None
            else LengthGroupedBatchSampler(longer, self.batch_size, **share)
        )
        return sampler if examples.variants == 1 else VariantBatchSampler(sampler, examples.variants)

    def _join(self) -> Callable[[list[Pair]], TranslationBatch]:
        return pad_pairs
