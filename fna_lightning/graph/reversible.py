"""Reversible matrices: the symmetric form of a row-stochastic matrix in detailed balance.

Attention with tied queries and keys is a symmetric kernel with normalized rows, so pi_i A_ij = pi_j A_ji for its
stationary distribution pi, and D^1/2 A D^-1/2 with D = diag(pi) is symmetric and has the same eigenvalues, all real.
This holds for any matrix with these ratios, not only for kernels.
"""

import math

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from torch import Tensor

# far above the smallest positive float32, near which weights lose relative precision
WELL_RESOLVED = 1e-30
# an edge of this weight without a reverse edge, as in causal attention, rules out detailed balance
ONE_WAY = 1e-4


def balance(matrix: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return (S, pi, departure) of one (n, n) float64 row-stochastic matrix.

    S is the symmetric part of D^1/2 A D^-1/2 and ``departure`` the Frobenius norm of the antisymmetric part: no
    eigenvalue of A is further than this from an eigenvalue of S (Bauer and Fike). It is of the order of rounding errors
    for a reversible matrix, and of the order of the weights, or infinite, for others.
    """
    if (matrix * (matrix.mT == 0)).amax() > ONE_WAY:
        return matrix, matrix.mean(dim=0), math.inf
    # multiplying by the matrix leaves pi unchanged and averages the rounding errors of the single ratios
    pi = _log_ratios(matrix).softmax(dim=0) @ matrix
    scale = pi.sqrt()
    similar = matrix * scale[:, None] / scale
    departure = torch.dist(similar, similar.mT).item() / 2
    return (similar + similar.mT) / 2, pi, math.inf if math.isnan(departure) else departure


def _log_ratios(matrix: Tensor) -> Tensor:
    """Return log pi up to a constant, assuming detailed balance."""
    weakest = matrix.amin(dim=-1)
    hub = int(weakest.argmax())
    # a token connected to every other in both directions gives all ratios pi_j / pi_i = A_ij / A_ji at once
    if weakest[hub] > WELL_RESOLVED and matrix[:, hub].amin() > WELL_RESOLVED:
        return (matrix[hub] / matrix[:, hub]).log()
    return _tree_log_ratios(matrix)


def _tree_log_ratios(matrix: Tensor) -> Tensor:
    """Return log pi up to a constant, from the ratios along the strongest spanning tree of each component."""
    weights = matrix.numpy()
    strength = np.minimum(weights, weights.T)
    np.fill_diagonal(strength, 0.0)
    source, target = np.nonzero(strength)
    # scipy's graphs treat a cost of 0 as a missing edge, so costs start at 1
    cost = csr_array((1.0 - np.log(strength[source, target]), (source, target)), shape=strength.shape)
    count, component = connected_components(cost, directed=False)
    tree = minimum_spanning_tree(cost)
    log_pi = np.zeros(len(strength))
    for c in range(count):
        members = np.flatnonzero(component == c)
        order, parent = breadth_first_order(tree, members[0], directed=False)
        for j in order[1:]:
            i = parent[j]
            log_pi[j] = log_pi[i] + np.log(weights[i, j]) - np.log(weights[j, i])
        # the ratio between components is undetermined: each gets probability in proportion to its number of tokens
        top = log_pi[members].max()
        log_pi[members] -= top + np.log(np.exp(log_pi[members] - top).mean())
    return torch.from_numpy(log_pi)
