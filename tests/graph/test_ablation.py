"""Ablation: the same rule for every attention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from fna_lightning.graph import ablate

from helpers.matrices import generator, random_walk

every_kind = pytest.mark.parametrize("kind", ["edges", "nodes"])


@every_kind
@given(n=st.integers(1, 12), seed=st.integers(0, 2**31), p=st.floats(0, 1))
def test_survivors_share_the_row_as_before_and_empty_rows_are_zero(kind: str, n: int, seed: int, p: float) -> None:
    walk = random_walk(n, seed).expand(3, n, n)
    cut = ablate(walk, p, kind=kind, generator=generator(seed))
    kept = cut > 0
    sums = cut.sum(dim=-1)
    assert_close(sums, kept.any(dim=-1).double())
    masked = (walk * kept).sum(dim=-1, keepdim=True).clamp(min=1e-300)
    assert_close(cut, walk * kept / masked)


@every_kind
def test_nothing_is_removed_at_zero_and_everything_at_one(kind: str) -> None:
    walk = random_walk(9, 0)
    assert_close(ablate(walk, 0.0, kind=kind), walk)
    assert_close(ablate(walk, 1.0, kind=kind), torch.zeros_like(walk))


@every_kind
def test_the_share_removed_is_p(kind: str) -> None:
    cut = ablate(torch.full((200, 50, 50), 0.02), 0.3, kind=kind, generator=generator(0))
    drawn = 200 * 50 * (50 if kind == "edges" else 1)
    # four standard deviations of a share of independent draws
    assert abs((cut == 0).double().mean().item() - 0.3) < 4 * (0.21 / drawn) ** 0.5


def test_a_node_is_removed_for_all_queries() -> None:
    gone = ablate(torch.full((4, 20, 20), 0.05), 0.5, kind="nodes", generator=generator(0)) == 0
    assert (gone == gone[:, :1]).all()
    assert not (gone == gone[:1]).all()


def test_what_was_removed_may_stay_missing() -> None:
    walk = random_walk(30, 0)
    cut = ablate(walk, 0.5, renormalise=False, generator=generator(0))
    assert ((cut == 0) | (cut == walk)).all()
    assert 0.3 < cut.sum() / 30 < 0.7


def test_cross_attention_can_be_cut() -> None:
    assert ablate(torch.full((2, 3, 7), 1 / 7), 0.5, kind="nodes").shape == (2, 3, 7)


def test_the_same_seed_cuts_the_same() -> None:
    walk = random_walk(9, 0)
    assert_close(ablate(walk, 0.5, generator=generator(7)), ablate(walk, 0.5, generator=generator(7)))


def test_a_wrong_probability_or_kind_is_named() -> None:
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=rf"p must lie in \[0, 1\], got {p}"):
            ablate(torch.eye(3), p)
    with pytest.raises(ValueError, match="unknown kind 'rows'; choose one of edges, nodes"):
        ablate(torch.eye(3), 0.5, kind="rows")
