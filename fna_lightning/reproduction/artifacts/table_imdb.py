"""IMDb, six layers and eight heads: the table and its curves."""

from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.seeds import summarise
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import draw_epochs, draw_rows, panels
from fna_lightning.reproduction.epochs import by_epoch
from fna_lightning.reproduction.families import full_cells, needs_paper_scale
from fna_lightning.reproduction.published import paper
from fna_lightning.reproduction.scales import Scale

MODELS = ("fna", "la", "dp", "op-fna", "op-la", "op-dp", "uniform")


def model_cells(scale: Scale, model: str) -> list[Cell]:
    """Return the seeds of one line of the table; op- is orthogonal."""
    return full_cells(scale, model.removeprefix("op-"), orthogonal=model.startswith("op-"))


def cells(scale: Scale) -> list[Cell]:
    """Return the whole table."""
    return [cell for model in MODELS for cell in model_cells(scale, model)]


def run(bench: Bench) -> Finding:
    """Put the table beside ours."""
    said = paper()["imdb"]
    finding, lines = Finding(), []
    curves = {}
    for model in MODELS:
        found = model_cells(bench.scale, model)
        name = model.removeprefix("op-")
        published = said[model][0] if model in said else None
        finding.rows.append(bench.row(model, found, published, tolerance=said["tolerance"]))
        curves[model] = (name, {at: 100 * one for at, one in by_epoch(found, bench.runs, "val/accuracy").items()})
        if values := list(bench.results(found).values()):
            ours = summarise(values)
            theirs = [f"{one:.2f}" for one in said.get(model, [])] or ["-"] * 4
            pairs = zip((ours.mean, ours.median, ours.best, ours.worst), theirs, strict=True)
            lines.append([model, *(f"{mine:.2f} ({other})" for mine, other in pairs)])
    for better, worse in (("fna", "la"), ("fna", "dp"), ("op-fna", "op-la"), ("op-fna", "op-dp"), ("fna", "uniform")):
        gap = said[better][0] - said[worse][0] if worse in said else None
        one, other = (model_cells(bench.scale, model) for model in (better, worse))
        finding.claims.append(bench.claim(f"{better} above {worse}", one, other, published=gap))
    finding.tables.append(Table("accuracy (%), ours (the paper's)", ["", "mean", "median", "best", "worst"], lines))
    figure, axes = panels(2, 5.2)
    draw_rows(axes[0], finding.rows, [model.removeprefix("op-") for model in MODELS], "test accuracy (%)")
    draw_epochs(axes[1], {label: one for label, one in curves.items() if one[1]}, "validation accuracy (%)")
    finding.figures[bench.save(figure, "imdb")] = (
        "Left: test accuracy, black the paper's. Right: validation while training."
    )
    return finding


def refusal(scale: Scale) -> str:
    """Six layers of width 256 take a processor days."""
    return needs_paper_scale("six layers are not trained") if not (scale.embedded or scale.full_training) else ""


PIECE = Piece(
    "table-imdb",
    "IMDb, six layers",
    "FNA 84.1 %, LA 83.1 %, DP 82.6 %; orthogonal 84.3, 82.6, 81.8.",
    run,
    cells,
    refusal,
)
