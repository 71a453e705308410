"""Diffusion maps (Coifman and Lafon, 2006): tokens as points, as far apart as their walks differ.

With D = diag(pi) and the orthonormal eigenvectors v of S = D^1/2 A D^-1/2, psi = D^-1/2 v and phi = D^1/2 v are the
right and left eigenvectors of A, <phi_i, psi_j> = delta_ij, psi_0 = 1 and phi_0 = pi.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fna_lightning.graph.checks import Walks, check_walks
from fna_lightning.graph.reversible import balance

BALANCE = 1e-5


@dataclass(frozen=True)
class DiffusionMap:
    """Eigenvectors and coordinates of each walk; NaN for tokens and eigenvalues beyond its length.

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
    """Return the diffusion map of each walk after ``tau`` steps.

    Each eigenvector has the sign that makes its entry of largest modulus positive.

    Args:
        weights: (..., n, n) row-stochastic and reversible, as attention with tied queries and keys is.
        tau: number of steps, a positive integer.
        components: number of coordinates, 1 ... n - 1; all of them carry the full diffusion distance.
        lengths: real tokens of each sequence, see ``check_walks``; one with too few tokens has NaN coordinates beyond.
        symmetrise: whether a walk that is not reversible is replaced by (A + A*) / 2, the mean of the walk and its time
            reversal, which has the same stationary distribution; needs every token to be reachable from every other.
    """
    n = weights.size(-1)
    _check_tau(tau)
    walks = check_walks(weights, lengths)
    if not 1 <= components < max(n, 2):
        raise ValueError(f"components must lie in [1, n - 1 = {n - 1}], got {components}")
    size = walks.matrices.shape
    values = torch.full(size[:2], torch.nan, dtype=torch.float64)
    right, left = (torch.full(size, torch.nan, dtype=torch.float64) for _ in range(2))
    for where, block in walks.blocks():
        k = block.size(-1)
        for m, walk in zip(where.tolist(), block, strict=True):
            symmetric, pi = _symmetric_form(walk, symmetrise)
            values[m, :k], v = _sorted_eigenvectors(symmetric)
            root = pi.sqrt()[:, None]
            right[m, :k, :k], left[m, :k, :k] = v / root, v * root
    coordinates = values[:, None, 1 : components + 1] ** tau * right[:, :, 1 : components + 1]
    return DiffusionMap(*(walks.restore(result) for result in (values, right, left, coordinates)))


def diffusion_distance(
    weights: Tensor, tau: int = 1, *, lengths: Tensor | None = None, symmetrise: bool = False
) -> Tensor:
    """Return the (..., n, n) distances sqrt(sum_y (p_tau(y|i) - p_tau(y|j))^2 / pi(y)); NaN for padding.

    p_tau are the rows of A^tau. The distance is the Euclidean one of ``diffusion_map`` with all n - 1 components.
    Arguments as there.
    """
    _check_tau(tau)
    walks: Walks = check_walks(weights, lengths)
    result = torch.full(walks.matrices.shape, torch.nan, dtype=torch.float64)
    for where, block in walks.blocks():
        k = block.size(-1)
        for m, walk in zip(where.tolist(), block, strict=True):
            symmetric, pi = _symmetric_form(walk, symmetrise)
            root = pi.sqrt()
            steps = torch.linalg.matrix_power(symmetric, tau) / root[:, None]  # A^tau D^-1/2
            result[m, :k, :k] = torch.cdist(steps, steps, compute_mode="donot_use_mm_for_euclid_dist")
    return walks.restore(result)


def _check_tau(tau: int) -> None:
    if not isinstance(tau, int) or tau < 1:
        raise ValueError(f"tau must be a positive integer, got {tau!r}; it counts steps of the walk")


def _symmetric_form(walk: Tensor, symmetrise: bool) -> tuple[Tensor, Tensor]:
    """Return D^1/2 A D^-1/2 and pi."""
    symmetric, pi, departure = balance(walk)
    if departure <= BALANCE:
        return symmetric, pi
    if not symmetrise:
        raise ValueError(
            f"a diffusion map needs a reversible walk, this one is {departure:.3g} from detailed balance (allowed: "
            f"{BALANCE:g}); tie queries and keys, or pass symmetrise=True"
        )
    pi = _stationary_of_any(walk)
    root = pi.sqrt()
    similar = walk * root[:, None] / root
    return (similar + similar.mT) / 2, pi


def _stationary_of_any(walk: Tensor) -> Tensor:
    """Return pi with pi A = pi, from the equations themselves with one replaced by sum(pi) = 1."""
    n = len(walk)
    system = walk.mT - torch.eye(n, dtype=walk.dtype)
    system[-1] = 1.0
    target = torch.zeros(n, dtype=walk.dtype)
    target[-1] = 1.0
    pi, failed = torch.linalg.solve_ex(system, target)
    if failed or not pi.isfinite().all() or pi.min() <= 0:
        raise ValueError(
            f"symmetrise=True needs a walk that reaches every token from every other, this one has stationary weight "
            f"{pi.min().item():.3g} somewhere; drop the tokens nobody attends to"
        )
    return pi


def _sorted_eigenvectors(symmetric: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(symmetric)
    # eigenvalues of one modulus up to rounding: the positive first, so that 1 precedes -1
    order = (values.abs() + 1e-12 * values.sign()).argsort(descending=True)
    values, vectors = values[order], vectors[:, order]
    peak = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return values, vectors * peak.sign()
