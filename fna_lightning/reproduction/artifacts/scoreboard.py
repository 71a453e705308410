"""Second scoreboard: strong recipes for every attention, compared by paired seeds."""

import math

from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.seeds import paired_difference
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import draw_rows, panels
from fna_lightning.reproduction.families import ATTENTIONS, cells_of, missing_configs
from fna_lightning.reproduction.scales import Scale

# family of configurations, with its metric, the factor applied to it, and a title
BOARDS = {
    "imdb_strong": ("test/accuracy", 100.0, "IMDb, accuracy (%)"),
    "cifar10_strong": ("test/accuracy", 100.0, "CIFAR-10, accuracy (%)"),
    "multi30k_strong": ("test/bleu", 1.0, "Multi30K, sacreBLEU"),
}


def boards(scale: Scale) -> list[str]:
    """Return the families of a scale: IMDb always, the others with full training only."""
    families = list(BOARDS) if scale.full_training else ["imdb_strong"]
    return [family for family in families if not missing_configs(*(f"{family}_{name}" for name in ATTENTIONS))]


def board_cells(scale: Scale, family: str, name: str) -> list[Cell]:
    """Return the cells of one number."""
    return cells_of(f"{family}_{name}", (), scale.settings("strong"), scale.few_seeds)


def cells(scale: Scale) -> list[Cell]:
    """Return the cells of all boards."""
    return [cell for family in boards(scale) for name in ATTENTIONS for cell in board_cells(scale, family, name)]


def run(context: Context) -> Result:
    """Return one table per board."""
    result = Result()
    families = boards(context.scale)
    figure, axes = panels(len(families), 5.6)
    for panel, family in zip(axes, families, strict=True):
        metric, factor, title = BOARDS[family]
        by_attention = {name: board_cells(context.scale, family, name) for name in ATTENTIONS}
        rows = [
            context.row(f"{ATTENTIONS[name]}, {family}", seed_cells, None, metric=metric, factor=factor)
            for name, seed_cells in by_attention.items()
        ]
        result.rows += rows
        draw_rows(panel, rows, list(by_attention), title)
        values = {name: context.results(seed_cells, metric, factor) for name, seed_cells in by_attention.items()}
        if lines := _difference_lines(values):
            columns = ["", "seeds", "difference", "± 95 %", "p"]
            result.tables.append(Table(f"{title}: difference to DP, paired by seed", columns, lines))
        for worse in ("dp", "uniform"):
            label = f"FNA above {ATTENTIONS[worse]}, {family}"
            better_cells, worse_cells = by_attention["fna"], by_attention[worse]
            result.claims.append(context.claim(label, better_cells, worse_cells, metric=metric, factor=factor))
    if any(row.ours is not None for row in result.rows):
        result.figures[context.save(figure, "scoreboard")] = "Strong recipes, the same for every attention."
    result.notes.append(
        "This is not in the paper: a validation split held out of the training set, the field's recipes, and one test."
    )
    return result


def _difference_lines(values: dict[str, dict[int, float]]) -> list[list[str]]:
    """Return one line per attention with its difference to DP; ``values`` maps an attention to {seed: value}."""
    lines = []
    for name, by_seed in values.items():
        pair = paired_difference(by_seed, values["dp"])
        if name != "dp" and pair.count:
            numbers = ["-" if math.isnan(value) else f"{value:.2f}" for value in (pair.half_width, pair.p_value)]
            lines.append([ATTENTIONS[name], str(pair.count), f"{pair.mean:+.2f}", *numbers])
    return lines


ARTIFACT = Artifact(
    "scoreboard",
    "Second scoreboard: strong recipes",
    "The paper's baselines are weak; here every attention is trained with the field's recipe.",
    run,
    cells,
)
