"""Base class of translation data sets whose sentences are read once, tokenized and cached."""

import json
from abc import abstractmethod
from collections.abc import Callable
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from rich.progress import track
from torch.utils.data import DataLoader

from fna_lightning.tasks.data.cache import cache_folder, cached_files, ensure
from fna_lightning.tasks.data.sequences import Sequences
from fna_lightning.tasks.data.splits import SPLITS
from fna_lightning.tasks.data.token_files import (
    open_tokens,
    read_tokenizer,
    save_sequences,
    token_dtype,
    tokenizer_digest,
    write_tokens,
)
from fna_lightning.tasks.data.tokenization import Tokenization, train_tokenizer
from fna_lightning.tasks.translation.bpe_dropout import VARIANTS, WORD_VARIANTS, DropoutEncoder, check_bpe_dropout
from fna_lightning.tasks.translation.codec import TranslationCodec
from fna_lightning.tasks.translation.data import Pairs, TranslationData
from fna_lightning.tasks.translation.parallel_source import ParallelTexts

# tokens of the ids BEGIN and END, which follow padding and unknown
SENTENCE_TOKENS = ("[BOS]", "[EOS]")

# part of every cache key: increase it when the files of the cache or their meaning change
CACHE_FORMAT = 1


class PairSource(Protocol):
    """Where sentences and their translations are read from."""

    @property
    def fingerprint(self) -> str:
        """Identifies the sentences of all splits in cache keys."""

    def read(self) -> ParallelTexts:
        """Return the sentences of all splits."""


class TokenizedPairs(TranslationData):
    """A translation data set that is tokenized once and cached; tokenizers are trained on the training sentences only.

    Args:
        cache_name: name of the data set in the cache.
        tokenization: settings of the tokenizers.
        joint: whether both languages share one tokenizer; otherwise each has its own, of the same size.
        batch_tokens: maximum number of tokens per batch and process, including padding, on the longer side.
        batch_size: sentences per batch and process; replaces ``batch_tokens``.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
        bpe_dropout: probability that a merge of BPE is left out of the training sentences, 0.1 in most papers. Each
            epoch takes one of 8 random tokenizations of a pair.
    """

    def __init__(
        self,
        *,
        cache_name: str,
        tokenization: Tokenization,
        joint: bool,
        batch_tokens: int = 4096,
        batch_size: int | None = None,
        num_workers: int = 0,
        bpe_dropout: float = 0.0,
    ) -> None:
        check_bpe_dropout(bpe_dropout, tokenization)
        super().__init__(batch_tokens=batch_tokens, batch_size=batch_size, num_workers=num_workers)
        self.cache_name = cache_name
        self.tokenization = tokenization
        self.joint = joint
        self.bpe_dropout = bpe_dropout

    @property
    @abstractmethod
    def source(self) -> PairSource:
        """Where the sentences are read from."""

    @property
    def codec(self) -> TranslationCodec:
        source, target = (self._tokenizer(side) for side in (0, 1))
        return TranslationCodec(source, target, self.tokenization.max_length)

    def prepare_data(self) -> None:
        """Fill the cache where it is missing or damaged."""
        # the data set is read at most once, and only if a part of the cache is missing
        read = cache(self.source.read)
        ensure(self._texts_folder, partial(_write_texts, read))
        ensure(self._tokenizer_folder, lambda draft: self._write_tokenizers(draft, read()["train"]))
        for name in SPLITS:
            for side in (0, 1):
                ensure(self._tokens_folder(name, side), partial(_write_side, name, side, self._tokenizer(side), read))
        for side in (0, 1) if self.bpe_dropout else ():
            encoder = partial(DropoutEncoder, self._tokenizer(side), self.bpe_dropout)
            ensure(self._variants_folder(side), partial(_write_variants, side, encoder, read))

    def split(self, name: str) -> Pairs:
        source, target = (self._open(self._tokens_folder(name, side)) for side in (0, 1))
        return Pairs(source, target)

    def train_dataloader(self) -> DataLoader[Any]:
        if not self.bpe_dropout:
            return super().train_dataloader()
        source, target = (self._open(self._variants_folder(side)) for side in (0, 1))
        return self._loader(Pairs(source, target, VARIANTS), shuffle=True)

    def texts(self, name: str) -> tuple[list[str], list[str]]:
        with cached_files(self._texts_folder):
            source, target = json.loads((self._texts_folder / f"{name}.json").read_text(encoding="utf-8"))
        return source, target

    def _write_tokenizers(self, draft: Path, texts: tuple[list[str], list[str]]) -> None:
        training_texts = [chain(*texts)] if self.joint else list(texts)
        for side, side_texts in enumerate(training_texts):
            content = train_tokenizer(side_texts, self.tokenization, SENTENCE_TOKENS)
            (draft / f"tokenizer.{side}.json").write_text(content, encoding="utf-8")

    def _tokenizer(self, side: int) -> str:
        return read_tokenizer(self._tokenizer_folder, f"tokenizer.{0 if self.joint else side}.json")

    def _open(self, folder: Path) -> Sequences:
        # one position is left for END
        return open_tokens(folder).truncate(self.tokenization.max_length - 1)

    @cached_property
    def _texts_folder(self) -> Path:
        return cache_folder(self.cache_name, "texts", format=CACHE_FORMAT, source=self.source.fingerprint)

    @cached_property
    def _tokenizer_folder(self) -> Path:
        settings = {"joint": self.joint, "more": SENTENCE_TOKENS, **self.tokenization.training_settings}
        return cache_folder(
            self.cache_name, "tokenizer", format=CACHE_FORMAT, source=self.source.fingerprint, **settings
        )

    def _tokens_folder(self, name: str, side: int) -> Path:
        digest = tokenizer_digest(self._tokenizer(side))
        settings = {"format": CACHE_FORMAT, "source": self.source.fingerprint, "tokenizer": digest}
        return cache_folder(self.cache_name, f"{name}-{side}", **settings)

    def _variants_folder(self, side: int) -> Path:
        tokens = self._tokens_folder("train", side).name
        settings = {"tokens": tokens, "dropout": self.bpe_dropout, "count": VARIANTS, "words": WORD_VARIANTS}
        return cache_folder(self.cache_name, f"variants-{side}", **settings)


def _write_texts(read: Callable[[], ParallelTexts], draft: Path) -> None:
    for name, sides in read().items():
        (draft / f"{name}.json").write_text(json.dumps(sides, ensure_ascii=False), encoding="utf-8")


def _write_side(name: str, side: int, tokenizer: str, read: Callable[[], ParallelTexts], draft: Path) -> None:
    texts = read()[name][side]
    write_tokens(draft, tokenizer, texts, list(range(len(texts))), f"tokenizing {name}")


def _write_variants(
    side: int, encoder: Callable[[], DropoutEncoder], read: Callable[[], ParallelTexts], draft: Path
) -> None:
    """Write all training sentences in their first random tokenization, then all in their second one, and so on."""
    texts, encoder_of_side = read()["train"][side], encoder()
    dtype = token_dtype(encoder_of_side.vocab_size)
    variants = [
        [np.asarray(ids, dtype) for ids in encoder_of_side.encode(text, VARIANTS)]
        for text in track(texts, "tokenizing train with dropout", transient=True)
    ]
    sequences = [sentence[number] for number in range(VARIANTS) for sentence in variants]
    save_sequences(draft, sequences, list(range(len(texts))) * VARIANTS, dtype)
