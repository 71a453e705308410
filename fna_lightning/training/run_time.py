"""The time that a training run takes: measured batches and validations, and an estimate of the rest."""

import math
import time
from collections import deque
from dataclasses import dataclass

import lightning as L
from lightning.pytorch.callbacks import Timer

# The first batches are slower: memory is allocated, and kernels are chosen or compiled.
WARMUP = 3
# number of recent batches over which times are averaged
WINDOW = 500
# A validation batch needs the forward pass only, about a third of a training batch.
VALIDATION_SHARE = 1 / 3


@dataclass(frozen=True)
class RemainingWork:
    """What is left of a training run.

    Attributes:
        batches: training batches of one process; infinite if the length of the data is unknown.
        validations: number of validations.
        validation_batches: batches of one validation.
        time_limit: seconds until ``max_time`` ends the run; infinite without it.
    """

    batches: float
    validations: float
    validation_batches: float
    time_limit: float = math.inf


def remaining_work(trainer: L.Trainer, batches_done: int) -> RemainingWork:
    """Return what is left of a training run after ``batches_done`` batches of the current epoch."""
    per_epoch = float(trainer.num_training_batches)
    position = batches_done + (trainer.current_epoch * per_epoch if trainer.current_epoch else 0.0)
    epochs = math.inf if trainer.max_epochs in (None, -1) else float(trainer.max_epochs or 0)
    batches = (epochs * per_epoch if epochs else 0.0) - position if per_epoch < math.inf else math.inf
    if trainer.max_steps != -1:
        batches = min(batches, (trainer.max_steps - trainer.global_step) * _batches_per_step(trainer))
    batches = max(0.0, batches)
    validation_batches = sum(trainer.num_val_batches) if trainer.enable_validation else 0
    interval = _validation_interval(trainer)
    start = position if position < math.inf else float(batches_done)
    validations = 0.0
    if validation_batches and batches < math.inf and interval < math.inf:
        validations = (start + batches) // interval - start // interval
    limits = [
        left
        for callback in trainer.callbacks  # type: ignore[attr-defined]
        if isinstance(callback, Timer) and (left := callback.time_remaining()) is not None
    ]
    return RemainingWork(batches, validations, validation_batches, max(0.0, min(limits, default=math.inf)))


def _batches_per_step(trainer: L.Trainer) -> float:
    """Return the mean number of batches of an optimizer step; the last step of an epoch may have fewer."""
    per_epoch, accumulated = float(trainer.num_training_batches), trainer.accumulate_grad_batches
    return per_epoch / math.ceil(per_epoch / accumulated) if 0 < per_epoch < math.inf else float(accumulated)


def _validation_interval(trainer: L.Trainer) -> float:
    """Return the mean number of training batches from one validation to the next."""
    every, interval = trainer.check_val_every_n_epoch, trainer.val_check_batch
    per_epoch = float(trainer.num_training_batches)
    if interval is None:
        # validation by time
        return math.inf
    if every is None or per_epoch == math.inf:
        return float(interval)
    return per_epoch / max(1.0, per_epoch // interval) * every


class RunClock:
    """Measures the batches and validations of a training run, without waiting for the device.

    A batch is measured from the end of the previous one, so that loading data counts. What a batch takes longer when a
    validation came before it is the time of that validation, with checkpoints and callbacks.
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[float, int]] = deque(maxlen=WINDOW)
        self._validations: deque[float] = deque(maxlen=5)
        self.restart()

    def restart(self) -> None:
        """Begin to measure; call it when training starts or resumes."""
        self._batches.clear()
        self._validations.clear()
        self._validated = False
        self._skip = WARMUP
        self._started = self._last = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def batches(self) -> int:
        """Number of measured batches."""
        return len(self._batches)

    def end_validation(self) -> None:
        """Record that a validation has ended since the last batch."""
        self._validated = True

    def end_batch(self, examples: int) -> None:
        """Record the end of a training batch with this number of examples."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        validated, self._validated = self._validated, False
        if validated:
            self._validations.append(max(0.0, seconds - (self.batch_seconds or 0.0)))
        elif self._skip:
            self._skip -= 1
        else:
            self._batches.append((seconds, examples))

    @property
    def batch_seconds(self) -> float | None:
        """Mean seconds of a batch; None before the first measurement."""
        return sum(seconds for seconds, _ in self._batches) / len(self._batches) if self._batches else None

    @property
    def examples_per_second(self) -> float | None:
        """Examples per second; None before the first measurement, or if the examples are not known."""
        seconds, examples = (sum(column) for column in zip(*self._batches, strict=True)) if self._batches else (0, 0)
        return examples / seconds if seconds and examples else None

    def seconds_left(self, work: RemainingWork) -> float | None:
        """Return the estimated seconds of the rest of a run; None before a measurement or if there is no end."""
        batch = self.batch_seconds
        if batch is None:
            return None
        if self._validations:
            validation = sum(self._validations) / len(self._validations)
        else:
            validation = batch * VALIDATION_SHARE * work.validation_batches
        left = work.batches * batch + work.validations * validation
        left = min(left, work.time_limit)
        return left if left < math.inf else None


def duration(seconds: float) -> str:
    """Return a rounded duration, e.g. "40 s", "12 min", "2 h 10 min", "13 h"."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(round(minutes / 10) * 10, 60)
    return f"{hours} h {rest} min" if hours < 10 and rest else f"{round(minutes / 60)} h"


def clock_time(seconds: float) -> str:
    """Return a duration as H:MM:SS, for a progress bar."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
