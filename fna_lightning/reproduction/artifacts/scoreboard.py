"""A second scoreboard: strong recipes, every attention, paired over seeds."""

import math

from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.seeds import paired_difference
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import draw_rows, panels
from fna_lightning.reproduction.families import ATTENTIONS, cells_of, missing_configs
from fna_lightning.reproduction.scales import Scale

# family: (metric, factor, what it is called)
BOARDS = {
    "imdb_strong": ("test/accuracy", 100.0, "IMDb, accuracy (%)"),
    "cifar10_strong": ("test/accuracy", 100.0, "CIFAR-10, accuracy (%)"),
    "multi30k_strong": ("test/bleu", 1.0, "Multi30K, sacreBLEU"),
}


def boards(scale: Scale) -> list[str]:
    """Return the families of a scale: IMDb everywhere, the others where there are GPUs."""
    families = list(BOARDS) if scale.full_training else ["imdb_strong"]
    return [family for family in families if not missing_configs(*(f"{family}_{name}" for name in ATTENTIONS))]


def board_cells(scale: Scale, family: str, name: str) -> list[Cell]:
    """Return the seeds of one number."""
    return cells_of(f"{family}_{name}", (), scale.strong, scale.few_seeds)


def cells(scale: Scale) -> list[Cell]:
    """Return all boards."""
    return [cell for family in boards(scale) for name in ATTENTIONS for cell in board_cells(scale, family, name)]


def run(bench: Bench) -> Finding:
    """Make one table a board."""
    finding = Finding()
    figure, axes = panels(len(boards(bench.scale)), 5.6)
    for place, family in enumerate(boards(bench.scale)):
        metric, factor, title = BOARDS[family]
        found = {name: board_cells(bench.scale, family, name) for name in ATTENTIONS}
        rows = [
            bench.row(f"{ATTENTIONS[name]}, {family}", one, None, metric=metric, factor=factor)
            for name, one in found.items()
        ]
        finding.rows += rows
        draw_rows(axes[place], rows, list(found), title)
        reference = bench.results(found["dp"], metric, factor)
        lines = []
        for name, one in found.items():
            pair = paired_difference(bench.results(one, metric, factor), reference)
            if name != "dp" and pair.count:
                numbers = [
                    f"{pair.mean:+.2f}",
                    *("-" if math.isnan(v) else f"{v:.2f}" for v in (pair.half_width, pair.p_value)),
                ]
                lines.append([ATTENTIONS[name], str(pair.count), *numbers])
        if lines:
            columns = ["", "seeds", "difference", "± 95 %", "p"]
            finding.tables.append(Table(f"{title}: difference to DP, paired over seeds", columns, lines))
        for worse in ("dp", "uniform"):
            label = f"FNA above {ATTENTIONS[worse]}, {family}"
            finding.claims.append(bench.claim(label, found["fna"], found[worse], metric=metric, factor=factor))
    if any(row.ours is not None for row in finding.rows):
        finding.figures[bench.save(figure, "scoreboard")] = "Strong recipes, the same for every attention."
    finding.notes.append(
        "Nothing here is the paper's: a validation split held out of train, the field's recipes, test once."
    )
    return finding


PIECE = Piece(
    "scoreboard",
    "A second scoreboard: strong recipes",
    "The paper's baselines are weak; here every attention has the field's recipe.",
    run,
    cells,
)
