"""Multi30K, English to German: the table, its curves and its learning rates."""

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Finding, Piece, Row, Table
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import draw_epochs, draw_rows, panels
from fna_lightning.reproduction.epochs import by_epoch
from fna_lightning.reproduction.families import cells_of, missing_configs, needs_paper_scale
from fna_lightning.reproduction.published import paper
from fna_lightning.reproduction.scales import Scale, Settings

MODELS = ("fna", "la", "dp", "op-fna", "op-la", "op-dp", "uniform")
SCORE = "test/bleu_paper"
RATES: Settings = (("trainer.callbacks+", "LearningRateMonitor"),)
ORTHOGONAL: Settings = tuple(
    (f"model.network.{part}", "OrthogonalProjection")
    for part in ("encoder.projection", "decoder.projection", "decoder.cross_projection")
)


def model_cells(scale: Scale, model: str) -> list[Cell]:
    """Return the seeds of one line; the embedded numbers have no configuration for LA, which is FNA with alpha = 2."""
    name, more = model.removeprefix("op-"), ORTHOGONAL if model.startswith("op-") else ()
    fixed = (*scale.translation, *RATES)
    if not scale.embedded:
        rate = (("model.optimizer.init_args.lr", "2.2e-4"),) if more else ()
        return cells_of(f"multi30k_{name}", (*rate, *more), fixed, scale.seeds)
    if name == "la":
        return cells_of("numbers_fna", (("model.attention.alpha", "2"), *more), fixed, scale.seeds)
    return cells_of(f"numbers_{name}", more, fixed, scale.seeds)


def models(scale: Scale) -> tuple[str, ...]:
    """Return the lines of the table; the embedded one leaves out the orthogonal models."""
    return tuple(model for model in MODELS if not (scale.embedded and model.startswith("op-")))


def cells(scale: Scale) -> list[Cell]:
    """Return all lines."""
    return [cell for model in models(scale) for cell in model_cells(scale, model)]


def run(bench: Bench) -> Finding:
    """Put the table beside ours, in the paper's own score, with decoded ones in a table of their own."""
    said = paper()["translation"]
    finding, lines = Finding(), []
    losses, rates = {}, {}
    for model in models(bench.scale):
        found = model_cells(bench.scale, model)
        mean, spread = said.get(model, (None, 0.0))
        row = bench.row(model, found, mean, tolerance=spread, metric=SCORE, factor=1.0)
        if row.ours is not None and not row.reason:
            row = Row(**{**vars(row), "comparable": False, "reason": "our test set, the paper's validation set"})
        finding.rows.append(row)
        name = model.removeprefix("op-")
        losses[model] = (name, by_epoch(found, bench.runs, "val/nll"))
        rates[model] = (name, by_epoch(found, bench.runs, "lr-Adam"))
        scores = {metric: list(bench.results(found, metric, 1.0).values()) for metric in DECODED}
        if any(scores.values()):
            shown = [f"{sum(one) / len(one):.2f}" if one else "-" for one in scores.values()]
            lines.append([model, *shown])
    for better, worse in (("fna", "la"), ("fna", "dp"), ("fna", "uniform")):
        one, other = (model_cells(bench.scale, model) for model in (better, worse))
        gap = said[better][0] - said[worse][0] if worse in said else None
        finding.claims.append(
            bench.claim(f"{better} above {worse}", one, other, published=gap, metric=SCORE, factor=1.0)
        )
    finding.tables.append(Table("decoded test sentences", ["", *DECODED.values()], lines))
    figure, axes = panels(3, 4.6)
    names = [model.removeprefix("op-") for model in models(bench.scale)]
    draw_rows(axes[0], finding.rows, names, "the paper's BLEU")
    draw_epochs(axes[1], {label: one for label, one in losses.items() if one[1]}, "validation nats a token")
    draw_epochs(axes[2], {label: one for label, one in rates.items() if one[1]}, "learning rate")
    finding.figures[bench.save(figure, "translation")] = "The paper's score, validation loss and learning rate."
    finding.notes.append(
        "The paper's BLEU decodes nothing: it is the mean sentence BLEU of teacher-forced words, and comparable with "
        "no published BLEU. Ours is taken on the test set, the paper's on the validation set."
    )
    return finding


DECODED = {"test/bleu": "sacreBLEU", "test/exact_match": "exactly right"}


def refusal(scale: Scale) -> str:
    """Return why not: no such configuration, or 30 epochs of Multi30K."""
    family = "numbers" if scale.embedded else "multi30k"
    if missing := missing_configs(*(f"{family}_{name}" for name in ("fna", "dp", "uniform"))):
        return f"needs the configurations {', '.join(missing)}, which this installation does not ship"
    return "" if scale.embedded or scale.full_training else needs_paper_scale("Multi30K is not trained")


PIECE = Piece(
    "table-translation", "Multi30K, English to German", "BLEU 34.6 (FNA), 34.1 (LA), 34.0 (DP).", run, cells, refusal
)
