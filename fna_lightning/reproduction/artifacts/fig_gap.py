"""Accuracy against spectral gap over alpha and width, tied."""

from dataclasses import replace
from statistics import fmean

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import LOOKS, panels
from fna_lightning.reproduction.families import small_cells
from fna_lightning.reproduction.published import paper
from fna_lightning.reproduction.scales import Scale

MEASURES = ("spectral_gap", "entropy", "tv_to_uniform", "effective_rank")
# where names stand, by turns: neighbours in alpha lie close
SIDES = (("left", (4, 4)), ("right", (-4, 4)), ("right", (-4, -10)))


def settings(scale: Scale, dim: int) -> dict[str, tuple[str, list[Cell]]]:
    """Return label -> (look, seeds), by rising alpha."""
    between = {alpha: ("fna", (("model.attention.alpha", alpha),)) for alpha in scale.alphas}
    found = {}
    for alpha in sorted({"1.2", "2", *scale.alphas}, key=float):
        name, more = between.get(alpha, ("la" if alpha == "2" else "fna", ()))
        found[f"alpha = {alpha}"] = (name, small_cells(scale, name, *more, tied=True, dim=dim))
    found["DP"] = ("dp", small_cells(scale, "dp", tied=True, dim=dim))
    found["uniform"] = ("uniform", small_cells(scale, "uniform", dim=dim))
    return found


def cells(scale: Scale) -> list[Cell]:
    """Return them all."""
    return [cell for dim in scale.dims for _, found in settings(scale, dim).values() for cell in found]


def run(bench: Bench) -> Finding:
    """Average the graph of each model over texts of train."""
    from fna_lightning.reproduction.graphs import graph_means

    said = paper()["graph"]["gap"]
    finding = Finding()
    figure, axes = panels(2, 4.6)
    lines = []
    for dim in bench.scale.dims:
        for number, (label, (name, found)) in enumerate(settings(bench.scale, dim).items()):
            published = {"alpha = 1.2": said["fna"], "alpha = 2": said["la"], "DP": said["dp"]}.get(label)
            published = tuple(published) if published and dim == 8 else None
            subjects = [subject for cell in found if (subject := bench.subject(cell)) is not None]
            graphs = [graph_means(subject, bench.texts(subject), MEASURES) for subject in subjects]
            row = bench.measured(f"gap, {label}, d = {dim}", [one["spectral_gap"] for one in graphs], published)
            if published:
                finding.rows.append(row if graphs else replace(row, reason=bench.failure(found)))
            if not graphs:
                finding.notes.append(f"not run: {bench.failure(found)}")
                continue
            means = {measure: fmean(one[measure] for one in graphs) for measure in MEASURES}
            accuracy = fmean(bench.results(found).values())
            numbers = [str(len(graphs)), f"{accuracy:.2f}", *(f"{means[one]:.3f}" for one in MEASURES)]
            lines.append([f"{label}, d = {dim}", *numbers])
            for place, measure in enumerate(("spectral_gap", "entropy")):
                colour, marker = LOOKS[name]
                axes[place].plot(means[measure], accuracy, marker, color=colour)
                side, offset = SIDES[number % len(SIDES)]
                axes[place].annotate(
                    label, (means[measure], accuracy), fontsize=7, ha=side, xytext=offset, textcoords="offset points"
                )
                axes[place].set(xlabel=measure.replace("_", " "), ylabel="accuracy (%)")
    for one in axes:
        one.margins(0.25, 0.15)
    columns = ["", "seeds", "accuracy (%)", *(one.replace("_", " ") for one in MEASURES)]
    finding.tables.append(Table(f"means over {bench.scale.texts} texts of train", columns, lines))
    finding.figures[bench.save(figure, "gap")] = (
        "Accuracy against spectral gap, and against entropy; tied, means over seeds."
    )
    finding.notes.append("Uniform attention has gap 1, so a large gap says nothing without the entropy beside it.")
    return finding


PIECE = Piece(
    "fig-gap",
    "Accuracy against spectral gap",
    "A smaller alpha has a larger gap and a better accuracy; gaps are 0.88-0.98 (FNA), 0.45-0.75 (LA), about 0 (DP).",
    run,
    cells,
)
