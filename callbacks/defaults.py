"""The default callbacks of a run."""

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint, ModelSummary, ProgressBar

from fna_lightning.callbacks.best_checkpoint import BestCheckpoint
from fna_lightning.callbacks.check_sharding import CheckSharding
from fna_lightning.callbacks.finite_loss import FiniteLoss
from fna_lightning.callbacks.hparams import HParams
from fna_lightning.callbacks.last_checkpoint import LastCheckpoint
from fna_lightning.callbacks.parameter_summary import ParameterSummary
from fna_lightning.callbacks.prediction_writer import PredictionWriter
from fna_lightning.callbacks.progress_bar import RunProgressBar, is_interactive
from fna_lightning.callbacks.run_estimate import RunEstimate
from fna_lightning.callbacks.run_summary import RunSummary
from fna_lightning.callbacks.step_metrics import StepMetrics
from fna_lightning.task import Task
from fna_lightning.training.cli import RunContext


def run_callbacks(configured: list[L.Callback], context: RunContext) -> list[L.Callback]:
    """Return the callbacks of a run: the configured ones and the defaults of its verb."""
    callbacks = [*configured, CheckSharding(), RunSummary(str(context.folder), context.seed)]
    if context.progress_bar and not any(isinstance(callback, ProgressBar) for callback in configured):
        callbacks.append(RunProgressBar())
    if context.verb == "predict":
        callbacks.append(PredictionWriter(str(context.folder)))
    if context.verb != "fit":
        return callbacks
    # without a bar, as in a log file, the status is a line a minute
    report_minutes = 1.0 if context.progress_bar and not is_interactive() else None
    # first, because the bar shows the status of the batch that has just ended
    callbacks = [
        RunEstimate(context.folder.parent.name, report_minutes),
        *callbacks,
        HParams(context.seed),
        FiniteLoss(),
        StepMetrics(),
    ]
    if context.model_summary and not any(isinstance(callback, ModelSummary) for callback in configured):
        callbacks.append(ParameterSummary())
    return _with_checkpoints(callbacks, context) if context.checkpointing else callbacks


def _with_checkpoints(callbacks: list[L.Callback], context: RunContext) -> list[L.Callback]:
    """Add ``last.ckpt``, and ``best.ckpt`` unless the configuration has a checkpoint callback of its own."""
    last = [callback for callback in callbacks if isinstance(callback, LastCheckpoint)] or [LastCheckpoint()]
    others = [callback for callback in callbacks if not isinstance(callback, LastCheckpoint)]
    if not any(isinstance(callback, ModelCheckpoint) for callback in others) and isinstance(context.model, Task):
        metric, mode = context.model.monitor
        folder = context.folder / "checkpoints"
        others.append(BestCheckpoint(folder, "best", monitor=metric, mode=mode, enable_version_counter=False))
    # Lightning takes the best score from the first checkpoint callback, so LastCheckpoint comes after it.
    return [*others, *last]
