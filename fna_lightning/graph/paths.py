"""Path lengths: number of hops on the cheapest path between two tokens, where the hop i -> j costs 1 / A_ij."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fna_lightning.graph.checks import check_weights
from fna_lightning.graph.hops import SAME, UNREACHABLE, all_hops, cheapest, edge_costs, likely_edges, open_sources


@dataclass(frozen=True)
class PathLengths:
    """Hops on the cheapest paths of each matrix.

    Attributes:
        mean: (...,) mean hops over connected ordered pairs i != j; NaN if there is none.
        max: (...,) largest number of hops of a connected pair; 0 if there is none.
        unreachable: (...,) number of ordered pairs i != j without a path.
        hops: (..., n, n) int32; 0 on the diagonal, -1 for unreachable pairs and for padding.
    """

    mean: Tensor
    max: Tensor
    unreachable: Tensor
    hops: Tensor


def path_lengths(weights: Tensor, lengths: Tensor | None = None) -> PathLengths:
    """Return the number of hops on the cheapest path of every ordered pair of tokens.

    All edges count, without threshold; self-loops are ignored. A weight that underflowed to 0 is not an edge. Among
    equally cheap paths (within 1e-14 of their cost) the one with the fewest hops counts. Rows need not sum to 1, so
    ablated matrices are valid input, and so are queries that attend to nothing: they reach no token.

    Args:
        weights: (..., n, n), finite and not negative.
        lengths: number of real tokens of each sequence, see ``check_weights``.

    Example:
        >>> import torch
        >>> path_lengths(torch.full((4, 4), 0.25)).mean.item()
        1.0
    """
    matrices = check_weights(weights, lengths, stochastic=False)
    count = len(matrices.values)
    hops = torch.full(matrices.values.shape, UNREACHABLE, dtype=torch.int32)
    mean = torch.full((count,), torch.nan, dtype=torch.float64)
    longest, unreachable = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    for indices, block in matrices.blocks():
        n = block.size(-1)
        for m, matrix in zip(indices.tolist(), block, strict=True):
            counts = torch.from_numpy(all_hops(edge_costs(matrix.numpy())))
            hops[m, :n, :n] = counts
            connected = counts[counts > 0]
            unreachable[m] = n * (n - 1) - len(connected)
            if len(connected):
                mean[m], longest[m] = connected.double().mean(), connected.max()
    return PathLengths(*(matrices.restore(result) for result in (mean, longest, unreachable, hops)))


def shortest_path(weights: Tensor, i: int, j: int) -> list[int]:
    """Return the tokens of the cheapest path from token ``i`` to ``j`` of one (n, n) matrix, both included.

    It has as many hops as ``path_lengths`` counts. The list is empty if there is no path, and [i] if i = j.
    """
    matrices = check_weights(weights, stochastic=False)
    n = weights.size(-1)
    if matrices.shape:
        raise ValueError(f"shortest_path takes one (n, n) matrix, got shape {tuple(weights.shape)}; index it first")
    for name, node in (("i", i), ("j", j)):
        if not 0 <= node < n:
            raise ValueError(f"{name} must lie in [0, {n - 1}], got {node}; it is the position of a token")
    ((_, block),) = matrices.blocks()
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

    It is -1 on the diagonal and where there is no path. Following it back from j gives the path of ``shortest_path``.
    """
    matrices = check_weights(weights, stochastic=False)
    if matrices.shape:
        raise ValueError(f"path_parents takes one (n, n) matrix, got shape {tuple(weights.shape)}; index it first")
    ((_, block),) = matrices.blocks()
    costs = edge_costs(block[0].numpy())
    n = len(costs)
    parents = np.where(np.isfinite(costs), np.arange(n)[:, None], UNREACHABLE).astype(np.int32)
    np.fill_diagonal(parents, UNREACHABLE)
    sources = open_sources(costs)
    totals, hops = cheapest(costs, sources, keep=likely_edges(costs)) if len(sources) else (costs, parents)
    for row, i in enumerate(sources):
        for count in range(2, hops[row].max() + 1):
            before, after = np.flatnonzero(hops[row] == count - 1), np.flatnonzero(hops[row] == count)
            through = totals[row, before, None] + costs[np.ix_(before, after)]
            fits = through <= totals[row, after] * (1.0 + SAME)
            parents[i, after] = before[np.where(fits, through, np.inf).argmin(axis=0)]
    return torch.from_numpy(parents).to(weights.device)
