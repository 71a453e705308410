"""FieldMap: a map of the field in a CSV file, at the end of training."""

import logging
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.loggers import TensorBoardLogger

from fna_lightning.tasks.fields.maps import check_map, predict_map
from fna_lightning.tasks.fields.task import FieldRegression

log = logging.getLogger(__name__)


class FieldMap(L.Callback):
    """Writes map.png and map.csv to the run folder at the end of training, and adds the figure ``map`` to TensorBoard.

    The map is predicted from all points of the file of a ``ScatteredFile``, including the held-out ones.

    Args:
        resolution: number of grid points along each axis.
    """

    def __init__(self, resolution: int = 100) -> None:
        self.resolution = resolution

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        # Through an attribute, because the trainer has a proxy of the data module.
        data: Any = getattr(trainer, "datamodule", None)
        if not isinstance(pl_module, FieldRegression) or not hasattr(data, "table"):
            raise TypeError(
                "FieldMap needs the task FieldRegression and the data module ScatteredFile, got "
                f"{type(pl_module).__name__} and {type(data).__name__}; remove the callback"
            )
        check_map(pl_module, data.table, self.resolution)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        assert isinstance(pl_module, FieldRegression)
        folder = Path(trainer.default_root_dir)
        prediction = predict_map(pl_module, trainer.datamodule.table, self.resolution)  # type: ignore[attr-defined]
        prediction.write(folder)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_figure("map", prediction.figure(), max(0, trainer.global_step - 1))
        log.info("map.png and map.csv are in %s", folder)
