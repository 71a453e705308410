"""Reversible walks: the symmetric form of a row-stochastic matrix that obeys detailed balance.

Attention with tied queries and keys is a symmetric kernel with normalised rows, so pi_i A_ij = pi_j A_ji for its
stationary distribution pi, and D^1/2 A D^-1/2 with D = diag(pi) is symmetric: the same eigenvalues, all real. Any
matrix with these ratios is reversible, whether or not it came from a kernel.
"""

import math

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree
from torch import Tensor

# far above the smallest positive number of float32, below which weights lose their relative precision
WELL_RESOLVED = 1e-30


def stationary(walk: Tensor, *, any_graph: bool = True) -> Tensor | None:
    """Return the distribution an (n, n) walk must have *if* it is in detailed balance, from ratios of its weights.

    A hub that exchanges weight with every token gives all ratios pi_j / pi_i = A_ij / A_ji at once. Without one they
    are taken along a spanning tree, or None is returned if not ``any_graph``.
    """
    weakest = walk.amin(dim=-1)
    hub = int(weakest.argmax())
    if weakest[hub] > WELL_RESOLVED and walk[:, hub].amin() > WELL_RESOLVED:
        log_pi = (walk[hub] / walk[:, hub]).log()
    elif any_graph:
        log_pi = _along_tree(walk)
    else:
        return None
    # a step of the walk changes nothing but the rounding of single ratios, which it averages away
    return log_pi.softmax(dim=0) @ walk


def balance(walk: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return (S, pi, departure) of one (n, n) float64 walk.

    S is the symmetric part of D^1/2 A D^-1/2 and departure the Frobenius norm of the other part: no eigenvalue of A is
    further than this from one of S (Bauer and Fike). It is rounding for a reversible walk, and of the size of the
    weights, or infinite, for others.
    """
    pi = stationary(walk)
    assert pi is not None
    scale = pi.sqrt()
    similar = walk * scale[:, None] / scale
    departure = torch.dist(similar, similar.mT).item() / 2
    return (similar + similar.mT) / 2, pi, math.inf if math.isnan(departure) else departure


def _along_tree(walk: Tensor) -> Tensor:
    """Return log pi up to a constant, from the ratios along the strongest spanning tree of each component."""
    weights = walk.numpy()
    strength = np.minimum(weights, weights.T)
    np.fill_diagonal(strength, 0.0)
    source, target = np.nonzero(strength)
    # a cost of 0 would be no edge, so costs start at 1
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
        # between components nothing is determined: each gets the mass of its tokens
        top = log_pi[members].max()
        log_pi[members] -= top + np.log(np.exp(log_pi[members] - top).mean())
    return torch.from_numpy(log_pi)
