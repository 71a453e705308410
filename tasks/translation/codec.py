"""Codec of translators: source sentences to token ids, and target token ids to sentences."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fna_lightning.nn.token_table import PAD
from fna_lightning.tasks.data.codec import Codec
from fna_lightning.tasks.data.tokenization import UNKNOWN, is_byte_level, readable_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# ids of the tokens that begin and end a sentence; they follow padding and unknown
BEGIN, END = UNKNOWN + 1, UNKNOWN + 2
# what is shown for the special tokens
TOKEN_NAMES = {PAD: "[PAD]", UNKNOWN: "⁇", BEGIN: "<s>", END: "</s>"}


@dataclass(frozen=True)
class TranslationCodec(Codec, kind="translation", model="a translator"):
    """Tokenizers of both languages and max length, stored in the checkpoint.

    Args:
        source_tokenizer: JSON of a tokenizer of the `tokenizers` library.
        target_tokenizer: the same for the target language.
        max_length: maximum number of tokens per source, including END; the rest is truncated.
    """

    source_tokenizer: str
    target_tokenizer: str
    max_length: int

    def encode(self, text: str) -> list[int]:
        """Return the ids of all tokens of a source, not truncated and without END."""
        return self._source.encode(text).ids

    def encode_target(self, text: str) -> list[int]:
        """Return the ids of all tokens of a target."""
        return self._target.encode(text).ids

    def decode(self, ids: list[int]) -> str:
        """Return the text of target token ids without special tokens; an unknown token is shown as "⁇"."""
        tokens = [
            TOKEN_NAMES[UNKNOWN] if number == UNKNOWN else self._target.id_to_token(number) or f"[{number}]"
            for number in ids
            if number not in (PAD, BEGIN, END)
        ]
        if is_byte_level(self._target):
            from tokenizers import decoders

            # the tokenizer adds a space in front of a text
            return decoders.ByteLevel().decode(tokens).strip()
        return " ".join(tokens)

    def source_words(self, ids: list[int]) -> list[str]:
        """Return each token of a source as readable text."""
        return readable_tokens(self._source, ids, TOKEN_NAMES)

    def target_words(self, ids: list[int]) -> list[str]:
        """Return each token of a target as readable text."""
        return readable_tokens(self._target, ids, TOKEN_NAMES)

    @cached_property
    def _source(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.source_tokenizer)

    @cached_property
    def _target(self) -> "Tokenizer":
        if self.target_tokenizer == self.source_tokenizer:
            return self._source
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.target_tokenizer)
