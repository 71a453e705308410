"""Time of the phases of a training step, measured inside Lightning's training loop."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.profilers import Profiler

PHASES = ("data", "forward", "backward", "optimizer")


class StepClock(L.Callback):
    """Measures a fit from its first step to its last: data loading, forward, backward and optimizer.

    The rest of the time is Lightning: hooks, logging, moving batches, the loop itself. Pass ``profiler`` to the trainer
    as well; it measures the forward pass.
    """

    def __init__(self) -> None:
        self.profiler = LossProfiler()
        self.total = 0.0
        self.steps = 0
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._fit_started = 0.0
        self._phase_started = 0.0

    def profile(self) -> dict[str, float]:
        """Return the seconds that one step spends in each phase."""
        seconds = {**self._seconds, "forward": self.profiler.seconds}
        shares = {phase: seconds[phase] / self.steps for phase in PHASES}
        return shares | {"lightning": self.total / self.steps - sum(shares.values())}

    def loading(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield ``batches`` and measure the time it takes to load them."""
        iterator = iter(batches)
        while True:
            started = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._seconds["data"] += time.perf_counter() - started
            yield batch

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.profiler.device = pl_module.device
        for schedule in trainer.lr_scheduler_configs:
            # A benchmark has no validation, on which ReduceLROnPlateau depends.
            schedule.strict = False
        for optimizer in trainer.optimizers:
            optimizer.register_step_post_hook(lambda *_: self._stop("optimizer", pl_module.device))

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._fit_started = now(pl_module.device)

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: torch.Tensor) -> None:
        self._phase_started = now(pl_module.device)

    def on_after_backward(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stop("backward", pl_module.device)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        self._phase_started = now(pl_module.device)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps += 1
        self.total = now(pl_module.device) - self._fit_started

    def _stop(self, phase: str, device: torch.device) -> None:
        self._seconds[phase] += now(device) - self._phase_started


class LossProfiler(Profiler):
    """Measures the time a task spends in ``Task.loss``."""

    def __init__(self) -> None:
        super().__init__()
        self.device = torch.device("cpu")
        self.seconds = 0.0
        self._started = 0.0

    def start(self, action_name: str) -> None:
        if action_name == "loss":
            self._started = now(self.device)

    def stop(self, action_name: str) -> None:
        if action_name == "loss":
            self.seconds += now(self.device) - self._started


def now(device: torch.device) -> float:
    """Return the time at which ``device`` has completed all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
