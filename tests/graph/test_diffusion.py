"""Diffusion maps: the law of the distance, bi-orthonormality, and what happens without balance."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.graph import diffusion_distance, diffusion_map

from helpers.matrices import attention, random_walk, ring, two_clusters

walks = st.builds(
    lambda n, seed, sharpness: random_walk(n, seed, sharpness=sharpness, tied=True),
    st.integers(2, 40),
    st.integers(0, 2**31),
    st.floats(0, 3),
)


def distance_by_definition(walk: Tensor, tau: int) -> Tensor:
    """The sum over y of (p(y|i) - p(y|j))^2 / pi(y), with pi from its equations: no eigenvector is involved."""
    n = len(walk)
    system = torch.cat([walk.mT - torch.eye(n, dtype=walk.dtype), walk.new_ones(1, n)])
    pi = torch.linalg.lstsq(system, torch.cat([walk.new_zeros(n), walk.new_ones(1)])[:, None]).solution[:, 0]
    steps = torch.linalg.matrix_power(walk, tau)
    return ((steps[:, None] - steps) ** 2 / pi).sum(dim=-1).sqrt()


@given(walk=walks, tau=st.integers(1, 5))
def test_the_diffusion_distance_is_euclidean_in_all_coordinates(walk: Tensor, tau: int) -> None:
    points = diffusion_map(walk, tau=tau, components=len(walk) - 1).coordinates
    euclidean = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(diffusion_distance(walk, tau), euclidean, atol=1e-10, rtol=1e-10)


@given(walk=walks, tau=st.integers(1, 5))
def test_the_diffusion_distance_is_its_definition(walk: Tensor, tau: int) -> None:
    assert_close(diffusion_distance(walk, tau), distance_by_definition(walk, tau), atol=1e-9, rtol=1e-9)


@given(walk=walks)
def test_left_and_right_eigenvectors_are_biorthonormal(walk: Tensor) -> None:
    found = diffusion_map(walk, components=1)
    n = len(walk)
    assert_close(found.left.mT @ found.right, torch.eye(n, dtype=torch.float64), atol=1e-10, rtol=0)
    assert_close(walk @ found.right, found.right * found.eigenvalues, atol=1e-10, rtol=1e-10)
    assert_close(found.left.mT @ walk, found.eigenvalues[:, None] * found.left.mT, atol=1e-10, rtol=1e-10)
    assert_close(found.right[:, 0], torch.ones(n, dtype=torch.float64), atol=1e-10, rtol=0)
    assert_close(found.left[:, 0].sum().item(), 1.0)
    assert_close(found.left[:, 0] @ walk, found.left[:, 0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("kind", ["fna", "gauss", "dot"])
def test_the_law_holds_for_tied_attention(kind: str) -> None:
    walk = attention(kind, 100, 0, tied=True)
    points = diffusion_map(walk, tau=2, components=99).coordinates
    euclidean = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(diffusion_distance(walk, 2), euclidean, atol=1e-10, rtol=1e-10)


def test_two_clusters_are_two_points() -> None:
    points = diffusion_map(two_clusters(5, 0.1), components=1).coordinates[:, 0]
    assert_close(points[:5], -points[5:])
    assert_close(points.abs(), torch.full((10,), 0.8, dtype=torch.float64))


def test_one_comes_before_minus_one() -> None:
    assert_close(diffusion_map(ring(4)).eigenvalues[:2], torch.tensor([1.0, -1.0], dtype=torch.float64))


def test_a_batch_of_unequal_lengths_equals_one_at_a_time() -> None:
    lengths = torch.tensor([6, 3, 1])
    batch = torch.zeros(3, 6, 6, dtype=torch.float64)
    for b, n in enumerate(lengths.tolist()):
        batch[b, :n, :n] = random_walk(n, b, tied=True)
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


def test_a_walk_without_balance_is_refused_with_its_distance_and_the_way_out() -> None:
    for analyse in (diffusion_map, diffusion_distance):
        with pytest.raises(ValueError, match=r"this one is [0-9.]+ from detailed balance .* pass symmetrise=True"):
            analyse(random_walk(6, 0))


@given(n=st.integers(2, 20), seed=st.integers(0, 2**31))
def test_symmetrising_keeps_the_stationary_distribution_and_the_law(n: int, seed: int) -> None:
    walk = random_walk(n, seed)
    found = diffusion_map(walk, components=n - 1, symmetrise=True)
    pi = found.left[:, 0]
    assert_close(pi @ walk, pi, atol=1e-10, rtol=0)
    euclidean = torch.cdist(found.coordinates, found.coordinates, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(diffusion_distance(walk, symmetrise=True), euclidean, atol=1e-10, rtol=1e-10)


def test_symmetrising_needs_every_token_to_be_reached() -> None:
    causal = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    with pytest.raises(ValueError, match=r"has stationary weight 0 somewhere; drop the tokens"):
        diffusion_map(causal, components=1, symmetrise=True)


@pytest.mark.parametrize("tau", [0, -1, 1.5])
def test_tau_counts_steps(tau: float) -> None:
    with pytest.raises(ValueError, match=f"tau must be a positive integer, got {tau}"):
        diffusion_map(ring(4), tau=tau)  # type: ignore[arg-type]


@pytest.mark.parametrize("components", [0, 4])
def test_there_are_n_minus_one_components(components: int) -> None:
    with pytest.raises(ValueError, match=rf"components must lie in \[1, n - 1 = 3\], got {components}"):
        diffusion_map(ring(4), components=components)
