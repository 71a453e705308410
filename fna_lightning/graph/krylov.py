"""The largest eigenvalue modulus of a matrix, by an Arnoldi iteration on a power of it.

The eigenvalues of attention below the first crowd on a disc of nearly one modulus, where Arnoldi on M itself needs a
basis of a hundred vectors. M^p spreads the moduli apart and costs p products instead of p orthogonalisations. The
basis is built in float32, half the memory traffic; nothing but the *space* is taken from it. The answer is the Ritz
value of M on that space, and its error comes from the explicit residual, both in float64. So a poor basis shows, it
does not mislead.
"""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

POWER = 8
CHECKS = (6, 8, 10, 12, 14, 16, 20, 24, 28, 32)


def largest_modulus(matrix: Matrix, *, tolerance: float) -> tuple[float, float]:
    """Return (|lambda|, error) for the eigenvalue of largest modulus of an (n, n) matrix.

    ``error`` is the norm of M x - theta x for the unit Ritz vector x, times the condition of theta in the basis: the
    error to first order. The iteration stops when it is within ``tolerance``, or with its last basis; the caller must
    look at it.
    """
    n = len(matrix)
    size = float(np.linalg.norm(matrix))
    if size <= tolerance:
        return 0.0, size  # no eigenvalue exceeds the norm
    scaled = matrix.astype(np.float32)
    scaled /= size
    start = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    last = min(CHECKS[-1], n)
    vectors = np.empty((last + 1, n), dtype=np.float32)
    vectors[0] = start / np.linalg.norm(start)
    hessenberg = np.zeros((last + 1, last))
    modulus, error = 0.0, size
    for k in range(1, last + 1):
        growth = _extend(scaled, vectors, hessenberg, k)
        ended = k == last or not growth
        if ended or (k in CHECKS and size * _expected_error(hessenberg, k) <= 0.5 * tolerance):
            modulus, error = _project(matrix, vectors[: k + 1 if growth and k < n else k])
            if ended or error <= tolerance:
                break
    return modulus, error


def _extend(matrix: NDArray[np.float32], vectors: NDArray[np.float32], hessenberg: Matrix, k: int) -> bool:
    """Write M^p times row ``k - 1``, made orthonormal to all rows before, into row ``k``; False if nothing is left."""
    w = vectors[k - 1]
    for _ in range(POWER):
        w = matrix @ w
    size = float(np.sqrt(w @ w))
    if size < np.finfo(np.float32).tiny:
        return False
    w = w / size
    known = vectors[:k]
    # twice: the powers are nearly parallel, and one pass leaves the rounding of what it removed
    once = known @ w
    w = w - once @ known
    twice = known @ w
    w = w - twice @ known
    rest = float(np.sqrt(w @ w))
    hessenberg[:k, k - 1] = size * (once + twice)
    hessenberg[k, k - 1] = size * rest
    if rest < 1e-6:
        return False
    vectors[k] = w / rest
    return True


def _expected_error(hessenberg: Matrix, k: int) -> float:
    """Return how far |lambda| may still be, from the small matrix of M^p alone: cheap, and only a hint when to look."""
    values, vectors = np.linalg.eig(hessenberg[:k, :k])
    top = np.abs(values).argmax()
    size = abs(values[top])
    return hessenberg[k, k - 1] * abs(vectors[-1, top]) / POWER * size ** (1 / POWER - 1) if size > 0 else 0.0


def _project(matrix: Matrix, vectors: NDArray[np.float32]) -> tuple[float, float]:
    """Return the largest Ritz modulus of ``matrix`` on the span of the rows and its error."""
    basis = np.linalg.qr(vectors.T.astype(np.float64)).Q
    images = matrix @ basis
    small = basis.T @ images
    values, y = np.linalg.eig(small)
    top = np.abs(values).argmax()
    try:
        condition = float(np.linalg.norm(np.linalg.inv(y)[top]))
    except np.linalg.LinAlgError:
        condition = float("inf")
    residual = np.linalg.norm(images @ y[:, top] - values[top] * (basis @ y[:, top]))
    return float(abs(values[top])), float(residual) * condition
