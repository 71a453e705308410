"""Generator of fractional attention on the circle, computed without sampling: kernels as Fourier multipliers.

For tokens of density rho on the circle, with h the signed distance of two tokens and k_kappa(h) the kernel,

    (A f)(x) = (k_kappa * (f rho))(x) / (k_kappa * rho)(x)

consists of two convolutions. If f and rho are trigonometric polynomials, only a few Fourier coefficients of k_kappa are
needed, and quadrature on panels that double in width gives them to rounding error. So t can be arbitrarily small, which
is not possible with a sample of tokens.

The limit, t = kappa^alpha -> 0 (kappa = sqrt(eps)): numerator minus f times denominator is kappa^(1+alpha) times the
integral of |h|^-(1+alpha) (f(x+h) - f(x)) rho(x+h); the denominator is kappa rho(x) times the integral 2/alpha of
(1+|u|)^-(1+alpha). Hence

    (A f - f) / t  ->  -(alpha/2) [ M(f rho) - f M(rho) ] / rho,     M e^{ikx} = m_k e^{ikx},
    m_k = integral of |h|^-(1+alpha) (1 - cos kh) dh,

over all h on the line, where m_k = C |k|^alpha, C = pi / (Gamma(1+alpha) sin(pi alpha/2)): M = C (-Laplace)^(alpha/2);
over |h| <= pi on the circle, where M differs from this by a bounded operator. For alpha = 2 (the Gaussian, t = kappa^2)
the limit is 1/4 [ (f rho)'' - f rho'' ] / rho.

Order of convergence: the kernel deviates from its power law where |h| is about kappa, and second differences are of
order h^2 there, so the error is kappa^(2-alpha) = t^(2/alpha - 1) for 1 < alpha < 2. The error of the denominator,
kappa^alpha, is smaller. For the Gaussian the error is kappa^2 = t.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import gamma, zeta

Array = NDArray[np.float64]

# Fourier coefficients c_k, k = -2 ... 2, of the density (not normalized) and of f
DENSITY = np.array([0.0, 0.25, 1.0, 0.25, 0.0])  # 1 + cos(x) / 2
FUNCTION = np.array([0.25, 0.5j, 0.0, -0.5j, 0.25])  # sin(x) + cos(2x) / 2
SPACES = ("circle", "line")

_NODES, _WEIGHTS = leggauss(40)


def expected_order(alpha: float) -> float:
    """Return the order of convergence in t for 1 < alpha <= 2; at alpha = 1 there is a logarithmic factor."""
    return 1.0 if alpha == 2.0 else 2.0 / alpha - 1.0


def generator_error(alpha: float, kappa: float, space: str = "circle") -> float:
    """Return the maximum of |(A f - f) / t - limit| over the circle, relative to the maximum of |limit|."""
    if space not in SPACES:
        raise ValueError(f"unknown space {space!r}; choose one of {', '.join(SPACES)}")
    x = np.linspace(0.0, 2.0 * np.pi, 64, endpoint=False)
    limit = _limit(alpha, space, x)
    return float(np.abs(generator_step(alpha, kappa, space, x) - limit).max() / np.abs(limit).max())


def measured_order(alpha: float, space: str = "circle", kappas: tuple[float, ...] = (1e-5, 1e-6)) -> float:
    """Return the slope of log error against log t between two values of kappa."""
    first, last = (generator_error(alpha, kappa, space) for kappa in kappas)
    return math.log(first / last) / (alpha * math.log(kappas[0] / kappas[1]))


def generator_step(alpha: float, kappa: float, space: str, x: Array) -> Array:
    """Return (A f - f) / t at ``x``; differences are taken before dividing to avoid cancellation."""
    mass, lost = _multipliers(alpha, kappa, space, 4)
    product = np.convolve(FUNCTION, DENSITY)
    f, rho = _values(FUNCTION, x), _values(DENSITY, x)
    # k * g = mass g - lost(g), and the terms with the mass cancel in k * (f rho) - f (k * rho).
    change = f * _values(DENSITY * _at(lost, 2), x) - _values(product * _at(lost, 4), x)
    return change / (mass * rho - _values(DENSITY * _at(lost, 2), x)) / kappa**alpha


def attention_step(
    tokens: int, alpha: float, kappa: float, weights: Callable[[Array, float, float], Array]
) -> tuple[Array, Array]:
    """Return tokens distributed by the density, and (A f - f) / t at each, with A = weights(tokens, alpha, kappa)."""
    grid = np.linspace(0.0, 2.0 * np.pi, 100_001)
    # Quantiles: the inverse of the integral of 1 + cos(x) / 2.
    x = np.interp((np.arange(tokens) + 0.5) / tokens, (grid + np.sin(grid) / 2.0) / (2.0 * np.pi), grid)
    f = _values(FUNCTION, x)
    return x, (weights(x, alpha, kappa) @ f - f) / kappa**alpha


def _limit(alpha: float, space: str, x: Array) -> Array:
    if alpha == 2.0:
        m, factor = np.arange(5.0) ** 2, 0.25
    else:
        m, factor = _power_multipliers(alpha, space, 4), alpha / 2.0
    product = np.convolve(FUNCTION, DENSITY)
    f, rho = _values(FUNCTION, x), _values(DENSITY, x)
    return -factor * (_values(product * _at(m, 4), x) - f * _values(DENSITY * _at(m, 2), x)) / rho


def _multipliers(alpha: float, kappa: float, space: str, last: int) -> tuple[float, Array]:
    """Return the integral of the kernel k(h), and of k(h) (1 - cos jh) for the frequencies j = 0 ... last."""
    h, w = _panels(kappa)
    if alpha == 2.0:
        kernel = np.exp(-((h / kappa) ** 2))
    elif space == "circle":
        kernel = (1.0 + h / kappa) ** -(1.0 + alpha)
    else:
        kernel = kappa ** (1.0 + alpha) * _copies(alpha, h + kappa, kappa - h)
    lost = np.array([2.0 * (w * kernel * _one_minus_cos(k * h)).sum() for k in range(last + 1)])
    return float(2.0 * (w * kernel).sum()), lost


def _power_multipliers(alpha: float, space: str, last: int) -> Array:
    k = np.arange(last + 1.0)
    if space == "line":
        return k**alpha * math.pi / (gamma(1.0 + alpha) * math.sin(math.pi * alpha / 2.0))
    h, w = _panels(1e-12)
    # The integral below 1e-12, which the panels do not cover, is k^2 h^(2-alpha) / (2 - alpha).
    inner = k**2 * 1e-12 ** (2.0 - alpha) / (2.0 - alpha)
    keep = h > 1e-12
    h, w = h[keep], w[keep]
    return inner + np.array([2.0 * (w * h ** -(1.0 + alpha) * _one_minus_cos(frequency * h)).sum() for frequency in k])


def _copies(alpha: float, right: Array, left: Array) -> Array:
    """Return the sum of (kappa + |h + 2 pi m|)^-(1+alpha) over all m, for 0 <= h <= pi."""
    s, circle = 1.0 + alpha, 2.0 * math.pi
    return circle**-s * (zeta(s, right / circle) + zeta(s, left / circle + 1.0))


def _panels(kappa: float) -> tuple[Array, Array]:
    """Return quadrature nodes and weights on (0, pi): one panel up to kappa, then panels that double in width."""
    edges = [0.0, kappa]
    while edges[-1] < math.pi:
        edges.append(min(2.0 * edges[-1], math.pi))
    low, high = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
    half = (high - low) / 2.0
    return (low + half * (1.0 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


def _one_minus_cos(angle: Array) -> Array:
    return 2.0 * np.sin(angle / 2.0) ** 2


def _at(multipliers: Array, last: int) -> Array:
    """Return the multipliers of the frequencies -last ... last."""
    return multipliers[np.abs(np.arange(-last, last + 1))]


def _values(coefficients: NDArray[np.complexfloating] | Array, x: Array) -> Array:
    last = len(coefficients) // 2
    return np.real(np.exp(1j * np.outer(x, np.arange(-last, last + 1))) @ coefficients)
