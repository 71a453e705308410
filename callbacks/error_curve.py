"""ErrorCurve: the error against the number of context points, as a figure."""

from pathlib import Path

import lightning as L

from fna_lightning.plotting.fields import curve_figure
from fna_lightning.tasks.fields.task import FieldRegression
from fna_lightning.training.figure_writers import figure_writers
from fna_lightning.utils.files import atomic_write

FILE_NAME = "error_curve.png"


class ErrorCurve(L.Callback):
    """Draws the error of a ``FieldRegression`` against the number of context points.

    After ``test`` it writes error_curve.png to the run folder and adds the figure ``test/error_curve`` to TensorBoard;
    after ``fit`` it does the same with the metrics of the last validation and the figure ``val/error_curve``.
    """

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if not isinstance(pl_module, FieldRegression):
            raise TypeError(f"ErrorCurve needs a FieldRegression, got {type(pl_module).__name__}; remove the callback")

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._draw(trainer, pl_module, "val")

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._draw(trainer, pl_module, "test")

    def _draw(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        assert isinstance(pl_module, FieldRegression)
        curves = pl_module.error_curves({name: float(value) for name, value in trainer.callback_metrics.items()}, stage)
        if not curves or not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        figure = curve_figure(curves, f"{stage}/{pl_module.likelihood.error}")
        atomic_write(Path(trainer.default_root_dir) / FILE_NAME, lambda file: figure.savefig(file, format="png"))
        for board in figure_writers(trainer.loggers):
            board.add_figure(f"{stage}/error_curve", figure, max(0, trainer.global_step - 1))
