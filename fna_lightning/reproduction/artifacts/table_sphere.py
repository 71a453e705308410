"""IMDb on the sphere, six layers and eight heads."""

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Finding, Piece
from fna_lightning.reproduction.artifacts.table_imdb import refusal
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import draw_rows, panels
from fna_lightning.reproduction.families import full_cells
from fna_lightning.reproduction.published import paper
from fna_lightning.reproduction.scales import Scale

MODELS = ("fna", "la", "op-fna", "op-la")


def model_cells(scale: Scale, model: str) -> list[Cell]:
    """Return the seeds of one line of the table."""
    return full_cells(scale, model.removeprefix("op-"), orthogonal=model.startswith("op-"), sphere=True)


def cells(scale: Scale) -> list[Cell]:
    """Return the whole table."""
    return [cell for model in MODELS for cell in model_cells(scale, model)]


def run(bench: Bench) -> Finding:
    """Put the table beside ours."""
    said = paper()["sphere"]
    finding = Finding()
    for model in MODELS:
        finding.rows.append(bench.row(model, model_cells(bench.scale, model), said[model], tolerance=said["tolerance"]))
    for better, worse in (("fna", "la"), ("op-fna", "op-la")):
        one, other = (model_cells(bench.scale, model) for model in (better, worse))
        gap = said[better] - said[worse]
        finding.claims.append(bench.claim(f"{better} above {worse}", one, other, published=gap))
    figure, (axes,) = panels(1, 4.6)
    draw_rows(axes, finding.rows, [model.removeprefix("op-") for model in MODELS], "test accuracy (%)")
    finding.figures[bench.save(figure, "sphere")] = "Test accuracy on the sphere; black: the paper's."
    return finding


PIECE = Piece("table-sphere", "IMDb on the sphere, six layers", "FNA 83.8 %, LA 83.1 %.", run, cells, refusal)
