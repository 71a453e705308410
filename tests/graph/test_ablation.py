"""``ablate``: removal of edges and nodes, rescaling of rows, and errors."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from fna_lightning.graph import ablate

from helpers.matrices import generator, random_matrix

every_kind = pytest.mark.parametrize("kind", ["edges", "nodes"])


@every_kind
@given(n=st.integers(1, 12), seed=st.integers(0, 2**31), p=st.floats(0, 1))
def test_remaining_weights_keep_their_proportions_and_empty_rows_are_zero(
    kind: str, n: int, seed: int, p: float
) -> None:
    matrix = random_matrix(n, seed).expand(3, n, n)
    ablated = ablate(matrix, p, kind=kind, generator=generator(seed))
    kept = ablated > 0
    sums = ablated.sum(dim=-1)
    assert_close(sums, kept.any(dim=-1).double())
    masked = (matrix * kept).sum(dim=-1, keepdim=True).clamp(min=1e-300)
    assert_close(ablated, matrix * kept / masked)


@every_kind
def test_p_zero_removes_nothing_and_p_one_everything(kind: str) -> None:
    matrix = random_matrix(9, 0)
    assert_close(ablate(matrix, 0.0, kind=kind), matrix)
    assert_close(ablate(matrix, 1.0, kind=kind), torch.zeros_like(matrix))


@every_kind
def test_the_removed_share_is_p(kind: str) -> None:
    ablated = ablate(torch.full((200, 50, 50), 0.02), 0.3, kind=kind, generator=generator(0))
    drawn = 200 * 50 * (50 if kind == "edges" else 1)
    # four standard deviations of a share of independent draws
    assert abs((ablated == 0).double().mean().item() - 0.3) < 4 * (0.21 / drawn) ** 0.5


def test_a_node_is_removed_for_all_queries() -> None:
    removed = ablate(torch.full((4, 20, 20), 0.05), 0.5, kind="nodes", generator=generator(0)) == 0
    assert (removed == removed[:, :1]).all()
    assert not (removed == removed[:1]).all()


def test_without_rescaling_row_sums_shrink() -> None:
    matrix = random_matrix(30, 0)
    ablated = ablate(matrix, 0.5, renormalise=False, generator=generator(0))
    assert ((ablated == 0) | (ablated == matrix)).all()
    assert 0.3 < ablated.sum() / 30 < 0.7


def test_cross_attention_is_accepted() -> None:
    assert ablate(torch.full((2, 3, 7), 1 / 7), 0.5, kind="nodes").shape == (2, 3, 7)


def test_the_same_seed_removes_the_same() -> None:
    matrix = random_matrix(9, 0)
    assert_close(ablate(matrix, 0.5, generator=generator(7)), ablate(matrix, 0.5, generator=generator(7)))


def test_invalid_probability_and_kind() -> None:
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=rf"p must lie in \[0, 1\], got {p}"):
            ablate(torch.eye(3), p)
    with pytest.raises(ValueError, match="unknown kind 'rows'; choose one of edges, nodes"):
        ablate(torch.eye(3), 0.5, kind="rows")
