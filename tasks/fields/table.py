"""Scattered measurements from a CSV file."""

import csv
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError

log = logging.getLogger(__name__)

DELIMITERS = ",;\t"
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})


@dataclass(frozen=True)
class PointTable:
    """Measured points, all at different positions.

    Attributes:
        coordinates: (n, d) coordinates.
        values: (n,) values.
        names: names of the coordinates and of the value.
    """

    coordinates: NDArray[np.float64]
    values: NDArray[np.float64]
    names: list[str]

    def __len__(self) -> int:
        return len(self.values)

    def scaled_coordinates(self, coordinates: NDArray[np.float64] | None = None) -> NDArray[np.float32]:
        """Return coordinates, by default those of the points, scaled so that the points fill [-1, 1] on each axis."""
        low, high = self.coordinates.min(axis=0), self.coordinates.max(axis=0)
        chosen = self.coordinates if coordinates is None else coordinates
        return ((chosen - low) / (high - low) * 2.0 - 1.0).astype(np.float32)

    def scaled_values(self) -> NDArray[np.float32]:
        """Return the values with mean 0 and standard deviation 1."""
        return ((self.values - self.values.mean()) / self.values.std()).astype(np.float32)


def read_points(path: str | Path, coordinates: Sequence[str], value: str, least: int = 2) -> PointTable:
    """Return the points in a CSV file. Rows with an empty cell are left out; rows at the same position are averaged.

    Args:
        path: a CSV file with a header; columns are separated by commas, semicolons or tabs.
        coordinates: names of the columns with the coordinates.
        value: name of the column with the value.
        least: smallest allowed number of points.

    Raises:
        UsageError: if the file cannot be read, or a field cannot be predicted from its points.
    """
    names = [*coordinates, value]
    if not coordinates or len(set(names)) < len(names):
        raise UsageError(
            f"coordinates and value must be different columns, got {', '.join(coordinates) or 'no coordinates'} and "
            f"{value}"
        )
    numbers, total = _read_columns(Path(path), names)
    if len(numbers) < total:
        log.info("%s: %d of %d rows have an empty cell and are left out", path, total - len(numbers), total)
    positions, inverse, counts = np.unique(numbers[:, :-1], axis=0, return_inverse=True, return_counts=True)
    values = np.bincount(inverse.ravel(), weights=numbers[:, -1], minlength=len(positions)) / np.maximum(counts, 1)
    if repeated := len(numbers) - len(positions):
        log.info(
            "%s: rows that repeat the coordinates of another row: %d; such a point gets the mean of its values",
            path,
            repeated,
        )
    if len(positions) < least:
        raise UsageError(
            f"{path} has {len(positions)} point{'s' * (len(positions) != 1)} with all of {', '.join(names)}, but at "
            f"least {least} are needed; add measurements"
        )
    if np.ptp(values) == 0.0:
        raise UsageError(
            f"{value} is {values[0]:g} at all {len(values)} points of {path}, so there is nothing to predict; choose "
            "another value column"
        )
    for name, column in zip(coordinates, positions.T, strict=True):
        if np.ptp(column) == 0.0:
            raise UsageError(
                f"{name} is {column[0]:g} at all {len(column)} points of {path}, so it is not a coordinate; leave it "
                "out of the coordinates"
            )
    return PointTable(positions, values, names)


def _read_columns(path: Path, names: list[str]) -> tuple[NDArray[np.float64], int]:
    """Return the (rows, columns) numbers of the rows without an empty cell, and the number of all rows."""
    try:
        # utf-8-sig removes the mark with which spreadsheet programs begin a file
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            delimiter = max(DELIMITERS, key=header.count)
            columns = [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
            for name in names:
                if name not in columns:
                    raise UsageError(
                        f"{path} has the columns {', '.join(columns) or '(none)'} and no column {name!r}; choose the "
                        "coordinates and the value among them"
                    )
            positions = [columns.index(name) for name in names]
            rows, total = [], 0
            # the header is row 1, as in a spreadsheet
            for number, cells in enumerate(csv.reader(file, delimiter=delimiter), start=2):
                if not cells:
                    continue
                total += 1
                texts = [cells[position].strip() if position < len(cells) else "" for position in positions]
                if not any(text.lower() in MISSING for text in texts):
                    rows.append([_number(text, name, number, path) for text, name in zip(texts, names, strict=True)])
    except (OSError, UnicodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path} cannot be read as a CSV file ({reason}); give the path of a CSV file") from error
    return np.array(rows, dtype=np.float64).reshape(-1, len(names)), total


def _number(text: str, name: str, row: int, path: Any) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(
            f"row {row} of {path} has {text!r} in the column {name}, which is not a number; correct it or leave the "
            "cell empty"
        )
    return number
