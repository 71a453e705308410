"""Hop matrices of one review."""

from dataclasses import replace

from fna_lightning.graph import path_lengths
from fna_lightning.plotting.graphs import draw_hops
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import panels
from fna_lightning.reproduction.families import ATTENTIONS, all_tied_cells, tied_cells
from fna_lightning.reproduction.paper import paper_values


def run(context: Context) -> Result:
    """Compute the hops between all tokens of the longest text."""
    from fna_lightning.reproduction.graphs import longest

    published = paper_values()["graph"]["max_hops"]
    result, lines = Result(), []
    figure, axes = panels(len(ATTENTIONS), 3.8)
    for panel, (name, seed_cells) in zip(axes, tied_cells(context.scale).items(), strict=True):
        max_hops = []
        for cell in seed_cells:
            model = context.load_model(cell)
            if model is None:
                continue
            example = longest(context.texts(model))
            (layer_map,) = model.maps(example.input).values()
            paths = path_lengths(layer_map.weights[0, 0].double())
            max_hops.append(float(paths.max.item()))
            if len(max_hops) == 1:
                draw_hops(panel, paths.hops)
                panel.grid(visible=False)
                panel.set_title(ATTENTIONS[name])
            numbers = [str(len(example.input)), f"{paths.mean.item():.3f}", str(paths.max.item())]
            lines.append([f"{ATTENTIONS[name]}, seed {cell.seed}", *numbers, str(paths.unreachable.item())])
        if name in published:
            row = context.mean_row(f"maximum hops, {ATTENTIONS[name]}", max_hops, tuple(published[name]), digits=1)
            result.rows.append(row if max_hops else replace(row, reason=context.missing_reason(seed_cells)))
    columns = ["", "tokens", "mean hops", "maximum hops", "unreachable pairs"]
    result.tables.append(Table("the longest text", columns, lines))
    result.figures[context.save(figure, "hops")] = (
        "Hops from each token (row) to each token (column), tied, d = 8, first seed."
    )
    result.notes.append("The paper's range covers its text (2 / 6 / 14) and the authors' stored run (3 / 9 / 14).")
    return result


ARTIFACT = Artifact(
    "fig-hops",
    "Hop matrices of a review",
    "The longest path has 2 hops with FNA, 6 with LA and 14 with DP.",
    run,
    all_tied_cells,
)
