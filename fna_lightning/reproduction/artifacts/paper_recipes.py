"""The paper's recipes for some epochs: training curves beside the paper's final values."""

from collections.abc import Callable
from dataclasses import dataclass

from fna_lightning.experiments.epochs import mean_by_epoch
from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.artifacts import fig_cifar, table_imdb, table_translation
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import STYLES, draw_epochs, panels
from fna_lightning.reproduction.families import ATTENTIONS
from fna_lightning.reproduction.paper import paper_values
from fna_lightning.reproduction.scales import Scale
from fna_lightning.training.run_folder import read_results


@dataclass(frozen=True)
class Recipe:
    """A recipe of the paper.

    Attributes:
        title: heading of its table.
        cells: returns the runs of an attention at a scale, one per seed.
        score: test and validation metric, without the name of the split.
        heading: name of the score in the table.
        factor: factor with which the score is shown.
        epochs: number of epochs in the paper.
        section: section of paper.yaml with the paper's final values.
    """

    title: str
    cells: Callable[[Scale, str], list[Cell]]
    score: str
    heading: str
    factor: float
    epochs: int
    section: str

    def run(self, scale: Scale, attention: str) -> Cell:
        """Return the run of an attention with the first seed."""
        return self.cells(scale, attention)[0]

    def published(self, attention: str) -> float | None:
        """Return the paper's final value; None if there is none."""
        value = paper_values()[self.section].get(attention)
        return value[0] if isinstance(value, list) else value


RECIPES = (
    Recipe("IMDb, six layers", table_imdb.model_cells, "accuracy", "accuracy (%)", 100.0, 20, "imdb"),
    Recipe("CIFAR-10", fig_cifar.model_cells, "accuracy", "accuracy (%)", 100.0, 125, "cifar"),
    Recipe("Multi30K", table_translation.model_cells, "bleu_paper", "the paper's BLEU", 1.0, 30, "translation"),
)
COLUMNS = ["", "epochs", "of", "test", "best validation", "the paper, all epochs", "CPU minutes"]
NOTE = (
    "These trainings are partial: the recipes of the paper with one seed, stopped after some of their epochs. The "
    "paper's values are those at the end of all epochs, so they show where the curves should go, and no verdict "
    "follows. The translations are scored as in the paper, by teacher-forced argmax, but on the test set."
)


def cells(scale: Scale) -> list[Cell]:
    """Return the first seed of every attention and recipe."""
    return [recipe.run(scale, attention) for recipe in RECIPES for attention in ATTENTIONS]


def run(context: Context) -> Result:
    """Return a table per recipe and a figure of the validation curves."""
    result = Result(notes=[NOTE])
    figure, axes = panels(len(RECIPES), 4.6)
    for panel, recipe in zip(axes, RECIPES, strict=True):
        result.tables.append(_table(context, recipe))
        curves = {attention: (attention, _curve(context, recipe, attention)) for attention in ATTENTIONS}
        draw_epochs(panel, {name: curve for name, curve in curves.items() if curve[1]}, f"validation {recipe.heading}")
        panel.set_title(recipe.title)
        for attention in ATTENTIONS:
            if (value := recipe.published(attention)) is not None:
                panel.axhline(value, color=STYLES[attention][0], linestyle=":", linewidth=1.2)
    name = context.save(figure, "paper_recipes")
    result.figures[name] = "Validation score in each epoch; dotted: the paper's final values."
    return result


def _curve(context: Context, recipe: Recipe, attention: str) -> dict[int, float]:
    cell = recipe.run(context.scale, attention)
    if not cell.finished(context.runs):
        return {}
    scores = mean_by_epoch([cell], context.runs, f"val/{recipe.score}")
    return {epoch: recipe.factor * score for epoch, score in scores.items()}


def _table(context: Context, recipe: Recipe) -> Table:
    lines = []
    for attention, label in ATTENTIONS.items():
        cell, paper = recipe.run(context.scale, attention), recipe.published(attention)
        published = "-" if paper is None else f"{paper:.2f}"
        test = context.results([cell], f"test/{recipe.score}", recipe.factor)
        if not test:
            lines.append([label, "not run", str(recipe.epochs), "", "", published, ""])
            continue
        fit = read_results(cell.folder(context.runs))["fit"]
        best = max(_curve(context, recipe, attention).values(), default=None)
        lines.append(
            [
                *[label, str(fit["epochs"]), str(recipe.epochs), f"{test[cell.seed]:.2f}"],
                *["" if best is None else f"{best:.2f}", published],
                f"{fit['cpu_seconds'] / 60:.1f}" if "cpu_seconds" in fit else "",
            ]
        )
    columns = [recipe.heading if column == "test" else column for column in COLUMNS]
    return Table(recipe.title, columns, lines)


ARTIFACT = Artifact(
    "paper-recipes",
    "The paper's recipes, partial trainings",
    "Six-layer IMDb, CIFAR-10 and Multi30K as in the paper, for as many epochs as the scale allows.",
    run,
    cells,
    records=True,
)
