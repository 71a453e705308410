"""How a text becomes token ids and a class number a name, as plain values that travel in a checkpoint."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fna_lightning.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class TextCodec:
    """What a text classifier must know of the world outside its tensors.

    Args:
        tokenizer: a tokenizer of the `tokenizers` library as JSON.
        class_names: what the classes 0, 1, ... are called.
        max_length: tokens of a text that are read; the rest is cut off.
    """

    tokenizer: str
    class_names: list[str]
    max_length: int

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_checkpoint(cls, checkpoint: dict[str, Any], path: object) -> "TextCodec":
        """Return the codec a checkpoint carries."""
        state = checkpoint.get("codec")
        if not isinstance(state, dict) or set(state) != {"tokenizer", "class_names", "max_length"}:
            raise UsageError(
                f"{path} carries no tokenizer and class names: it is no text classifier trained by `fna-lightning fit`"
            )
        return cls(**state)

    def encode(self, text: str) -> list[int]:
        """Return the ids of all tokens of ``text``, not cut off."""
        return self._tokenizer.encode(text).ids

    def words(self, ids: list[int]) -> list[str]:
        """Return each token as a person reads it; a token of nothing but spaces is shown as one open box."""
        from tokenizers import decoders

        tokens = [self._tokenizer.id_to_token(number) or f"[{number}]" for number in ids]
        if '"ByteLevel"' in self.tokenizer:
            decoder = decoders.ByteLevel()
            tokens = [decoder.decode([token]).strip() for token in tokens]
        return [token or "␣" for token in tokens]

    def spans(self, text: str) -> list[str]:
        """Return the part of ``text`` behind each token of ``encode``, also of a word the model does not know."""
        encoding = self._tokenizer.encode(text)
        read = [text[start:stop].strip() for start, stop in encoding.offsets]
        return [span or word for span, word in zip(read, self.words(encoding.ids), strict=True)]

    @cached_property
    def _tokenizer(self) -> "Tokenizer":
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.tokenizer)
