"""Path length against sequence length."""

import math
from statistics import fmean

from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.artifacts.walks import cells, tied_cells
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import curve, legend, panels
from fna_lightning.reproduction.families import ATTENTIONS
from fna_lightning.reproduction.published import paper


def run(bench: Bench) -> Finding:
    """Cut texts to growing lengths and count hops."""
    from fna_lightning.analysis.measurements import growth_lengths, growth_report

    said = paper()["graph"]
    finding, lines = Finding(), []
    lengths: list[int] = []
    figure, (axes,) = panels(1, 5.2)
    largest: list[float] = []
    for name, found in tied_cells(bench.scale).items():
        curves = []
        for cell in found:
            subject = bench.subject(cell)
            if subject is None:
                continue
            examples = bench.texts(subject)
            lengths = growth_lengths(examples, bench.scale.length)
            means = growth_report(subject, examples, lengths).mean_hops
            curves.append([math.nan if one is None else one for one in means])
            lines.append([f"{ATTENTIONS[name]}, seed {cell.seed}", *(f"{one:.3f}" for one in curves[-1])])
            if name == "fna":
                largest.append(max(curves[-1]))
        if curves:
            curve(axes, name, lengths, [fmean(column) for column in zip(*curves, strict=True)], ATTENTIONS[name])
        else:
            finding.notes.append(f"not run: {bench.failure(found)}")
    label, tolerance = "largest mean hops at any length, FNA", said["mean_hops_tolerance"]
    finding.rows.append(bench.measured(label, largest, said["mean_hops_fna"], tolerance=tolerance, digits=3))
    axes.set(xlabel="tokens", ylabel="mean hops")
    legend(axes)
    finding.tables.append(Table("mean hops by length", ["tokens", *map(str, lengths)], lines))
    finding.figures[bench.save(figure, "hops_length")] = (
        "Mean hops of texts cut to each length, tied, d = 8, mean over seeds."
    )
    return finding


PIECE = Piece(
    "fig-hops-length",
    "Path length against sequence length",
    "With alpha < 2 the mean is about 1 hop at every length.",
    run,
    cells,
)
