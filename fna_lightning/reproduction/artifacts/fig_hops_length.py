"""Path length against sequence length."""

import math
from statistics import fmean

from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import curve, legend, panels
from fna_lightning.reproduction.families import ATTENTIONS, all_tied_cells, tied_cells
from fna_lightning.reproduction.paper import paper_values


def run(context: Context) -> Result:
    """Compute mean hops of texts truncated to growing lengths."""
    from fna_lightning.analysis.measurements import length_report, study_lengths

    published = paper_values()["graph"]
    result, lines = Result(), []
    lengths: list[int] = []
    largest: list[float] = []
    figure, (axes,) = panels(1, 5.2)
    for name, seed_cells in tied_cells(context.scale).items():
        curves = []
        for cell in seed_cells:
            model = context.load_model(cell)
            if model is None:
                continue
            examples = context.texts(model)
            lengths = study_lengths(examples, context.scale.length)
            means = length_report(model, examples, lengths).mean_hops
            curves.append([math.nan if mean is None else mean.mean for mean in means])
            lines.append([f"{ATTENTIONS[name]}, seed {cell.seed}", *(f"{mean:.3f}" for mean in curves[-1])])
            if name == "fna":
                largest.append(max(curves[-1]))
        if curves:
            curve(axes, name, lengths, [fmean(column) for column in zip(*curves, strict=True)], ATTENTIONS[name])
        else:
            result.notes.append(f"not run: {context.missing_reason(seed_cells)}")
    label, tolerance = "largest mean hops at any length, FNA", published["mean_hops_tolerance"]
    result.rows.append(context.mean_row(label, largest, published["mean_hops_fna"], tolerance=tolerance, digits=3))
    axes.set(xlabel="tokens", ylabel="mean hops")
    legend(axes)
    result.tables.append(Table("mean hops by length", ["tokens", *map(str, lengths)], lines))
    result.figures[context.save(figure, "hops_length")] = (
        "Mean hops of texts truncated to each length, tied, d = 8, mean over seeds."
    )
    return result


ARTIFACT = Artifact(
    "fig-hops-length",
    "Path length against sequence length",
    "With alpha < 2 the mean is about 1 hop at every length.",
    run,
    all_tied_cells,
)
