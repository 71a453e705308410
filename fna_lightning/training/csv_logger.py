"""MetricsCSVLogger: metrics.csv of a run, one file even if the run is resumed many times."""

import csv
import io
from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from fna_lightning.errors import UsageError
from fna_lightning.utils.files import cannot_write, existing, write_text

FLUSH_EVERY = 100


class MetricsCSVLogger(Logger):
    """Appends rows to metrics.csv; a new column rewrites the file atomically.

    Lightning's CSVLogger is not used because it deletes the file of an earlier process.

    Args:
        folder: the run folder.
        keep: number of existing rows to keep; a resumed run logs the rows after them again.
    """

    def __init__(self, folder: Path, keep: int = 0) -> None:
        super().__init__()
        self.folder = folder
        self.rows = keep
        self._unsaved: list[dict[str, Any]] = []
        self._columns: list[str] | None = None

    @property
    def name(self) -> str:
        return self.folder.parent.name

    @property
    def version(self) -> str:
        return self.folder.name

    @property
    def log_dir(self) -> str:
        return str(self.folder)

    @property
    def save_dir(self) -> str:
        return str(self.folder.parent.parent)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Do nothing: hyperparameters are in config.yaml."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.start()
        row: dict[str, Any] = {name: _to_python(value) for name, value in metrics.items()}
        self._unsaved.append({**row, "step": self.rows if step is None else step})
        self.rows += 1
        if len(self._unsaved) >= FLUSH_EVERY:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        if not self._unsaved:
            return
        columns = sorted({*(self._columns or []), *(name for row in self._unsaved for name in row)})
        try:
            if columns == self._columns:
                with open(self.path, "a", newline="", opener=existing) as file:
                    csv.DictWriter(file, columns).writerows(self._unsaved)
            else:
                self._rewrite([*self._read(), *self._unsaved], columns)
        except OSError as error:
            raise UsageError(cannot_write(self.path, error)) from error
        self._columns, self._unsaved = columns, []

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self.save()

    def start(self) -> None:
        """Truncate the file to the rows that are kept; only the first call has an effect."""
        if self._columns is None:
            kept = [{name: value for name, value in row.items() if value} for row in self._read()[: self.rows]]
            self.rows = len(kept)
            self._columns = sorted({name for row in kept for name in row})
            self._rewrite(kept, self._columns)

    @property
    def path(self) -> Path:
        """Path of metrics.csv."""
        return self.folder / "metrics.csv"

    def _read(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        with self.path.open(newline="") as file:
            return list(csv.DictReader(file))

    def _rewrite(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        text = io.StringIO(newline="")
        if rows:
            writer = csv.DictWriter(text, columns)
            writer.writeheader()
            writer.writerows(rows)
        write_text(self.path, text.getvalue())


def rows_written(loggers: list[Logger]) -> int:
    """Return the number of rows that metrics.csv of a run has so far."""
    return next((logger.rows for logger in loggers if isinstance(logger, MetricsCSVLogger)), 0)


def _to_python(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value
