"""Texts and classes of the user: a CSV, TSV, JSONL or Parquet file, or a data set on the Hugging Face hub."""

import json
import logging
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.cache import cache_folder, cached_files, ensure
from fna_lightning.tasks.data.sequences import Sequences
from fna_lightning.tasks.data.split_tables import SplitTables
from fna_lightning.tasks.data.splits import SPLITS, hold_out
from fna_lightning.tasks.data.token_files import open_tokens, read_tokenizer, write_tokens
from fna_lightning.tasks.data.tokenization import Tokenization, train_tokenizer, vocabulary_size
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.data import TextData
from fna_lightning.tasks.text.labels import (
    LABEL_COLUMNS,
    TEXT_COLUMNS,
    choose_column,
    number_labels,
    order_classes,
    read_labels,
)

log = logging.getLogger("fna_lightning")

EXAMPLE = "--data.path mine.csv --data.text_column review --data.label_column topic"
TEXT_OPTION, LABEL_OPTION = "--data.text_column", "--data.label_column"
FACTS = "facts.json"

# part of every cache key: increase it when the files of the cache or their meaning change
CACHE_FORMAT = 1


@dataclass(frozen=True)
class Examples:
    """Classes of a data set, and texts and class numbers of each split."""

    classes: list[str]
    splits: dict[str, tuple[list[str], list[int]]]


class TextFiles(TextData):
    """Texts and their classes from a file, a folder, or a data set on the Hugging Face hub.

    Texts are tokenized once and cached ($FNA_CACHE, else ~/.cache/fna_lightning). The tokenizer is trained on the
    training texts only. The cache depends on the content of the files.

    Args:
        path: a file that ends in .csv, .tsv, .jsonl or .parquet, a folder with train.csv and so on, or ``hub:`` and a
            name on the Hugging Face hub.
        text_column: the column with the texts; by default one that is called text, sentence, review or similar. A
            number is the column of a CSV or TSV file without a header, counted from 1.
        label_column: the column with the classes, texts or integers; by default one that is called label, class,
            category, topic or similar.
        validation: share of the rows that is held out, equal for each class, or a file, or the name of a split of the
            data set. By default the validation split of the data set if it has one, else a share of 0.1.
        test: the same for the test split.
        subset: name of the configuration of a data set on the hub that has several.
        split_seed: random seed of the held-out rows.
        tokenization: settings of the tokenizer; the vocabulary of a small data set has fewer tokens.
        batch_size: texts per batch and process.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        text_column: str | None = None,
        label_column: str | None = None,
        validation: float | str | None = None,
        test: float | str | None = None,
        subset: str | None = None,
        split_seed: int = 0,
        tokenization: Tokenization = Tokenization(),  # noqa: B008 - frozen
        batch_size: int = 32,
        num_workers: int = 0,
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers)
        self.path = path
        self.validation = validation
        self.test = test
        self.subset = subset
        self.text_column = text_column
        self.label_column = label_column
        self.split_seed = split_seed
        self.tokenization = tokenization

    @cached_property
    def tables(self) -> SplitTables:
        """The tables of the splits."""
        if self.path is None:
            raise UsageError(f"TextFiles needs a file to read; set --data.path, for example {EXAMPLE}")
        columns = [column for column in (self.text_column, self.label_column) if column is not None]
        header = not columns or not all(column.isdecimal() for column in columns)
        return SplitTables(self.path, self.validation, self.test, self.subset, header)

    @property
    def vocab_size(self) -> int:
        return self._facts["vocab_size"]

    @property
    def class_names(self) -> list[str]:
        return list(self._facts["classes"])

    @property
    def codec(self) -> TextCodec:
        return TextCodec(read_tokenizer(self._folder("tokenizer")), self.class_names, self.tokenization.max_length)

    def prepare_data(self) -> None:
        """Fill the cache where it is missing or damaged."""
        # the files are read at most once, and only if a part of the cache is missing
        read = cache(self.read)
        ensure(self._folder("tokenizer"), lambda draft: self._write_tokenizer(draft, read()))
        tokenizer = read_tokenizer(self._folder("tokenizer"))

        def write_split(name: str, draft: Path) -> None:
            write_tokens(draft, tokenizer, *read().splits[name], f"tokenizing {name}")

        for name in SPLITS:
            ensure(self._folder(name), partial(write_split, name))

    def split(self, name: str) -> Sequences:
        return open_tokens(self._folder(name)).truncate(self.tokenization.max_length)

    def read(self) -> Examples:
        """Read and check all texts and classes."""
        with self.tables.open() as tables:
            train = tables["train"]
            text_column = choose_column(train, self.text_column, TEXT_COLUMNS, TEXT_OPTION)
            label_column = choose_column(train, self.label_column, LABEL_COLUMNS, LABEL_OPTION)
            texts = {name: table.texts(text_column, TEXT_OPTION) for name, table in tables.items()}
            labels = {name: read_labels(table, label_column, LABEL_OPTION) for name, table in tables.items()}
            classes = order_classes(train, label_column, labels["train"], LABEL_OPTION)
            splits = {
                name: (texts[name], number_labels(table, label_column, labels[name], classes, train.name))
                for name, table in tables.items()
            }
        all_texts, numbers = splits["train"]
        rows = hold_out(np.asarray(numbers), self.tables.shares(tables), self.split_seed, train.name)
        held_out = {
            name: ([all_texts[row] for row in chosen], [numbers[row] for row in chosen])
            for name, chosen in rows.items()
        }
        return Examples(classes, {**splits, **held_out})

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """The classes, the size of the vocabulary and the sizes of the splits; the model needs them to be built."""
        self.prepare_data()
        folder = self._folder("tokenizer")
        with cached_files(folder):
            facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        sizes, classes = facts["sizes"], facts["classes"]
        log.info(
            "%s: %d training, %d validation and %d test texts; %d classes: %s",
            *(self.tables.path, *(sizes[name] for name in SPLITS), len(classes)),
            ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else ""),
        )
        return facts

    def _write_tokenizer(self, draft: Path, examples: Examples) -> None:
        tokenizer = train_tokenizer(examples.splits["train"][0], self.tokenization)
        (draft / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        sizes = {name: len(texts) for name, (texts, _) in examples.splits.items()}
        facts = {"classes": examples.classes, "sizes": sizes, "vocab_size": vocabulary_size(tokenizer)}
        (draft / FACTS).write_text(json.dumps(facts, ensure_ascii=False), encoding="utf-8")

    def _folder(self, part: str) -> Path:
        return cache_folder("text_files", part, **self._cache_settings)

    @cached_property
    def _cache_settings(self) -> dict[str, object]:
        return {
            "format": CACHE_FORMAT,
            "source": self.tables.content_digest,
            "columns": [self.text_column, self.label_column],
            "seed": self.split_seed,
            **self.tokenization.training_settings,
        }
