"""Predictions of the theory: Weyl's law on the circle, and interaction of distant clusters."""

import pytest
import torch
from torch.testing import assert_close

from fna_lightning import attention_weights
from fna_lightning.graph import log_log_slope, weyl_spectrum

from helpers.matrices import generator


@pytest.mark.parametrize(
    ("alpha", "window", "slope"),
    [
        (1.2, (5, 20), 1.16),
        (1.2, (10, 50), 1.06),
        (1.2, (20, 100), 0.97),
        (2.0, (5, 20), 2.07),
        (2.0, (10, 50), 2.05),
        (2.0, (20, 100), 2.02),
    ],
)
def test_eigenvalues_on_the_circle_follow_weyls_law(alpha: float, window: tuple[int, int], slope: float) -> None:
    assert abs(log_log_slope(weyl_spectrum(alpha), *window) - slope) < 0.03


def test_the_slope_approaches_alpha_with_more_points_and_a_smaller_scale() -> None:
    coarse = log_log_slope(weyl_spectrum(1.2), 20, 100)
    fine = log_log_slope(weyl_spectrum(1.2, n=1000, eps=2.5e-5), 20, 100)
    assert abs(fine - 1.2) < abs(coarse - 1.2)


@pytest.mark.parametrize("alpha", [1.0, 1.2, 1.8, 2.0])
def test_the_spectrum_starts_at_zero_and_has_pairs(alpha: float) -> None:
    values = weyl_spectrum(alpha, n=101, eps=4e-3)
    assert_close(values[0].item(), 0.0, atol=1e-6, rtol=0)
    assert (values[1:] > values[0]).all()
    # sine and cosine of the same frequency
    assert_close(values[1::2], values[2::2], rtol=1e-6, atol=0)


def test_explicit_points_on_the_circle() -> None:
    angle = 2 * torch.pi * torch.arange(60, dtype=torch.float64) / 60
    points = torch.stack([angle.cos(), angle.sin()], dim=-1)
    assert_close(weyl_spectrum(1.2, points=points, manifold="sphere"), weyl_spectrum(1.2, n=60))


def test_points_in_the_plane_have_dimension_two() -> None:
    points = torch.randn(40, 2, generator=generator(0), dtype=torch.float64)
    weights = attention_weights(points, points, alpha=1.2, kappa=0.1, intrinsic_dim=2)
    eta = torch.linalg.eigvals(weights).real.sort(descending=True).values
    assert_close(weyl_spectrum(1.2, eps=0.01, points=points), -eta.log() / 0.01**0.6, atol=1e-8, rtol=1e-8)


def test_eigenvalues_lost_to_rounding_are_nan_and_come_last() -> None:
    values = weyl_spectrum(2.0, n=60, eps=4.0)
    lost = values.isnan()
    assert lost.any()
    assert lost.int().diff().ge(0).all()


def test_log_log_slope_of_a_power_law() -> None:
    assert_close(log_log_slope(torch.arange(1, 101).double() ** 1.7, 3, 90), 1.7)


def test_distant_clusters_interact_only_in_fractional_attention() -> None:
    centers = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 3**0.5]], dtype=torch.float64)
    x = centers.repeat_interleave(6, dim=0) + 0.5 * torch.randn(18, 2, generator=generator(0), dtype=torch.float64)
    cluster = torch.arange(18) // 6
    between = cluster[:, None] != cluster
    threshold = 3.12e-5
    fractional = attention_weights(x, x, alpha=1.2, kappa="text")[between]
    local = attention_weights(x, x, alpha=2.0, kappa=0.1**0.5)[between]
    assert fractional.min() > threshold
    assert local.median() < threshold


def test_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="eps must be positive, got 0"):
        weyl_spectrum(1.2, eps=0.0)
    with pytest.raises(ValueError, match="n >= 2 points, got 1"):
        weyl_spectrum(1.2, n=1)
    with pytest.raises(ValueError, match=r"points must be \(n, d\), got shape \(2, 3, 4\)"):
        weyl_spectrum(1.2, points=torch.zeros(2, 3, 4))
    for first, last in ((0, 5), (5, 6), (5, 12)):
        with pytest.raises(ValueError, match=rf"10 values and not the first, got \[{first}, {last}\)"):
            log_log_slope(torch.ones(10), first, last)
