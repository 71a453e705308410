"""Accuracy while random edges or nodes of the attention graph are removed."""

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import curve, legend, panels
from fna_lightning.reproduction.families import ATTENTIONS, small_cells
from fna_lightning.reproduction.scales import Scale


def cells(scale: Scale) -> list[Cell]:
    """Return the first seed of every attention, tied and untied."""
    return [
        cell
        for tied in (False, True)
        for name in ATTENTIONS
        for cell in small_cells(scale, name, tied=tied and name != "uniform", seeds=1)
    ]


def run(context: Context) -> Result:
    """Measure the accuracy on test texts for growing shares of removed edges or nodes."""
    from fna_lightning.analysis.measurements import ablation_report
    from fna_lightning.graph.ablation import KINDS

    result, lines = Result(), []
    figure, axes = panels(4, 3.6)
    for number, tied in enumerate((False, True)):
        title = "Q = K" if tied else "Q != K"
        for name in ATTENTIONS:
            (cell,) = small_cells(context.scale, name, tied=tied and name != "uniform", seeds=1)
            model = context.load_model(cell)
            if model is None:
                result.notes.append(context.missing_reason([cell]))
                continue
            curves = ablation_report(model, context.texts(model, "test"), 0)
            assert curves is not None
            for position, removed in enumerate(KINDS):
                panel = axes[2 * number + position]
                accuracy = [100.0 * value for value in getattr(curves, removed).accuracy]
                curve(panel, name, curves.p, accuracy, ATTENTIONS[name])
                panel.set(xlabel=f"share of {removed} removed", ylabel="accuracy (%)", title=title)
                numbers = [f"{accuracy[index]:.1f}" for index in (0, 3, 5, 7, 9, 10)]
                lines.append([f"{ATTENTIONS[name]}, {title}, {removed}", *numbers])
    legend(axes[0], 7)
    columns = ["accuracy (%) at p =", "0", "0.3", "0.5", "0.7", "0.9", "1"]
    result.tables.append(Table("accuracy by share of removed edges or nodes", columns, lines))
    result.figures[context.save(figure, "ablation")] = (
        f"Accuracy on {context.scale.texts} test texts of at most {context.scale.length} tokens, first seed."
    )
    result.notes.append(
        "The rule is the same for every attention: the remaining weights of a row are renormalized, and an empty row "
        "gives 0."
    )
    return result


ARTIFACT = Artifact(
    "fig-ablation",
    "Removal of edges and nodes",
    "FNA is more robust to the removal of edges and nodes than LA and DP.",
    run,
    cells,
)
