"""Figures and histograms for loggers other than TensorBoard, with the methods of its ``SummaryWriter``."""

from collections.abc import Iterable
from typing import Any, Protocol

from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from torch import Tensor


class FigureWriter(Protocol):
    """What callbacks need to show figures; TensorBoard's ``SummaryWriter`` has these methods."""

    def add_figure(self, tag: str, figure: Any, global_step: int) -> None:
        """Log a Matplotlib figure."""

    def add_histogram(self, tag: str, values: Tensor, global_step: int) -> None:
        """Log a histogram of the values."""


class WandbFigures:
    """Figures and histograms in Weights & Biases.

    Args:
        logger: logger of the run.
    """

    def __init__(self, logger: WandbLogger) -> None:
        self.logger = logger

    def add_figure(self, tag: str, figure: Any, global_step: int) -> None:
        self.logger.log_image(tag, [figure], global_step)

    def add_histogram(self, tag: str, values: Tensor, global_step: int) -> None:
        import wandb

        histogram: Any = wandb.Histogram(values.cpu().numpy())
        self.logger.log_metrics({tag: histogram}, global_step)


class MlflowFigures:
    """Figures as PNG artifacts of an MLflow run, ``<tag>/<step>.png``; MLflow has no histograms.

    Args:
        logger: logger of the run.
    """

    def __init__(self, logger: MLFlowLogger) -> None:
        self.logger = logger

    def add_figure(self, tag: str, figure: Any, global_step: int) -> None:
        self.logger.experiment.log_figure(str(self.logger.run_id), figure, f"{tag}/{global_step:08d}.png")

    def add_histogram(self, tag: str, values: Tensor, global_step: int) -> None:
        """Do nothing."""


def figure_writers(loggers: Iterable[Logger]) -> list[FigureWriter]:
    """Return a writer for each logger that can show figures; metrics.csv cannot."""
    writers: list[FigureWriter] = []
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            writers.append(logger.experiment)
        elif isinstance(logger, WandbLogger):
            writers.append(WandbFigures(logger))
        elif isinstance(logger, MLFlowLogger):
            writers.append(MlflowFigures(logger))
    return writers
