"""Multi30K (Elliott et al., 2016): image descriptions, 29,000 English sentences with German translations."""

from fna_lightning.tasks.data.hub import find_dataset
from fna_lightning.tasks.data.tokenization import Tokenization
from fna_lightning.tasks.translation.parallel_source import ParallelSource
from fna_lightning.tasks.translation.tokenized_pairs import TokenizedPairs

HUB_NAME = "bentrevett/multi30k"


class Multi30kData(TokenizedPairs):
    """Image descriptions in English and German, or other pairs of sentences in the same layout.

    Sentences are tokenized once and cached ($FNA_CACHE, else ~/.cache/fna_lightning). Tokenizers are trained on the
    training sentences only. The test split is test_2016_flickr.

    Args:
        path: a folder, or ``hub:`` and a name on the hub; by default $FNA_DATA/multi30k if it exists, else
            bentrevett/multi30k on the hub. A folder contains train, val and test as .jsonl or .parquet files with one
            column per language, or the text files train.en, train.de and so on.
        source: the source language.
        target: the target language.
        tokenization: settings of the tokenizers.
        joint: whether both languages share one tokenizer; otherwise each has its own, of the same size.
        batch_tokens: maximum number of tokens per batch and process, including padding, on the longer side.
        batch_size: sentences per batch and process, as in the paper; replaces ``batch_tokens``.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
        bpe_dropout: probability that a merge of BPE is left out of the training sentences, 0.1 in most papers. Each
            epoch takes one of 8 random tokenizations of a pair.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        source: str = "en",
        target: str = "de",
        tokenization: Tokenization = Tokenization(vocab_size=8000, max_length=256),  # noqa: B008 - frozen
        joint: bool = True,
        batch_tokens: int = 4096,
        batch_size: int | None = None,
        num_workers: int = 0,
        bpe_dropout: float = 0.0,
    ) -> None:
        super().__init__(
            cache_name="multi30k",
            tokenization=tokenization,
            joint=joint,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
            num_workers=num_workers,
            bpe_dropout=bpe_dropout,
        )
        if source == target:
            raise ValueError(f"source and target must be different languages, got {source!r} for both")
        self._source = ParallelSource(find_dataset(path, "multi30k", HUB_NAME), source, target)

    @property
    def source(self) -> ParallelSource:
        return self._source

    @property
    def source_vocab_size(self) -> int:
        return self.tokenization.vocab_size

    @property
    def target_vocab_size(self) -> int:
        return self.tokenization.vocab_size
