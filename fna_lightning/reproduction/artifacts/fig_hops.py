"""Hop matrices of one review."""

from dataclasses import replace

from fna_lightning.graph import path_lengths
from fna_lightning.plotting.graphs import draw_hops
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.artifacts.walks import cells, tied_cells
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import panels
from fna_lightning.reproduction.families import ATTENTIONS
from fna_lightning.reproduction.published import paper


def run(bench: Bench) -> Finding:
    """Count hops between all tokens of the longest text studied."""
    from fna_lightning.reproduction.graphs import longest

    said = paper()["graph"]["max_hops"]
    finding, lines = Finding(), []
    figure, axes = panels(len(ATTENTIONS), 3.8)
    for place, (name, found) in enumerate(tied_cells(bench.scale).items()):
        most = []
        for cell in found:
            subject = bench.subject(cell)
            if subject is None:
                continue
            example = longest(bench.texts(subject))
            (one,) = subject.maps(example.input).values()
            paths = path_lengths(one.weights[0, 0].double())
            most.append(float(paths.max.item()))
            if len(most) == 1:
                draw_hops(axes[place], paths.hops)
                axes[place].grid(visible=False)
                axes[place].set_title(ATTENTIONS[name])
            numbers = [str(len(example.input)), f"{paths.mean.item():.3f}", str(paths.max.item())]
            lines.append([f"{ATTENTIONS[name]}, seed {cell.seed}", *numbers, str(paths.unreachable.item())])
        if name in said:
            row = bench.measured(f"most hops, {ATTENTIONS[name]}", most, tuple(said[name]), digits=1)
            finding.rows.append(row if most else replace(row, reason=bench.failure(found)))
    finding.tables.append(Table("one text", ["", "tokens", "mean hops", "most hops", "unreachable pairs"], lines))
    finding.figures[bench.save(figure, "hops")] = (
        "Hops from each token (row) to each (column), tied, d = 8, first seed."
    )
    finding.notes.append("The paper's range spans its text (2 / 6 / 14) and the authors' stored run (3 / 9 / 14).")
    return finding


PIECE = Piece(
    "fig-hops",
    "Hop matrices of a review",
    "The longest path has 2 hops with FNA, 6 with LA and 14 with DP.",
    run,
    cells,
)
