"""Accuracy against spectral gap for several alpha and widths, with tied projections."""

from dataclasses import replace
from statistics import fmean

from matplotlib.axes import Axes

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import STYLES, panels
from fna_lightning.reproduction.families import small_cells
from fna_lightning.reproduction.paper import paper_values
from fna_lightning.reproduction.scales import Scale

MEASURES = ("spectral_gap", "entropy", "tv_to_uniform", "effective_rank")
# measures on the horizontal axes of the two panels
DRAWN = ("spectral_gap", "entropy")
# alignments and offsets of the labels in turn, because neighbors in alpha lie close together
LABEL_SIDES = (("left", (4, 4)), ("right", (-4, 4)), ("right", (-4, -10)))


def settings(scale: Scale, dim: int) -> dict[str, tuple[str, list[Cell]]]:
    """Return label -> (style, cells), ordered by alpha."""
    more_alphas = {alpha: ("fna", (("model.attention.alpha", alpha),)) for alpha in scale.sweep.alphas}
    by_label = {}
    for alpha in sorted({"1.2", "2", *scale.sweep.alphas}, key=float):
        name, overrides = more_alphas.get(alpha, ("la" if alpha == "2" else "fna", ()))
        by_label[f"alpha = {alpha}"] = (name, small_cells(scale, name, *overrides, tied=True, dim=dim))
    by_label["DP"] = ("dp", small_cells(scale, "dp", tied=True, dim=dim))
    by_label["uniform"] = ("uniform", small_cells(scale, "uniform", dim=dim))
    return by_label


def cells(scale: Scale) -> list[Cell]:
    """Return the cells of all settings and widths."""
    return [
        cell for dim in scale.sweep.dims for _, setting_cells in settings(scale, dim).values() for cell in setting_cells
    ]


def run(context: Context) -> Result:
    """Average the graph measures of each model over training texts."""
    from fna_lightning.reproduction.graphs import graph_means

    gaps = paper_values()["graph"]["gap"]
    published = {"alpha = 1.2": gaps["fna"], "alpha = 2": gaps["la"], "DP": gaps["dp"]}
    result, lines = Result(), []
    figure, axes = panels(2, 4.6)
    for dim in context.scale.sweep.dims:
        for number, (label, (style, setting_cells)) in enumerate(settings(context.scale, dim).items()):
            paper = tuple(published[label]) if label in published and dim == 8 else None
            models = [model for cell in setting_cells if (model := context.load_model(cell)) is not None]
            graphs = [graph_means(model, context.texts(model), MEASURES) for model in models]
            if paper:
                row = context.mean_row(f"gap, {label}, d = {dim}", [graph["spectral_gap"] for graph in graphs], paper)
                result.rows.append(row if graphs else replace(row, reason=context.missing_reason(setting_cells)))
            if not graphs:
                result.notes.append(f"not run: {context.missing_reason(setting_cells)}")
                continue
            means = {name: fmean(graph[name] for graph in graphs) for name in MEASURES}
            accuracy = fmean(context.results(setting_cells).values())
            numbers = [str(len(graphs)), f"{accuracy:.2f}", *(f"{means[name]:.3f}" for name in MEASURES)]
            lines.append([f"{label}, d = {dim}", *numbers])
            for panel, name in zip(axes, DRAWN, strict=True):
                _draw_point(panel, means[name], accuracy, label, style, number)
    for panel, name in zip(axes, DRAWN, strict=True):
        panel.set(xlabel=name.replace("_", " "), ylabel="accuracy (%)")
        panel.margins(0.25, 0.15)
    columns = ["", "seeds", "accuracy (%)", *(name.replace("_", " ") for name in MEASURES)]
    result.tables.append(Table(f"means over {context.scale.texts} training texts", columns, lines))
    result.figures[context.save(figure, "gap")] = (
        "Accuracy against spectral gap and against entropy; tied, means over seeds."
    )
    result.notes.append("Uniform attention has gap 1, so a large gap is only meaningful together with the entropy.")
    return result


def _draw_point(panel: Axes, x: float, accuracy: float, label: str, style: str, number: int) -> None:
    color, marker = STYLES[style]
    panel.plot(x, accuracy, marker, color=color)
    side, offset = LABEL_SIDES[number % len(LABEL_SIDES)]
    panel.annotate(label, (x, accuracy), fontsize=7, ha=side, xytext=offset, textcoords="offset points")


ARTIFACT = Artifact(
    "fig-gap",
    "Accuracy against spectral gap",
    "A smaller alpha has a larger gap and a better accuracy; gaps are 0.88-0.98 (FNA), 0.45-0.75 (LA), about 0 (DP).",
    run,
    cells,
)
