"""Per-epoch metrics of runs, read from metrics.csv, and their means over seeds."""

import csv
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from fna_lightning.experiments.grid import Cell

# values by epoch and column
Epochs = dict[int, dict[str, float]]


def read_epochs(path: Path, columns: Collection[str]) -> Epochs:
    """Return the last value of each column in each epoch of a metrics.csv; empty if the file does not exist."""
    epochs: Epochs = defaultdict(dict)
    if path.is_file():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                values = {name: float(row[name]) for name in columns if row.get(name)}
                if values and row.get("epoch"):
                    epochs[int(row["epoch"])] |= values
    return dict(sorted(epochs.items()))


def mean_epochs(runs: Iterable[Epochs]) -> Epochs:
    """Return the mean of each column over the runs that reached an epoch."""
    collected: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for epochs in runs:
        for epoch, row in epochs.items():
            for name, value in row.items():
                collected[epoch][name].append(value)
    return {
        epoch: {name: statistics.fmean(values) for name, values in row.items()}
        for epoch, row in sorted(collected.items())
    }


def mean_by_epoch(cells: Sequence[Cell], root: Path, column: str) -> dict[int, float]:
    """Return the mean over cells of one column by epoch; empty if no run logged it."""
    means = mean_epochs(read_epochs(cell.folder(root) / "metrics.csv", [column]) for cell in cells)
    return {epoch: row[column] for epoch, row in means.items()}
