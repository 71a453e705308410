"""Report of a sweep: a printed table, CSV, JSON, Markdown and a figure with error bars."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from fna_lightning.callbacks.run_summary import describe_limit
from fna_lightning.experiments.epoch_report import report_epochs
from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.markdown import published_value, sweep_markdown
from fna_lightning.experiments.seeds import PairedDifference, Summary, paired_difference, summarize
from fna_lightning.plotting.style import BLUE, styled
from fna_lightning.utils.escaping import csv_text
from fna_lightning.utils.files import write_figure, write_text


@dataclass(frozen=True)
class ReportOptions:
    """What a report compares.

    Args:
        metric: metric of the test stage.
        command: command line that produces the same table.
        lower_is_better: whether a lower value of the metric is better.
        baseline: words of the label the others are compared with; None for no comparison.
        settings: ``key=value`` texts that hold for every run.
        published: words of a label -> published value.
    """

    metric: str
    command: str
    lower_is_better: bool = False
    baseline: str | None = None
    settings: list[str] = field(default_factory=list)
    published: dict[str, float] = field(default_factory=dict)


def metric_values(results: dict[Cell, dict[str, Any]], metric: str) -> dict[Cell, float]:
    """Return the test metric of every finished cell; raise if a cell does not have it."""
    values = {cell: stages["test"]["metrics"].get(metric) for cell, stages in results.items()}
    if missing := [cell.label for cell, value in values.items() if value is None]:
        available = sorted(next(iter(results.values()))["test"]["metrics"])
        raise ValueError(f"{missing[0]} has no metric {metric!r}; choose one of {', '.join(available)}")
    return values


def write_report(
    results: dict[Cell, dict[str, Any]], root: Path, options: ReportOptions, unfinished: int, console: Console
) -> dict[str, Any]:
    """Print the table, write results.csv, .json, .md and .png into ``root``, and return the content of the JSON.

    Args:
        results: results.json of every finished cell.
        root: folder of all runs.
        options: what is compared.
        unfinished: number of cells of the grid without a result.
        console: where the table is printed.
    """
    values = metric_values(results, options.metric)
    by_label: dict[str, dict[int, float]] = {}
    for cell, value in values.items():
        by_label.setdefault(cell.label, {})[cell.seed] = value
    summaries = {
        label: summarize(list(seeds.values()), larger_is_better=not options.lower_is_better)
        for label, seeds in by_label.items()
    }
    differences = compare(by_label, options.baseline)
    seconds, cpu_seconds = (
        {
            label: sum(stages["fit"].get(name, math.nan) for cell, stages in results.items() if cell.label == label)
            for label in by_label
        }
        for name in ("seconds", "cpu_seconds")
    )
    print_table(options.metric, summaries, differences, seconds, console)
    limits = limited_tests(results)
    for label, note in limits.items():
        console.print(f"{label}: tested {note}", highlight=False)
    report = {
        "metric": options.metric,
        "command": options.command,
        "set": options.settings,
        "unfinished": unfinished,
        "limited": limits,
        "runs": [{"label": cell.label, "seed": cell.seed, "value": value} for cell, value in values.items()],
        "summary": {label: _nan_to_none(asdict(summary)) for label, summary in summaries.items()},
        "paired": {label: _nan_to_none(asdict(difference)) for label, difference in differences.items()},
        "published": {label: published_value(options.published, label) for label in summaries if options.published},
        "fit_seconds": seconds,
        "fit_cpu_seconds": _nan_to_none(cpu_seconds),
        "versions": next(iter(results.values()))["run"]["versions"],
    }
    root.mkdir(parents=True, exist_ok=True)
    write_text(root / "results.json", json.dumps(report, indent=2) + "\n")
    write_text(root / "results.md", sweep_markdown(report, summaries, options.published))
    lines = [(cell.label, cell.seed, value) for cell, value in values.items()]
    write_text(root / "results.csv", csv_text([["label", "seed", options.metric], *lines]))
    draw(options.metric, by_label, summaries, root / "results.png")
    report_epochs(results, root, console)
    console.print(f"report: {root}/results.json, results.csv, results.md, results.png", highlight=False)
    # the runs may use another logger
    if next(root.rglob("events.out.tfevents*"), None):
        console.print(f"tensorboard --logdir {root}", highlight=False)
    return report


def limited_tests(results: dict[Cell, dict[str, Any]]) -> dict[str, str]:
    """Return how much of the test split was used, by the label of each cell whose test was limited."""
    return {
        cell.label: describe_limit("test", stages["test"]["limited"]["test"])
        for cell, stages in results.items()
        if "limited" in stages["test"]
    }


def compare(by_label: dict[str, dict[int, float]], baseline: str | None) -> dict[str, PairedDifference]:
    """Return the paired difference of every label to the one label that contains the words of ``baseline``."""
    if baseline is None:
        return {}
    # Whole words are matched first, because alpha=1 is also the beginning of alpha=1.2.
    matching = [label for label in by_label if set(baseline.split()) <= set(label.split())]
    matching = matching or [label for label in by_label if baseline in label]
    if len(matching) != 1:
        raise ValueError(
            f"--baseline {baseline!r} must match exactly one of {', '.join(by_label)}; it matches {len(matching)}"
        )
    reference = by_label[matching[0]]
    return {label: paired_difference(values, reference) for label, values in by_label.items() if label != matching[0]}


def print_table(
    metric: str,
    summaries: dict[str, Summary],
    differences: dict[str, PairedDifference],
    seconds: dict[str, float],
    console: Console,
) -> None:
    """Print one row per label."""
    columns = ["", "seeds", "mean", "± 95 %", "median", "best", "worst", "std", "train s a run"]
    table = Table(*columns, *(["difference", "p"] if differences else []), title=metric, title_justify="left")
    for label, summary in summaries.items():
        numbers = (summary.mean, summary.half_width, summary.median, summary.best, summary.worst, summary.std)
        cells = [label, str(summary.count), *map(_number, numbers), f"{seconds[label] / summary.count:.0f}"]
        if differences:
            difference = differences.get(label)
            cells += (
                ["baseline", ""] if difference is None else [f"{difference.mean:+.4f}", _number(difference.p_value)]
            )
        table.add_row(*cells)
    console.print(table)


@styled()
def draw(metric: str, by_label: dict[str, dict[int, float]], summaries: dict[str, Summary], path: Path) -> None:
    """Draw every run as a point, and the mean of every label with its 95 % interval."""
    figure, axes = plt.subplots(figsize=(1.5 + 1.3 * len(summaries), 3.6), layout="constrained")
    for position, (label, summary) in enumerate(summaries.items()):
        values = list(by_label[label].values())
        axes.plot([position] * len(values), values, "o", color=BLUE, alpha=0.5)
        half_width = 0.0 if math.isnan(summary.half_width) else summary.half_width
        axes.errorbar([position], [summary.mean], [half_width], fmt="_", color="black", markersize=18, capsize=5)
    labels = [label.replace(" ", "\n") for label in summaries]
    axes.set_xticks(range(len(summaries)), labels)
    axes.set_xlim(-0.6, len(summaries) - 0.4)
    axes.set_ylabel(metric)
    axes.grid(axis="y", alpha=0.3)
    write_figure(path, figure, dpi=150)
    plt.close(figure)


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _nan_to_none(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON cannot represent, by None."""
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}
