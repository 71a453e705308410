"""What ``predict`` found, in a file."""

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import BasePredictionWriter
from torch import Tensor

from fna_lightning.utils.escaping import csv_text
from fna_lightning.utils.files import write_text


class PredictionWriter(BasePredictionWriter):
    """Writes predictions.csv, one line an example in the order they were asked.

    Args:
        folder: where the file goes.
    """

    def __init__(self, folder: str) -> None:
        super().__init__("epoch")
        self.folder = Path(folder)

    def write_on_epoch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, predictions: Any, batch_indices: Any
    ) -> None:
        name = "predictions.csv" if trainer.world_size == 1 else f"predictions.{trainer.global_rank}.csv"
        # a data module may know what its examples are called, such as the files of a folder
        called = getattr(getattr(trainer, "datamodule", None), "example_names", lambda: None)()
        rows = sorted(
            (index, *values)
            for batch, indices in zip(predictions, batch_indices[0], strict=True)
            for index, *values in zip(indices, *map(_plain, batch.values()), strict=True)
        )
        first = ["index"] if called is None else ["file"]
        head = [*first, *predictions[0]] if predictions else first
        lines = rows if called is None else [(called[index], *values) for index, *values in rows]
        write_text(self.folder / name, csv_text([head, *lines]))
        print(f"{len(rows)} predictions in {self.folder / name}")  # noqa: T201 - the answer of `predict`


def _plain(column: Any) -> list[Any]:
    """Return a column of a batch as plain values."""
    return column.tolist() if isinstance(column, Tensor) else list(column)
