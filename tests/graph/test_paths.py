"""Hops on cheapest paths: known answers, comparison with networkx, ties, missing edges."""

from fractions import Fraction
from itertools import pairwise

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.graph import ablate, path_lengths, path_parents, shortest_path

from helpers.matrices import attention, generator, random_matrix, ring


def hops_by_networkx(weights: Tensor, *, exact: bool = False) -> Tensor:
    """Return the hops by networkx; ``exact`` uses fractions and the fewest hops among equally cheap paths."""
    n = len(weights)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    for i in range(n):
        for j in range(n):
            if i != j and weights[i, j] > 0:
                weight = weights[i, j].item()
                graph.add_edge(i, j, cost=1 / Fraction(weight) + Fraction(1, 10**40) if exact else 1 / weight)
    hops = torch.full((n, n), -1, dtype=torch.int32)
    for i, paths in nx.all_pairs_dijkstra_path(graph, weight="cost"):
        for j, path in paths.items():
            hops[i, j] = len(path) - 1
    return hops


@pytest.mark.parametrize("n", [2, 7, 64])
def test_uniform_attention_needs_one_hop(n: int) -> None:
    result = path_lengths(torch.full((n, n), 1 / n))
    assert (result.mean.item(), result.max.item(), result.unreachable.item()) == (1, 1, 0)
    assert_close(result.hops, 1 - torch.eye(n, dtype=torch.int32))


@pytest.mark.parametrize("n", [2, 7, 64])
def test_the_identity_connects_no_pair(n: int) -> None:
    result = path_lengths(torch.eye(n))
    assert result.mean.isnan()
    assert (result.max.item(), result.unreachable.item()) == (0, n * (n - 1))
    assert_close(result.hops, torch.eye(n, dtype=torch.int32) - 1)


def test_hops_on_a_ring_are_the_distance_around_it() -> None:
    i = torch.arange(9)
    around = (i[:, None] - i).abs()
    assert_close(path_lengths(ring(9)).hops, torch.minimum(around, 9 - around).int())


@given(n=st.integers(1, 24), seed=st.integers(0, 2**31), sharpness=st.floats(0, 12))
def test_hops_match_networkx_on_random_matrices(n: int, seed: int, sharpness: float) -> None:
    matrix = random_matrix(n, seed, sharpness=sharpness)
    assert_close(path_lengths(matrix).hops, hops_by_networkx(matrix))


@given(n=st.integers(2, 20), seed=st.integers(0, 2**31), p=st.floats(0, 1))
def test_hops_match_networkx_with_missing_edges(n: int, seed: int, p: float) -> None:
    matrix = ablate(random_matrix(n, seed, sharpness=2), p, generator=generator(seed))
    result = path_lengths(matrix)
    expected = hops_by_networkx(matrix)
    assert_close(result.hops, expected)
    assert result.unreachable.item() == (expected == -1).sum()


@settings(max_examples=10)
@given(n=st.integers(2, 14), seed=st.integers(0, 2**31), levels=st.integers(1, 3))
def test_among_equally_cheap_paths_the_fewest_hops_count(n: int, seed: int, levels: int) -> None:
    # weights are powers of 2, so that whole sums of costs are equal, and exactly so
    power = torch.randint(0, levels + 1, (n, n), generator=generator(seed))
    weights = 2.0 ** -power.double()
    assert_close(path_lengths(weights).hops, hops_by_networkx(weights, exact=True))


def test_ties_within_rounding_are_ties() -> None:
    # 0 -> 3 costs 0.3 at once, and 0.1 + 0.1 + 0.1 = 0.30000000000000004 or 0.1 + 0.2 by detours
    costs = torch.full((4, 4), torch.inf, dtype=torch.float64)
    costs[0, 1] = costs[1, 2] = costs[2, 3] = 0.1
    costs[0, 3] = 0.1 + 0.1 + 0.1
    assert path_lengths(1 / costs).hops[0, 3] == 1
    costs[0, 3] = 0.3 * (1 + 1e-9)
    assert path_lengths(1 / costs).hops[0, 3] == 3


def test_fewest_hops_count_among_long_paths() -> None:
    # from 0 to 6 the long way costs 1 + 1 + 1 + 1, the short way 1 + 1 + 2, after a common first hop
    costs = torch.full((7, 7), torch.inf, dtype=torch.float64)
    for i, j, cost in [(0, 1, 1), (1, 2, 1), (2, 3, 1), (3, 6, 1), (1, 4, 1), (4, 6, 2)]:
        costs[i, j] = cost
    assert path_lengths(1 / costs).hops[0, 6] == 3
    assert shortest_path(1 / costs, 0, 6) == [0, 1, 4, 6]


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", ["fna", "sharp", "gauss", "dot"])
@settings(max_examples=2)
@given(seed=st.integers(0, 2**31))
def test_hops_match_networkx_on_attention(name: str, tied: bool, seed: int) -> None:
    matrix = attention(name, 60, seed, tied=tied)
    assert_close(path_lengths(matrix).hops, hops_by_networkx(matrix))


