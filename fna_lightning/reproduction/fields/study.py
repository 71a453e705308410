"""The comparison: choose the start values on validation episodes, train every run that is missing, collect the results.

Every finished run is a small JSON file, so an interrupted comparison continues where it stopped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fna_lightning.experiments.processes import Job, run_jobs
from fna_lightning.reproduction.fields.attentions import ATTENTIONS
from fna_lightning.reproduction.fields.comparison import Comparison, RunErrors, compare
from fna_lightning.reproduction.fields.references import read_references, run_references
from fna_lightning.reproduction.fields.scales import FieldScale
from fna_lightning.reproduction.fields.tasks import TASKS
from fna_lightning.reproduction.fields.training import SPARE_SEED, Errors, FieldRun, run_field


@dataclass(frozen=True)
class FieldResults:
    """Results of the comparison.

    Attributes:
        scale: its size.
        errors: task -> attention -> seed -> errors on the test episodes.
        references: task -> reference -> errors on the test episodes.
        neighbors: task -> attention -> evaluation set -> effective neighbors of each (seed, head).
        starts: task -> attention -> start value -> error on the validation episodes; the first is the chosen one.
        comparisons: paired tests on the primary evaluation sets.
        missing: number of runs that have not finished.
        training_hours: time of all finished runs.
    """

    scale: FieldScale
    errors: RunErrors
    references: dict[str, dict[str, Errors]]
    neighbors: dict[str, dict[str, dict[str, list[list[float]]]]]
    starts: dict[str, dict[str, dict[float, float]]]
    comparisons: list[Comparison]
    missing: int
    training_hours: float


def run_study(scale: FieldScale, folder: Path, workers: int, console: Console) -> list[str]:
    """Run everything that is missing and return the errors of what failed."""
    for name in scale.tasks:
        # Workers would otherwise fill the cache of the data at the same time.
        TASKS[name].data(scale).prepare_data()
    todo = [name for name in scale.tasks if read_references(name, scale, folder) is None]
    failures = _run_all(run_references, [(name, scale, folder) for name in todo], workers, console)
    failures += _train(choice_runs(scale), folder, workers, console)
    return failures + _train(compared_runs(scale, folder), folder, workers, console)


def task_attentions(scale: FieldScale, task: str) -> list[str]:
    """Return the attentions that are trained on a task."""
    chosen = TASKS[task].attentions
    return [name for name in scale.attentions if chosen is None or name in chosen]


def choice_runs(scale: FieldScale) -> list[FieldRun]:
    """Return the runs that choose the start values: another seed, measured on validation episodes."""
    return [
        FieldRun(task, name, start, SPARE_SEED, "val", scale)
        for task in scale.tasks
        for name in task_attentions(scale, task)
        for start in ATTENTIONS[name].starts
        if len(ATTENTIONS[name].starts) > 1
    ]


def start_errors(scale: FieldScale, folder: Path, task: str, attention: str) -> dict[float, float]:
    """Return the start values with their errors on the validation episodes, the best first.

    The error is the geometric mean over the evaluation sets, so that no set dominates it. A start value whose run is
    missing or diverged is last.
    """
    errors = {}
    for start in ATTENTIONS[attention].starts:
        result = FieldRun(task, attention, start, SPARE_SEED, "val", scale).result(folder)
        means = [np.mean(values) for values in result["errors"].values()] if result else [math.nan]
        error = float(np.exp(np.mean(np.log(means))))
        errors[start] = error if math.isfinite(error) else math.inf
    return dict(sorted(errors.items(), key=lambda item: item[1]))


def compared_runs(scale: FieldScale, folder: Path) -> list[FieldRun]:
    """Return the compared runs, ordered by seed, with the chosen start values; of those whose choice is finished."""
    runs = []
    for seed in range(scale.seeds):
        for task in scale.tasks:
            for attention in task_attentions(scale, task):
                starts = start_errors(scale, folder, task, attention)
                best, error = next(iter(starts.items()))
                if len(starts) == 1 or math.isfinite(error):
                    runs.append(FieldRun(task, attention, best, seed, "test", scale))
    return runs


def collect(scale: FieldScale, folder: Path) -> FieldResults:
    """Return the results of all finished runs."""
    errors: dict[str, dict[str, dict[int, Errors]]] = {}
    neighbors: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    seconds, finished = 0.0, 0
    for run in compared_runs(scale, folder):
        result = run.result(folder)
        if result is not None:
            errors.setdefault(run.task, {}).setdefault(run.attention, {})[run.seed] = result["errors"]
            for name, values in result["neighbors"].items():
                sets = neighbors.setdefault(run.task, {}).setdefault(run.attention, {})
                sets.setdefault(name, []).append(values)
            seconds, finished = seconds + result["seconds"], finished + 1
    for run in choice_runs(scale):
        seconds += (run.result(folder) or {"seconds": 0.0})["seconds"]
    stored = {name: read_references(name, scale, folder) for name in scale.tasks}
    needed = scale.seeds * sum(len(task_attentions(scale, task)) for task in scale.tasks)
    return FieldResults(
        scale,
        errors,
        {name: result["errors"] for name, result in stored.items() if result},
        neighbors,
        {
            task: {name: start_errors(scale, folder, task, name) for name in task_attentions(scale, task)}
            for task in scale.tasks
        },
        compare(errors, {name: TASKS[name].primary for name in scale.tasks}),
        needed - finished,
        seconds / 3600.0,
    )


def _train(runs: Sequence[FieldRun], folder: Path, workers: int, console: Console) -> list[str]:
    todo = [run for run in runs if run.result(folder) is None]
    return _run_all(run_field, [(run, folder) for run in todo], workers, console)


def _run_all(job: Job, arguments: Sequence[tuple[Any, ...]], workers: int, console: Console) -> list[str]:
    """Run jobs, in processes with one thread each if ``workers`` > 1; print a line for each and return the errors."""
    failures = []
    finished = 0

    def done(number: int, error: str | None) -> None:
        nonlocal finished
        finished += 1
        first = arguments[number][0]
        label = first.label if isinstance(first, FieldRun) else f"{first} references"
        if error:
            failures.append(f"{label}: {error}")
        console.print(f"{finished} of {len(arguments)}: {label}{f' failed: {error}' if error else ''}", highlight=False)

    if workers > 1:
        run_jobs(job, arguments, done, workers=workers, threads=1)
        return failures
    for number, values in enumerate(arguments):
        try:
            done(number, job(*values))
        except Exception as error:
            done(number, f"{type(error).__name__}: {error}")
    return failures
