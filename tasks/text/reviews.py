"""The embedded reviews as a data module: nothing to download."""

from functools import cache

from fna_lightning.tasks.data.tokenization import word_tokenizer
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.data import UNKNOWN, Sequences, TextData
from fna_lightning.tasks.text.review_grammar import LABELS, reviews, vocabulary

# each split has a range of seeds of its own, so that no setting makes one repeat another
SPLITS = ("train", "val", "test")


class ReviewData(TextData):
    """Film reviews made by a grammar, with a judgement that words far away may turn around.

    Args:
        train_size: number of training reviews.
        eval_size: number of validation reviews, and of test reviews.
        longest: most words in a review; the shortest has 20.
        batch_size: reviews in a batch of one process.
        seed: of the reviews.
        num_workers: processes that load batches beside the training one.
        pad_to_max: pad every batch to ``longest`` instead of to its longest review.
    """

    def __init__(
        self,
        *,
        train_size: int = 8000,
        eval_size: int = 1000,
        longest: int = 500,
        batch_size: int = 32,
        seed: int = 0,
        num_workers: int = 0,
        pad_to_max: bool = False,
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, pad_to=longest if pad_to_max else 1)
        if longest < 30:
            raise ValueError(f"longest must be at least 30 words, for the clauses that matter, got {longest}")
        if min(train_size, eval_size) < 1:
            raise ValueError(f"train_size and eval_size must be at least 1, got {train_size} and {eval_size}")
        self.sizes = {"train": train_size, "val": eval_size, "test": eval_size}
        self.longest = longest
        self.seed = seed
        self.word_ids = {word: number for number, word in enumerate(vocabulary(), start=UNKNOWN + 1)}

    @property
    def vocab_size(self) -> int:
        return len(self.word_ids) + UNKNOWN + 1

    @property
    def class_names(self) -> list[str]:
        return list(LABELS)

    @property
    def codec(self) -> TextCodec:
        return TextCodec(word_tokenizer(self.word_ids), self.class_names, self.longest)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the words of ``text``, as the codec does, without its library."""
        return [self.word_ids.get(word, UNKNOWN) for word in text.lower().split()]

    def split(self, name: str) -> Sequences:
        pairs = _pairs(self.sizes[name], len(SPLITS) * self.seed + SPLITS.index(name), self.longest)
        return Sequences.of([self.encode(text) for text, _ in pairs], [label for _, label in pairs])


@cache
def _pairs(count: int, seed: int, longest: int) -> list[tuple[str, int]]:
    return list(reviews(count, seed, longest=longest))
