"""Diffusion maps: distances, biorthonormality of eigenvectors, and matrices that are not reversible."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.graph import diffusion_distance, diffusion_map

from helpers.matrices import attention, random_matrix, ring, two_clusters

matrices = st.builds(
    lambda n, seed, sharpness: random_matrix(n, seed, sharpness=sharpness, tied=True),
    st.integers(2, 40),
    st.integers(0, 2**31),
    st.floats(0, 3),
)


def distance_by_definition(matrix: Tensor, tau: int) -> Tensor:
    """The sum over y of (p(y|i) - p(y|j))^2 / pi(y), with pi from its defining equations, without eigenvectors."""
    n = len(matrix)
    system = torch.cat([matrix.mT - torch.eye(n, dtype=matrix.dtype), matrix.new_ones(1, n)])
    pi = torch.linalg.lstsq(system, torch.cat([matrix.new_zeros(n), matrix.new_ones(1)])[:, None]).solution[:, 0]
    powers = torch.linalg.matrix_power(matrix, tau)
    return ((powers[:, None] - powers) ** 2 / pi).sum(dim=-1).sqrt()


@given(matrix=matrices, tau=st.integers(1, 5))
def test_the_diffusion_distance_is_euclidean_in_all_coordinates(matrix: Tensor, tau: int) -> None:
    points = diffusion_map(matrix, tau=tau, components=len(matrix) - 1).coordinates
    euclidean = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(diffusion_distance(matrix, tau), euclidean, atol=1e-10, rtol=1e-10)


@given(matrix=matrices, tau=st.integers(1, 5))
def test_the_diffusion_distance_matches_its_definition(matrix: Tensor, tau: int) -> None:
    assert_close(diffusion_distance(matrix, tau), distance_by_definition(matrix, tau), atol=1e-9, rtol=1e-9)


@given(matrix=matrices)
def test_left_and_right_eigenvectors_are_biorthonormal(matrix: Tensor) -> None:
    result = diffusion_map(matrix, components=1)
    n = len(matrix)
    assert_close(result.left.mT @ result.right, torch.eye(n, dtype=torch.float64), atol=1e-10, rtol=0)
    assert_close(matrix @ result.right, result.right * result.eigenvalues, atol=1e-10, rtol=1e-10)
    assert_close(result.left.mT @ matrix, result.eigenvalues[:, None] * result.left.mT, atol=1e-10, rtol=1e-10)
    assert_close(result.right[:, 0], torch.ones(n, dtype=torch.float64), atol=1e-10, rtol=0)
    assert_close(result.left[:, 0].sum().item(), 1.0)
    assert_close(result.left[:, 0] @ matrix, result.left[:, 0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["fna", "gauss", "dot"])
def test_the_distance_is_euclidean_for_tied_attention(name: str) -> None:
    matrix = attention(name, 100, 0, tied=True)
    points = diffusion_map(matrix, tau=2, components=99).coordinates
    euclidean = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(diffusion_distance(matrix, 2), euclidean, atol=1e-10, rtol=1e-10)


def test_two_clusters_collapse_to_two_points() -> None:
    points = diffusion_map(two_clusters(5, 0.1), components=1).coordinates[:, 0]
    assert_close(points[:5], -points[5:])
    assert_close(points.abs(), torch.full((10,), 0.8, dtype=torch.float64))


def test_eigenvalue_one_comes_before_minus_one() -> None:
    assert_close(diffusion_map(ring(4)).eigenvalues[:2], torch.tensor([1.0, -1.0], dtype=torch.float64))


def test_a_batch_of_unequal_lengths_matches_single_matrices() -> None:
    lengths = torch.tensor([6, 3, 1])
    batch = torch.zeros(3, 6, 6, dtype=torch.float64)
    for b, n in enumerate(lengths.tolist()):
        batch[b, :n, :n] = random_matrix(n, b, tied=True)
    together, distances = diffusion_map(batch, lengths=lengths), diffusion_distance(batch, lengths=lengths)
    for b, n in enumerate(lengths.tolist()):
        k = min(2, n - 1)
        if n > 1:
            alone = diffusion_map(batch[b, :n, :n], components=k)
            assert_close(together.coordinates[b, :n, :k], alone.coordinates)
            assert_close(together.left[b, :n, :n], alone.left)
        assert_close(distances[b, :n, :n], diffusion_distance(batch[b, :n, :n]))
        assert together.coordinates[b, n:].isnan().all()
        assert together.coordinates[b, :, k:].isnan().all()
        assert distances[b, n:].isnan().all()


def test_a_matrix_that_is_not_reversible_is_refused() -> None:
    for analyze in (diffusion_map, diffusion_distance):
        with pytest.raises(ValueError, match=r"this one is [0-9.]+ from detailed balance .* pass symmetrise=True"):
            analyze(random_matrix(6, 0))


@given(n=st.integers(2, 20), seed=st.integers(0, 2**31))
def test_symmetrizing_keeps_the_stationary_distribution_and_the_distance(n: int, seed: int) -> None:
    matrix = random_matrix(n, seed)
    result = diffusion_map(matrix, components=n - 1, symmetrise=True)
    pi = result.left[:, 0]
    assert_close(pi @ matrix, pi, atol=1e-10, rtol=0)
    euclidean = torch.cdist(result.coordinates, result.coordinates, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(diffusion_distance(matrix, symmetrise=True), euclidean, atol=1e-10, rtol=1e-10)


def test_symmetrizing_needs_every_token_to_be_reachable() -> None:
    causal = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    with pytest.raises(ValueError, match=r"has the stationary probability 0 at some token; drop the tokens"):
        diffusion_map(causal, components=1, symmetrise=True)


@pytest.mark.parametrize("tau", [0, -1, 1.5])
def test_tau_must_be_a_positive_integer(tau: float) -> None:
    with pytest.raises(ValueError, match=f"tau must be a positive integer, got {tau}"):
        diffusion_map(ring(4), tau=tau)  # type: ignore[arg-type]


@pytest.mark.parametrize("components", [0, 4])
def test_components_must_be_in_range(components: int) -> None:
    with pytest.raises(ValueError, match=rf"components must lie in \[1, n - 1 = 3\], got {components}"):
        diffusion_map(ring(4), components=components)
