"""Which layers and heads of a model an attention callback measures."""

from collections.abc import Mapping, Sequence
from typing import Any


def check_indices(name: str, indices: Sequence[int] | None) -> None:
    """Raise a ValueError unless ``indices`` is None or holds distinct non-negative integers."""
    if indices is not None and (not indices or min(indices) < 0 or len(set(indices)) < len(indices)):
        raise ValueError(f"{name} must be distinct indices >= 0, got {indices}; omit {name} to select all")


def select_heads(
    layers: Mapping[str, Any], layer_indices: Sequence[int] | None, head_indices: Sequence[int] | None
) -> dict[str, list[int]]:
    """Return the selected heads of each selected layer, by layer name.

    Args:
        layers: attention layers by module name, in the order the model defines them.
        layer_indices: indices into ``layers``; None selects all.
        head_indices: heads of each selected layer; None selects all.
    """
    names = list(layers)
    if layer_indices is not None:
        if max(layer_indices) >= len(names):
            raise ValueError(
                f"layers must lie in [0, {len(names) - 1}], got {max(layer_indices)}; the attention layers are "
                f"{', '.join(names)}"
            )
        names = [names[index] for index in layer_indices]
    selected = {}
    for name in names:
        count = layers[name].num_heads
        if head_indices is not None and max(head_indices) >= count:
            raise ValueError(f"heads must lie in [0, {count - 1}], got {max(head_indices)}; {name} has {count} heads")
        selected[name] = list(range(count)) if head_indices is None else list(head_indices)
    return selected
