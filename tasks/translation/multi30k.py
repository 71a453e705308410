"""Multi30K (Elliott et al., 2016): descriptions of pictures, 29,000 English sentences with their German translation."""

import hashlib
import json
from collections.abc import Callable
from functools import cache, cached_property, partial
from itertools import chain
from pathlib import Path

from fna_lightning.tasks.data.cache import cache_root, cached_files, content_key, ensure
from fna_lightning.tasks.data.token_files import open_tokens, write_tokens
from fna_lightning.tasks.data.tokenization import Tokenization, train_tokenizer
from fna_lightning.tasks.translation.codec import TranslationCodec
from fna_lightning.tasks.translation.data import Pairs, TranslationData
from fna_lightning.tasks.translation.parallel_source import ParallelSource, ParallelTexts

HUB_NAME = "bentrevett/multi30k"
SPLITS = ("train", "val", "test")

# BEGIN and END of the codec, after padding and unknown
MORE_TOKENS = ("[BOS]", "[EOS]")

# part of every key: raise it when the files of the cache or their meaning change
CACHE_FORMAT = 1


class Multi30kData(TranslationData):
    """Descriptions of pictures in English and German, or any other pairs of sentences in the same layout.

    Sentences are tokenised once, into a cache ($FNA_CACHE, else ~/.cache/fna_lightning). Tokenizers learn from the
    training sentences only. The test split is test_2016_flickr.

    Args:
        path: a folder, or a name on the hub; by default $FNA_DATA/multi30k if it is there, else the hub's
            bentrevett/multi30k. A folder holds train, val and test as .jsonl or .parquet with a column for each
            language, or text files train.en, train.de and so on.
        source: the language that is read.
        target: the language that is said.
        tokenization: how a sentence becomes token ids.
        joint: whether both languages share one tokenizer; else each learns its own, of the same size.
        batch_tokens: most tokens in a batch of one process, padding included, counted on its longer side.
        batch_size: sentences in a batch instead, as the paper counts.
        num_workers: processes that load batches beside the training one.
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
    ) -> None:
        super().__init__(batch_tokens=batch_tokens, batch_size=batch_size, num_workers=num_workers)
        if source == target:
            raise ValueError(f"source and target must be two languages, got {source!r} twice")
        self.source = ParallelSource.find(path, "multi30k", HUB_NAME, source, target)
        self.tokenization = tokenization
        self.joint = joint

    @property
    def source_vocab_size(self) -> int:
        return self.tokenization.vocab_size

    @property
    def target_vocab_size(self) -> int:
        return self.tokenization.vocab_size

    @property
    def codec(self) -> TranslationCodec:
        source, target = (self._tokenizer(side) for side in (0, 1))
        return TranslationCodec(source, target, self.tokenization.max_length)

    def prepare_data(self) -> None:
        """Fill the cache, where it is not filled and intact."""
        # read when something is missing, and then once
        read = cache(self.source.read)
        ensure(self._texts_folder, partial(_write_texts, read))
        ensure(self._tokenizer_folder, lambda draft: self._write_tokenizers(draft, read()["train"]))
        for name in SPLITS:
            for side in (0, 1):
                ensure(self._tokens_folder(name, side), partial(_write_side, name, side, self._tokenizer(side), read))

    def split(self, name: str) -> Pairs:
        # a target is cut only where its positions would end, with room for its end
        longest = self.tokenization.max_length - 1
        source, target = (open_tokens(self._tokens_folder(name, side)).cut(longest) for side in (0, 1))
        return Pairs(source, target)

    def texts(self, name: str) -> tuple[list[str], list[str]]:
        with cached_files(self._texts_folder):
            source, target = json.loads((self._texts_folder / f"{name}.json").read_text(encoding="utf-8"))
        return source, target

    def _write_tokenizers(self, draft: Path, texts: tuple[list[str], list[str]]) -> None:
        learn = [chain(*texts)] if self.joint else list(texts)
        for side, some in enumerate(learn):
            content = train_tokenizer(some, self.tokenization, MORE_TOKENS)
            (draft / f"tokenizer.{side}.json").write_text(content, encoding="utf-8")

    def _tokenizer(self, side: int) -> str:
        name = f"tokenizer.{0 if self.joint else side}.json"
        with cached_files(self._tokenizer_folder):
            return (self._tokenizer_folder / name).read_text(encoding="utf-8")

    @cached_property
    def _texts_folder(self) -> Path:
        return cache_root() / "multi30k" / f"texts-{content_key(format=CACHE_FORMAT, source=self.source.fingerprint)}"

    @cached_property
    def _tokenizer_folder(self) -> Path:
        settings = {"joint": self.joint, "more": MORE_TOKENS, **self.tokenization.learned}
        key = content_key(format=CACHE_FORMAT, source=self.source.fingerprint, **settings)
        return cache_root() / "multi30k" / f"tokenizer-{key}"

    def _tokens_folder(self, name: str, side: int) -> Path:
        tokenizer = hashlib.sha256(self._tokenizer(side).encode()).hexdigest()
        key = content_key(format=CACHE_FORMAT, source=self.source.fingerprint, tokenizer=tokenizer)
        return cache_root() / "multi30k" / f"{name}-{side}-{key}"


def _write_texts(read: Callable[[], ParallelTexts], draft: Path) -> None:
    for name, sides in read().items():
        (draft / f"{name}.json").write_text(json.dumps(sides, ensure_ascii=False), encoding="utf-8")


def _write_side(name: str, side: int, tokenizer: str, read: Callable[[], ParallelTexts], draft: Path) -> None:
    texts = read()[name][side]
    write_tokens(draft, tokenizer, texts, list(range(len(texts))), f"tokenising {name}")
