"""The numbers that are watched in training, by name."""

from collections.abc import Callable, Iterable

from torch import Tensor

from fna_lightning.graph.gap import spectral_gap
from fna_lightning.graph.paths import path_lengths
from fna_lightning.graph.uniformity import effective_rank, row_entropy, tv_to_uniform

_ONE_BY_ONE: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "spectral_gap": spectral_gap,
    "entropy": row_entropy,
    "tv_to_uniform": tv_to_uniform,
    "effective_rank": effective_rank,
}
_PATHS = ("mean_hops", "max_hops", "unreachable")
MEASURES = (*_ONE_BY_ONE, *_PATHS)


def measure(weights: Tensor, lengths: Tensor | None = None, names: Iterable[str] = MEASURES) -> dict[str, Tensor]:
    """Return each measure of each walk, float64 of the leading shape of the (..., n, n) ``weights``.

    ``mean_hops`` is NaN where no token reaches another.
    """
    names = tuple(names)
    if unknown := [name for name in names if name not in MEASURES]:
        raise ValueError(f"unknown measure {unknown[0]!r}; choose from {', '.join(MEASURES)}")
    found = {name: function(weights, lengths) for name, function in _ONE_BY_ONE.items() if name in names}
    if any(name in _PATHS for name in names):
        paths = path_lengths(weights, lengths)
        found |= {"mean_hops": paths.mean, "max_hops": paths.max.double(), "unreachable": paths.unreachable.double()}
    return {name: found[name] for name in names}
