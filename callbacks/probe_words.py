"""The tokens of the first probe sequence in readable form, as labels of figures."""

from typing import Any

from torch import Tensor

from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.data import TextBatch
from fna_lightning.tasks.translation.codec import TranslationCodec
from fna_lightning.tasks.translation.data import TranslationBatch


def probe_words(batch: Any, codec: Any, layer: str) -> list[str] | None:
    """Return the tokens on which a layer attends in the first sequence that has any; None if they have no text.

    Args:
        batch: batch of probe sequences.
        codec: codec of the data module.
        layer: name of the layer; decoders attend to the target of a translation.
    """
    if isinstance(batch, TextBatch) and isinstance(codec, TextCodec):
        return codec.words(_first(batch.tokens, batch.lengths))
    if isinstance(batch, TranslationBatch) and isinstance(codec, TranslationCodec):
        if "decoder" in layer.split("."):
            return codec.target_words(_first(batch.target, batch.target_lengths))
        return codec.source_words(_first(batch.source, batch.source_lengths))
    return None


def _first(tokens: Tensor, lengths: Tensor) -> list[int]:
    row = int((lengths > 0).int().argmax())
    return [int(token) for token in tokens[row, : int(lengths[row])]]
