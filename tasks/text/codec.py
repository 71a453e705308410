"""Codec of text classifiers: text to token ids, and class numbers to names."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fna_lightning.tasks.data.codec import Codec
from fna_lightning.tasks.data.tokenization import readable_tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class TextCodec(Codec, kind="text", model="a text classifier"):
    """Tokenizer, class names and max length, stored in the checkpoint.

    Args:
        tokenizer: JSON of a tokenizer of the `tokenizers` library.
        class_names: names of the classes 0, 1, ...
        max_length: maximum number of tokens per text; the rest is truncated.
    """

    tokenizer: str
    class_names: list[str]
    max_length: int

    def encode(self, text: str) -> list[int]:
        """Return the ids of all tokens of ``text``, not truncated."""
        return self._tokenizer.encode(text).ids

    def words(self, ids: list[int]) -> list[str]:
        """Return each token as readable text; a token that consists of spaces is shown as "␣"."""
        return readable_tokens(self._tokenizer, ids)

    def spans(self, text: str) -> list[str]:
        """Return the part of ``text`` that each token of ``encode`` covers, also for unknown words."""
        encoding = self._tokenizer.encode(text)
        covered = [text[start:stop].strip() for start, stop in encoding.offsets]
        return [span or word for span, word in zip(covered, self.words(encoding.ids), strict=True)]

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.tokenizer)
