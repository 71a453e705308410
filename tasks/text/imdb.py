"""IMDb movie reviews (Maas et al., 2011): 25,000 for training and 25,000 for testing, half of them positive."""

from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from fna_lightning.tasks.data.cache import cache_folder, ensure
from fna_lightning.tasks.data.hub import find_dataset
from fna_lightning.tasks.data.sequences import Sequences
from fna_lightning.tasks.data.splits import check_validation_share, train_or_val_rows
from fna_lightning.tasks.data.token_files import (
    open_tokens,
    read_tokenizer,
    text_digests,
    tokenizer_digest,
    write_tokens,
)
from fna_lightning.tasks.data.tokenization import Tokenization, train_tokenizer
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.data import TextData
from fna_lightning.tasks.text.source import LabelledTexts, TextSource

HUB_NAME = "stanfordnlp/imdb"
LABELS = ("negative", "positive")

# part of every cache key: increase it when the files of the cache or their meaning change
CACHE_FORMAT = 1


class ImdbData(TextData):
    """Movie reviews from IMDb. A share of the training reviews is held out for validation.

    Reviews are tokenized once and cached ($FNA_CACHE, else ~/.cache/fna_lightning). The tokenizer is trained on the
    training reviews only. Only ``path`` and ``tokenization`` (without its ``max_length``) affect the cache.

    Args:
        path: a folder with train-*.parquet and test-*.parquet, or ``hub:`` and a name on the hub; by default
            $FNA_DATA/imdb if it exists, else stanfordnlp/imdb on the hub.
        tokenization: settings of the tokenizer.
        pad_to_max: pad every batch to ``max_length`` instead of to its longest review.
        validation: share of the training reviews that is held out, equal for each class.
        validation_block: number of successive reviews that are held out together. Reviews of the same film follow each
            other, and the test reviews are about other films. So a model that remembers films is too good on reviews
            that are held out one by one; with blocks of 50, most films are either in training or in validation.
        split_seed: random seed of the held-out reviews.
        drop_duplicates: remove the training reviews that are also test reviews (123 of them).
        batch_size: reviews per batch and process.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        tokenization: Tokenization = Tokenization(),  # noqa: B008 - frozen
        pad_to_max: bool = False,
        validation: float = 0.1,
        validation_block: int = 1,
        split_seed: int = 0,
        drop_duplicates: bool = False,
        batch_size: int = 32,
        num_workers: int = 0,
    ) -> None:
        pad_to = tokenization.max_length if pad_to_max else 1
        super().__init__(batch_size=batch_size, num_workers=num_workers, pad_to=pad_to)
        check_validation_share(validation)
        if validation_block < 1:
            raise ValueError(f"validation_block must be at least 1 review, got {validation_block}")
        self.source = TextSource(find_dataset(path, "imdb", HUB_NAME), len(LABELS))
        self.tokenization = tokenization
        self.validation = validation
        self.validation_block = validation_block
        self.split_seed = split_seed
        self.drop_duplicates = drop_duplicates

    @property
    def vocab_size(self) -> int:
        return self.tokenization.vocab_size

    @property
    def class_names(self) -> list[str]:
        return list(LABELS)

    @property
    def codec(self) -> TextCodec:
        return TextCodec(read_tokenizer(self._tokenizer_folder), self.class_names, self.tokenization.max_length)

    def prepare_data(self) -> None:
        """Fill the cache where it is missing or damaged."""
        # the data set is read at most once, and only if a part of the cache is missing
        read = cache(self.source.read)
        ensure(self._tokenizer_folder, lambda draft: self._write_tokenizer(draft, read()["train"][0]))
        tokenizer = read_tokenizer(self._tokenizer_folder)
        for name in ("train", "test"):
            ensure(self._tokens_folder(name), partial(_write_split, name, tokenizer, read))

    def split(self, name: str) -> Sequences:
        if name == "test":
            return self._tokens("test")
        reviews = self._tokens("train")
        rows = np.arange(len(reviews))
        if self.drop_duplicates:
            train, test = (text_digests(self._tokens_folder(part)) for part in ("train", "test"))
            rows = rows[~np.isin(train, test)]
        labels = reviews.labels[rows]
        chosen = train_or_val_rows(labels, name, self.validation, self.split_seed, self.validation_block)
        return reviews.take(rows[chosen])

    def _write_tokenizer(self, draft: Path, texts: list[str]) -> None:
        (draft / "tokenizer.json").write_text(train_tokenizer(texts, self.tokenization), encoding="utf-8")

    def _tokens(self, name: str) -> Sequences:
        return open_tokens(self._tokens_folder(name)).truncate(self.tokenization.max_length)

    @cached_property
    def _tokenizer_folder(self) -> Path:
        settings = {"format": CACHE_FORMAT, "source": self.source.fingerprint, **self.tokenization.training_settings}
        return cache_folder("imdb", "tokenizer", **settings)

    def _tokens_folder(self, name: str) -> Path:
        digest = tokenizer_digest(read_tokenizer(self._tokenizer_folder))
        return cache_folder("imdb", name, format=CACHE_FORMAT, source=self.source.fingerprint, tokenizer=digest)


def _write_split(name: str, tokenizer: str, read: Callable[[], LabelledTexts], draft: Path) -> None:
    texts, labels = read()[name]
    write_tokens(draft, tokenizer, texts, labels, f"tokenizing {name}")
