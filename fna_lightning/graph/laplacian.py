"""Normalized Laplacian of the symmetrized attention graph: how well its tokens are connected, direction aside."""

import torch
from torch import Tensor

from fna_lightning.graph.checks import check_weights


def laplacian_spectrum(weights: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the (..., n) eigenvalues of the normalized Laplacian of each matrix, ascending; NaN beyond its length.

    The Laplacian is L = I - D^-1/2 S D^-1/2 with S = (A + A^T) / 2 and D the diagonal matrix of the row sums of S.
    Self-loops (the diagonal of A) are part of S. All queries have the same weight in S, so L is defined for causal
    attention too, which has no useful stationary distribution.

    The eigenvalues lie in [0, 2]. The number of zeros is the number of connected components; the second smallest
    eigenvalue is ``algebraic_connectivity``. Uniform attention has one 0 and otherwise 1; an eigenvalue of 2 means that
    the tokens fall into two groups that only attend to each other.

    Arguments as in ``spectral_gap``.

    Example:
        >>> import torch
        >>> laplacian_spectrum(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        tensor([0., 2.], dtype=torch.float64)
    """
    matrices = check_weights(weights, lengths)
    result = torch.full(matrices.values.shape[:2], torch.nan, dtype=torch.float64)
    for indices, block in matrices.blocks():
        result[indices, : block.size(-1)] = _eigenvalues(block)
    return matrices.restore(result)


def algebraic_connectivity(weights: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return the second smallest eigenvalue of the normalized Laplacian of each matrix, see ``laplacian_spectrum``.

    0 if the graph falls into parts that do not attend to each other, 1 for uniform attention. A sequence of one token
    counts as uniform. Arguments as in ``spectral_gap``.
    """

    def second(block: Tensor) -> Tensor:
        return _eigenvalues(block)[:, 1] if block.size(-1) > 1 else block.new_ones(len(block))

    return check_weights(weights, lengths).scalars(second)


def _eigenvalues(block: Tensor) -> Tensor:
    """Return the eigenvalues of the Laplacians of (m, n, n) matrices, ascending."""
    symmetric = (block + block.mT) / 2
    # every row of the weights sums to 1, so that no sum is below 1/2
    scale = symmetric.sum(dim=-1).rsqrt()
    normalized = symmetric * scale[:, :, None] * scale[:, None, :]
    return (1.0 - torch.linalg.eigvalsh(normalized)).flip(-1).clamp(0.0, 2.0)
