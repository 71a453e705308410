"""What a run logged epoch by epoch, from its metrics.csv."""

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from fna_lightning.experiments.grid import Cell


def by_epoch(cells: Sequence[Cell], root: Path, column: str) -> dict[int, float]:
    """Return the mean over cells of the last value of ``column`` in each epoch; empty if nobody logged it."""
    together: dict[int, list[float]] = defaultdict(list)
    for cell in cells:
        for epoch, value in _read(cell.folder(root) / "metrics.csv", column).items():
            together[epoch].append(value)
    return {epoch: fmean(values) for epoch, values in sorted(together.items())}


def _read(path: Path, column: str) -> dict[int, float]:
    found: dict[int, float] = {}
    if path.is_file():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row.get(column) and row.get("epoch"):
                    found[int(row["epoch"])] = float(row[column])
    return found
