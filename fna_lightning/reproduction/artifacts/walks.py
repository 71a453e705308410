"""What the pieces about walks share: the tied models of width 8."""

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.families import ATTENTIONS, small_cells
from fna_lightning.reproduction.scales import Scale


def tied_cells(scale: Scale) -> dict[str, list[Cell]]:
    """Return every attention, tied, d = 8, one cell a seed; uniform attention has no queries to tie."""
    return {name: small_cells(scale, name, tied=name != "uniform") for name in ATTENTIONS}


def cells(scale: Scale) -> list[Cell]:
    """Return them as a list."""
    return [cell for found in tied_cells(scale).values() for cell in found]


def first_cells(scale: Scale) -> list[Cell]:
    """Return the first seed of each, for pieces that only draw."""
    return [found[0] for found in tied_cells(scale).values()]
