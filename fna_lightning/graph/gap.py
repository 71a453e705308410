"""Eigenvalues of the walk and its spectral gap: how fast information mixes."""

import numpy as np
import torch
from torch import Tensor

from fna_lightning.graph.checks import check_walks
from fna_lightning.graph.krylov import second_modulus
from fna_lightning.graph.lanczos import second_modulus_of_reversible
from fna_lightning.graph.reversible import balance

METHODS = ("auto", "exact", "reversible", "iterative")
TOLERANCE = 1e-6
SMALL = 64


def spectral_gap(weights: Tensor, lengths: Tensor | None = None, *, method: str = "auto") -> Tensor:
    """Return 1 - |lambda_2| of each walk, with lambda_2 the eigenvalue of second largest modulus.

    Eigenvalues of a walk that is not reversible are complex; the modulus is what bounds the speed of mixing. A
    sequence of one token is mixed before it starts: its gap is 1. Uniform attention has gap 1 too, so read
    ``row_entropy`` beside it.

    Args:
        weights: (..., n, n) row-stochastic; a row of zeros is an error.
        lengths: real tokens of each sequence, see ``check_walks``.
        method: "exact" takes all eigenvalues of the matrix as it is; "reversible" those of the symmetric form, an error
            when detailed balance does not hold; "iterative" finds the second one alone, within 1e-6, and takes all of
            them when its residual says it has not; "auto" is "exact" up to 64 tokens and "iterative" beyond.

    Returns:
        float64 of the leading shape.

    Example:
        >>> import torch
        >>> spectral_gap(torch.full((4, 4), 0.25)).item()
        1.0
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}; choose one of {', '.join(METHODS)}")
    walks = check_walks(weights, lengths)

    def gap(block: Tensor) -> Tensor:
        if block.size(-1) == 1:
            return block.new_ones(len(block))
        if method == "exact" or (method == "auto" and block.size(-1) <= SMALL):
            return 1.0 - _eigenvalues(block).abs().topk(2).values[:, 1]
        second = _reversible if method == "reversible" else _iterative
        return 1.0 - torch.tensor([second(walk) for walk in block], dtype=torch.float64)

    return walks.scalars(gap).clamp(0.0, 1.0)


def spectrum(weights: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the (..., n) complex eigenvalues of each walk, largest modulus first; NaN beyond its length."""
    walks = check_walks(weights, lengths)
    result = torch.full(walks.matrices.shape[:2], torch.nan, dtype=torch.complex128)
    for where, block in walks.blocks():
        values = _eigenvalues(block)
        result[where, : block.size(-1)] = values.gather(-1, values.abs().argsort(dim=-1, descending=True, stable=True))
    return walks.restore(result)


def _eigenvalues(block: Tensor) -> Tensor:
    """Return all eigenvalues by numpy: torch's own give up on a uniform matrix of, for one, 80 tokens."""
    return torch.from_numpy(np.linalg.eigvals(block.numpy())).to(torch.complex128)


def _reversible(walk: Tensor) -> float:
    symmetric, _, departure = balance(walk)
    if departure > TOLERANCE:
        raise ValueError(
            f"the walk is {departure:.3g} from detailed balance, method 'reversible' allows {TOLERANCE:g}; "
            "use method='iterative' or 'exact' (only tied queries and keys give a reversible walk)"
        )
    return _second_of_symmetric(symmetric)


def _second_of_symmetric(symmetric: Tensor) -> float:
    return torch.linalg.eigvalsh(symmetric).abs().topk(2).values[1].item()


def _iterative(walk: Tensor) -> float:
    if not walk[0, 1:].any() and not walk.triu(1).any():
        # causal: far from normal, which an iteration does not like, and solved by looking
        return walk.diagonal().topk(2).values[1].item()
    for search in (second_modulus_of_reversible, second_modulus):
        found = search(walk.numpy(), tolerance=TOLERANCE)
        if found is not None and found[1] <= TOLERANCE:
            return found[0]
    symmetric, _, departure = balance(walk)
    if departure <= TOLERANCE:
        return _second_of_symmetric(symmetric)
    return _eigenvalues(walk).abs().topk(2).values[1].item()
