"""Codec of field models: the names of coordinates and values."""

from dataclasses import dataclass

from fna_lightning.tasks.data.codec import Codec


@dataclass(frozen=True)
class FieldCodec(Codec, kind="field", model="a field model"):
    """Names of the coordinates and values, stored in the checkpoint.

    Args:
        coordinates: names of the coordinates.
        values: names of the values.
    """

    coordinates: list[str]
    values: list[str]
