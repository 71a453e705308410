"""Where the time of a training step goes, measured inside Lightning's own loop."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import lightning as L
import torch

from fna_lightning.task import Task

PHASES = ("data", "forward", "backward", "optimiser")


class StepClock(L.Callback):
    """Measures a fit from its first step to its last, and in it loading, forward, backward and optimiser.

    What remains of the total is Lightning: hooks, logging, moving batches, the loop itself.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.total = 0.0
        self.steps = 0
        self._started = 0.0
        self._since = 0.0

    def profile(self) -> dict[str, float]:
        """Return the seconds a step spends in each phase."""
        shares = {name: seconds / self.steps for name, seconds in self.seconds.items()}
        return shares | {"lightning": self.total / self.steps - sum(shares.values())}

    def loading(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield ``batches``, counting the time it takes to make them."""
        source = iter(batches)
        while True:
            since = time.perf_counter()
            try:
                batch = next(source)
            except StopIteration:
                return
            self.seconds["data"] += time.perf_counter() - since
            yield batch

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # an attribute of this instance shadows the method; on_fit_end takes it away
        assert isinstance(pl_module, Task), "only a Task has a loss to measure"
        vars(pl_module)["loss"] = self._timed(pl_module.loss, pl_module.device)
        for optimizer in trainer.optimizers:
            optimizer.register_step_post_hook(lambda *_: self._stop("optimiser", pl_module.device))

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        del vars(pl_module)["loss"]

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._started = now(pl_module.device)

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: torch.Tensor) -> None:
        self._since = now(pl_module.device)

    def on_after_backward(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stop("backward", pl_module.device)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        self._since = now(pl_module.device)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.steps += 1
        self.total = now(pl_module.device) - self._started

    def _stop(self, phase: str, device: torch.device) -> None:
        self.seconds[phase] += now(device) - self._since

    def _timed(self, loss: Callable[..., torch.Tensor], device: torch.device) -> Callable[..., torch.Tensor]:
        def timed(*args: Any) -> torch.Tensor:
            since = now(device)
            result = loss(*args)
            self.seconds["forward"] += now(device) - since
            return result

        return timed


def now(device: torch.device) -> float:
    """Return the time at which ``device`` has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
