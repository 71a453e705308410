"""What ``predict`` found, in a file."""

import csv
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import BasePredictionWriter


class PredictionsFile(BasePredictionWriter):
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
        rows = sorted(
            (index, *values)
            for batch, indices in zip(predictions, batch_indices[0], strict=True)
            for index, *values in zip(indices, *(column.tolist() for column in batch.values()), strict=True)
        )
        with (self.folder / name).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["index", *predictions[0]] if predictions else ["index"])
            writer.writerows(rows)
        print(f"{len(rows)} predictions in {self.folder / name}")  # noqa: T201 - the answer of `predict`
