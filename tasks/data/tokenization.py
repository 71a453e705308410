"""Tokenizers of the `tokenizers` library: settings, training on the training texts, and reading tokens back."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fna_lightning.nn.token_table import PAD

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# the first ids of every vocabulary, and their tokens in the same order
UNKNOWN = PAD + 1
SPECIAL_TOKENS = ["[PAD]", "[UNK]"]
KINDS = ("bpe", "word")

# a word keeps its apostrophes ("don't"); every other punctuation mark is a token of its own
WORDS = r"\w+(?:'\w+)*|[^\w\s]"
LINE_BREAK = r"<br\s*/?>"
# shown for a token that consists of spaces
SPACE_TOKEN = "␣"
# shown for a character that cannot be printed
UNPRINTABLE = "\ufffd"


@dataclass(frozen=True)
class Tokenization:
    """Settings of a tokenizer.

    Args:
        kind: "bpe" (byte-level, so no text is unknown) or "word" (the most frequent words).
        vocab_size: number of token ids, including padding and unknown.
        lowercase: whether to lowercase the text first.
        max_length: maximum number of tokens per text; the rest is truncated.
    """

    kind: str = "bpe"
    vocab_size: int = 16_000
    lowercase: bool = False
    max_length: int = 512

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown tokenizer kind {self.kind!r}; choose one of {', '.join(KINDS)}")
        # a byte-level vocabulary always contains the 256 bytes
        smallest = len(SPECIAL_TOKENS) + (256 if self.kind == "bpe" else 1)
        if self.vocab_size < smallest:
            raise ValueError(f"vocab_size must be at least {smallest} for kind {self.kind!r}, got {self.vocab_size}")
        if self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}")

    @property
    def training_settings(self) -> dict[str, object]:
        """The settings a trained tokenizer depends on; ``max_length`` only truncates its output."""
        return {"kind": self.kind, "vocab_size": self.vocab_size, "lowercase": self.lowercase}


def train_tokenizer(texts: Iterable[str], settings: Tokenization, extra_tokens: Sequence[str] = ()) -> str:
    """Train a tokenizer and return its JSON.

    Args:
        texts: the training texts.
        settings: kind, vocabulary size and case of the tokenizer.
        extra_tokens: special tokens that get the first ids after ``SPECIAL_TOKENS``.
    """
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

    special = [*SPECIAL_TOKENS, *extra_tokens]
    if settings.kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        trainer: trainers.BpeTrainer | trainers.WordLevelTrainer = trainers.BpeTrainer(
            vocab_size=settings.vocab_size,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
    else:
        tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL_TOKENS[UNKNOWN]))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
        trainer = trainers.WordLevelTrainer(vocab_size=settings.vocab_size, special_tokens=special)
    cleaning = [normalizers.Replace(Regex(LINE_BREAK), " "), normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence([*cleaning, *([normalizers.Lowercase()] if settings.lowercase else [])])
    tokenizer.train_from_iterator(texts, trainer)
    return plain_json(tokenizer)


def word_tokenizer(word_ids: dict[str, int]) -> str:
    """Return the JSON of a tokenizer for a fixed vocabulary of lowercase words, which are separated by spaces."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = {name: number for number, name in enumerate(SPECIAL_TOKENS)} | word_ids
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNKNOWN]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return plain_json(tokenizer)


def plain_json(tokenizer: "Tokenizer") -> str:
    """Return the tokenizer as JSON without added tokens, so that "[PAD]" in a text is encoded as ordinary text."""
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = []
    return json.dumps(content, ensure_ascii=False)


def vocabulary_size(tokenizer: str) -> int:
    """Return the number of token ids of a tokenizer from its JSON; it can be smaller than ``vocab_size``."""
    return max(json.loads(tokenizer)["model"]["vocab"].values()) + 1


def is_byte_level(tokenizer: "Tokenizer") -> bool:
    """Whether the tokens are byte sequences, which must be decoded to be readable."""
    from tokenizers import pre_tokenizers

    return isinstance(tokenizer.pre_tokenizer, pre_tokenizers.ByteLevel)


def readable_tokens(tokenizer: "Tokenizer", ids: Iterable[int], names: Mapping[int, str] | None = None) -> list[str]:
    """Return each token as readable text.

    Args:
        tokenizer: the tokenizer that produced the ids.
        ids: token ids; an id outside the vocabulary is shown as "[id]".
        names: what to show for certain ids, such as those of special tokens.
    """
    from tokenizers import decoders

    names = names or {}
    decoder = decoders.ByteLevel() if is_byte_level(tokenizer) else None
    tokens = []
    for number in ids:
        token = names.get(number) or tokenizer.id_to_token(number) or f"[{number}]"
        if decoder is not None and number not in names:
            token = decoder.decode([token]).strip()
        # a byte-level vocabulary contains control characters, which cannot be printed or drawn
        tokens.append("".join(char if char.isprintable() else UNPRINTABLE for char in token) or SPACE_TOKEN)
    return tokens
