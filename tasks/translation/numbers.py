"""Number words as a translation data set; nothing is downloaded."""

import random
from functools import cached_property

from fna_lightning.tasks.data.sequences import Sequences
from fna_lightning.tasks.data.splits import SPLITS, split_sizes
from fna_lightning.tasks.data.tokenization import word_tokenizer
from fna_lightning.tasks.translation.codec import END, TranslationCodec
from fna_lightning.tasks.translation.data import Pairs, TranslationData
from fna_lightning.tasks.translation.number_words import LARGEST, english, german, vocabularies

# maximum number of source tokens; the longest number has 11 words
MAX_LENGTH = 32


class NumberData(TranslationData):
    """Numbers below one million in English words, translated to the parts of the German word.

    Every number occurs in at most one split, and at most once.

    Args:
        train_size: number of training examples.
        eval_size: number of validation examples, and of test examples.
        largest: the largest number.
        seed: random seed of the numbers.
        batch_tokens: maximum number of tokens per batch and process, including padding, on the longer side.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
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
        self.sizes = split_sizes(train_size, eval_size)
        if largest > LARGEST:
            raise ValueError(f"largest must be at most {LARGEST}, got {largest}")
        total = sum(self.sizes.values())
        if total > largest + 1:
            raise ValueError(
                f"there are {largest + 1} numbers up to {largest}, but train_size + 2 * eval_size is {total}; decrease "
                "the sizes or increase largest"
            )
        self.largest = largest
        self.seed = seed
        self.word_ids = tuple(
            {word: number for number, word in enumerate(words, start=END + 1)} for words in vocabularies()
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
        numbers, start = {}, 0
        for name in SPLITS:
            numbers[name] = chosen[start : start + self.sizes[name]]
            start += self.sizes[name]
        return numbers

    def split(self, name: str) -> Pairs:
        rows = list(range(self.sizes[name]))
        sides = []
        for ids, words in zip(self.word_ids, (english, german), strict=True):
            sides.append(Sequences.of([[ids[word] for word in words(number)] for number in self.numbers[name]], rows))
        source, target = sides
        return Pairs(source, target)

    def texts(self, name: str) -> tuple[list[str], list[str]]:
        numbers = self.numbers[name]
        return [" ".join(english(number)) for number in numbers], [" ".join(german(number)) for number in numbers]
