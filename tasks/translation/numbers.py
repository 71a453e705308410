"""Number words as a translation data module: nothing to download."""

import random
from functools import cached_property

from fna_lightning.tasks.data.tokenization import word_tokenizer
from fna_lightning.tasks.text.data import Sequences
from fna_lightning.tasks.translation.codec import END, TranslationCodec
from fna_lightning.tasks.translation.data import Pairs, TranslationData
from fna_lightning.tasks.translation.number_words import LARGEST, english, german, vocabularies

SPLITS = ("train", "val", "test")

# tokens of a source that are read: the longest number has 11 words
MAX_LENGTH = 32


class NumberData(TranslationData):
    """Numbers below a million in English words, to be said in the parts of the German word.

    No number is in two splits, and none twice in one.

    Args:
        train_size: numbers to learn from.
        eval_size: numbers of the validation, and of the test split.
        largest: the largest number.
        seed: of the choice of numbers.
        batch_tokens: most tokens in a batch of one process, padding included, counted on its longer side.
        num_workers: processes that load batches beside the training one.
    """

    def __init__(
        self,
        *,
        train_size: int = 20_000,
        eval_size: int = 1000,
        largest: int = LARGEST,
        seed: int = 0,
        batch_tokens: int = 2048,
        num_workers: int = 0,
    ) -> None:
        super().__init__(batch_tokens=batch_tokens, num_workers=num_workers)
        if min(train_size, eval_size) < 1:
            raise ValueError(f"train_size and eval_size must be at least 1, got {train_size} and {eval_size}")
        if largest > LARGEST:
            raise ValueError(f"largest must be at most {LARGEST}, got {largest}")
        if train_size + 2 * eval_size > largest + 1:
            raise ValueError(
                f"there are {largest + 1} numbers up to {largest}, and train_size + 2 * eval_size = "
                f"{train_size + 2 * eval_size} are asked for; ask for fewer or raise largest"
            )
        self.sizes = {"train": train_size, "val": eval_size, "test": eval_size}
        self.largest = largest
        self.seed = seed
        first = END + 1
        self.word_ids = tuple(
            {word: number for number, word in enumerate(words, start=first)} for words in vocabularies()
        )

    @property
    def source_vocab_size(self) -> int:
        return END + 1 + len(self.word_ids[0])

    @property
    def target_vocab_size(self) -> int:
        return END + 1 + len(self.word_ids[1])

    @property
    def codec(self) -> TranslationCodec:
        source, target = (word_tokenizer(ids) for ids in self.word_ids)
        return TranslationCodec(source, target, MAX_LENGTH)

    @cached_property
    def numbers(self) -> dict[str, list[int]]:
        """The numbers of each split."""
        chosen = random.Random(self.seed).sample(range(self.largest + 1), sum(self.sizes.values()))
        found, start = {}, 0
        for name in SPLITS:
            found[name] = chosen[start : start + self.sizes[name]]
            start += self.sizes[name]
        return found

    def split(self, name: str) -> Pairs:
        rows = list(range(self.sizes[name]))
        sides = []
        for ids, words in zip(self.word_ids, (english, german), strict=True):
            sides.append(Sequences.of([[ids[word] for word in words(one)] for one in self.numbers[name]], rows))
        return Pairs(*sides)

    def texts(self, name: str) -> tuple[list[str], list[str]]:
        numbers = self.numbers[name]
        return [" ".join(english(one)) for one in numbers], [" ".join(german(one)) for one in numbers]
