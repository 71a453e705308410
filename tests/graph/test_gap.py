"""The spectral gap: known answers, the fast methods against all eigenvalues, batches against single matrices."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence
from torch.testing import assert_close

from fna_lightning.graph import gap as gap_module
from fna_lightning.graph import spectral_gap, spectrum
from fna_lightning.graph.gap import arpack_eigenvalues

from helpers.matrices import attention, directed_ring, generator, random_matrix, ring, two_clusters

METHODS = ["auto", "exact", "reversible", "iterative"]
all_methods = pytest.mark.parametrize("method", METHODS)


def second_by_numpy(matrix: torch.Tensor) -> float:
    """Return the second largest modulus of all eigenvalues."""
    return float(np.sort(np.abs(np.linalg.eigvals(matrix.double().numpy())))[-2])


@all_methods
@pytest.mark.parametrize("n", [2, 7, 80])
def test_uniform_attention_has_gap_one(method: str, n: int) -> None:
    assert_close(spectral_gap(torch.full((n, n), 1 / n), method=method).item(), 1.0, atol=1e-7, rtol=0)


@all_methods
@pytest.mark.parametrize("n", [2, 7, 80])
def test_the_identity_has_gap_zero(method: str, n: int) -> None:
    assert_close(spectral_gap(torch.eye(n), method=method).item(), 0.0, atol=1e-12, rtol=0)


@all_methods
@given(size=st.integers(1, 60), leave=st.floats(0, 1))
def test_gap_of_two_clusters(method: str, size: int, leave: float) -> None:
    gap = spectral_gap(two_clusters(size, leave), method=method).item()
    assert_close(gap, 1 - abs(1 - 2 * leave), atol=1e-6, rtol=0)


@all_methods
@pytest.mark.parametrize("n", [3, 9, 101])
def test_gap_of_a_ring(method: str, n: int) -> None:
    # for odd n the largest modulus below 1 is |cos(pi (n - 1) / n)|, the mode next to the alternating one
    assert_close(spectral_gap(ring(n), method=method).item(), 1 - math.cos(math.pi / n), atol=1e-6, rtol=0)


@pytest.mark.parametrize("n", [8, 9, 64])
def test_spectrum_of_a_ring(n: int) -> None:
    expected = torch.cos(2 * math.pi * torch.arange(n, dtype=torch.float64) / n)
    values = spectrum(ring(n))
    assert_close(values.real.sort().values, expected.sort().values, atol=1e-12, rtol=0)
    assert (values.abs().diff() <= 1e-12).all()


@pytest.mark.parametrize("method", ["auto", "exact", "iterative"])
@given(n=st.integers(3, 90), stay=st.floats(0.05, 0.95))
def test_complex_eigenvalues_are_ordered_by_modulus(method: str, n: int, stay: float) -> None:
    wave = complex(math.cos(2 * math.pi / n), math.sin(2 * math.pi / n))
    expected = 1 - abs(stay + (1 - stay) * wave)
    assert_close(spectral_gap(directed_ring(n, stay), method=method).item(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("name", ["fna", "sharp", "gauss", "dot"])
@settings(max_examples=8)
@given(n=st.integers(65, 200), seed=st.integers(0, 2**31), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_iterative_matches_all_eigenvalues_on_attention(
    name: str, tied: bool, n: int, seed: int, dtype: torch.dtype
) -> None:
    matrix = attention(name, n, seed, tied=tied).to(dtype)
    assert_close(spectral_gap(matrix, method="iterative").item(), 1 - second_by_numpy(matrix), atol=1e-6, rtol=0)


@given(n=st.integers(2, 120), seed=st.integers(0, 2**31), sharpness=st.floats(0.01, 8))
def test_iterative_matches_all_eigenvalues_on_positive_matrices(n: int, seed: int, sharpness: float) -> None:
    matrix = random_matrix(n, seed, sharpness=sharpness)
    assert_close(spectral_gap(matrix, method="iterative").item(), 1 - second_by_numpy(matrix), atol=1e-6, rtol=0)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), spread=st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1e-3]))
def test_iterative_with_clustered_eigenvalues(seed: int, spread: float) -> None:
    # 100 eigenvalues within ``spread`` below 0.9
    n = 101
    basis = torch.randn(n, n, generator=generator(seed), dtype=torch.float64)
    basis[:, 0] = 1
    basis = torch.linalg.qr(basis).Q
    values = torch.cat([torch.ones(1), 0.9 - spread * torch.linspace(0, 1, n - 1)]).double()
    matrix = (basis * values) @ basis.mT
    assert_close(spectral_gap(matrix, method="iterative").item(), 0.1, atol=1e-6, rtol=0)


@given(n=st.integers(2, 90), seed=st.integers(0, 2**31))
def test_eigenvalues_of_causal_attention_are_its_diagonal(n: int, seed: int) -> None:
    logits = torch.randn(n, n, generator=generator(seed), dtype=torch.float64)
    matrix = logits.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(dim=-1)
    second = matrix.diagonal().sort().values[-2].item()
    for method in ("exact", "iterative"):
        assert_close(spectral_gap(matrix, method=method).item(), 1 - second, atol=1e-6, rtol=0)


@given(n=st.integers(2, 80), seed=st.integers(0, 2**31), sharpness=st.floats(0.1, 5))
def test_reversible_matches_exact_on_tied_matrices(n: int, seed: int, sharpness: float) -> None:
    matrix = random_matrix(n, seed, sharpness=sharpness, tied=True)
    assert_close(spectral_gap(matrix, method="reversible"), spectral_gap(matrix, method="exact"), atol=1e-9, rtol=0)


def test_reversible_without_a_fully_connected_token() -> None:
    # no token of a long path is connected to all others
    n = 70
    kernel = torch.eye(n).double() + torch.diag(torch.rand(n - 1, generator=generator(3)).double() + 0.1, 1)
    kernel = kernel + kernel.mT
    matrix = kernel / kernel.sum(dim=-1, keepdim=True)
    assert_close(spectral_gap(matrix, method="reversible"), spectral_gap(matrix, method="exact"), atol=1e-9, rtol=0)


def test_reversible_refuses_a_matrix_without_detailed_balance() -> None:
    with pytest.raises(ValueError, match=r"is [0-9.]+ from detailed balance, method 'reversible' allows 1e-06"):
        spectral_gap(random_matrix(9, 0), method="reversible")
    with pytest.raises(ValueError, match="is inf from detailed balance"):
        spectral_gap(directed_ring(9, 0.5), method="reversible")


@settings(max_examples=20)
@given(n=st.integers(70, 200), seed=st.integers(0, 2**31), sharpness=st.floats(0.1, 5))
def test_iterative_matches_all_eigenvalues_on_tied_matrices(n: int, seed: int, sharpness: float) -> None:
    matrix = random_matrix(n, seed, sharpness=sharpness, tied=True)
    assert_close(spectral_gap(matrix, method="iterative").item(), 1 - second_by_numpy(matrix), atol=1e-6, rtol=0)


def test_arpack_converges_on_random_matrices() -> None:
    for seed in range(10):
        for tied in (True, False):
            matrix = random_matrix(100, seed, tied=tied)
            values = arpack_eigenvalues(matrix)
            assert values is not None
            assert_close(values.abs().topk(2).values[1].item(), second_by_numpy(matrix), atol=1e-6, rtol=0)


def test_iterative_with_many_loosely_connected_clusters() -> None:
    # 35 clusters with weak connections have eigenvalues within 1e-4 of each other
    labels = torch.randint(0, 35, (180,), generator=generator(2))
    kernel = (labels[:, None] == labels).double() + 1e-6
    matrix = kernel / kernel.sum(dim=-1, keepdim=True)
    assert_close(spectral_gap(matrix, method="iterative").item(), 1 - second_by_numpy(matrix), atol=1e-6, rtol=0)


@pytest.mark.parametrize("error", [ArpackError(-9999), ArpackNoConvergence("no convergence", [], [])])
def test_all_eigenvalues_are_computed_if_arpack_fails(monkeypatch: pytest.MonkeyPatch, error: ArpackError) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(gap_module, "eigs", fail)
    for matrix in (random_matrix(70, 1), random_matrix(70, 1, tied=True)):
        assert_close(spectral_gap(matrix, method="iterative").item(), 1 - second_by_numpy(matrix), atol=1e-9, rtol=0)


def test_a_defective_matrix_does_not_mislead_arpack() -> None:
    # stay or step forward, and stay at the end: the eigenvalue 1/2 has multiplicity 199 and a single eigenvector
    matrix = 0.5 * (torch.eye(200, dtype=torch.float64) + torch.diag(torch.ones(199, dtype=torch.float64), 1))
    matrix[-1, -1] = 1
    assert_close(spectral_gap(matrix, method="iterative").item(), 0.5, atol=1e-12, rtol=0)


def test_a_batch_of_unequal_lengths_matches_single_matrices() -> None:
    lengths = torch.tensor([5, 90, 1, 70])
    batch = torch.full((4, 3, 90, 90), torch.nan, dtype=torch.float64)
    for b, length in enumerate(lengths.tolist()):
        for h in range(3):
            batch[b, h, :length, :length] = random_matrix(length, 10 * b + h)
    for method in ("auto", "exact", "iterative"):
        together = spectral_gap(batch, lengths, method=method)
        assert together.shape == (4, 3)
        for b, length in enumerate(lengths.tolist()):
            for h in range(3):
                alone = spectral_gap(batch[b, h, :length, :length], method=method)
                assert_close(together[b, h], alone, atol=1e-12, rtol=0)


def test_the_input_is_not_modified() -> None:
    matrix = random_matrix(80, 5)
    before = matrix.clone()
    spectral_gap(matrix, method="iterative")
    assert_close(matrix, before, atol=0, rtol=0)


def test_one_token_has_gap_one() -> None:
    assert spectral_gap(torch.ones(2, 1, 1)).tolist() == [1.0, 1.0]


def test_eigenvalues_of_padding_are_nan() -> None:
    values = spectrum(torch.eye(4), torch.tensor(2))
    assert values[:2].tolist() == [1, 1]
    assert values[2:].isnan().all()


def test_unknown_method() -> None:
    with pytest.raises(ValueError, match="unknown method 'power'; choose one of auto, exact"):
        spectral_gap(torch.eye(2), method="power")
