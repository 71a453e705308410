"""StepMetrics: learning rate, examples per second, and the loss of the first step."""

import time
from typing import Any

import lightning as L

from fna_lightning.task import Task
from fna_lightning.training.csv_logger import MetricsCSVLogger


class StepMetrics(L.Callback):
    """Logs ``train/learning_rate``, ``train/examples_per_second`` and the metrics of the first training step.

    The first two are logged at multiples of ``log_every_n_steps``, when Lightning logs ``train/loss_step``, and the
    learning rate also for the first step. No other step waits for the device. Several parameter groups are logged as
    ``train/learning_rate_<group>``.

    Examples per second is a mean since the value before, over all processes, without validations. It does not go to
    metrics.csv, whose values a resumed run reproduces exactly.
    """

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}
        # since the last value of examples per second
        self._examples = 0
        self._seconds = 0.0
        # end of the previous batch; None if something else than training has happened since
        self._previous: float | None = None

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._previous = None

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._previous = None

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # read before the step, because a schedule changes the rates after it
        if _is_logged(trainer, trainer.global_step + 1):
            self._rates = learning_rates(trainer)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._count(trainer, pl_module, batch)
        # with accumulated gradients, global_step stays the same for several batches
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        step = trainer.global_step
        if not _is_logged(trainer, step):
            return
        values = dict(self._rates)
        if step == 1 and _interval(trainer) > 1:
            # on every process: reading a metric may synchronize it
            values |= {name: float(value) for name, value in trainer.logged_metrics.items()}
            values["epoch"] = trainer.current_epoch
        speed = self._speed()
        for logger in trainer.loggers:
            exact = isinstance(logger, MetricsCSVLogger)
            # Lightning counts logged steps from 0
            logger.log_metrics(values if exact else values | speed, step=step - 1)

    def _count(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any) -> None:
        """Add a batch to the examples and the time since the last value."""
        now = time.perf_counter()
        # the first batch of an epoch is left out: its start is not known, and workers may have to start
        if self._previous is not None and isinstance(pl_module, Task):
            self._examples += pl_module.batch_size(batch) * trainer.world_size
            self._seconds += now - self._previous
        self._previous = now

    def _speed(self) -> dict[str, float]:
        """Return examples per second since the last call; empty if no batch was timed."""
        examples, seconds = self._examples, self._seconds
        self._examples, self._seconds = 0, 0.0
        return {"train/examples_per_second": examples / seconds} if seconds else {}


def learning_rates(trainer: L.Trainer) -> dict[str, float]:
    """Return the learning rate of each parameter group by tag."""
    rates = [float(group["lr"]) for optimizer in trainer.optimizers for group in optimizer.param_groups]
    if len(rates) == 1:
        return {"train/learning_rate": rates[0]}
    return {f"train/learning_rate_{number}": rate for number, rate in enumerate(rates)}


def _is_logged(trainer: L.Trainer, step: int) -> bool:
    """Return whether a step, counted from 1, is logged."""
    interval = _interval(trainer)
    return step > 0 and interval > 0 and (step == 1 or step % interval == 0)


def _interval(trainer: L.Trainer) -> int:
    # an attribute that the Trainer does not declare
    return int(trainer.log_every_n_steps)  # type: ignore[attr-defined]
