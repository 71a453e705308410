"""Invalid weights and lengths: every analysis raises an error with the value, the rule and a remedy."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.graph import (
    algebraic_connectivity,
    diffusion_distance,
    diffusion_map,
    direction,
    effective_rank,
    laplacian_spectrum,
    measure,
    path_lengths,
    rollout,
    row_entropy,
    spectral_gap,
    spectrum,
    tv_to_uniform,
)

from helpers.matrices import random_matrix

STOCHASTIC: dict[str, Callable[..., object]] = {
    "spectral_gap": spectral_gap,
    "spectrum": spectrum,
    "row_entropy": row_entropy,
    "tv_to_uniform": tv_to_uniform,
    "effective_rank": effective_rank,
    "effective_neighbors": lambda weights, lengths=None: measure(weights, lengths, ["effective_neighbors"]),
    "laplacian_spectrum": laplacian_spectrum,
    "algebraic_connectivity": algebraic_connectivity,
    "direction": direction,
    "direction_stationary": lambda weights, lengths=None: direction(weights, lengths, queries="stationary"),
    "diffusion_map": lambda weights, lengths=None: diffusion_map(weights, lengths=lengths),
    "diffusion_distance": lambda weights, lengths=None: diffusion_distance(weights, lengths=lengths),
    "rollout": lambda weights, lengths=None: rollout([weights], lengths),
}
EVERY = {**STOCHASTIC, "path_lengths": path_lengths}
every_analysis = pytest.mark.parametrize("analyze", EVERY.values(), ids=EVERY)
every_stochastic_analysis = pytest.mark.parametrize("analyze", STOCHASTIC.values(), ids=STOCHASTIC)


def uniform(*shape: int) -> Tensor:
    return torch.full(shape, 1 / shape[-1])


@every_analysis
def test_nan_is_reported_with_its_position(analyze: Callable[..., object]) -> None:
    weights = uniform(2, 3, 4, 4)
    weights[1, 2, 3, 0] = torch.nan
    with pytest.raises(ValueError, match=r"finite, got nan in row 3 of matrix \(1, 2\); check for a diverged model"):
        analyze(weights)


@every_analysis
def test_infinity_is_reported_with_its_position(analyze: Callable[..., object]) -> None:
    weights = uniform(4, 4)
    weights[1, 2] = torch.inf
    with pytest.raises(ValueError, match=r"finite, got inf in row 1 of matrix \(\)"):
        analyze(weights)


@every_analysis
def test_negative_weights_are_refused(analyze: Callable[..., object]) -> None:
    weights = torch.eye(3)
    weights[0] = torch.tensor([1.5, -0.5, 0.0])
    with pytest.raises(ValueError, match=r"negative, got -0.5 at \(0, 1\) of matrix \(\); pass the weights after"):
        analyze(weights)


@every_analysis
@pytest.mark.parametrize("shape", [(3, 4), (5,), (2, 0, 0)])
def test_matrices_must_be_square(analyze: Callable[..., object], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"must be \(..., n, n\) with n >= 1, got shape \({shape[0]},"):
        analyze(torch.ones(shape))


@every_stochastic_analysis
def test_rows_must_sum_to_one(analyze: Callable[..., object]) -> None:
    weights = uniform(2, 4, 4)
    weights[1, 2] *= 0.5
    with pytest.raises(ValueError, match=r"within 0.0001, got 0.5 in row 2 of matrix \(1,\) .*padded keys masked"):
        analyze(weights)


@every_stochastic_analysis
def test_a_query_that_attends_to_nothing_is_refused(analyze: Callable[..., object]) -> None:
    weights = uniform(4, 4)
    weights[3] = 0
    with pytest.raises(ValueError, match=r"got 0 in row 3 of matrix .* leave it out through `lengths`"):
        analyze(weights)


@every_stochastic_analysis
def test_a_fully_masked_matrix_is_refused(analyze: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="got 0 in row 0"):
        analyze(torch.zeros(4, 4))


@every_stochastic_analysis
def test_weight_on_padding_is_refused(analyze: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"got 0.75 in row 0 of matrix \(1,\) \(length 3\).*padded keys masked"):
        analyze(uniform(2, 4, 4), torch.tensor([4, 3]))


@every_analysis
@pytest.mark.parametrize("length", [0, 5, -1])
def test_lengths_must_be_in_range(analyze: Callable[..., object], length: int) -> None:
    with pytest.raises(ValueError, match=rf"lengths must lie in \[1, 4\], got {length}; leave out"):
        analyze(uniform(2, 4, 4), torch.tensor([4, length]))


@every_analysis
def test_lengths_must_match_the_first_dimensions(analyze: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"lengths of shape \(3,\) do not fit .* leading shape \(2, 3\)"):
        analyze(uniform(2, 3, 4, 4), torch.tensor([4, 4, 4]))


@every_analysis
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_lengths_must_be_integers(analyze: Callable[..., object], dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"lengths must be integers, got {dtype}; compute them from a mask"):
        analyze(uniform(2, 4, 4), torch.ones(2).to(dtype))


@every_analysis
def test_integer_weights_are_refused(analyze: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"got torch.int64; convert"):
        analyze(torch.eye(3).long())


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 3)])
def test_lengths_broadcast_over_heads(shape: tuple[int, ...]) -> None:
    weights = torch.zeros(2, 3, 4, 4)
    weights[0] = random_matrix(4, 0).float()
    weights[1, :, :2, :2] = random_matrix(2, 1).float()
    lengths = torch.tensor([4, 2]).reshape(-1, 1).expand(2, 3)[:, : shape[1] if len(shape) > 1 else 1].reshape(shape)
    expected = torch.stack([row_entropy(weights[0]), row_entropy(weights[1, :, :2, :2])])
    assert_close(row_entropy(weights, lengths), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_input_gives_float64_results(dtype: torch.dtype) -> None:
    matrix = random_matrix(80, 0)
    for analyze in (spectral_gap, row_entropy, tv_to_uniform, effective_rank):
        rounded, truth = analyze(matrix.to(dtype)), analyze(matrix)
        assert rounded.dtype == torch.float64
        assert_close(rounded, truth, atol=0, rtol=2e-2)


def test_results_carry_no_gradient() -> None:
    assert not spectral_gap(random_matrix(4, 0).requires_grad_()).requires_grad


def test_an_empty_batch_gives_an_empty_result() -> None:
    assert spectral_gap(torch.ones(0, 3, 4, 4)).shape == (0, 3)
    assert path_lengths(torch.ones(0, 4, 4)).hops.shape == (0, 4, 4)
