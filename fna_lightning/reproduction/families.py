"""Training runs of the reproduction, by family.

Artifacts that need the same run name the same cell, so it is trained once.
"""

from fna_lightning.config.resolve import resolve_config, shipped_configs
from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.scales import Scale, Settings

# short name: name in the report
ATTENTIONS = {"fna": "FNA (alpha = 1.2)", "la": "LA (alpha = 2)", "dp": "DP", "uniform": "uniform"}
TIED = "model.encoder.projection.tied"
ORTHOGONAL: Settings = (("model.encoder.projection", "OrthogonalProjection"),)


def small_cells(
    scale: Scale,
    attention: str,
    *more: tuple[str, str],
    tied: bool = False,
    dim: int = 8,
    depth: int = 1,
    seeds: int | None = None,
) -> list[Cell]:
    """Return the cells of the paper's small IMDb model (one head, orthogonal projections), one per seed."""
    size = [("model.encoder.dim", str(dim))] * (dim != 8) + [("model.encoder.depth", str(depth))] * (depth != 1)
    overrides = (*size, (TIED, str(tied).lower()), *more)
    return cells_of(f"imdb_small_{attention}", overrides, scale.settings("small"), seeds or scale.seeds)


def tied_cells(scale: Scale) -> dict[str, list[Cell]]:
    """Return the cells of every attention with tied projections, d = 8; uniform attention has no queries to tie."""
    return {name: small_cells(scale, name, tied=name != "uniform") for name in ATTENTIONS}


def all_tied_cells(scale: Scale) -> list[Cell]:
    """Return ``tied_cells`` as one list."""
    return [cell for cells in tied_cells(scale).values() for cell in cells]


def first_tied_cells(scale: Scale) -> list[Cell]:
    """Return the first seed of each attention in ``tied_cells``."""
    return [cells[0] for cells in tied_cells(scale).values()]


def full_cells(scale: Scale, attention: str, *, orthogonal: bool = False, sphere: bool = False) -> list[Cell]:
    """Return the cells of the paper's six-layer IMDb model, one per seed."""
    name = f"imdb_sphere_{attention}" if sphere else f"imdb_{attention}"
    fixed = scale.settings("sphere") if sphere else scale.settings("full")
    return cells_of(name, ORTHOGONAL if orthogonal else (), fixed, scale.seeds)


def cells_of(config: str, overrides: Settings, fixed: Settings, seeds: int) -> list[Cell]:
    """Return the cells of a shipped configuration, one per seed."""
    return [Cell(resolve_config(f"{config}.yaml"), overrides, seed, fixed) for seed in range(seeds)]


def missing_configs(*names: str) -> list[str]:
    """Return the named configurations that this installation does not ship."""
    shipped = shipped_configs()
    return [name for name in names if f"{name}.yaml" not in shipped]


def needs_paper_scale(models: str) -> str:
    """Return the skip reason of models that take days on two cores."""
    return f"{models} not trained at this scale; needs --scale paper (GPUs), or --scale smoke for the embedded data"
