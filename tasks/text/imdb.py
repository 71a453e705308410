"""IMDb film reviews (Maas et al., 2011): 25,000 to learn from and 25,000 to be tested on, half of them positive."""

import hashlib
from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from fna_lightning.tasks.data.cache import cache_root, cached_files, content_key, ensure
from fna_lightning.tasks.data.splits import stratified
from fna_lightning.tasks.data.token_files import open_tokens, text_digests, write_tokens
from fna_lightning.tasks.data.tokenization import Tokenization, train_tokenizer
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.data import Sequences, TextData
from fna_lightning.tasks.text.source import LabelledTexts, TextSource

HUB_NAME = "stanfordnlp/imdb"
LABELS = ("negative", "positive")

# part of every key: raise it when the files of the cache or their meaning change
CACHE_FORMAT = 1


class ImdbData(TextData):
    """Film reviews from IMDb; a part of the training reviews is held out for validation.

    Reviews are tokenised once, into a cache ($FNA_CACHE, else ~/.cache/fna_lightning). The tokenizer learns from the
    training reviews only. Settings below ``tokenization`` never tokenise again, and neither does its ``max_length``.

    Args:
        path: a folder with train-*.parquet and test-*.parquet, or a name on the hub; by default $FNA_DATA/imdb if it
            is there, else the hub's stanfordnlp/imdb.
        tokenization: how a review becomes token ids.
        pad_to_max: pad every batch to ``max_length`` instead of to its longest review.
        validation: share of the training reviews that is held out, the same share of each class.
        split_seed: of the choice of what is held out.
        drop_duplicates: leave out the training reviews that are also test reviews (123 of them).
        batch_size: reviews in a batch of one process.
        num_workers: processes that load batches beside the training one.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        tokenization: Tokenization = Tokenization(),  # noqa: B008 - frozen
        pad_to_max: bool = False,
        validation: float = 0.1,
        split_seed: int = 0,
        drop_duplicates: bool = False,
        batch_size: int = 32,
        num_workers: int = 0,
    ) -> None:
        pad_to = tokenization.max_length if pad_to_max else 1
        super().__init__(batch_size=batch_size, num_workers=num_workers, pad_to=pad_to)
        if not 0.0 < validation < 1.0:
            raise ValueError(f"validation must lie between 0 and 1, got {validation}; 0.1 holds out every tenth review")
        self.source = TextSource.find(path, "imdb", HUB_NAME, len(LABELS))
        self.tokenization = tokenization
        self.validation = validation
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
        return TextCodec(self._tokenizer(), self.class_names, self.tokenization.max_length)

    def prepare_data(self) -> None:
        """Fill the cache, where it is not filled and intact."""
        # read when something is missing, and then once
        read = cache(self.source.read)
        ensure(self._tokenizer_folder, lambda draft: self._write_tokenizer(draft, read()["train"][0]))
        tokenizer = self._tokenizer()
        for name in ("train", "test"):
            ensure(self._tokens_folder(name), partial(_write_split, name, tokenizer, read))

    def split(self, name: str) -> Sequences:
        if name == "test":
            return self._tokens("test")
        everything = self._tokens("train")
        rows = np.arange(len(everything))
        if self.drop_duplicates:
            train, test = (text_digests(self._tokens_folder(one)) for one in ("train", "test"))
            rows = rows[~np.isin(train, test)]
        held_out = stratified(everything.labels[rows], self.validation, self.split_seed)
        return everything.take(rows[held_out if name == "val" else ~held_out])

    def _write_tokenizer(self, draft: Path, texts: list[str]) -> None:
        (draft / "tokenizer.json").write_text(train_tokenizer(texts, self.tokenization), encoding="utf-8")

    def _tokens(self, name: str) -> Sequences:
        return open_tokens(self._tokens_folder(name)).cut(self.tokenization.max_length)

    def _tokenizer(self) -> str:
        with cached_files(self._tokenizer_folder):
            return (self._tokenizer_folder / "tokenizer.json").read_text(encoding="utf-8")

    @cached_property
    def _tokenizer_folder(self) -> Path:
        key = content_key(format=CACHE_FORMAT, source=self.source.fingerprint, **self.tokenization.learned)
        return cache_root() / "imdb" / f"tokenizer-{key}"

    def _tokens_folder(self, name: str) -> Path:
        tokenizer = hashlib.sha256(self._tokenizer().encode()).hexdigest()
        key = content_key(format=CACHE_FORMAT, source=self.source.fingerprint, tokenizer=tokenizer)
        return cache_root() / "imdb" / f"{name}-{key}"


def _write_split(name: str, tokenizer: str, read: Callable[[], LabelledTexts], draft: Path) -> None:
    texts, labels = read()[name]
    write_tokens(draft, tokenizer, texts, labels, f"tokenising {name}")
