"""HParams: model settings and the best metric of a run for TensorBoard's HParams tab."""

import math
from collections.abc import Iterator
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from fna_lightning.task import Task


class HParams(L.Callback):
    """Logs the model settings to TensorBoard when training starts, and the best metric when it ends.

    Args:
        seed: the seed of the run.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not isinstance(pl_module, Task) or pl_module.model_config is None:
            return
        settings: dict[str, Any] = dict(plain_settings(pl_module.model_config))
        if self.seed is not None:
            settings["seed"] = self.seed
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                # the metric must be declared with the settings to get a column; its value is logged at the end
                logger.log_hyperparams(settings, {f"hp/{pl_module.monitor[0]}": math.nan})

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not isinstance(pl_module, Task) or pl_module.model_config is None:
            return
        name = pl_module.monitor[0]
        saver = trainer.checkpoint_callback
        best = saver.best_model_score if isinstance(saver, ModelCheckpoint) and saver.monitor == name else None
        value = trainer.callback_metrics.get(name) if best is None else best
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger) and value is not None:
                logger.log_metrics({f"hp/{name}": float(value)}, step=trainer.global_step)


def plain_settings(model_config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each setting of a model_config, e.g. (attention, Fractional), (attention.alpha, 1.2)."""
    if prefix and "class_path" in model_config:
        yield prefix, str(model_config["class_path"]).rpartition(".")[2]
    for name, value in (model_config.get("init_args") or {} if "class_path" in model_config else model_config).items():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(value, dict):
            yield from plain_settings(value, path)
        elif value is None or isinstance(value, bool | int | float | str):
            yield path, "none" if value is None else value
        else:
            yield path, str(value)
