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
# an edge of this weight without its reverse, as in causal attention, settles that there is no balance
ONE_WAY = 1e-4


def balance(walk: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return (S, pi, departure) of one (n, n) float64 walk.

    S is the symmetric part of D^1/2 A D^-1/2 and departure the Frobenius norm of the other part: no eigenvalue of A is
    further than this from one of S (Bauer and Fike). It is rounding for a reversible walk, and of the size of the
    weights, or infinite, for others.
    """
    if (walk * (walk.mT == 0)).amax() > ONE_WAY:
        return walk, walk.mean(dim=0), math.inf
    # a step of the walk changes nothing but the rounding of single ratios, which it averages away
    pi = _ratios(walk).softmax(dim=0) @ walk
    scale = pi.sqrt()
    similar = walk * scale[:, None] / scale
    departure = torch.dist(similar, similar.mT).item() / 2
    return (similar + similar.mT) / 2, pi, math.inf if math.isnan(departure) else departure


def _ratios(walk: Tensor) -> Tensor:
    """Return log pi up to a constant, if the walk is in detailed balance."""
    weakest = walk.amin(dim=-1)
    hub = int(weakest.argmax())
    # a hub that exchanges weight with every token gives all ratios pi_j / pi_i = A_ij / A_ji at once
    if weakest[hub] > WELL_RESOLVED and walk[:, hub].amin() > WELL_RESOLVED:
        return (walk[hub] / walk[:, hub]).log()
    return _along_tree(walk)


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
