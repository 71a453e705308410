"""IMDb on the sphere with six layers and eight heads."""

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Artifact, Result
from fna_lightning.reproduction.artifacts.table_imdb import skip_reason
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import draw_rows, panels
from fna_lightning.reproduction.families import full_cells
from fna_lightning.reproduction.paper import paper_values
from fna_lightning.reproduction.scales import Scale

MODELS = ("fna", "la", "op-fna", "op-la")


def model_cells(scale: Scale, model: str) -> list[Cell]:
    """Return the cells of one line of the table; op- means orthogonal projections."""
    return full_cells(scale, model.removeprefix("op-"), orthogonal=model.startswith("op-"), sphere=True)


def cells(scale: Scale) -> list[Cell]:
    """Return the cells of the whole table."""
    return [cell for model in MODELS for cell in model_cells(scale, model)]


def run(context: Context) -> Result:
    """Compare the table with the paper's."""
    published = paper_values()["sphere"]
    result = Result()
    for model in MODELS:
        seed_cells = model_cells(context.scale, model)
        result.rows.append(context.row(model, seed_cells, published[model], tolerance=published["tolerance"]))
    for better, worse in (("fna", "la"), ("op-fna", "op-la")):
        better_cells, worse_cells = (model_cells(context.scale, model) for model in (better, worse))
        gap = published[better] - published[worse]
        result.claims.append(context.claim(f"{better} above {worse}", better_cells, worse_cells, published=gap))
    figure, (axes,) = panels(1, 4.6)
    draw_rows(axes, result.rows, [model.removeprefix("op-") for model in MODELS], "test accuracy (%)")
    result.figures[context.save(figure, "sphere")] = "Test accuracy on the sphere; black: the paper."
    return result


ARTIFACT = Artifact("table-sphere", "IMDb on the sphere, six layers", "FNA 83.8 %, LA 83.1 %.", run, cells, skip_reason)
