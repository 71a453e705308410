"""The direction coefficient of chains whose answer is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from fna_lightning.graph import direction

from helpers.matrices import attention, directed_ring, random_matrix, ring

both = pytest.mark.parametrize("queries", ["uniform", "stationary"])


@both
def test_symmetric_matrices_have_none(queries: str) -> None:
    for matrix in (ring(7), torch.full((5, 5), 0.2), torch.eye(4), torch.ones(1, 1)):
        assert direction(matrix, queries=queries).item() == pytest.approx(0.0, abs=1e-12)


@both
@pytest.mark.parametrize("n", [3, 4, 50])
def test_a_directed_cycle_is_all_direction(queries: str, n: int) -> None:
    assert direction(directed_ring(n, stay=0.0), queries=queries).item() == pytest.approx(1.0)


@both
def test_two_tokens_that_swap_have_none(queries: str) -> None:
    assert direction(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), queries=queries).item() == pytest.approx(0.0)


@both
@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_mixture_is_linear_in_the_directed_share(queries: str, share: float) -> None:
    mixture = (1 - share) * ring(6) + share * directed_ring(6, stay=0.0)
    assert direction(mixture, queries=queries).item() == pytest.approx(share)
    # self-loops have no direction
    assert direction(directed_ring(6, stay=1 - share), queries=queries).item() == pytest.approx(share)


@given(n=st.integers(2, 12), seed=st.integers(0, 2**31))
def test_a_reversible_chain_has_none_in_its_stationary_distribution(n: int, seed: int) -> None:
    matrix = attention("fna", n, seed, tied=True)
    assert direction(matrix, queries="stationary").item() == pytest.approx(0.0, abs=1e-6)


def test_a_hub_counts_as_direction_only_with_uniform_queries() -> None:
    # all tokens attend to the first, which spreads its weight: the walk on a star, which is reversible
    star = torch.zeros(6, 6, dtype=torch.float64)
    star[1:, 0], star[0, 1:] = 1.0, 0.2
    assert direction(star).item() == pytest.approx(4 / 6)
    assert direction(star, queries="stationary").item() == pytest.approx(0.0, abs=1e-6)


def test_causal_attention() -> None:
    causal = torch.ones(8, 8, dtype=torch.float64).tril()
    causal /= causal.sum(dim=-1, keepdim=True)
    # the mean weight on earlier tokens
    assert direction(causal).item() == pytest.approx(1 - causal.diagonal().mean().item())
    # the walk ends at the first token
    assert direction(causal, queries="stationary").item() == pytest.approx(0.0, abs=1e-6)


def test_separate_parts_count_by_their_number_of_tokens() -> None:
    parts = torch.zeros(10, 10, dtype=torch.float64)
    parts[:4, :4], parts[4:, 4:] = directed_ring(4, stay=0.0), ring(6)
    for queries in ("uniform", "stationary"):
        assert direction(parts, queries=queries).item() == pytest.approx(0.4)


@both
@given(n=st.integers(1, 12), pad=st.integers(0, 4), seed=st.integers(0, 2**31))
def test_padding_is_ignored(queries: str, n: int, pad: int, seed: int) -> None:
    matrix = random_matrix(n, seed)
    padded = torch.nn.functional.pad(matrix, (0, pad, 0, pad), value=torch.nan)
    value = direction(padded[None, None], torch.tensor([n]), queries=queries)
    assert_close(value[0, 0], direction(matrix, queries=queries))
    assert 0 <= value.item() <= 1


def test_an_unknown_distribution_is_refused() -> None:
    with pytest.raises(ValueError, match="queries must be one of uniform, stationary, got 'random'"):
        direction(torch.eye(3), queries="random")
