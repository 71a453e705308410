"""Multi30K, English to German: the table, its training curves and its learning rates."""

from dataclasses import replace

from fna_lightning.experiments.epochs import mean_by_epoch
from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import draw_epochs, draw_rows, panels
from fna_lightning.reproduction.families import cells_of, missing_configs, needs_paper_scale
from fna_lightning.reproduction.paper import paper_values
from fna_lightning.reproduction.scales import Scale, Settings

MODELS = ("fna", "la", "dp", "op-fna", "op-la", "op-dp", "uniform")
SCORE = "test/bleu_paper"
# scores of decoded translations: metric -> heading
DECODED = {"test/bleu": "sacreBLEU", "test/exact_match": "exact match"}
LEARNING_RATES: Settings = (("trainer.callbacks+", "LearningRateMonitor"),)
ORTHOGONAL: Settings = tuple(
    (f"model.network.{part}", "OrthogonalProjection")
    for part in ("encoder.projection", "decoder.projection", "decoder.cross_projection")
)


def model_cells(scale: Scale, model: str) -> list[Cell]:
    """Return the cells of one line; the embedded number words have no LA configuration, so LA is FNA with alpha = 2."""
    name, settings = model.removeprefix("op-"), ORTHOGONAL if model.startswith("op-") else ()
    fixed = (*scale.settings("translation"), *LEARNING_RATES)
    if not scale.embedded:
        rate = (("model.optimizer.init_args.lr", "2.2e-4"),) if settings else ()
        return cells_of(f"multi30k_{name}", (*rate, *settings), fixed, scale.seeds)
    if name == "la":
        return cells_of("numbers_fna", (("model.attention.alpha", "2"), *settings), fixed, scale.seeds)
    return cells_of(f"numbers_{name}", settings, fixed, scale.seeds)


def models(scale: Scale) -> tuple[str, ...]:
    """Return the lines of the table; the orthogonal models are left out for the embedded data."""
    return tuple(model for model in MODELS if not (scale.embedded and model.startswith("op-")))


def cells(scale: Scale) -> list[Cell]:
    """Return the cells of all lines."""
    return [cell for model in models(scale) for cell in model_cells(scale, model)]


def run(context: Context) -> Result:
    """Compare the table in the paper's own score; scores of decoded translations are in a second table."""
    published = paper_values()["translation"]
    result, lines = Result(), []
    losses, rates = {}, {}
    for model in models(context.scale):
        seed_cells = model_cells(context.scale, model)
        mean, spread = published.get(model, (None, 0.0))
        row = context.row(model, seed_cells, mean, tolerance=spread, metric=SCORE, factor=1.0)
        if row.ours is not None and not row.reason:
            row = replace(row, comparable=False, reason="our test set, the paper's validation set")
        result.rows.append(row)
        name = model.removeprefix("op-")
        losses[model] = (name, mean_by_epoch(seed_cells, context.runs, "val/nll"))
        rates[model] = (name, mean_by_epoch(seed_cells, context.runs, "lr-Adam"))
        scores = [list(context.results(seed_cells, metric, 1.0).values()) for metric in DECODED]
        if any(scores):
            lines.append([model, *(f"{sum(values) / len(values):.2f}" if values else "-" for values in scores)])
    for better, worse in (("fna", "la"), ("fna", "dp"), ("fna", "uniform")):
        better_cells, worse_cells = (model_cells(context.scale, model) for model in (better, worse))
        gap = published[better][0] - published[worse][0] if worse in published else None
        label = f"{better} above {worse}"
        result.claims.append(context.claim(label, better_cells, worse_cells, published=gap, metric=SCORE, factor=1.0))
    result.tables.append(Table("decoded test sentences", ["", *DECODED.values()], lines))
    figure, axes = panels(3, 4.6)
    names = [model.removeprefix("op-") for model in models(context.scale)]
    draw_rows(axes[0], result.rows, names, "the paper's BLEU")
    draw_epochs(
        axes[1], {label: curve for label, curve in losses.items() if curve[1]}, "validation loss (nats per token)"
    )
    draw_epochs(axes[2], {label: curve for label, curve in rates.items() if curve[1]}, "learning rate")
    result.figures[context.save(figure, "translation")] = "The paper's score, validation loss and learning rate."
    result.notes.append(
        "The paper's BLEU is the mean sentence BLEU of teacher-forced predictions; nothing is decoded, so it is not "
        "comparable with any published BLEU. Ours is computed on the test set, the paper's on the validation set."
    )
    return result


def skip_reason(scale: Scale) -> str:
    """Return why the models are not trained: missing configurations, or too long a training for the scale."""
    family = "numbers" if scale.embedded else "multi30k"
    if missing := missing_configs(*(f"{family}_{name}" for name in ("fna", "dp", "uniform"))):
        return f"needs the configurations {', '.join(missing)}, which this installation does not ship"
    return "" if scale.embedded or scale.full_training else needs_paper_scale("Multi30K is")


ARTIFACT = Artifact(
    "table-translation",
    "Multi30K, English to German",
    "BLEU 34.6 (FNA), 34.1 (LA), 34.0 (DP).",
    run,
    cells,
    skip_reason,
)
