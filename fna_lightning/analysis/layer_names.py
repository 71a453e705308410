"""Readable names of attention layers: "layer 1" for "encoder.layers.0.self_attn"."""

import re
from collections.abc import Iterable

# parts of module names of transformers, timm and this package that mark attention to another sequence
_CROSS = re.compile(r"cross|EncDecAttention|encoder_attn|multihead_attn")


def readable_layers(names: Iterable[str]) -> dict[str, str]:
    """Return a readable name of each layer by its module name; module names that this does not tell apart are kept.

    Example:
        >>> readable_layers(["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"])
        {'encoder.layers.0.self_attn': 'layer 1', 'encoder.layers.1.self_attn': 'layer 2'}
    """
    names = list(dict.fromkeys(names))
    has_decoder = any(_side(name) == "decoder" for name in names)
    readable = {name: _readable(name, with_side=has_decoder, single=len(names) == 1) for name in names}
    if len(set(readable.values())) < len(names):
        return {name: name or "layer" for name in names}
    return readable


def _readable(name: str, *, with_side: bool, single: bool) -> str:
    numbers = re.findall(r"(?:^|\.)(\d+)(?=\.|$)", name)
    side = _side(name)
    words = [side] if with_side and side else []
    if numbers:
        words.append(f"layer {int(numbers[0]) + 1}")
    elif single:
        words.append("layer 1")
    else:
        return name
    # A decoder layer can have both kinds of attention. A single layer needs no such mark.
    return " ".join(words) + (" (cross)" if with_side and _CROSS.search(name) else "")


def _side(name: str) -> str:
    """Return "encoder" or "decoder" if the module name has that part, otherwise an empty string."""
    parts = name.split(".")
    return next((side for side in ("decoder", "encoder") if side in parts), "")
