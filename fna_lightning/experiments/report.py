"""The comparison a sweep ends with: a table, CSV, JSON and a picture with error bars."""

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from rich.console import Console
from rich.table import Table

from fna_lightning.experiments.epochs import write_epochs
from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.markdown import markdown, published_value
from fna_lightning.experiments.seeds import PairedDifference, Summary, paired_difference, summarise
from fna_lightning.utils.escaping import csv_text
from fna_lightning.utils.files import write_figure, write_text


def write_report(
    rows: dict[Cell, float],
    done: dict[Cell, dict[str, Any]],
    root: Path,
    args: argparse.Namespace,
    console: Console,
    published: dict[str, float],
    command: str,
    unfinished: int,
) -> dict[str, Any]:
    """Print the table, write results.csv, .json, .md and .png into ``root``, and return the JSON.

    ``unfinished`` runs of the grid are not in ``rows``.
    """
    by_label: dict[str, dict[int, float]] = {}
    for cell, value in rows.items():
        by_label.setdefault(cell.label, {})[cell.seed] = value
    summaries = {
        label: summarise(list(values.values()), larger_is_better=not args.lower_is_better)
        for label, values in by_label.items()
    }
    differences = compare(by_label, args.baseline)
    seconds, processor = (
        {
            label: sum(results["fit"].get(name, math.nan) for cell, results in done.items() if cell.label == label)
            for label in by_label
        }
        for name in ("seconds", "cpu_seconds")
    )
    print_table(args.metric, summaries, differences, seconds, console)
    report = {
        "metric": args.metric,
        "command": command,
        "set": args.set,
        "unfinished": unfinished,
        "runs": [{"label": cell.label, "seed": cell.seed, "value": value} for cell, value in rows.items()],
        "summary": {label: _finite(asdict(summary)) for label, summary in summaries.items()},
        "paired": {label: _finite(asdict(difference)) for label, difference in differences.items()},
        "published": {label: published_value(published, label) for label in summaries if published},
        "fit_seconds": seconds,
        "fit_cpu_seconds": _finite(processor),
        "versions": next(iter(done.values()))["run"]["versions"],
    }
    root.mkdir(parents=True, exist_ok=True)
    write_text(root / "results.json", json.dumps(report, indent=2) + "\n")
    write_text(root / "results.md", markdown(report, summaries, published, command))
    lines = [(cell.label, cell.seed, value) for cell, value in rows.items()]
    write_text(root / "results.csv", csv_text([["label", "seed", args.metric], *lines]))
    draw(args.metric, by_label, summaries, root / "results.png")
    write_epochs(rows, root, console)
    console.print(
        f"table, runs and picture: {root}/results.json, results.csv, results.md, results.png", highlight=False
    )
    console.print(f"tensorboard --logdir {root}", highlight=False)
    return report


def compare(by_label: dict[str, dict[int, float]], baseline: str | None) -> dict[str, PairedDifference]:
    """Return the paired difference of every label to the one that has the words of ``baseline``."""
    if baseline is None:
        return {}
    # whole words first: alpha=1 is not alpha=1.2
    matching = [label for label in by_label if set(baseline.split()) <= set(label.split())]
    matching = matching or [label for label in by_label if baseline in label]
    if len(matching) != 1:
        raise ValueError(f"--baseline {baseline!r} must name one of {', '.join(by_label)}; it fits {len(matching)}")
    reference = by_label[matching[0]]
    return {label: paired_difference(values, reference) for label, values in by_label.items() if label != matching[0]}


def print_table(
    metric: str,
    summaries: dict[str, Summary],
    differences: dict[str, PairedDifference],
    seconds: dict[str, float],
    console: Console,
) -> None:
    """Print one line a label."""
    columns = ["", "seeds", "mean", "± 95 %", "median", "best", "worst", "std", "train s"]
    table = Table(*columns, *(["difference", "p"] if differences else []), title=metric, title_justify="left")
    for label, summary in summaries.items():
        numbers = (summary.mean, summary.half_width, summary.median, summary.best, summary.worst, summary.std)
        cells = [label, str(summary.count), *map(_number, numbers), f"{seconds[label]:.0f}"]
        if differences:
            other = differences.get(label)
            cells += ["baseline", ""] if other is None else [f"{other.mean:+.4f}", _number(other.p_value)]
        table.add_row(*cells)
    console.print(table)


def draw(metric: str, by_label: dict[str, dict[int, float]], summaries: dict[str, Summary], path: Path) -> None:
    """Draw every run as a point and every label's mean with its interval."""
    figure, axes = plt.subplots(figsize=(1.5 + 1.3 * len(summaries), 3.6), layout="constrained")
    for place, (label, summary) in enumerate(summaries.items()):
        values = list(by_label[label].values())
        axes.plot([place] * len(values), values, "o", color="#0072B2", alpha=0.5)
        spread = 0.0 if math.isnan(summary.half_width) else summary.half_width
        axes.errorbar([place], [summary.mean], [spread], fmt="_", color="black", markersize=18, capsize=5)
    labels = [label.replace(" ", "\n") for label in summaries]
    axes.set_xticks(range(len(summaries)), labels)
    axes.set_xlim(-0.6, len(summaries) - 0.4)
    axes.set_ylabel(metric)
    axes.grid(axis="y", alpha=0.3)
    write_figure(path, figure, dpi=150)
    plt.close(figure)


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON does not know, by null."""
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}
