"""Path lengths: in how many hops one token reaches another, each hop i -> j costing 1 / A_ij."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fna_lightning.graph.checks import check_walks
from fna_lightning.graph.hops import SAME, UNREACHABLE, all_hops, cheapest, edge_costs


@dataclass(frozen=True)
class PathLengths:
    """Hops on the cheapest paths of each matrix.

    Attributes:
        mean: (...,) mean hops over ordered pairs i != j that are connected; NaN when there is none.
        max: (...,) most hops of a connected pair; 0 when there is none.
        unreachable: (...,) number of ordered pairs i != j without a path.
        hops: (..., n, n) int32; 0 on the diagonal, -1 for unreachable pairs and for padding.
    """

    mean: Tensor
    max: Tensor
    unreachable: Tensor
    hops: Tensor


def path_lengths(weights: Tensor, lengths: Tensor | None = None) -> PathLengths:
    """Return the number of hops on the cheapest path of every ordered pair of tokens.

    All edges count, there is no threshold; self-loops are ignored. A weight that underflowed to 0 is no edge. Of
    equally cheap paths (within 1e-14 of their cost) the one with fewest hops counts. Rows need not sum to 1, so an
    ablated matrix, and a query that may attend to nothing, are welcome: the latter reaches nobody.

    Args:
        weights: (..., n, n), finite and not negative.
        lengths: real tokens of each sequence, see ``check_walks``.

    Example:
        >>> import torch
        >>> path_lengths(torch.full((4, 4), 0.25)).mean.item()
        1.0
    """
    walks = check_walks(weights, lengths, stochastic=False)
    count = len(walks.matrices)
    hops = torch.full(walks.matrices.shape, UNREACHABLE, dtype=torch.int32)
    mean = torch.full((count,), torch.nan, dtype=torch.float64)
    longest, unreachable = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    for where, block in walks.blocks():
        n = block.size(-1)
        for m, walk in zip(where.tolist(), block, strict=True):
            found = torch.from_numpy(all_hops(edge_costs(walk.numpy())))
            hops[m, :n, :n] = found
            connected = found[found > 0]
            unreachable[m] = n * (n - 1) - len(connected)
            if len(connected):
                mean[m], longest[m] = connected.double().mean(), connected.max()
    return PathLengths(*(walks.restore(result) for result in (mean, longest, unreachable, hops)))


def shortest_path(weights: Tensor, i: int, j: int) -> list[int]:
    """Return the nodes of the cheapest path from token ``i`` to ``j`` of one (n, n) matrix, both included.

    Its number of hops is that of ``path_lengths``. No path gives an empty list; i = j gives [i].
    """
    walks = check_walks(weights, stochastic=False)
    n = weights.size(-1)
    if walks.shape:
        raise ValueError(f"shortest_path takes one (n, n) matrix, got shape {tuple(weights.shape)}; index it first")
    for name, node in (("i", i), ("j", j)):
        if not 0 <= node < n:
            raise ValueError(f"{name} must lie in [0, {n - 1}], got {node}; it is the position of a token")
    ((_, block),) = walks.blocks()
    costs = edge_costs(block[0].numpy())
    totals, hops = (result[0] for result in cheapest(costs, np.array([i])))
    if hops[j] == UNREACHABLE:
        return []
    path = [j]
    while path[-1] != i:
        node = path[-1]
        through = totals + costs[:, node]
        fits = (hops == hops[node] - 1) & (through <= totals[node] * (1.0 + SAME))
        path.append(int(np.where(fits, through, np.inf).argmin()))
    return path[::-1]


def path_parents(weights: Tensor) -> Tensor:
    """Return (n, n) int32: the token before j on the cheapest path from i to j of one (n, n) matrix.

    -1 on the diagonal and where there is no path. Following it back from j gives the path of ``shortest_path``.
    """
    walks = check_walks(weights, stochastic=False)
    if walks.shape:
        raise ValueError(f"path_parents takes one (n, n) matrix, got shape {tuple(weights.shape)}; index it first")
    ((_, block),) = walks.blocks()
    costs = edge_costs(block[0].numpy())
    n = len(costs)
    totals, hops = cheapest(costs, np.arange(n))
    parents = np.full((n, n), UNREACHABLE, dtype=np.int32)
    for i in range(n):
        through = totals[i][:, None] + costs  # from i over each token to each token
        fits = (hops[i][:, None] == hops[i] - 1) & (hops[i][:, None] >= 0)
        fits &= through <= totals[i] * (1.0 + SAME)
        best = np.where(fits, through, np.inf).argmin(axis=0)
        parents[i] = np.where(hops[i] > 0, best, UNREACHABLE)
    return torch.from_numpy(parents).to(weights.device)
