"""Results of the scoreboard: means over seeds, cost, and paired tests of FNA against every other attention."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fna_lightning.experiments.seeds import holm, paired_difference, summarize
from fna_lightning.reproduction.artifact import Table
from fna_lightning.reproduction.markdown import table

OURS = "fna"


@dataclass(frozen=True)
class Metric:
    """A metric of results.json, the factor it is shown with, and its heading."""

    name: str
    heading: str
    factor: float = 1.0


@dataclass(frozen=True)
class Board:
    """A task of the scoreboard: a family of configurations that differ only in the attention.

    Attributes:
        family: first part of the names of the configurations.
        title: heading of the table.
        metric: test metric that is compared.
        further: other metrics in the table.
        baseline: the same metric of a model without attention, which the runs of FNA measure as well; its heading is
            its name in the table.
    """

    family: str
    title: str
    metric: Metric
    further: tuple[Metric, ...] = ()
    baseline: Metric | None = None


@dataclass(frozen=True)
class Entry:
    """One attention on one board.

    Attributes:
        attention: short name.
        label: name in tables.
        values: test metric by seed.
        further: heading -> other metric by seed.
        cpu_minutes: CPU time of a training by seed; it depends on the processor.
        kernel: kernels that computed the attention.
        parameters: number of parameters; None if it is unknown.
        versions: versions of the packages that the runs used.
        processors: processor of a training by seed.
    """

    attention: str
    label: str
    values: dict[int, float] = field(default_factory=dict)
    further: dict[str, dict[int, float]] = field(default_factory=dict)
    cpu_minutes: dict[int, float] = field(default_factory=dict)
    kernel: str = ""
    parameters: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    processors: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """FNA minus another attention, paired by seed; ``corrected`` is the p-value after Holm's correction."""

    family: str
    attention: str
    seeds: int
    difference: float
    half_width: float
    p_value: float
    corrected: float = math.nan


def entry(attention: str, label: str, board: Board, results: Mapping[int, Mapping[str, Any]]) -> Entry:
    """Return the entry of an attention from the contents of results.json by seed."""
    runs = [stages.get("run", {}) for stages in results.values()]
    return Entry(
        attention,
        label,
        _by_seed(board.metric, results),
        {metric.heading: _by_seed(metric, results) for metric in board.further},
        {seed: stages["fit"]["cpu_seconds"] / 60 for seed, stages in results.items() if "cpu_seconds" in stages["fit"]},
        ", ".join(sorted({kernel for run in runs for kernel in run.get("kernel", {}).values()})),
        runs[0].get("parameters") if runs else None,
        runs[0].get("versions", {}) if runs else {},
        {seed: stages.get("run", {}).get("processor", "unknown") for seed, stages in results.items()},
    )


def baseline_entry(baseline: Metric, board: Board, results: Mapping[int, Mapping[str, Any]]) -> Entry:
    """Return the entry of a baseline from the results of the runs of FNA; it has no other metrics."""
    further: dict[str, dict[int, float]] = {metric.heading: {} for metric in board.further}
    return Entry("baseline", baseline.heading, _by_seed(baseline, results), further)


def _by_seed(metric: Metric, results: Mapping[int, Mapping[str, Any]]) -> dict[int, float]:
    metrics = {seed: {**stages["fit"]["metrics"], **stages["test"]["metrics"]} for seed, stages in results.items()}
    return {seed: metric.factor * row[metric.name] for seed, row in metrics.items() if metric.name in row}


def compare(boards: Mapping[str, Sequence[Entry]]) -> list[Comparison]:
    """Return FNA against every other attention, with p-values corrected for the number of all comparisons."""
    rows = []
    for family, entries in boards.items():
        ours = next((item.values for item in entries if item.attention == OURS), {})
        for item in entries:
            pair = paired_difference(ours, item.values)
            if item.attention != OURS and pair.count:
                rows.append(Comparison(family, item.attention, pair.count, pair.mean, pair.half_width, pair.p_value))
    corrected = holm([row.p_value for row in rows])
    return [replace(row, corrected=p_value) for row, p_value in zip(rows, corrected, strict=True)]


def board_table(board: Board, entries: Sequence[Entry], comparisons: Sequence[Comparison]) -> Table:
    """Return the table of one board."""
    by_attention = {row.attention: row for row in comparisons if row.family == board.family}
    columns = ["", "seeds", board.metric.heading, "± 95 %", "each seed"]
    columns += [metric.heading for metric in board.further]
    columns += ["FNA minus this", "± 95 %", "p", "p, corrected", "CPU minutes", "kernel", "parameters"]
    lines = []
    for item in entries:
        if item.values:
            mean, half_width = _mean(item.values)
            each = ", ".join(f"{value:.2f}" for _, value in sorted(item.values.items()))
            further = [_number(_mean(values)[0]) for values in item.further.values()]
            lines.append(
                [
                    *[item.label, str(len(item.values)), _number(mean), _number(half_width), each, *further],
                    *_comparison_texts(by_attention.get(item.attention)),
                    *[
                        _range(item.cpu_minutes.values()),
                        item.kernel,
                        f"{item.parameters:,}" if item.parameters else "",
                    ],
                ]
            )
        else:
            lines.append([item.label, "0", *[""] * (len(columns) - 2)])
    return Table(board.title, columns, lines)


def plain(boards: Mapping[str, Sequence[Entry]], comparisons: Sequence[Comparison], command: str) -> dict[str, Any]:
    """Return the scoreboard as plain values; numbers that do not exist are None."""
    return {
        "command": command,
        "correction": f"Holm, {len(comparisons)} comparisons",
        "boards": {family: [_finite(asdict(item)) for item in entries] for family, entries in boards.items()},
        "comparisons": [_finite(asdict(row)) for row in comparisons],
    }


def markdown(tables: Sequence[Table], notes: Sequence[str], figure: str, command: str, conditions: str) -> str:
    """Return the page of the scoreboard."""
    lines = ["# Scoreboard", "", *(line for note in notes for line in (note, ""))]
    lines += ["```", command, "```", "", conditions, ""]
    for item in tables:
        lines += [f"## {item.title}", "", *table(item.columns, item.lines), ""]
    return "\n".join([*lines, *([f"![Scoreboard]({figure})", ""] if figure else [])])


def _mean(values: Mapping[int, float]) -> tuple[float, float]:
    """Return mean and half the width of the 95 % interval; NaN where they do not exist."""
    if not values:
        return math.nan, math.nan
    summary = summarize(list(values.values()))
    return summary.mean, summary.half_width


def _comparison_texts(row: Comparison | None) -> list[str]:
    if row is None:
        return [""] * 4
    return [f"{row.difference:+.2f}", _number(row.half_width), _number(row.p_value, 4), _number(row.corrected, 4)]


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _range(values: Iterable[float]) -> str:
    """Return the smallest and the largest value, or one number if they are equal when rounded."""
    texts = [f"{value:.1f}" for value in sorted(values)]
    return " to ".join(dict.fromkeys([texts[0], texts[-1]])) if texts else ""


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in values.items()}
