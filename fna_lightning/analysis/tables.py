"""The numbers of a report as tables and notes for the terminal."""

import math
from collections.abc import Iterator, Sequence

from rich.table import Table

from fna_lightning.analysis.field_pictures import head_name
from fna_lightning.analysis.fields import PREFIX
from fna_lightning.analysis.heads import single_heads
from fna_lightning.analysis.report import NEAR_UNIFORM, ExampleReport, HeadReport, HeadSummary, ModelReport, Report
from fna_lightning.graph import MEASURES

# most layers of a single model that have a column of their own, and most examples whose predictions are listed
LAYERS, LISTED = 8, 10

Head = HeadReport | HeadSummary


def report_tables(report: Report) -> Iterator[Table | str]:
    """Yield the tables of a report and notes on how to read them."""
    if report.kind == "field":
        yield from _field_tables(report)
        return
    yield _measure_table(report)
    yield from _notes(report)
    if cut := sum(example.truncated for example in report.examples):
        yield (
            f"{cut} of {len(report.examples)} examples are longer than {report.max_length} tokens and were truncated; "
            "a larger --max-length studies them whole"
        )
    if any(model.prediction for example in report.examples for model in example.models):
        yield _prediction_table(report)
        yield from _accuracies(report)


def _measure_table(report: Report) -> Table:
    """Return the mean of every measure over all heads, and over those of each layer of a single model."""
    split, first = report.split, report.examples[0]
    shown = f"{split.count} {report.unit} spread evenly over the split {split.name!r}" if split else first.title
    table = Table("", title=f"mean over {shown} and over all heads", title_justify="left")
    columns: list[list[Head]] = []
    for number, model in enumerate(report.models):
        heads = _heads(report, number)
        layers = list(dict.fromkeys(head.layer for head in heads))
        table.add_column(f"{model.label}\n{_count(len(heads), 'head')} in {_count(len(layers), 'layer')}")
        columns.append(heads)
        if len(report.models) == 1 and 1 < len(layers) <= LAYERS:
            for layer in layers:
                table.add_column(f"\n{model.layers[layer]}")
                columns.append([head for head in heads if head.layer == layer])
    for name in MEASURES:
        values = [_mean(heads, name) for heads in columns]
        table.add_row(name, *("-" if math.isnan(value) else f"{value:.4f}" for value in values))
    return table


def _notes(report: Report) -> Iterator[str]:
    examples = report.split.count if report.split else 1
    for number, model in enumerate(report.models):
        heads = _heads(report, number)
        for name in MEASURES:
            total, finite = 0, 0
            for head in heads:
                value = head.measures.get(name, math.nan)
                finite += (1 if math.isfinite(value) else 0) if isinstance(value, float) else value.count
                total += 1 if isinstance(head, HeadReport) else examples
            if 0 < finite < total:
                yield f"{model.label}: {name} is the mean over {finite} of {total} values; the rest are infinite"
        uniform = [head for head in heads if _value(head, "entropy") > NEAR_UNIFORM]
        share = f"{len(uniform)} of {_count(len(heads), 'head')}"
        if uniform:
            names = ", ".join(f"{model.layers[head.layer]} head {head.head}" for head in uniform[:4])
            more = ", ..." if len(uniform) > 4 else ""
            yield (
                f"{model.label}: {share} near uniform (entropy > {NEAR_UNIFORM}: "
                f"{names}{more}); a large gap here only means averaging"
            )


def _prediction_table(report: Report) -> Table:
    """Return the predictions of every model for the first examples."""
    labelled = any(example.label is not None for example in report.examples)
    table = Table("example", *(["label"] if labelled else []), title="predictions", title_justify="left")
    for model in report.models:
        table.add_column(model.label)
    for example in report.examples[:LISTED]:
        label = [example.label or "-"] if labelled else []
        table.add_row(example.title, *label, *(_prediction(model) for model in example.models))
    return table


def _prediction(model: ModelReport) -> str:
    mark = {True: " (right)", False: " (wrong)", None: ""}[model.correct]
    return f"{model.prediction} {model.probability:.4f}{mark}"


def _accuracies(report: Report) -> Iterator[str]:
    for number, model in enumerate(report.models):
        marks = [example.models[number].correct for example in report.examples]
        known = [correct for correct in marks if correct is not None]
        if known:
            yield f"{model.label}: {sum(known)} of {len(known)} predictions are right"


def _field_tables(report: Report) -> Iterator[Table | str]:
    """Yield the effective number of neighbors of every head, in every evaluation set or in the user's points."""
    if report.split is None:
        for example in report.examples:
            yield _point_table(report, example)
        return
    sets = list(report.split.models[0][0].measures)
    title = f"effective number of neighbors, mean over {report.split.count} episodes of the split {report.split.name!r}"
    table = Table("", "head", *(name.removeprefix(PREFIX) for name in sets), title=title, title_justify="left")
    for number, heads in enumerate(report.split.models):
        for head in heads:
            values = [head.measures[name] for name in sets if name in head.measures]
            cells = [f"{value.mean:.1f}" for value in values]
            table.add_row(report.models[number].label, head_name(head, report, number), *cells)
    yield table


def _point_table(report: Report, example: ExampleReport) -> Table:
    title = f"effective number of neighbors, {example.title}"
    table = Table("", "head", "neighbors", title=title, title_justify="left")
    for number, model in enumerate(example.models):
        for head in single_heads(model.cross):
            table.add_row(report.models[number].label, head_name(head, report, number), f"{head.neighbors:.1f}")
    return table


def _heads(report: Report, model: int) -> list[Head]:
    """Return the heads that the table is about: those of the split, or of the first example."""
    if report.split:
        return [*single_heads(report.split.models[model])]
    return [*single_heads(report.examples[0].models[model].heads)]


def _value(head: Head, name: str) -> float:
    value = head.measures.get(name, math.nan)
    return value if isinstance(value, float) else value.mean


def _mean(heads: Sequence[Head], name: str) -> float:
    """Return the mean of the finite values of a measure, one per head; NaN if there is none."""
    values = [value for head in heads if math.isfinite(value := _value(head, name))]
    return sum(values) / len(values) if values else math.nan


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
