"""Nested batches: mapping over leaves and listing them."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fna_lightning.utils.trees import leaves, map_leaves

Pair = namedtuple("Pair", ["first", "second"])


@dataclass
class Batch:
    tokens: torch.Tensor
    name: str


def with_default() -> defaultdict[str, Any]:
    tree: defaultdict[str, Any] = defaultdict(list)
    tree["a"] = 1
    return tree


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (3, 6),
        ([1, (2, 3)], [2, (4, 6)]),
        ({"a": 1, "b": [2]}, {"a": 2, "b": [4]}),
        (OrderedDict(a=1), OrderedDict(a=2)),
        (Pair(1, [2]), Pair(2, [4])),
        (Batch(1, 2), Batch(2, 4)),  # type: ignore[arg-type]
    ],
)
def test_map_leaves_keeps_containers(tree: Any, expected: Any) -> None:
    result = map_leaves(lambda leaf: 2 * leaf, tree)
    assert result == expected
    assert type(result) is type(expected)


def test_map_leaves_does_not_change_its_input() -> None:
    tree = with_default()
    result = map_leaves(lambda leaf: leaf + 1, tree)
    assert tree["a"] == 1
    assert result["a"] == 2
    assert result["missing"] == []


def test_leaves_of_nested_containers() -> None:
    tokens = torch.zeros(2)
    tree = {"batch": Batch(tokens, "x"), "rest": [Pair(1, None), ()]}
    result = list(leaves(tree))
    assert result[0] is tokens
    assert result[1:] == ["x", 1, None]
