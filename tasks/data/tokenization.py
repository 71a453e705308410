"""Tokenizers: how a text is cut into tokens, learned from the training texts only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# PAD and UNKNOWN of text_data, in this order
SPECIAL_TOKENS = ["[PAD]", "[UNK]"]
KINDS = ("bpe", "word")

# a word keeps its apostrophes ("don't"), every other sign stands alone
WORDS = r"\w+(?:'\w+)*|[^\w\s]"
LINE_BREAK = r"<br\s*/?>"


@dataclass(frozen=True)
class Tokenization:
    """How a text becomes token ids.

    Args:
        kind: "bpe" (byte-level: no text is unknown) or "word" (the most frequent words).
        vocab_size: number of token ids, padding and unknown included.
        lowercase: whether capital letters are made small first.
        max_length: tokens of a text that are read; the rest is cut off.
    """

    kind: str = "bpe"
    vocab_size: int = 16_000
    lowercase: bool = False
    max_length: int = 512

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown tokenizer kind {self.kind!r}; choose one of {', '.join(KINDS)}")
        # the 256 bytes and the special tokens are always there
        smallest = len(SPECIAL_TOKENS) + (256 if self.kind == "bpe" else 1)
        if self.vocab_size < smallest:
            raise ValueError(f"vocab_size must be at least {smallest} for kind {self.kind!r}, got {self.vocab_size}")
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")

    @property
    def learned(self) -> dict[str, object]:
        """What a trained tokenizer depends on; ``max_length`` only cuts what it returns."""
        return {"kind": self.kind, "vocab_size": self.vocab_size, "lowercase": self.lowercase}


def train_tokenizer(texts: Iterable[str], how: Tokenization, more: Sequence[str] = ()) -> str:
    """Return the JSON of a tokenizer trained on ``texts``; the ids after the special ones go to the tokens ``more``."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    special = [*SPECIAL_TOKENS, *more]
    if how.kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        trainer: trainers.BpeTrainer | trainers.WordLevelTrainer = trainers.BpeTrainer(
            vocab_size=how.vocab_size,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL_TOKENS[1]))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
        trainer = trainers.WordLevelTrainer(vocab_size=how.vocab_size, special_tokens=special)
    cleaning = [normalizers.Replace(Regex(LINE_BREAK), " "), normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence([*cleaning, *([normalizers.Lowercase()] if how.lowercase else [])])
    tokenizer.train_from_iterator(texts, trainer)
    return plain_json(tokenizer)


def word_tokenizer(word_ids: dict[str, int]) -> str:
    """Return the JSON of a tokenizer of given lower-case words, which are separated by spaces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    known = {name: number for number, name in enumerate(SPECIAL_TOKENS)} | word_ids
    tokenizer = Tokenizer(models.WordLevel(known, unk_token=SPECIAL_TOKENS[1]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return plain_json(tokenizer)


def plain_json(tokenizer: "Tokenizer") -> str:
    """Return the tokenizer as JSON; a text that spells "[PAD]" is text, not padding."""
    import json

    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = []
    return json.dumps(content, ensure_ascii=False)
