"""IMDb with six layers and eight heads: the table and its training curves."""

from fna_lightning.experiments.epochs import mean_by_epoch
from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.seeds import summarize
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import draw_epochs, draw_rows, panels
from fna_lightning.reproduction.families import full_cells, needs_paper_scale
from fna_lightning.reproduction.paper import paper_values
from fna_lightning.reproduction.scales import Scale

MODELS = ("fna", "la", "dp", "op-fna", "op-la", "op-dp", "uniform")


def model_cells(scale: Scale, model: str) -> list[Cell]:
    """Return the cells of one line of the table; op- means orthogonal projections."""
    return full_cells(scale, model.removeprefix("op-"), orthogonal=model.startswith("op-"))


def cells(scale: Scale) -> list[Cell]:
    """Return the cells of the whole table."""
    return [cell for model in MODELS for cell in model_cells(scale, model)]


def run(context: Context) -> Result:
    """Compare the table with the paper's."""
    published = paper_values()["imdb"]
    result, lines, curves = Result(), [], {}
    for model in MODELS:
        seed_cells = model_cells(context.scale, model)
        paper = published[model][0] if model in published else None
        result.rows.append(context.row(model, seed_cells, paper, tolerance=published["tolerance"]))
        accuracies = mean_by_epoch(seed_cells, context.runs, "val/accuracy")
        curves[model] = (model.removeprefix("op-"), {epoch: 100 * value for epoch, value in accuracies.items()})
        if values := list(context.results(seed_cells).values()):
            summary = summarize(values)
            ours = (summary.mean, summary.median, summary.best, summary.worst)
            paper_texts = [f"{value:.2f}" for value in published.get(model, [])] or ["-"] * 4
            lines.append([model, *(f"{value:.2f} ({text})" for value, text in zip(ours, paper_texts, strict=True))])
    for better, worse in (("fna", "la"), ("fna", "dp"), ("op-fna", "op-la"), ("op-fna", "op-dp"), ("fna", "uniform")):
        gap = published[better][0] - published[worse][0] if worse in published else None
        better_cells, worse_cells = (model_cells(context.scale, model) for model in (better, worse))
        result.claims.append(context.claim(f"{better} above {worse}", better_cells, worse_cells, published=gap))
    columns = ["", "mean", "median", "best", "worst"]
    result.tables.append(Table("accuracy (%), ours (the paper's)", columns, lines))
    figure, axes = panels(2, 5.2)
    draw_rows(axes[0], result.rows, [model.removeprefix("op-") for model in MODELS], "test accuracy (%)")
    draw_epochs(axes[1], {label: curve for label, curve in curves.items() if curve[1]}, "validation accuracy (%)")
    result.figures[context.save(figure, "imdb")] = (
        "Left: test accuracy; black: the paper. Right: validation accuracy during training."
    )
    return result


def skip_reason(scale: Scale) -> str:
    """Return why the six-layer models are not trained: they take days on a CPU."""
    return needs_paper_scale("six-layer models are") if not (scale.embedded or scale.full_training) else ""


ARTIFACT = Artifact(
    "table-imdb",
    "IMDb, six layers",
    "FNA 84.1 %, LA 83.1 %, DP 82.6 %; orthogonal 84.3, 82.6, 81.8.",
    run,
    cells,
    skip_reason,
)
