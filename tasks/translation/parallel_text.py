"""Sentences of the user and their translations: two text files, a table, or a data set on the Hugging Face hub."""

import logging
from functools import cached_property

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.splits import SPLITS
from fna_lightning.tasks.data.tokenization import Tokenization, vocabulary_size
from fna_lightning.tasks.translation.parallel_tables import ParallelTables
from fna_lightning.tasks.translation.tokenized_pairs import TokenizedPairs

log = logging.getLogger("fna_lightning")

EXAMPLE = "--data.path english.txt,german.txt"


class ParallelText(TokenizedPairs):
    """Sentences and their translations from two text files, a table, or a data set on the Hugging Face hub.

    Sentences are tokenized once and cached ($FNA_CACHE, else ~/.cache/fna_lightning). Both languages share one
    tokenizer, which is trained on the training sentences only. The cache depends on the content of the files.

    Args:
        path: two text files with a comma between them (english.txt,german.txt), of which line i of the second is the
            translation of line i of the first; a file that ends in .tsv, .csv, .jsonl or .parquet; a folder with
            train.jsonl and so on; or ``hub:`` and a name on the Hugging Face hub.
        source_column: the column with the sentences; by default the first of two columns. A number is the column of a
            TSV or CSV file without a header, counted from 1.
        target_column: the column with the translations; by default the second of two columns.
        validation: share of the pairs that is held out, or files like those of ``path``, or the name of a split of
            the data set. By default the validation split of the data set if it has one, else a share of 0.1.
        test: the same for the test split.
        subset: name of the configuration of a data set on the hub that has several.
        split_seed: random seed of the held-out pairs.
        tokenization: settings of the tokenizer; the vocabulary of a small data set has fewer tokens.
        batch_tokens: maximum number of tokens per batch and process, including padding, on the longer side.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        source_column: str | None = None,
        target_column: str | None = None,
        validation: float | str | None = None,
        test: float | str | None = None,
        subset: str | None = None,
        split_seed: int = 0,
        tokenization: Tokenization = Tokenization(vocab_size=8000, max_length=256),  # noqa: B008 - frozen
        batch_tokens: int = 4096,
        num_workers: int = 0,
    ) -> None:
        super().__init__(
            cache_name="parallel_text",
            tokenization=tokenization,
            joint=True,
            batch_tokens=batch_tokens,
            num_workers=num_workers,
        )
        self.path = path
        self.columns = source_column, target_column
        self.validation = validation
        self.test = test
        self.subset = subset
        self.split_seed = split_seed

    @cached_property
    def source(self) -> ParallelTables:
        if self.path is None:
            raise UsageError(f"ParallelText needs files to read; set --data.path, for example {EXAMPLE}")
        source, target = self.columns
        return ParallelTables(
            self.path,
            self.validation,
            self.test,
            self.subset,
            source_column=source,
            target_column=target,
            split_seed=self.split_seed,
        )

    @property
    def source_vocab_size(self) -> int:
        return self._vocab_size

    @property
    def target_vocab_size(self) -> int:
        return self._vocab_size

    @cached_property
    def _vocab_size(self) -> int:
        """Size of the shared vocabulary; the model needs it to be built."""
        self.prepare_data()
        sizes = [len(self.texts(name)[0]) for name in SPLITS]
        log.info("%s: %d training, %d validation and %d test pairs", self.path, *sizes)
        return vocabulary_size(self._tokenizer(0))
