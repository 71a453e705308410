"""CIFAR-10 with a vision transformer."""

from fna_lightning.experiments.epochs import mean_by_epoch
from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Artifact, Result
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import draw_epochs, draw_rows, panels
from fna_lightning.reproduction.families import cells_of, missing_configs, needs_paper_scale
from fna_lightning.reproduction.paper import paper_values
from fna_lightning.reproduction.scales import Scale

MODELS = ("fna", "la", "dp", "op-fna", "op-la", "op-dp", "uniform")
GAUSSIAN = (("model.attention.alpha", "2"),)
ORTHOGONAL = (("model.vit.encoder.projection", "OrthogonalProjection"),)


def model_cells(scale: Scale, model: str) -> list[Cell]:
    """Return the cells of one model; the embedded digits have no LA configuration, so LA is FNA with alpha = 2."""
    name, settings = model.removeprefix("op-"), ORTHOGONAL if model.startswith("op-") else ()
    if not scale.embedded:
        return cells_of(f"cifar10_{name}", settings, scale.settings("image"), scale.seeds)
    if name == "la":
        return cells_of("digits_fna", (*GAUSSIAN, *settings), scale.settings("image"), scale.seeds)
    return cells_of(f"digits_{name}", settings, scale.settings("image"), scale.seeds)


def cells(scale: Scale) -> list[Cell]:
    """Return the cells of all models."""
    return [cell for model in MODELS for cell in model_cells(scale, model)]


def run(context: Context) -> Result:
    """Compare test accuracies with the paper's figure."""
    published = paper_values()["cifar"]
    result, curves = Result(), {}
    for model in MODELS:
        seed_cells = model_cells(context.scale, model)
        paper = published.get(model)
        paper = tuple(paper) if isinstance(paper, list) else paper
        result.rows.append(context.row(model, seed_cells, paper, tolerance=published["tolerance"]))
        accuracies = mean_by_epoch(seed_cells, context.runs, "val/accuracy")
        curves[model] = (model.removeprefix("op-"), {epoch: 100 * value for epoch, value in accuracies.items()})
    for better, worse in (("fna", "la"), ("fna", "dp"), ("op-fna", "op-dp"), ("fna", "uniform")):
        better_cells, worse_cells = (model_cells(context.scale, model) for model in (better, worse))
        numbers = [published.get(model) for model in (better, worse)]
        gap = numbers[0] - numbers[1] if all(isinstance(number, float) for number in numbers) else None
        result.claims.append(context.claim(f"{better} above {worse}", better_cells, worse_cells, published=gap))
    figure, axes = panels(2, 5.2)
    draw_rows(axes[0], result.rows, [model.removeprefix("op-") for model in MODELS], "test accuracy (%)")
    draw_epochs(axes[1], {label: curve for label, curve in curves.items() if curve[1]}, "validation accuracy (%)")
    result.figures[context.save(figure, "cifar")] = (
        "Left: test accuracy; black: the paper. Right: validation accuracy during training."
    )
    result.notes.append("The paper gives op-FNA in words only: slightly below FNA and above DP.")
    return result


def skip_reason(scale: Scale) -> str:
    """Return why the models are not trained: missing configurations, or too long a training for the scale."""
    family = "digits" if scale.embedded else "cifar10"
    if missing := missing_configs(*(f"{family}_{name}" for name in ("fna", "dp", "uniform"))):
        return f"needs the configurations {', '.join(missing)}, which this installation does not ship"
    return "" if scale.embedded or scale.full_training else needs_paper_scale("CIFAR-10 is")


ARTIFACT = Artifact("fig-cifar", "CIFAR-10", "FNA 76.2 %, DP 76.0 %, LA 75.1 %.", run, cells, skip_reason)
