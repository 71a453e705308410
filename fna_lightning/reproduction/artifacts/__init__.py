"""The pieces, in the order of the paper; what it does not have comes last."""

from importlib import import_module

from fna_lightning.errors import UsageError
from fna_lightning.reproduction.artifact import Piece

MODULES = (
    "fig_spectrum",
    "fig_tokens",
    "prop_1",
    "generator_limit",
    "fig_grid",
    "fig_ablation",
    "fig_gap",
    "fig_diffusion_map",
    "fig_path",
    "fig_hops",
    "fig_hops_length",
    "table_imdb",
    "table_sphere",
    "fig_cifar",
    "table_translation",
    "fig_pretrained_pca",
    "controls",
    "attribution",
    "scoreboard",
)


def all_pieces() -> dict[str, Piece]:
    """Return every piece by name."""
    pieces = [import_module(f"{__name__}.{module}").PIECE for module in MODULES]
    return {piece.name: piece for piece in pieces}


def chosen_pieces(names: list[str]) -> dict[str, Piece]:
    """Return the named pieces, all if none is named."""
    known = all_pieces()
    for name in names:
        if name not in known:
            raise UsageError(f"no piece {name!r}; choose from {', '.join(known)}")
    return {name: piece for name, piece in known.items() if not names or name in names}
