"""The spectral gap: known answers, the fast ways against all eigenvalues, batches against one at a time."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from fna_lightning.graph import gap as gap_module
from fna_lightning.graph import spectral_gap, spectrum
from fna_lightning.graph.krylov import second_modulus
from fna_lightning.graph.lanczos import second_modulus_of_reversible

from helpers.matrices import attention, directed_ring, generator, random_walk, ring, two_clusters

METHODS = ["auto", "exact", "reversible", "iterative"]
every_method = pytest.mark.parametrize("method", METHODS)


def second_by_numpy(walk: torch.Tensor) -> float:
    """The plain way: all eigenvalues, by numpy."""
    return float(np.sort(np.abs(np.linalg.eigvals(walk.double().numpy())))[-2])


@every_method
@pytest.mark.parametrize("n", [2, 7, 80])
def test_uniform_attention_mixes_at_once(method: str, n: int) -> None:
    assert_close(spectral_gap(torch.full((n, n), 1 / n), method=method).item(), 1.0, atol=1e-7, rtol=0)


@every_method
@pytest.mark.parametrize("n", [2, 7, 80])
def test_a_walk_that_never_moves_never_mixes(method: str, n: int) -> None:
    assert_close(spectral_gap(torch.eye(n), method=method).item(), 0.0, atol=1e-12, rtol=0)


@every_method
@given(size=st.integers(1, 60), leave=st.floats(0, 1))
def test_two_clusters_mix_as_fast_as_they_exchange(method: str, size: int, leave: float) -> None:
    gap = spectral_gap(two_clusters(size, leave), method=method).item()
    assert_close(gap, 1 - abs(1 - 2 * leave), atol=1e-6, rtol=0)


@every_method
@pytest.mark.parametrize("n", [3, 9, 101])
def test_a_ring_mixes_as_slowly_as_its_longest_wave(method: str, n: int) -> None:
    # n odd: the largest modulus below 1 belongs to the wave next to alternating, |cos(pi (n - 1) / n)|
    assert_close(spectral_gap(ring(n), method=method).item(), 1 - math.cos(math.pi / n), atol=1e-6, rtol=0)


@pytest.mark.parametrize("n", [8, 9, 64])
def test_the_spectrum_of_a_ring_is_its_cosines(n: int) -> None:
    expected = torch.cos(2 * math.pi * torch.arange(n, dtype=torch.float64) / n)
    found = spectrum(ring(n))
    assert_close(found.real.sort().values, expected.sort().values, atol=1e-12, rtol=0)
    assert (found.abs().diff() <= 1e-12).all()


@pytest.mark.parametrize("method", ["auto", "exact", "iterative"])
@given(n=st.integers(3, 90), stay=st.floats(0.05, 0.95))
def test_complex_eigenvalues_count_by_modulus(method: str, n: int, stay: float) -> None:
    wave = complex(math.cos(2 * math.pi / n), math.sin(2 * math.pi / n))
    expected = 1 - abs(stay + (1 - stay) * wave)
    assert_close(spectral_gap(directed_ring(n, stay), method=method).item(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", ["fna", "sharp", "gauss", "dot"])
@settings(max_examples=8)
@given(n=st.integers(65, 200), seed=st.integers(0, 2**31), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_the_iteration_finds_the_second_of_all_eigenvalues(
    kind: str, tied: bool, n: int, seed: int, dtype: torch.dtype
) -> None:
    walk = attention(kind, n, seed, tied=tied).to(dtype)
    assert_close(spectral_gap(walk, method="iterative").item(), 1 - second_by_numpy(walk), atol=1e-6, rtol=0)


@given(n=st.integers(2, 120), seed=st.integers(0, 2**31), sharpness=st.floats(0.01, 8))
def test_the_iteration_finds_it_for_any_positive_walk(n: int, seed: int, sharpness: float) -> None:
    walk = random_walk(n, seed, sharpness=sharpness)
    assert_close(spectral_gap(walk, method="iterative").item(), 1 - second_by_numpy(walk), atol=1e-6, rtol=0)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**31), spread=st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1e-3]))
def test_crowded_eigenvalues_do_not_mislead_the_iteration(seed: int, spread: float) -> None:
    # 100 eigenvalues within ``spread`` below 0.9
    n = 101
    basis = torch.randn(n, n, generator=generator(seed), dtype=torch.float64)
    basis[:, 0] = 1
    basis = torch.linalg.qr(basis).Q
    values = torch.cat([torch.ones(1), 0.9 - spread * torch.linspace(0, 1, n - 1)]).double()
    walk = (basis * values) @ basis.mT
    assert_close(spectral_gap(walk, method="iterative").item(), 0.1, atol=1e-6, rtol=0)


@given(n=st.integers(2, 90), seed=st.integers(0, 2**31))
def test_causal_attention_has_its_diagonal_for_eigenvalues(n: int, seed: int) -> None:
    logits = torch.randn(n, n, generator=generator(seed), dtype=torch.float64)
    walk = logits.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(dim=-1)
    second = walk.diagonal().sort().values[-2].item()
    for method in ("exact", "iterative"):
        assert_close(spectral_gap(walk, method=method).item(), 1 - second, atol=1e-6, rtol=0)


@given(n=st.integers(2, 80), seed=st.integers(0, 2**31), sharpness=st.floats(0.1, 5))
def test_tied_walks_have_the_eigenvalues_of_their_symmetric_form(n: int, seed: int, sharpness: float) -> None:
    walk = random_walk(n, seed, sharpness=sharpness, tied=True)
    assert_close(spectral_gap(walk, method="reversible"), spectral_gap(walk, method="exact"), atol=1e-9, rtol=0)


def test_a_reversible_walk_without_a_hub_is_recognised() -> None:
    # no token of a long path exchanges weight with all others
    n = 70
    kernel = torch.eye(n).double() + torch.diag(torch.rand(n - 1, generator=generator(3)).double() + 0.1, 1)
    kernel = kernel + kernel.mT
    walk = kernel / kernel.sum(dim=-1, keepdim=True)
    assert_close(spectral_gap(walk, method="reversible"), spectral_gap(walk, method="exact"), atol=1e-9, rtol=0)


def test_a_walk_without_balance_is_refused_by_the_reversible_way_with_its_distance() -> None:
    with pytest.raises(ValueError, match=r"is [0-9.]+ from detailed balance, method 'reversible' allows 1e-06"):
        spectral_gap(random_walk(9, 0), method="reversible")
    with pytest.raises(ValueError, match="is inf from detailed balance"):
        spectral_gap(directed_ring(9, 0.5), method="reversible")


@settings(max_examples=20)
@given(n=st.integers(70, 200), seed=st.integers(0, 2**31), sharpness=st.floats(0.1, 5))
def test_tied_walks_are_found_by_their_symmetry_within_the_error_stated(n: int, seed: int, sharpness: float) -> None:
    walk = random_walk(n, seed, sharpness=sharpness, tied=True)
    found = second_modulus_of_reversible(walk.numpy(), tolerance=1e-6)
    assert found is None or found[1] > 1e-6 or abs(found[0] - second_by_numpy(walk)) <= found[1]


def test_random_tied_walks_settle_and_others_are_left_to_arnoldi() -> None:
    for seed in range(10):
        found = second_modulus_of_reversible(random_walk(100, seed, tied=True).numpy(), tolerance=1e-6)
        assert found is not None
        assert found[1] <= 1e-6
        assert second_modulus_of_reversible(random_walk(100, seed).numpy(), tolerance=1e-6) is None
    # crowded: 35 clusters that hardly exchange have eigenvalues within 1e-4 of each other
    labels = torch.randint(0, 35, (180,), generator=generator(2))
    kernel = (labels[:, None] == labels).double() + 1e-6
    walk = kernel / kernel.sum(dim=-1, keepdim=True)
    assert second_modulus_of_reversible(walk.numpy(), tolerance=1e-6) is None
    assert_close(spectral_gap(walk, method="iterative").item(), 1 - second_by_numpy(walk), atol=1e-6, rtol=0)


def test_an_iteration_that_does_not_converge_gives_way_to_all_eigenvalues(monkeypatch: pytest.MonkeyPatch) -> None:
    for search in ("second_modulus", "second_modulus_of_reversible"):
        monkeypatch.setattr(gap_module, search, lambda *_, **__: (0.123, 1e-3))
    for walk in (random_walk(70, 1), random_walk(70, 1, tied=True)):
        assert_close(spectral_gap(walk, method="iterative").item(), 1 - second_by_numpy(walk), atol=1e-9, rtol=0)


def test_the_iteration_admits_when_it_has_not_converged() -> None:
    # a queue: stay or step on, and stay for good at the end. 1/2 is an eigenvalue 199 times, with one eigenvector
    walk = 0.5 * (torch.eye(200, dtype=torch.float64) + torch.diag(torch.ones(199, dtype=torch.float64), 1))
    walk[-1, -1] = 1
    modulus, error = second_modulus(walk.numpy(), tolerance=1e-6)
    assert abs(modulus - 0.5) > 1e-6
    assert error > 1e-6
    assert_close(spectral_gap(walk, method="iterative").item(), 0.5, atol=1e-12, rtol=0)


def test_a_batch_of_unequal_lengths_equals_one_at_a_time() -> None:
    lengths = torch.tensor([5, 90, 1, 70])
    batch = torch.full((4, 3, 90, 90), torch.nan, dtype=torch.float64)
    for b, length in enumerate(lengths.tolist()):
        for h in range(3):
            batch[b, h, :length, :length] = random_walk(length, 10 * b + h)
    for method in ("auto", "exact", "iterative"):
        together = spectral_gap(batch, lengths, method=method)
        assert together.shape == (4, 3)
        for b, length in enumerate(lengths.tolist()):
            for h in range(3):
                alone = spectral_gap(batch[b, h, :length, :length], method=method)
                assert_close(together[b, h], alone, atol=1e-12, rtol=0)


def test_the_weights_are_not_changed() -> None:
    walk = random_walk(80, 5)
    before = walk.clone()
    spectral_gap(walk, method="iterative")
    assert_close(walk, before, atol=0, rtol=0)


def test_one_token_is_mixed_before_it_starts() -> None:
    assert spectral_gap(torch.ones(2, 1, 1)).tolist() == [1.0, 1.0]


def test_padding_has_no_eigenvalues() -> None:
    values = spectrum(torch.eye(4), torch.tensor(2))
    assert values[:2].tolist() == [1, 1]
    assert values[2:].isnan().all()


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ValueError, match="unknown method 'power'; choose one of auto, exact"):
        spectral_gap(torch.eye(2), method="power")
