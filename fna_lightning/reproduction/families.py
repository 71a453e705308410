"""The runs of the reproduction, by family: every piece that needs a run names the same cell, so it is trained once."""

from fna_lightning.config.resolve import resolve_config, shipped_configs
from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.scales import Scale, Settings

# short name: what it is called on the page
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
    """Return the paper's small IMDb model (one head, orthogonal), one cell a seed."""
    size = [("model.encoder.dim", str(dim))] * (dim != 8) + [("model.encoder.depth", str(depth))] * (depth != 1)
    overrides = (*size, (TIED, str(tied).lower()), *more)
    return cells_of(f"imdb_small_{attention}", overrides, scale.small, seeds or scale.seeds)


def full_cells(scale: Scale, attention: str, *, orthogonal: bool = False, sphere: bool = False) -> list[Cell]:
    """Return the paper's six-layer IMDb model."""
    name = f"imdb_sphere_{attention}" if sphere else f"imdb_{attention}"
    fixed = scale.sphere if sphere else scale.full
    return cells_of(name, ORTHOGONAL if orthogonal else (), fixed, scale.seeds)


def cells_of(config: str, overrides: Settings, fixed: Settings, seeds: int) -> list[Cell]:
    """Return one cell a seed of a shipped configuration."""
    return [Cell(resolve_config(f"{config}.yaml"), overrides, seed, fixed) for seed in range(seeds)]


def missing_configs(*names: str) -> list[str]:
    """Return those of the named configurations that this installation does not ship."""
    known = shipped_configs()
    return [name for name in names if f"{name}.yaml" not in known]


def needs_paper_scale(what: str) -> str:
    """Return the reason not to run of models that take days on two cores."""
    return f"{what} at this scale; needs --scale paper (GPUs), or --scale smoke to see it run on embedded data"