def test_a_weight_that_underflowed_is_not_an_edge() -> None:
    matrix = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [1e-30, 0.0, 1.0]])
    result = path_lengths(matrix)
    assert result.hops.tolist() == [[0, 1, -1], [-1, 0, -1], [1, 2, 0]]
    assert (result.mean.item(), result.max.item(), result.unreachable.item()) == (4 / 3, 2, 3)


def test_a_query_that_attends_to_nothing_reaches_no_token() -> None:
    matrix = torch.full((3, 3), 1 / 3)
    matrix[1] = 0
    assert path_lengths(matrix).hops.tolist() == [[0, 1, 1], [-1, 0, -1], [1, 1, 0]]


def test_one_token_has_no_pairs() -> None:
    result = path_lengths(torch.ones(1, 1))
    assert result.mean.isnan()
    assert (result.max.item(), result.unreachable.item(), result.hops.tolist()) == (0, 0, [[0]])


def test_a_batch_of_unequal_lengths_matches_single_matrices() -> None:
    lengths = torch.tensor([[5], [30], [1]])
    batch = torch.zeros(3, 2, 30, 30, dtype=torch.float64)
    for b, length in enumerate(lengths[:, 0].tolist()):
        for h in range(2):
            batch[b, h, :length, :length] = random_matrix(length, 10 * b + h, sharpness=3)
    together = path_lengths(batch, lengths)
    assert together.mean.shape == together.max.shape == together.unreachable.shape == (3, 2)
    for b, length in enumerate(lengths[:, 0].tolist()):
        for h in range(2):
            alone = path_lengths(batch[b, h, :length, :length])
            assert_close(together.hops[b, h, :length, :length], alone.hops)
            assert (together.hops[b, h, length:] == -1).all()
            assert (together.hops[b, h, :, length:] == -1).all()
            assert_close(together.mean[b, h], alone.mean, equal_nan=True)
            assert (together.max[b, h], together.unreachable[b, h]) == (alone.max, alone.unreachable)


@given(n=st.integers(1, 20), seed=st.integers(0, 2**31), p=st.floats(0, 0.9))
def test_the_shortest_path_has_the_counted_hops(n: int, seed: int, p: float) -> None:
    matrix = ablate(random_matrix(n, seed, sharpness=4), p, generator=generator(seed))
    hops = path_lengths(matrix).hops
    cost = 1 / matrix
    i, j = torch.randint(n, (2,), generator=generator(seed)).tolist()
    path = shortest_path(matrix, i, j)
    assert len(path) - 1 == hops[i, j] or (path == [] and hops[i, j] == -1)
    if path:
        assert (path[0], path[-1]) == (i, j)
        graph = nx.from_numpy_array(cost.nan_to_num(posinf=0).fill_diagonal_(0).numpy(), create_using=nx.DiGraph)
        total = float(sum(cost[a, b].item() for a, b in pairwise(path)))
        assert_close(total, float(nx.dijkstra_path_length(graph, i, j)), rtol=1e-12, atol=0)


def test_shortest_path_refuses_invalid_tokens_and_batches() -> None:
    with pytest.raises(ValueError, match=r"j must lie in \[0, 2\], got 3"):
        shortest_path(torch.eye(3), 0, 3)
    with pytest.raises(ValueError, match=r"i must lie in \[0, 2\], got -1"):
        shortest_path(torch.eye(3), -1, 0)
    with pytest.raises(ValueError, match=r"one \(n, n\) matrix, got shape \(1, 3, 3\)"):
        shortest_path(torch.eye(3)[None], 0, 1)


@pytest.mark.parametrize("name", ["fna", "sharp", "dot"])
def test_parents_lead_back_along_the_shortest_path(name: str) -> None:
    matrix = ablate(attention(name, 17, 3), 0.6, generator=generator(1))
    parents, hops = path_parents(matrix), path_lengths(matrix).hops
    for i in range(17):
        for j in range(17):
            path = [j]
            while path[-1] != i and parents[i, path[-1]] >= 0:
                path.append(int(parents[i, path[-1]]))
            result = path[::-1] if path[-1] == i else []
            assert result == shortest_path(matrix, i, j)
            assert len(result) - 1 == hops[i, j]
    with pytest.raises(ValueError, match=r"path_parents takes one \(n, n\) matrix, got shape \(1, 17, 17\)"):
        path_parents(matrix[None])
