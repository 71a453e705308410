"""CIFAR-10 with a vision Transformer."""

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Finding, Piece
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import draw_epochs, draw_rows, panels
from fna_lightning.reproduction.epochs import by_epoch
from fna_lightning.reproduction.families import cells_of, missing_configs, needs_paper_scale
from fna_lightning.reproduction.published import paper
from fna_lightning.reproduction.scales import Scale

MODELS = ("fna", "la", "dp", "op-fna", "op-la", "op-dp", "uniform")
GAUSSIAN = (("model.attention.alpha", "2"),)
ORTHOGONAL = (("model.vit.encoder.projection", "OrthogonalProjection"),)


def model_cells(scale: Scale, model: str) -> list[Cell]:
    """Return the seeds of one line; the embedded digits have no configuration for LA, which is FNA with alpha = 2."""
    name, more = model.removeprefix("op-"), ORTHOGONAL if model.startswith("op-") else ()
    if not scale.embedded:
        return cells_of(f"cifar10_{name}", more, scale.image, scale.seeds)
    if name == "la":
        return cells_of("digits_fna", (*GAUSSIAN, *more), scale.image, scale.seeds)
    return cells_of(f"digits_{name}", more, scale.image, scale.seeds)


def cells(scale: Scale) -> list[Cell]:
    """Return all lines."""
    return [cell for model in MODELS for cell in model_cells(scale, model)]


def run(bench: Bench) -> Finding:
    """Put the figure beside ours."""
    said = paper()["cifar"]
    finding, curves = Finding(), {}
    for model in MODELS:
        found = model_cells(bench.scale, model)
        published = said.get(model)
        published = tuple(published) if isinstance(published, list) else published
        finding.rows.append(bench.row(model, found, published, tolerance=said["tolerance"]))
        values = {at: 100 * one for at, one in by_epoch(found, bench.runs, "val/accuracy").items()}
        curves[model] = (model.removeprefix("op-"), values)
    for better, worse in (("fna", "la"), ("fna", "dp"), ("op-fna", "op-dp"), ("fna", "uniform")):
        one, other = (model_cells(bench.scale, model) for model in (better, worse))
        numbers = [said.get(model) for model in (better, worse)]
        gap = numbers[0] - numbers[1] if all(isinstance(number, float) for number in numbers) else None
        finding.claims.append(bench.claim(f"{better} above {worse}", one, other, published=gap))
    figure, axes = panels(2, 5.2)
    draw_rows(axes[0], finding.rows, [model.removeprefix("op-") for model in MODELS], "test accuracy (%)")
    draw_epochs(axes[1], {label: one for label, one in curves.items() if one[1]}, "validation accuracy (%)")
    finding.figures[bench.save(figure, "cifar")] = (
        "Left: test accuracy, black the paper's. Right: validation while training."
    )
    finding.notes.append("The paper's op-FNA is given in words only: a little below FNA and above DP.")
    return finding


def refusal(scale: Scale) -> str:
    """Return why not: no such configuration, or 125 epochs of CIFAR-10."""
    family = "digits" if scale.embedded else "cifar10"
    if missing := missing_configs(*(f"{family}_{name}" for name in ("fna", "dp", "uniform"))):
        return f"needs the configurations {', '.join(missing)}, which this installation does not ship"
    return "" if scale.embedded or scale.full_training else needs_paper_scale("CIFAR-10 is not trained")


PIECE = Piece("fig-cifar", "CIFAR-10", "FNA 76.2 %, DP 76.0 %, LA 75.1 %.", run, cells, refusal)
