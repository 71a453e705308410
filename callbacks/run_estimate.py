"""RunEstimate: what a run will do, how long it takes, and how far it is."""

import logging
import math
from typing import Any

import lightning as L
from torch import Tensor

from fna_lightning.callbacks.run_summary import describe_limit, limited
from fna_lightning.task import Task
from fna_lightning.training.durations import MEASURED_ON, faster_config
from fna_lightning.training.run_time import RunClock, clock_time, duration, remaining_work
from fna_lightning.training.timer import IntervalTimer

log = logging.getLogger(__name__)

# The estimate is logged after ENOUGH_BATCHES measured batches, or after ENOUGH_SECONDS with at least FEW_BATCHES.
ENOUGH_BATCHES = 20
FEW_BATCHES = 5
ENOUGH_SECONDS = 30.0
# Shorter runs get no estimate, and longer ones the name of a faster configuration.
SHORTEST = 30.0
LONG = 3600.0


class RunEstimate(L.Callback):
    """Logs the size of a run when training starts, and after some steps an estimate of its time.

    The estimate includes validation. Times are measured between batches without waiting for the device, and nothing
    here draws random numbers or is saved in checkpoints. ``RunProgressBar`` shows the status of this callback.

    Args:
        config: name of the configuration; for a shipped one, the estimate of a long run names a faster one.
        report_minutes: interval at which the status is logged; None for never, as when there is a progress bar.
    """

    def __init__(self, config: str = "", report_minutes: float | None = None) -> None:
        self.config = config
        self.report_timer = IntervalTimer(report_minutes) if report_minutes is not None else None
        self.clock = RunClock()
        self._loss: Tensor | None = None
        self._left: float | None = None
        self._estimated = self._resumed = False

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._resumed = trainer.global_step > 0
        self._estimated = False
        self._left = None
        if trainer.is_global_zero:
            log.info("%s", describe_run(trainer, pl_module))
        if self.report_timer is not None:
            self.report_timer.restart()
        self.clock.restart()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.clock.end_validation()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not trainer.is_global_zero:
            return
        examples = pl_module.batch_size(batch) * trainer.world_size if isinstance(pl_module, Task) else 0
        self.clock.end_batch(examples)
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self._loss = loss.detach() if isinstance(loss, Tensor) else None
        self._left = self.clock.seconds_left(remaining_work(trainer, batch_idx + 1))
        if not self._estimated and self._measured_enough():
            self._estimated = True
            self._log_estimate(type(pl_module).__name__)
        if self.report_timer is not None and self.report_timer.is_due:
            self.report_timer.restart()
            epochs = "" if trainer.max_epochs in (None, -1) else f"/{trainer.max_epochs}"
            place = f"epoch {trainer.current_epoch + 1}{epochs}, step {trainer.global_step}"
            log.info("%s: %s", place, ", ".join(self.status()))

    def status(self) -> list[str]:
        """Return the loss, the speed and the time left, as short texts; reading the loss waits for the device."""
        parts = [] if self._loss is None else [f"loss {self._loss.float().mean().item():.4g}"]
        speed, batch = self.clock.examples_per_second, self.clock.batch_seconds
        if speed is not None:
            parts.append(f"{speed:.3g} ex/s" if speed < 100 else f"{speed:.0f} ex/s")
        elif batch:
            parts.append(f"{1 / batch:.3g} batches/s")
        if self._left is not None:
            parts.append(f"{clock_time(self._left)} left")
        return parts

    def _measured_enough(self) -> bool:
        batches = self.clock.batches
        return batches >= ENOUGH_BATCHES or (batches >= FEW_BATCHES and self.clock.elapsed >= ENOUGH_SECONDS)

    def _log_estimate(self, task: str) -> None:
        if self._left is None:
            log.info("the length of the training data is unknown, so there is no estimate of the time left")
            return
        total = self._left if self._resumed else self._left + self.clock.elapsed
        if total < SHORTEST:
            return
        text = f"about {duration(total)} {'left ' if self._resumed else ''}on this machine"
        faster = faster_config(task, self.config, total) if total > LONG else None
        if faster is not None:
            text += f"; {faster[0]} took {duration(faster[1])} on {MEASURED_ON}"
        log.info("%s", text)


def describe_run(trainer: L.Trainer, module: L.LightningModule) -> str:
    """Return one line with the number of parameters and steps, and the limit of the validation."""
    parameters = sum(parameter.numel() for parameter in module.parameters())
    batches = trainer.num_training_batches
    if batches < math.inf:
        per_epoch = math.ceil(batches / trainer.accumulate_grad_batches)
        text = f"{parameters:,} parameters, {per_epoch:,} steps per epoch"
    else:
        text = f"{parameters:,} parameters, epochs of unknown length"
    total = trainer.estimated_stepping_batches
    # -1 for data of unknown length without max_steps
    if 0 < total < math.inf:
        text += f", {total:,.0f} steps in all"
    if trainer.global_step:
        text += f", {trainer.global_step:,} done"
    for split, counts in limited(trainer, "val").get("limited", {}).items():
        text += f", validation {describe_limit(split, counts)}"
    return text
