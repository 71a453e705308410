"""Codecs: the preprocessing a trained model needs besides its weights, stored in the checkpoint as plain values."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from fna_lightning.errors import UsageError


@dataclass(frozen=True)
class Codec:
    """Base class of codecs.

    A subclass is a frozen dataclass of plain values. Defining it registers it under its kind:
    ``class TextCodec(Codec, kind="text", model="a text classifier")``.

    Attributes:
        kind: identifies the class in a checkpoint.
        model: what a model with this codec is called in error messages.
    """

    kind: ClassVar[str]
    model: ClassVar[str]

    def __init_subclass__(cls, *, kind: str, model: str) -> None:
        super().__init_subclass__()
        if kind in _CODECS:
            raise ValueError(f"the codec kind {kind!r} is already used by {_CODECS[kind].__name__}; choose another")
        cls.kind, cls.model = kind, model
        _CODECS[kind] = cls

    def state(self) -> dict[str, Any]:
        """Return the kind and the fields of the codec, to be stored in a checkpoint."""
        return {"kind": self.kind, **asdict(self)}

    @classmethod
    def from_checkpoint(cls, checkpoint: Mapping[str, Any], path: object) -> Self:
        """Return the codec of a checkpoint.

        Args:
            checkpoint: the content of the checkpoint.
            path: its file, for error messages.

        Raises:
            UsageError: if the checkpoint has no codec, or one of another kind.
        """
        codec = read_codec(checkpoint.get("codec"), path)
        if not isinstance(codec, cls):
            raise UsageError(f"{path} is {codec.model}, not {cls.model}; give the checkpoint of {cls.model}")
        return codec


_CODECS: dict[str, type[Codec]] = {}


def read_codec(state: object, path: object) -> Codec:
    """Return the codec whose ``state()`` is given.

    Args:
        state: the value stored in a checkpoint or an exported model.
        path: the file it was read from, for error messages.

    Raises:
        UsageError: if the state is missing, of an unknown kind, or does not have the fields of its kind.
    """
    kinds = ", ".join(sorted(_CODECS))
    if not isinstance(state, dict):
        raise UsageError(
            f"{path} has no codec (tokenizer or image size, and class names): it was not trained with "
            "`fna-lightning fit`; give a checkpoint that was"
        )
    kind = state.get("kind")
    if not isinstance(kind, str):
        raise UsageError(f"the codec in {path} has no kind (known kinds: {kinds}); train the model again")
    if kind not in _CODECS:
        raise UsageError(
            f"the codec in {path} is of the unknown kind {kind!r} (known kinds: {kinds}); install the plug-in that "
            "defines it"
        )
    codec_class = _CODECS[kind]
    values = {name: value for name, value in state.items() if name != "kind"}
    names = {field.name for field in fields(codec_class)}
    if set(values) != names:
        raise UsageError(
            f"the codec in {path} has the fields {', '.join(map(str, values))}, but the kind {kind!r} has "
            f"{', '.join(sorted(names))}; train the model again"
        )
    return codec_class(**values)
