"""Scoreboard: strong recipes for every attention, compared by paired seeds."""

import json

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Artifact, Result
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import draw_rows, panels
from fna_lightning.reproduction.families import cells_of, missing_configs
from fna_lightning.reproduction.scales import Scale
from fna_lightning.reproduction.scoreboard import (
    OURS,
    Board,
    Entry,
    Metric,
    baseline_entry,
    board_table,
    compare,
    entry,
    markdown,
    plain,
)
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.files import write_text

ATTENTIONS = {
    "fna": "FNA (alpha = 1.2)",
    "la": "LA (alpha = 2)",
    "dp": "DP",
    "qknorm": "DP, qk-norm",
    "uniform": "uniform",
    "learned": "FNA, alpha and kappa learned",
}
ACCURACY = Metric("test/accuracy", "test accuracy (%)", 100.0)
NETWORK = Metric("test/network_accuracy", "network alone", 100.0)
LINEAR = Metric("test/linear_accuracy", "linear classifier alone", 100.0)
BLEU = Metric("test/bleu", "BLEU (13a, cased)")
TOKENIZED = Metric("test/bleu_tokenised_lowercase", "BLEU, tokenized lower-case")
BOARDS = {
    board.family: board
    for board in (
        Board("imdb_strong", "IMDb", ACCURACY, (NETWORK,), baseline=LINEAR),
        Board("cifar10_hour", "CIFAR-10 in an hour", ACCURACY),
        Board("multi30k_strong", "Multi30K, English to German", BLEU, (TOKENIZED,)),
    )
}
NOTES = [
    """\
The paper's baselines are weak. Here every attention is trained with the same strong recipe on the real data. A part \
of the training set is held out for validation; it selects the checkpoint, and the test set is used once.""",
    """\
The same seed gives every attention the same initial weights and order of batches. p-values are those of paired \
t-tests over seeds, corrected by Holm's method for all comparisons on this page. CPU minutes are those of one \
training on one thread, from the fastest to the slowest; they depend on the processor.""",
]


def families(scale: Scale) -> list[str]:
    """Return the boards of a scale: IMDb only with embedded data."""
    return ["imdb_strong"] if scale.embedded else list(BOARDS)


def attentions(family: str) -> list[str]:
    """Return the attentions for which this installation ships a configuration."""
    return [name for name in ATTENTIONS if not missing_configs(f"{family}_{name}")]


def board_cells(scale: Scale, family: str, name: str) -> list[Cell]:
    """Return the cells of one attention, one per seed."""
    # The settings of "strong" replace IMDb by embedded data; other families have none.
    return cells_of(f"{family}_{name}", (), scale.settings("strong"), scale.seeds)


def cells(scale: Scale) -> list[Cell]:
    """Return all cells, ordered by seed, so that an unfinished scoreboard compares all attentions."""
    return [
        cell
        for seed in range(scale.seeds)
        for family in families(scale)
        for name in attentions(family)
        for cell in board_cells(scale, family, name)
        if cell.seed == seed
    ]


def board_entries(context: Context, family: str) -> list[Entry]:
    """Return the results of the finished runs of one board."""
    entries: list[Entry] = []
    baselines: list[Entry] = []
    for name in attentions(family):
        finished = [cell for cell in board_cells(context.scale, family, name) if cell.finished(context.runs)]
        results = {cell.seed: read_results(cell.folder(context.runs)) for cell in finished}
        entries.append(entry(name, ATTENTIONS[name], BOARDS[family], results))
        baseline = BOARDS[family].baseline
        if name == OURS and baseline is not None:
            baselines.append(baseline_entry(baseline, BOARDS[family], results))
    return entries + baselines


def run(context: Context) -> Result:
    """Return one table per board, and write scoreboard.md and scoreboard.json."""
    boards = {family: board_entries(context, family) for family in families(context.scale)}
    comparisons = compare(boards)
    tables = [board_table(BOARDS[family], entries, comparisons) for family, entries in boards.items()]
    result = Result(tables=tables, notes=list(NOTES))
    figure_name = _draw(context, boards, result)
    command = f"fna-lightning reproduce scoreboard --scale {context.scale.name}"
    context.folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(plain(boards, comparisons, command), indent=1, allow_nan=False) + "\n"
    write_text(context.folder / "scoreboard.json", text)
    page = markdown(tables, NOTES, figure_name, command, _conditions(boards))
    write_text(context.folder / "scoreboard.md", page)
    return result


def _draw(context: Context, boards: dict[str, list[Entry]], result: Result) -> str:
    """Draw the means of every board and return the name of the file; empty if no run has finished."""
    figure, axes = panels(len(boards), 5.6)
    for panel, (family, entries) in zip(axes, boards.items(), strict=True):
        shown = [item for item in entries if item.values]
        rows = [context.mean_row(item.label, list(item.values.values()), None) for item in shown]
        draw_rows(panel, rows, [item.attention for item in shown], BOARDS[family].metric.heading)
        panel.set_title(BOARDS[family].title)
    if not any(item.values for entries in boards.values() for item in entries):
        return ""
    name = context.save(figure, "scoreboard")
    result.figures[name] = "Mean over seeds with its 95 % interval; the same recipe for every attention."
    return name


def _conditions(boards: dict[str, list[Entry]]) -> str:
    """Return the processors and the versions of the packages of all runs in one line."""
    entries = [item for items in boards.values() for item in items]
    processors = sorted({name for item in entries for name in item.processors.values()})
    versions = sorted({f"{name} {version}" for item in entries for name, version in item.versions.items()})
    return f"Processors: {', '.join(processors)}. Versions: {', '.join(versions)}." if versions else ""


ARTIFACT = Artifact(
    "scoreboard",
    "Scoreboard: strong recipes",
    "The paper's baselines are weak; here every attention is trained with the field's recipe.",
    run,
    cells,
    records=True,
)
