"""Diffusion maps (Coifman and Lafon, 2006): tokens as points whose distances compare their transition probabilities.

With D = diag(pi) and the orthonormal eigenvectors v of S = D^1/2 A D^-1/2, psi = D^-1/2 v and phi = D^1/2 v are the
right and left eigenvectors of A, <phi_i, psi_j> = delta_ij, psi_0 = 1 and phi_0 = pi.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fna_lightning.graph.checks import check_weights
from fna_lightning.graph.reversible import balance

BALANCE = 1e-5


@dataclass(frozen=True)
class DiffusionMap:
    """Eigenvectors and coordinates of each matrix; NaN for tokens and eigenvalues beyond its length.

    Attributes:
        eigenvalues: (..., n) real, largest modulus first; the first is 1.
        right: (..., n, n) psi_l in column l.
        left: (..., n, n) phi_l in column l.
        coordinates: (..., n, components) lambda_l^tau psi_l for l = 1, ..., components.
    """

    eigenvalues: Tensor
    right: Tensor
    left: Tensor
    coordinates: Tensor


def diffusion_map(
    weights: Tensor, *, tau: int = 1, components: int = 2, lengths: Tensor | None = None, symmetrise: bool = False
) -> DiffusionMap:
    """Return the diffusion map of each matrix after ``tau`` steps.

    The sign of each eigenvector makes its entry of largest modulus positive.

    Args:
        weights: (..., n, n) row-stochastic and reversible, as attention with tied queries and keys is.
        tau: number of steps, a positive integer.
        components: number of coordinates, 1 ... n - 1; all n - 1 reproduce the full diffusion distance.
        lengths: number of real tokens of each sequence, see ``check_weights``; a sequence with too few tokens has NaN
            in the remaining coordinates.
        symmetrise: whether a matrix that is not reversible is replaced by (A + A*) / 2, the mean of A and its time
            reversal, which has the same stationary distribution. Every token must be reachable from every other.
    """
    n = weights.size(-1)
    _check_tau(tau)
    matrices = check_weights(weights, lengths)
    if not 1 <= components < max(n, 2):
        raise ValueError(f"components must lie in [1, n - 1 = {n - 1}], got {components}")
    shape = matrices.values.shape
    values = torch.full(shape[:2], torch.nan, dtype=torch.float64)
    right, left = (torch.full(shape, torch.nan, dtype=torch.float64) for _ in range(2))
    for indices, block in matrices.blocks():
        k = block.size(-1)
        for m, matrix in zip(indices.tolist(), block, strict=True):
            symmetric, pi = _symmetric_form(matrix, symmetrise)
            values[m, :k], v = _sorted_eigenvectors(symmetric)
            root = pi.sqrt()[:, None]
            right[m, :k, :k], left[m, :k, :k] = v / root, v * root
    coordinates = values[:, None, 1 : components + 1] ** tau * right[:, :, 1 : components + 1]
    return DiffusionMap(*(matrices.restore(result) for result in (values, right, left, coordinates)))


def diffusion_distance(
    weights: Tensor, tau: int = 1, *, lengths: Tensor | None = None, symmetrise: bool = False
) -> Tensor:
    """Return the (..., n, n) distances sqrt(sum_y (p_tau(y|i) - p_tau(y|j))^2 / pi(y)); NaN for padding.

    p_tau are the rows of A^tau. This is the Euclidean distance of ``diffusion_map`` with all n - 1 components.
    Arguments as there.
    """
    _check_tau(tau)
    matrices = check_weights(weights, lengths)
    result = torch.full(matrices.values.shape, torch.nan, dtype=torch.float64)
    for indices, block in matrices.blocks():
        k = block.size(-1)
        for m, matrix in zip(indices.tolist(), block, strict=True):
            symmetric, pi = _symmetric_form(matrix, symmetrise)
            root = pi.sqrt()
            powers = torch.linalg.matrix_power(symmetric, tau) / root[:, None]  # A^tau D^-1/2
            result[m, :k, :k] = torch.cdist(powers, powers, compute_mode="donot_use_mm_for_euclid_dist")
    return matrices.restore(result)


def align(points: Tensor, reference: Tensor) -> Tensor:
    """Return (n, c) ``points`` rotated and reflected about the origin to lie closest to (n, c) ``reference``.

    This is the orthogonal Procrustes problem; distances between points do not change. Eigenvectors are determined only
    up to sign, so aligned maps can be compared by eye where raw ones would flip.
    """
    if points.shape != reference.shape or points.ndim != 2:
        raise ValueError(
            f"points and reference must both be (n, c), got {tuple(points.shape)} and {tuple(reference.shape)}; "
            "pass two maps of the same tokens"
        )
    u, _, vh = torch.linalg.svd(points.mT @ reference)
    return points @ (u @ vh)


def _check_tau(tau: int) -> None:
    if not isinstance(tau, int) or tau < 1:
        raise ValueError(f"tau must be a positive integer, got {tau!r}; it is the number of diffusion steps")


def _symmetric_form(matrix: Tensor, symmetrise: bool) -> tuple[Tensor, Tensor]:
    """Return D^1/2 A D^-1/2 and pi."""
    symmetric, pi, departure = balance(matrix)
    if departure <= BALANCE:
        return symmetric, pi
    if not symmetrise:
        raise ValueError(
            f"a diffusion map needs a reversible matrix, this one is {departure:.3g} from detailed balance (allowed: "
            f"{BALANCE:g}); tie queries and keys, or pass symmetrise=True"
        )
    pi = _stationary_distribution(matrix)
    root = pi.sqrt()
    similar = matrix * root[:, None] / root
    return (similar + similar.mT) / 2, pi


def _stationary_distribution(matrix: Tensor) -> Tensor:
    """Return pi with pi A = pi by solving these equations, the last one replaced by sum(pi) = 1."""
    n = len(matrix)
    system = matrix.mT - torch.eye(n, dtype=matrix.dtype)
    system[-1] = 1.0
    target = torch.zeros(n, dtype=matrix.dtype)
    target[-1] = 1.0
    pi, failed = torch.linalg.solve_ex(system, target)
    if failed or not pi.isfinite().all() or pi.min() <= 0:
        raise ValueError(
            f"symmetrise=True needs every token to be reachable from every other, this matrix has the stationary "
            f"probability {pi.min().item():.3g} at some token; drop the tokens that receive no attention"
        )
    return pi


def _sorted_eigenvectors(symmetric: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(symmetric)
    # of eigenvalues with the same modulus up to rounding, the positive one comes first, so that 1 precedes -1
    order = (values.abs() + 1e-12 * values.sign()).argsort(descending=True)
    values, vectors = values[order], vectors[:, order]
    peak = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return values, vectors * peak.sign()
