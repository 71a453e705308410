"""Laplacian spectra of graphs whose eigenvalues are known."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.graph import algebraic_connectivity, laplacian_spectrum, spectrum

from helpers.matrices import random_matrix, ring, two_clusters


def values(*numbers: float) -> Tensor:
    return torch.tensor(sorted(numbers), dtype=torch.float64)


def path(n: int) -> Tensor:
    """Return the walk on a path that stays at an end with probability 1/2."""
    matrix = torch.zeros(n, n, dtype=torch.float64)
    i = torch.arange(n - 1)
    matrix[i, i + 1] = matrix[i + 1, i] = 0.5
    matrix[0, 0] = matrix[-1, -1] = 0.5
    return matrix


def star(n: int) -> Tensor:
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix[1:, 0] = 1.0
    matrix[0, 1:] = 1 / (n - 1)
    return matrix


@pytest.mark.parametrize("n", [2, 3, 8, 65])
def test_uniform_attention_has_one_0_and_otherwise_1(n: int) -> None:
    uniform = torch.full((n, n), 1 / n, dtype=torch.float64)
    assert_close(laplacian_spectrum(uniform), values(0.0, *[1.0] * (n - 1)))
    assert_close(algebraic_connectivity(uniform).item(), 1.0)


@pytest.mark.parametrize("n", [3, 8])
def test_complete_graph_without_self_loops(n: int) -> None:
    complete = (1 - torch.eye(n, dtype=torch.float64)) / (n - 1)
    assert_close(laplacian_spectrum(complete), values(0.0, *[n / (n - 1)] * (n - 1)))


@pytest.mark.parametrize("n", [3, 8, 33])
def test_cycle(n: int) -> None:
    expected = values(*(1 - math.cos(2 * math.pi * k / n) for k in range(n)))
    assert_close(laplacian_spectrum(ring(n)), expected)
    # the symmetrized graph of a directed cycle is the cycle
    assert_close(laplacian_spectrum(torch.eye(n).roll(1, dims=1)), expected)


@pytest.mark.parametrize("n", [2, 5, 20])
def test_path(n: int) -> None:
    assert_close(laplacian_spectrum(path(n)), values(*(1 - math.cos(math.pi * k / n) for k in range(n))))
    assert_close(algebraic_connectivity(path(n)).item(), 1 - math.cos(math.pi / n))


@pytest.mark.parametrize("n", [3, 9])
def test_star(n: int) -> None:
    assert_close(laplacian_spectrum(star(n)), values(0.0, *[1.0] * (n - 2), 2.0))


def test_two_components_have_two_zeros() -> None:
    eigenvalues = laplacian_spectrum(two_clusters(4, leave=0.0))
    assert_close(eigenvalues, values(0.0, 0.0, *[1.0] * 6))
    assert_close(algebraic_connectivity(two_clusters(4, leave=0.0)).item(), 0.0)
    assert_close(algebraic_connectivity(two_clusters(4, leave=0.1)).item(), 0.2)


def test_causal_attention() -> None:
    # the second token attends to both: S = [[1, 1/4], [1/4, 1/2]], whose normalized form has the trace 4/5 + 2/3
    assert_close(laplacian_spectrum(torch.tensor([[1.0, 0.0], [0.5, 0.5]])), values(0.0, 8 / 15), check_dtype=False)


@given(n=st.integers(1, 12), pad=st.integers(0, 4), seed=st.integers(0, 2**31))
def test_padding_is_ignored(n: int, pad: int, seed: int) -> None:
    matrix = random_matrix(n, seed)
    padded = torch.nn.functional.pad(matrix, (0, pad, 0, pad), value=torch.nan)
    eigenvalues = laplacian_spectrum(padded[None, None], torch.tensor([n]))[0, 0]
    assert_close(eigenvalues[:n], laplacian_spectrum(matrix))
    assert eigenvalues[n:].isnan().all()
    assert_close(algebraic_connectivity(padded[None], torch.tensor([n]))[0], algebraic_connectivity(matrix))


@given(n=st.integers(2, 12), seed=st.integers(0, 2**31))
def test_eigenvalues_are_ascending_in_the_range_and_start_at_0(n: int, seed: int) -> None:
    eigenvalues = laplacian_spectrum(random_matrix(n, seed, sharpness=5.0))
    assert eigenvalues.diff().ge(0).all()
    assert eigenvalues[0] < 1e-12
    assert eigenvalues[-1] <= 2


@given(n=st.integers(2, 12), seed=st.integers(0, 2**31))
def test_a_symmetric_matrix_has_one_minus_its_own_eigenvalues(n: int, seed: int) -> None:
    permutation = torch.eye(n, dtype=torch.float64)[torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
    matrix = 0.3 * torch.eye(n, dtype=torch.float64) + 0.5 / n + 0.1 * (permutation + permutation.mT)
    assert_close(laplacian_spectrum(matrix), (1 - spectrum(matrix).real).sort().values)


def test_one_token_counts_as_uniform() -> None:
    assert laplacian_spectrum(torch.ones(1, 1)).tolist() == [0.0]
    assert algebraic_connectivity(torch.ones(1, 1)).item() == 1.0
