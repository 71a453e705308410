"""Cheapest paths of a dense directed graph and their number of hops.

Among the cheapest paths from i to j, whose costs are equal within ``SAME``, the one with the fewest hops counts. Three
observations make this fast for attention. An edge i -> j that costs no more than the cheapest edge out of i plus the
cheapest edge into j is itself the cheapest path; this settles near-uniform attention at once. An edge that costs more
than some detour is on no cheapest path, so the graph of sharp attention becomes sparse. Only the remaining pairs need
Dijkstra's algorithm.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import dijkstra

Costs = NDArray[np.float64]
Hops = NDArray[np.int32]

# relative; costs are sums of a few tens of numbers, each with a rounding error of 1e-16
SAME = 1e-14
UNREACHABLE = -1
DETOUR_WIDTH = 6
DETOUR_SWEEPS = 3
CHUNK = 1 << 20


def edge_costs(weights: Costs) -> Costs:
    """Return 1 / A_ij; infinite where there is no edge: on the diagonal, and where the weight underflowed to 0."""
    with np.errstate(divide="ignore", over="ignore"):
        costs = 1.0 / weights
    np.fill_diagonal(costs, np.inf)
    return costs


def all_hops(costs: Costs) -> Hops:
    """Return the (n, n) hops between all pairs: 0 on the diagonal, -1 where there is no path."""
    hops = np.where(np.isfinite(costs), 1, UNREACHABLE).astype(np.int32)
    np.fill_diagonal(hops, 0)
    sources = open_sources(costs)
    if len(sources):
        hops[sources] = cheapest(costs, sources, keep=likely_edges(costs))[1]
    return hops


def open_sources(costs: Costs) -> NDArray[np.intp]:
    """Return the nodes from which a direct edge may cost more than another path."""
    open_pairs = ~(costs <= costs.min(axis=1)[:, None] + costs.min(axis=0))
    np.fill_diagonal(open_pairs, False)
    return np.flatnonzero(open_pairs.any(axis=1))


def likely_edges(costs: Costs) -> NDArray[np.bool_]:
    """Return the edges that cost no more than a detour; all others are on no cheapest path."""
    return costs <= detours(costs) * (1.0 + 1e-12)


def detours(costs: Costs) -> Costs:
    """Return an upper bound of the cheapest cost of each pair, from detours through its few nearest nodes."""
    bound, width = costs, min(DETOUR_WIDTH, len(costs))
    for _ in range(DETOUR_SWEEPS):
        near = np.argpartition(bound, width - 1, axis=1)[:, :width]
        legs = np.take_along_axis(bound, near, axis=1)
        better = bound.copy()
        for node, leg in zip(near.T, legs.T, strict=True):
            np.minimum(better, bound[node] + leg[:, None], out=better)
        bound = better
    return bound


def cheapest(costs: Costs, sources: NDArray[np.intp], keep: NDArray[np.bool_] | None = None) -> tuple[Costs, Hops]:
    """Return the (sources, n) cheapest costs and their fewest hops; ``keep`` marks edges that may be on such a path."""
    edges = np.isfinite(costs) if keep is None else np.isfinite(costs) & keep
    i, j = np.nonzero(edges)
    graph = csr_array((costs[i, j], (i, j)), shape=costs.shape)
    total, parent = dijkstra(graph, indices=sources, return_predecessors=True)
    hops = _depths(parent)
    hops[np.isinf(total)] = UNREACHABLE
    direct = costs[sources] <= total * (1.0 + SAME)
    hops[direct & np.isfinite(costs[sources])] = 1
    hops[np.arange(len(sources)), sources] = 0
    while _shorten(graph.tocsc(), total, hops):
        pass
    return total, hops


def _depths(parent: NDArray[np.int32]) -> Hops:
    """Return the depth of each node in the tree of its row, given its parents; the parent of a root is negative."""
    rows, nodes = np.nonzero(parent >= 0)
    hops = np.zeros(parent.shape, dtype=np.int32)
    ancestor: NDArray[np.integer] = nodes
    while len(rows):
        hops[rows, nodes] += 1
        ancestor = parent[rows, ancestor]
        below_root = parent[rows, ancestor] >= 0
        rows, nodes, ancestor = rows[below_root], nodes[below_root], ancestor[below_root]
    return hops


def _shorten(graph: csc_array, total: Costs, hops: Hops) -> bool:
    """Lower ``hops`` where an equally cheap last edge comes from a node with fewer hops; return whether any changed.

    Dijkstra's algorithm keeps an arbitrary one of the equally cheap paths. Counts of one or two hops are already the
    fewest.
    """
    rows, nodes = np.nonzero(hops > 2)
    if not len(rows):
        return False
    degree = np.diff(graph.indptr)[nodes]
    lowered = False
    for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(np.cumsum(degree) // CHUNK)) + 1):
        counts = degree[part]
        first = np.cumsum(counts) - counts
        edge = np.arange(counts.sum()) + np.repeat(graph.indptr[nodes[part]] - first, counts)
        row, origin = np.repeat(rows[part], counts), graph.indices[edge]
        limit = np.repeat(total[rows[part], nodes[part]] * (1.0 + SAME), counts)
        fits = total[row, origin] + graph.data[edge] <= limit
        candidate = np.where(fits, hops[row, origin] + 1, np.iinfo(np.int32).max)
        fewest = np.minimum.reduceat(candidate, first)
        better = fewest < hops[rows[part], nodes[part]]
        hops[rows[part][better], nodes[part][better]] = fewest[better]
        lowered |= bool(better.any())
    return lowered
