"""HParams: model settings and the best metric of a run for TensorBoard's HParams tab."""

from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.tensorboard.summary import hparams

from fna_lightning.attention import ExternalAttention, Fractional
from fna_lightning.introspection.maps import attention_layers
from fna_lightning.task import Task

# Columns that every run has, with a value that sets their type. TensorBoard takes the columns of a sweep from any of
# its runs, which may be one without alpha.
COLUMNS: dict[str, str | float] = {"alpha": 0.0, "attention": "", "d": 0.0, "kappa": 0.0, "seed": 0.0}
# TensorBoard sorts the columns by name and shows the first five; this prefix sorts the other settings behind them.
PREFIX = "settings."


class HParams(L.Callback):
    """Logs the model settings when training starts, and the best validation metric to TensorBoard when it ends.

    TensorBoard's HParams tab then has one row per run. It shows the columns ``alpha``, ``attention``, ``d`` (the head
    width), ``kappa`` (as a number, also if a rule sets it) and ``seed``; the other settings of the model can be
    selected on the left as ``settings.<name>``. The metrics are the best value of the task's validation metric, the
    same metric of the test, and the last mean spectral gap and mean number of hops.

    Args:
        seed: the seed of the run.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not isinstance(pl_module, Task) or pl_module.model_config is None:
            return
        seed = {} if self.seed is None else {"seed": self.seed}
        others = {f"{PREFIX}{name}": value for name, value in plain_settings(pl_module.model_config)}
        settings = attention_settings(pl_module) | seed | others
        for logger in trainer.loggers:
            if not isinstance(logger, TensorBoardLogger):
                logger.log_hyperparams(settings)
            elif trainer.is_global_zero:
                _log_columns(logger, settings, pl_module.monitor[0])

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not isinstance(pl_module, Task) or pl_module.model_config is None:
            return
        name = pl_module.monitor[0]
        saver = trainer.checkpoint_callback
        best = saver.best_model_score if isinstance(saver, ModelCheckpoint) and saver.monitor == name else None
        value = trainer.callback_metrics.get(name) if best is None else best
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger) and value is not None:
                logger.log_metrics({f"best/{name}": float(value)}, step=trainer.global_step)


def attention_settings(task: Task) -> dict[str, Any]:
    """Return class, head width, alpha and kappa of the first attention layer; kappa as a number."""
    layer = next(iter(attention_layers(task).values()), None)
    if layer is None:
        return {}
    head_dim = layer.head_dim if isinstance(layer, ExternalAttention) else layer.value.out_features // layer.num_heads
    settings: dict[str, Any] = {"attention": type(layer.attention).__name__, "d": head_dim}
    if isinstance(layer.attention, Fractional):
        queries = torch.empty(1, layer.num_heads, 0, head_dim)
        kappa = torch.as_tensor(layer.attention.scale(queries)).mean().item()
        settings |= {"alpha": layer.attention.alpha, "kappa": kappa}
    return settings


def plain_settings(model_config: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each setting of a model_config, e.g. (encoder.dim, 64).

    Left out are the class, alpha and kappa of the attention, which ``attention_settings`` returns.
    """
    if prefix not in ("", "attention") and "class_path" in model_config:
        yield prefix, str(model_config["class_path"]).rpartition(".")[2]
    for name, value in (model_config.get("init_args") or {} if "class_path" in model_config else model_config).items():
        path = f"{prefix}.{name}" if prefix else name
        if path in ("attention.alpha", "attention.kappa"):
            continue
        if isinstance(value, dict):
            yield from plain_settings(value, path)
        elif value is None or isinstance(value, bool | int | float | str):
            yield path, "none" if value is None else value
        else:
            yield path, str(value)


def _log_columns(logger: TensorBoardLogger, settings: dict[str, Any], monitor: str) -> None:
    """Write the settings and the names of all columns; ``log_hyperparams`` leaves out columns without a value."""
    metrics = [f"test/{monitor.removeprefix('val/')}", f"best/{monitor}"]
    metrics += ["attention/spectral_gap", "attention/mean_hops"]
    columns, _, _ = hparams(COLUMNS | settings, dict.fromkeys(metrics, 0.0))
    _, start, end = hparams(settings, {})
    for summary in (columns, start, end):
        logger.experiment.file_writer.add_summary(summary)
    # for hparams.yaml
    logger.hparams.update(settings)
