"""Limit of attention as t -> 0: its constants and its order of convergence."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from fna_lightning.reproduction import generator
from fna_lightning.reproduction.generator import expected_order, generator_error, measured_order


@pytest.mark.parametrize("space", generator.SPACES)
@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.8, 2.0])
def test_attention_converges_with_the_expected_order(alpha, space) -> None:
    assert measured_order(alpha, space) == pytest.approx(expected_order(alpha), abs=0.02)
    errors = [generator_error(alpha, kappa, space) for kappa in (1e-2, 1e-4, 1e-6)]
    assert errors[0] > errors[1] > errors[2]


def test_a_wrong_constant_is_detected(monkeypatch) -> None:
    exact = generator._power_multipliers
    monkeypatch.setattr(generator, "_power_multipliers", lambda *args: 1.01 * exact(*args))
    assert generator_error(1.2, 1e-6, "line") == pytest.approx(0.01, rel=0.02)
    assert measured_order(1.2, "line") < 0.1


@pytest.mark.parametrize("k", [1, 3])
def test_multipliers_of_the_circle_equal_their_integrals(k) -> None:
    alpha = 1.2
    value = generator._power_multipliers(alpha, "circle", 4)[k]
    # 1 - cos is written as 2 sin^2, and its leading term is integrated analytically.
    integrand = lambda h: 2 * h ** -(1 + alpha) * (2 * math.sin(k * h / 2) ** 2 - (k * h) ** 2 / 2)  # noqa: E731
    expected = quad(integrand, 0, math.pi)[0] + k**2 * math.pi ** (2 - alpha) / (2 - alpha)
    assert value == pytest.approx(expected, rel=1e-8)


def test_copies_on_the_line_equal_the_sum() -> None:
    h, kappa, alpha = np.array([0.3, 2.0]), 0.1, 1.5
    copies = np.arange(-200_000, 200_001)[:, None]
    expected = ((kappa + np.abs(h + 2 * np.pi * copies)) ** -(1 + alpha)).sum(axis=0)
    assert generator._copies(alpha, h + kappa, kappa - h) == pytest.approx(expected, rel=1e-6)


def test_unknown_space_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown space 'torus'; choose one of circle, line"):
        generator_error(1.2, 0.1, "torus")
