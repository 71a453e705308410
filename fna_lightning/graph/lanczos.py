"""The second eigenvalue modulus of a reversible walk, by a Lanczos iteration on its symmetric form.

Attention with tied queries and keys is reversible. For the outermost eigenvalue of its symmetric form a few dozen
products are enough, a third of what Arnoldi needs, because every one of them counts: no power has to be taken. Only the
space comes from float32; the eigenvalue and its residual are computed in float64.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh_tridiagonal

from fna_lightning.graph.appointments import ConvergenceSchedule

Matrix = NDArray[np.float64]

# relative, of the ratios two tokens give: far above the rounding of float32 weights, far below any other walk
ALIKE = 1e-3
# basis vectors; with fewer tokens the basis would be everything
SHORTEST, LONGEST = 16, 144
# eight find less than a tenth of a norm once in ten million times, and that of one dimension only
PROBES = 8
# vectors that are taken to float64, where eigenvalues are told apart that float32 cannot
LEADING = 4
# and as many tolerances apart they must be, or a small residual could be that of one below the outermost
CROWDED = 100
# residual over eigenvalue, at most
RELATIVE = 2e-4
# of a vector with nothing left in it but the rounding of float32: all eigenvalues seen are too close for this
TINY = 1e-7


def second_modulus_of_reversible(walk: Matrix, *, tolerance: float) -> tuple[float, float] | None:
    """Return (|lambda_2|, error) of an (n, n) row-stochastic matrix, None if this is no way to find it.

    That is, if the walk is not in detailed balance, too small, or its eigenvalues too close for float32. ``error`` is
    the residual of the Ritz vector plus the norm of the part that is not symmetric (Bauer and Fike). The iteration
    stops when it is within ``tolerance``, or with its last basis; the caller must look at it.
    """
    n = len(walk)
    root = _balanced_root(walk)
    if root is None or n <= SHORTEST:
        return None
    row = root.astype(np.float32)
    symmetric = walk.astype(np.float32)
    symmetric *= row[:, None]
    symmetric /= row
    departure = _departure(symmetric)
    if departure > tolerance / 2:
        return None
    last = min(LONGEST, n - 1)
    vectors = np.empty((last + 1, n), dtype=np.float32)
    start = np.random.default_rng(n).standard_normal(n)
    vectors[0] = start / np.linalg.norm(start)
    diagonal, beside = np.zeros(last), np.zeros(last)
    modulus, error = 0.0, np.inf
    when = ConvergenceSchedule(0.5 * tolerance, least=5)
    for k in range(1, last + 1):
        w = symmetric @ vectors[k - 1]
        w -= (row @ w) * row
        along = vectors[:k] @ w
        w -= along @ vectors[:k]
        # again: in float32 the known ones soon come back, and slow it down by a half
        w -= (vectors[:k] @ w) @ vectors[:k]
        diagonal[k - 1], beside[k - 1] = along[-1], np.sqrt(w @ w)
        if beside[k - 1] <= TINY:
            return None
        ended = k == last
        if ended or k >= when.next:
            values, y = eigh_tridiagonal(diagonal[:k], beside[: k - 1])
            order = np.abs(values).argsort()[::-1][:LEADING]
            if abs(values[order[1]]) > abs(values[order[0]]) - CROWDED * tolerance:
                return None
            # where all eigenvalues are small, the residual must be smaller still to be that of the outermost
            expected = beside[k - 1] * abs(y[-1, order[0]])
            if when.met(k, max(expected, tolerance * expected / (RELATIVE * abs(values[order[0]])))) or ended:
                modulus, residual = _project(walk, root, (y[:, order].T @ vectors[:k]).T)
                error = residual + departure
                if ended or error <= tolerance:
                    break
        vectors[k] = w / np.float32(beside[k - 1])
    return modulus, error


def _departure(matrix: NDArray[np.float32]) -> float:
    """Estimate the norm of the antisymmetric part: the mean square of its images of random vectors is its square."""
    probe = np.random.default_rng(PROBES).standard_normal((PROBES, len(matrix))).astype(np.float32)
    return float(np.linalg.norm((matrix @ probe.T).T - probe @ matrix)) / math.sqrt(PROBES) / 2


def _balanced_root(walk: Matrix) -> Matrix | None:
    """Return the root of the stationary distribution by its balance with one token; None if another contradicts."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        pi = walk[0] / walk[:, 0]
        contrast = walk[-1] / walk[:, -1] / pi
    # also False where a weight is 0 and a ratio no number
    if not np.ptp(contrast) <= ALIKE * contrast[0] < np.inf:
        return None
    # a step of the walk changes nothing but the rounding of single ratios, which it averages away
    pi = pi @ walk
    return np.sqrt(pi / pi.sum())


def _project(walk: Matrix, root: Matrix, space: Matrix) -> tuple[float, float]:
    """Return the largest Ritz modulus of the symmetric form on the columns of ``space``, and its residual."""
    basis = np.linalg.qr(space - np.outer(root, root @ space)).Q
    images = root[:, None] * (walk @ (basis / root[:, None]))
    small = basis.T @ images
    values, y = np.linalg.eigh((small + small.T) / 2)
    top = np.abs(values).argmax()
    return float(abs(values[top])), float(np.linalg.norm(images @ y[:, top] - values[top] * (basis @ y[:, top])))
