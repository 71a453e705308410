"""Eigenvalues and spectral gap of attention matrices: how fast information mixes."""

import numpy as np
import torch
from scipy.sparse.linalg import ArpackError, eigs
from torch import Tensor

from fna_lightning.graph.checks import check_weights
from fna_lightning.graph.reversible import balance

METHODS = ("auto", "exact", "reversible", "iterative")
# largest departure from detailed balance of method "reversible", which bounds the error of its eigenvalues
TOLERANCE = 1e-6
# up to this many tokens all eigenvalues are computed faster than ARPACK finds a few
SMALL = 64
# ARPACK can miss an eigenvalue, or stop at an inaccurate one of a non-normal matrix. Asking for six instead of two,
# with a large basis and a tolerance far below the promised 1e-6, avoids both: of about 2000 matrices only two that are
# nearly triangular, whose eigenvalues are ill-conditioned, were off by more (2e-5).
ARPACK_COUNT = 6
ARPACK_BASIS = 64
ARPACK_TOLERANCE = 1e-10
# after this many restarts computing all eigenvalues is the faster way
ARPACK_RESTARTS = 20


def spectral_gap(weights: Tensor, lengths: Tensor | None = None, *, method: str = "auto") -> Tensor:
    """Return 1 - |lambda_2| of each matrix, with lambda_2 the eigenvalue of second largest modulus.

    The eigenvalues of a matrix that is not reversible are complex; their modulus bounds the speed of mixing. A sequence
    of one token has gap 1. Uniform attention has gap 1 too, so read ``row_entropy`` beside it.

    Args:
        weights: (..., n, n) row-stochastic; a row of zeros is an error.
        lengths: number of real tokens of each sequence, see ``check_weights``.
        method: "exact" computes all eigenvalues; "reversible" computes those of the symmetric form and raises an error
            if the matrix is not in detailed balance; "iterative" computes the largest with ARPACK, within 1e-6 if they
            are well conditioned, and all of them if ARPACK does not converge; "auto" is "exact" up to 64 tokens and
            "iterative" beyond.

    Returns:
        float64 of the leading shape.

    Example:
        >>> import torch
        >>> spectral_gap(torch.full((4, 4), 0.25)).item()
        1.0
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    matrices = check_weights(weights, lengths)

    def gap(block: Tensor) -> Tensor:
        if block.size(-1) == 1:
            return block.new_ones(len(block))
        if method == "exact" or (method == "auto" and block.size(-1) <= SMALL):
            return 1.0 - _second_modulus(_eigenvalues(block))
        second = _reversible if method == "reversible" else _iterative
        return 1.0 - torch.tensor([second(matrix) for matrix in block], dtype=torch.float64)

    return matrices.scalars(gap).clamp(0.0, 1.0)


def spectrum(weights: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the (..., n) complex eigenvalues of each matrix, largest modulus first; NaN beyond its length."""
    matrices = check_weights(weights, lengths)
    result = torch.full(matrices.values.shape[:2], torch.nan, dtype=torch.complex128)
    for indices, block in matrices.blocks():
        values = _eigenvalues(block)
        order = values.abs().argsort(dim=-1, descending=True, stable=True)
        result[indices, : block.size(-1)] = values.gather(-1, order)
    return matrices.restore(result)


def _eigenvalues(block: Tensor) -> Tensor:
    """Return all eigenvalues, by NumPy: torch.linalg.eigvals fails on a uniform matrix of, for example, 80 tokens."""
    return torch.from_numpy(np.linalg.eigvals(block.numpy())).to(torch.complex128)


def _second_modulus(eigenvalues: Tensor) -> Tensor:
    return eigenvalues.abs().topk(2).values[..., 1]


def _reversible(matrix: Tensor) -> float:
    symmetric, _, departure = balance(matrix)
    if departure > TOLERANCE:
        raise ValueError(
            f"the matrix is {departure:.3g} from detailed balance, method 'reversible' allows {TOLERANCE:g}; "
            "use method='iterative' or 'exact' (only tied queries and keys give a reversible matrix)"
        )
    return _second_modulus(torch.linalg.eigvalsh(symmetric)).item()


def _iterative(matrix: Tensor) -> float:
    if not matrix[0, 1:].any() and not matrix.triu(1).any():
        # causal attention is triangular, so its eigenvalues are its diagonal
        return _second_modulus(matrix.diagonal()).item()
    eigenvalues = arpack_eigenvalues(matrix)
    return _second_modulus(_eigenvalues(matrix) if eigenvalues is None else eigenvalues).item()


def arpack_eigenvalues(matrix: Tensor) -> Tensor | None:
    """Return the eigenvalues of largest modulus of one (n, n) matrix; None if ARPACK does not find them."""
    n = len(matrix)
    if n < ARPACK_COUNT + 2:
        return None
    # ARPACK's own start vector is random; a fixed one makes the result reproducible
    start = np.random.default_rng(n).standard_normal(n)
    try:
        values = eigs(
            matrix.numpy(),
            k=ARPACK_COUNT,
            ncv=min(ARPACK_BASIS, n),
            tol=ARPACK_TOLERANCE,
            maxiter=ARPACK_RESTARTS,
            v0=start,
            return_eigenvectors=False,
        )
    except ArpackError:
        return None
    return torch.from_numpy(values)
