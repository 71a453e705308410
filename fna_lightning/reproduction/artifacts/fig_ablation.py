"""Edges or nodes of the attention removed at random."""

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.context import Bench
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


def run(bench: Bench) -> Finding:
    """Measure accuracy on test texts while attention is cut."""
    from fna_lightning.analysis.measurements import ablation_report
    from fna_lightning.graph.ablation import KINDS

    finding = Finding()
    figure, axes = panels(4, 3.6)
    lines = []
    for number, tied in enumerate((False, True)):
        word = "Q = K" if tied else "Q != K"
        for name in ATTENTIONS:
            (cell,) = small_cells(bench.scale, name, tied=tied and name != "uniform", seeds=1)
            subject = bench.subject(cell)
            if subject is None:
                finding.notes.append(bench.failure([cell]))
                continue
            curves = ablation_report(subject, bench.texts(subject, "test"), 0)
            for place, kind in enumerate(KINDS):
                one = axes[2 * number + place]
                accuracy = [100.0 * value for value in getattr(curves, kind).accuracy]
                curve(one, name, curves.p, accuracy, ATTENTIONS[name])
                one.set(xlabel=f"share of {kind} removed", ylabel="accuracy (%)", title=word)
                lines.append(
                    [f"{ATTENTIONS[name]}, {word}, {kind}", *(f"{accuracy[at]:.1f}" for at in (0, 3, 5, 7, 9, 10))]
                )
    legend(axes[0], 7)
    columns = ["accuracy (%) at p =", "0", "0.3", "0.5", "0.7", "0.9", "1"]
    finding.tables.append(Table("accuracy while attention is cut", columns, lines))
    finding.figures[bench.save(figure, "ablation")] = (
        f"Accuracy on {bench.scale.texts} test texts of at most {bench.scale.length} tokens, first seed."
    )
    finding.notes.append("One rule for every attention: what is left shares the row, an empty row gives 0.")
    return finding


PIECE = Piece(
    "fig-ablation",
    "Edges and nodes removed",
    "FNA bears the loss of edges and nodes better than LA and DP.",
    run,
    cells,
)
