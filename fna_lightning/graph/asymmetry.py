"""Direction of attention: the share of the weight that flows one way."""

import torch
from torch import Tensor

from fna_lightning.graph.checks import check_weights

QUERIES = ("uniform", "stationary")
# Probability of a restart that makes the stationary distribution unique. A smaller one would lose digits: the error of
# the linear solver is of the order of 1e-16 / RESTART.
RESTART = 1e-8


def direction(weights: Tensor, lengths: Tensor | None = None, *, queries: str = "uniform") -> Tensor:
    """Return the share of the weight of each matrix that has no counterpart in the opposite direction, in [0, 1].

    With the flow F_ij = p_i A_ij from token i to token j, it is the sum of |F_ij - F_ji| / 2 over all i and j: 0 if
    every pair of tokens exchanges as much as it receives, 1 if no pair exchanges anything, as in a directed cycle.
    Self-loops have no direction.

    Two choices of p are useful:

    - "uniform" gives every query the same weight, p = 1 / n, so that the value is 0 for a symmetric matrix. It is
      defined for every attention; in a causal head it is the mean weight on earlier tokens. A head in which all tokens
      attend to one token that spreads its own weight has a high value.
    - "stationary" uses the stationary distribution, p A = p, so that the value is 0 for a reversible chain, as
      attention with tied queries and keys is. The walk of a causal head ends at the first token, so the value of such
      a head is 0, whatever its weights are. Where the distribution is not unique, p is that of a walk from a
      random token.

    Args:
        weights: (..., n, n) row-stochastic.
        lengths: number of real tokens of each sequence, see ``check_weights``.
        queries: the distribution p over queries, "uniform" or "stationary".

    Returns:
        float64 of the leading shape.

    Example:
        >>> import torch
        >>> cycle = torch.eye(4).roll(1, dims=1)
        >>> direction(cycle).item(), direction((cycle + cycle.T) / 2).item()
        (1.0, 0.0)
    """
    if queries not in QUERIES:
        raise ValueError(f"queries must be one of {', '.join(QUERIES)}, got {queries!r}")

    def share(block: Tensor) -> Tensor:
        flow = block / block.size(-1) if queries == "uniform" else _stationary(block)[..., None] * block
        return (flow - flow.mT).abs().sum(dim=(-2, -1)) / 2

    return check_weights(weights, lengths).scalars(share).clamp(0.0, 1.0)


def _stationary(block: Tensor) -> Tensor:
    """Return the (m, n) stationary distributions of walks that restart at a random token with a small probability."""
    n = block.size(-1)
    system = torch.eye(n, dtype=block.dtype) - (1.0 - RESTART) * block.mT
    visits = torch.linalg.solve(system, block.new_full((len(block), n, 1), RESTART / n))[..., 0].clamp(min=0.0)
    return visits / visits.sum(dim=-1, keepdim=True)
