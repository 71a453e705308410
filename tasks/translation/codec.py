"""How sentences become token ids and token ids sentences, as plain values that travel in a checkpoint."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fna_lightning.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# ids every vocabulary of a translation has: padding, unknown, begin and end of a sentence
PAD, UNKNOWN, BEGIN, END = range(4)


@dataclass(frozen=True)
class TranslationCodec:
    """What a translator must know of the world outside its tensors.

    Args:
        source_tokenizer: a tokenizer of the `tokenizers` library as JSON.
        target_tokenizer: the same for the other language.
        max_length: tokens of a source that are read; the rest is cut off.
    """

    source_tokenizer: str
    target_tokenizer: str
    max_length: int

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_checkpoint(cls, checkpoint: dict[str, Any], path: object) -> "TranslationCodec":
        """Return the codec a checkpoint carries."""
        state = checkpoint.get("codec")
        if not isinstance(state, dict) or set(state) != {"source_tokenizer", "target_tokenizer", "max_length"}:
            raise UsageError(
                f"{path} carries no tokenizers of two languages: it is no translator trained by `fna-lightning fit`"
            )
        return cls(**state)

    def encode(self, text: str) -> list[int]:
        """Return the ids of all tokens of a source, not cut off and without END."""
        return self._source.encode(text).ids

    def encode_target(self, text: str) -> list[int]:
        """Return the ids of all tokens of a target."""
        return self._target.encode(text).ids

    def decode(self, ids: list[int]) -> str:
        """Return the text of a target's token ids; special tokens are left out, but unknown ones shown as "⁇"."""
        said = (one for one in ids if one not in (PAD, BEGIN, END))
        tokens = ["⁇" if one == UNKNOWN else self._target.id_to_token(one) or f"[{one}]" for one in said]
        if '"ByteLevel"' in self.target_tokenizer:
            from tokenizers import decoders

            # a prefix space was added, and is taken away again
            return decoders.ByteLevel().decode(tokens).strip()
        return " ".join(tokens)

    def source_words(self, ids: list[int]) -> list[str]:
        """Return each token of a source as a person reads it."""
        return _readable(self._source, self.source_tokenizer, ids)

    def target_words(self, ids: list[int]) -> list[str]:
        """Return each token of a target as a person reads it."""
        return _readable(self._target, self.target_tokenizer, ids)

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


def _readable(tokenizer: "Tokenizer", content: str, ids: list[int]) -> list[str]:
    from tokenizers import decoders

    decoder = decoders.ByteLevel() if '"ByteLevel"' in content else None
    names = {PAD: "[PAD]", UNKNOWN: "⁇", BEGIN: "<s>", END: "</s>"}
    words = []
    for one in ids:
        token = names.get(one) or tokenizer.id_to_token(one) or f"[{one}]"
        words.append(token if decoder is None or one in names else decoder.decode([token]).strip() or "␣")
    return words
