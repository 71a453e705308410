"""Nested batches: tensors inside tuples, lists, dicts, named tuples and dataclasses."""

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import fields, is_dataclass, replace
from typing import Any


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return ``tree`` with ``function`` applied to every leaf; containers keep their types."""
    if is_dataclass(tree) and not isinstance(tree, type):
        values = {field.name: getattr(tree, field.name) for field in fields(tree) if field.init}
        return replace(tree, **map_leaves(function, values))
    if isinstance(tree, MutableMapping):
        # a copy keeps what a subclass stores besides its items, such as the default of a defaultdict
        mapped = copy.copy(tree)
        mapped.update({key: map_leaves(function, value) for key, value in tree.items()})
        return mapped
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, value) for value in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(map_leaves(function, value) for value in tree)
    return function(tree)


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of ``tree``, depth first."""
    if is_dataclass(tree) and not isinstance(tree, type):
        tree = [getattr(tree, field.name) for field in fields(tree)]
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for value in tree:
            yield from leaves(value)
    else:
        yield tree
