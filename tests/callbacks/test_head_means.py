"""Sums of measures per head do not depend on how the sequences are distributed over processes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fna_lightning.callbacks.head_means import empty_sums, head_means, head_sums, reduce_sums
from fna_lightning.callbacks.head_selection import check_indices, select_heads
from fna_lightning.graph import measure
from fna_lightning.introspection.maps import AttentionMap

MEASURES = ("spectral_gap", "mean_hops")
HEADS = {"first": [0, 1], "second": [1]}


def maps(sequences: slice) -> dict[str, AttentionMap]:
    """Return random maps of two layers with two heads on some of four sequences."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(2, 4, 2, 6, 6, dtype=torch.float64, generator=generator)
    weights /= weights.sum(-1, keepdim=True)
    return {
        name: AttentionMap(weights[index][sequences], None, is_self=True)
        for index, name in enumerate(("first", "second"))
    }


def test_means_over_two_processes() -> None:
    whole = maps(slice(None))
    sums = head_sums(maps(slice(1)), HEADS, MEASURES) + head_sums(maps(slice(1, None)), HEADS, MEASURES)
    per_head, means = head_means(sums, HEADS, MEASURES)
    gaps = {name: measure(whole[name].weights, None, MEASURES)["spectral_gap"] for name in whole}
    assert per_head["spectral_gap"]["first", 1] == pytest.approx(gaps["first"][:, 1].mean().item())
    assert ("second", 0) not in per_head["spectral_gap"]
    selected = torch.cat([gaps["first"].flatten(), gaps["second"][:, 1]])
    assert means["attention/spectral_gap"] == pytest.approx(selected.mean().item())


def test_values_that_are_not_finite_are_left_out() -> None:
    identity = AttentionMap(torch.eye(4, dtype=torch.float64).expand(2, 1, 4, 4), None, is_self=True)
    sums = head_sums({"first": identity}, {"first": [0], "missing": [0]}, MEASURES)
    per_head, means = head_means(sums, {"first": [0], "missing": [0]}, MEASURES)
    # no token reaches another, so there is no mean number of hops
    assert {name: list(values) for name, values in per_head.items()} == {"spectral_gap": [("first", 0)]}
    assert means.keys() == {"attention/spectral_gap"}


@pytest.mark.parametrize("failures", [0, 1])
def test_every_process_learns_of_a_failure(failures: int) -> None:
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(reduce=lambda flat, reduce_op: flat + 3 * (flat > 0)))
    sums = empty_sums(HEADS, MEASURES) + 1
    reduced, failed = reduce_sums(sums, trainer, torch.device("cpu"), failed=bool(failures))
    assert torch.equal(reduced, sums + 3)
    assert failed is bool(failures)


def test_selection_of_heads() -> None:
    layers = {"first": SimpleNamespace(num_heads=2), "second": SimpleNamespace(num_heads=3)}
    assert select_heads(layers, None, None) == {"first": [0, 1], "second": [0, 1, 2]}
    assert select_heads(layers, [1], [2, 0]) == {"second": [2, 0]}
    with pytest.raises(ValueError, match=r"heads must lie in \[0, 1\], got 2; first has 2 heads"):
        select_heads(layers, None, [2])


@pytest.mark.parametrize("indices", [[], [-1], [1, 1]], ids=str)
def test_invalid_indices(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="layers must be distinct indices >= 0"):
        check_indices("layers", indices)
