"""The graph measures that are logged during training, by name."""

from collections.abc import Callable, Iterable

from torch import Tensor

from fna_lightning.graph.asymmetry import direction
from fna_lightning.graph.checks import check_weights
from fna_lightning.graph.gap import spectral_gap
from fna_lightning.graph.laplacian import algebraic_connectivity
from fna_lightning.graph.paths import path_lengths
from fna_lightning.graph.uniformity import effective_neighbors, effective_rank, row_entropy, tv_to_uniform


def _mean_neighbors(weights: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the mean of ``effective_neighbors`` over the queries of each matrix."""
    return check_weights(weights, lengths).scalars(lambda block: effective_neighbors(block).mean(dim=-1))


_SINGLE: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "spectral_gap": spectral_gap,
    "entropy": row_entropy,
    "tv_to_uniform": tv_to_uniform,
    "effective_rank": effective_rank,
    "effective_neighbors": _mean_neighbors,
    "direction": direction,
    "algebraic_connectivity": algebraic_connectivity,
}
# path_lengths computes these together
_PATHS = ("mean_hops", "max_hops", "unreachable")
MEASURES = (*_SINGLE, *_PATHS)


def measure(weights: Tensor, lengths: Tensor | None = None, names: Iterable[str] = MEASURES) -> dict[str, Tensor]:
    """Return each measure of each matrix, as float64 of the leading shape of the (..., n, n) ``weights``.

    ``effective_neighbors`` is the mean over queries. ``mean_hops`` is NaN where no token reaches another.
    """
    names = tuple(names)
    if unknown := [name for name in names if name not in MEASURES]:
        raise ValueError(f"unknown measure {unknown[0]!r}; choose from {', '.join(MEASURES)}")
    values = {name: function(weights, lengths) for name, function in _SINGLE.items() if name in names}
    if any(name in _PATHS for name in names):
        paths = path_lengths(weights, lengths)
        values |= {"mean_hops": paths.mean, "max_hops": paths.max.double(), "unreachable": paths.unreachable.double()}
    return {name: values[name] for name in names}
