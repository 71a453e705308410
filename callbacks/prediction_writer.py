"""PredictionWriter: writes the output of ``predict`` to a CSV file."""

from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import BasePredictionWriter
from torch import Tensor

from fna_lightning.utils.escaping import csv_text
from fna_lightning.utils.files import write_text


class PredictionWriter(BasePredictionWriter):
    """Writes predictions.csv, one row per example in the order of the data set.

    With several processes, each writes the predictions of its own examples to predictions.<rank>.csv.

    Args:
        folder: folder of the file.
    """

    def __init__(self, folder: str) -> None:
        super().__init__("epoch")
        self.folder = Path(folder)

    def write_on_epoch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, predictions: Any, batch_indices: Any
    ) -> None:
        file_name = "predictions.csv" if trainer.world_size == 1 else f"predictions.{trainer.global_rank}.csv"
        # a data module may have names for its examples, such as the files of a folder
        example_names = getattr(getattr(trainer, "datamodule", None), "example_names", lambda: None)()
        rows = sorted(
            (index, *values)
            for batch, indices in zip(predictions, batch_indices[0], strict=True)
            for index, *values in zip(indices, *map(_plain_values, batch.values()), strict=True)
        )
        first_column = "index" if example_names is None else "file"
        header = [first_column, *predictions[0]] if predictions else [first_column]
        lines = rows if example_names is None else [(example_names[index], *values) for index, *values in rows]
        write_text(self.folder / file_name, csv_text([header, *lines]))
        print(f"{len(rows)} predictions in {self.folder / file_name}")  # noqa: T201 - the output of `predict`


def _plain_values(column: Any) -> list[Any]:
    """Return a column of a batch as a list of Python values."""
    return column.tolist() if isinstance(column, Tensor) else list(column)
