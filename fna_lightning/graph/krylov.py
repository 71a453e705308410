"""The second eigenvalue modulus of a walk, by an Arnoldi iteration on a power of it.

M = A - 1 w' with w'1 = 1 has the eigenvalues of A, only 1 becomes 0 (Brauer), for any w; the mean of the rows of A will
do, so no stationary distribution is needed. The other eigenvalues of attention crowd on a disc of nearly one modulus,
where Arnoldi on M itself needs a basis of a hundred vectors. M^p spreads the moduli apart and costs p products instead
of p orthogonalisations. The basis is built in float32, half the memory traffic; nothing but the *space* is taken from
it. The answer is the Ritz value of M on that space, and its error comes from the explicit residual, both in float64. So
a poor basis shows, it does not mislead.
"""

import numpy as np
from numpy.typing import NDArray

from fna_lightning.graph.appointments import ConvergenceSchedule

Matrix = NDArray[np.float64]

# odd: an eigenvalue and its negative have different powers
POWER = 5
# the condition of an eigenvalue in a subspace falls short of the true one: by a factor 3 on thousands of random walks
MARGIN = 4.0
REFINEMENTS = 4
# a vector whose square is no ordinary float32 has no direction
SMALLEST = np.sqrt(np.finfo(np.float32).tiny)
# a vector whose error is this far beyond the expected is that of several eigenvalues of M with one p-th power, which
# only the whole space tells apart
MIXED = 1e3
# so it is where the next modulus is closer than as many tolerances
CROWDED = 5
LONGEST = 64


def second_modulus(walk: Matrix, *, tolerance: float) -> tuple[float, float]:
    """Return (|lambda_2|, error) of an (n, n) row-stochastic matrix.

    ``error`` is the norm of M x - theta x for the unit Ritz vector x, times the condition of theta in the basis, with a
    margin. The iteration stops when it is within ``tolerance``, or with its last basis; the caller must look at it.
    """
    n = len(walk)
    deflated = walk.astype(np.float32)
    deflated -= deflated.mean(axis=0)
    size = float(np.linalg.norm(deflated))
    if size <= tolerance:
        return 0.0, size  # no eigenvalue exceeds the norm
    deflated /= size
    start = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    last = min(LONGEST, n)
    vectors = np.empty((last + 1, n), dtype=np.float32)
    vectors[0] = start / np.linalg.norm(start)
    hessenberg = np.zeros((last + 1, last))
    modulus, error = 0.0, size
    when = ConvergenceSchedule(0.1 * tolerance, least=2)
    for k in range(1, last + 1):
        growth = _extend(deflated, vectors, hessenberg, k)
        ended = k == last or not growth
        if not ended:
            if k < when.next:
                continue
            leading, condition, residual, apart = _leading(hessenberg, k)
            expected = MARGIN * condition * size * residual
            if not when.met(k, expected):
                continue
            x = leading @ vectors[:k]
            modulus, error, _ = _project(walk, np.stack([x.real, x.imag], axis=1), condition)
            if size * apart > CROWDED * tolerance:
                if error <= tolerance:
                    break
                if error <= MIXED * expected:
                    continue
        space = vectors[: k + 1 if growth and k < n else k].T.astype(np.float64)
        # what float32 left in the basis shrinks with every product in float64
        for _ in range(REFINEMENTS if ended else 1):
            modulus, error, space = _project(walk, space)
            if error <= tolerance:
                break
        if ended or error <= tolerance:
            break
    return modulus, error


def _extend(matrix: NDArray[np.float32], vectors: NDArray[np.float32], hessenberg: Matrix, k: int) -> bool:
    """Write M^p times row ``k - 1``, made orthonormal to all rows before, into row ``k``; False if nothing is left."""
    w = vectors[k - 1]
    for _ in range(POWER):
        w = matrix @ w
    size = float(np.sqrt(w @ w))
    if size < SMALLEST:
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


def _leading(hessenberg: Matrix, k: int) -> tuple[NDArray[np.complex128], float, float, float]:
    """Return the coordinates of the leading Ritz vector of M^p, its condition, residual, and distance to the next.

    The last two as they are with M: the residual, and how far below its modulus the next one is. All from the small
    matrix alone: cheap, and only a hint when to look.
    """
    values, vectors = np.linalg.eig(hessenberg[:k, :k])
    moduli = np.abs(values)
    top = moduli.argmax()
    size = moduli[top]
    others = moduli[(values != values[top]) & (values != values[top].conj())]
    apart = size ** (1 / POWER) - others.max(initial=0.0) ** (1 / POWER)
    coordinates = vectors[:, top].astype(np.complex128)
    residual = hessenberg[k, k - 1] * abs(coordinates[-1]) / POWER * size ** (1 / POWER - 1) if size > 0 else 0.0
    return coordinates, _condition(vectors, top), residual, apart


def _condition(vectors: NDArray[np.inexact], top: int) -> float:
    """Return the condition of one eigenvalue of a small matrix from its unit eigenvectors."""
    try:
        return float(np.linalg.norm(np.linalg.inv(vectors)[top]))
    except np.linalg.LinAlgError:
        return float("inf")


def _project(walk: Matrix, space: Matrix, condition: float = 0.0) -> tuple[float, float, Matrix]:
    """Return the largest Ritz modulus of the deflated ``walk`` on the columns of ``space``, its error, the images."""
    basis = np.linalg.qr(space).Q
    images = walk @ basis
    images -= images.mean(axis=0)
    values, y = np.linalg.eig(basis.T @ images)
    top = int(np.abs(values).argmax())
    residual = float(np.linalg.norm(images @ y[:, top] - values[top] * (basis @ y[:, top])))
    return float(abs(values[top])), MARGIN * residual * max(condition, _condition(y, top)), images
