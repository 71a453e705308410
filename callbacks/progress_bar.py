"""RunProgressBar: Lightning's progress bar with the loss, examples per second and the time left of the whole run."""

import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import RichProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
from rich.text import Text

from fna_lightning.callbacks.run_estimate import RunEstimate

# Seconds between two readings of the status, which wait for the device.
STATUS_INTERVAL = 1.0
# Metrics of the last validation are shown only if the line has room for them.
WIDE = 110


def is_interactive() -> bool:
    """Whether standard output can show a progress bar."""
    console = Console()
    return console.is_terminal or console.is_jupyter


class RunProgressBar(RichProgressBar):
    """Progress bar of the epoch with loss, examples per second and the time left of the whole run.

    Nothing is shown if standard output is not a terminal.
    """

    def __init__(self) -> None:
        super().__init__(refresh_rate=4)
        self.status = ""
        self._read = -STATUS_INTERVAL
        self._metrics: dict[str, Any] = {}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if not is_interactive():
            self.disable()

    def configure_columns(self, trainer: L.Trainer) -> list[ProgressColumn]:
        """Return the columns: description, bar, batches, status."""
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=14), MofNCompleteColumn())
        return [*columns, StatusColumn(self)]

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        estimates = [callback for callback in trainer.callbacks if isinstance(callback, RunEstimate)]  # type: ignore[attr-defined]
        due = trainer.is_last_batch or time.monotonic() - self._read >= STATUS_INTERVAL
        if estimates and self.is_enabled and due:
            self._read = time.monotonic()
            self.status = ", ".join(estimates[0].status())
        super().on_train_batch_end(trainer, *args)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._metrics = {name: float(value) for name, value in trainer.progress_bar_metrics.items()}
        super().on_validation_end(trainer, pl_module)

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        """Return the metrics of the last validation if there is room for them."""
        return self._metrics if Console().width >= WIDE else {}


class StatusColumn(ProgressColumn):
    """The status of the run, after the bar of an epoch; the time left of the evaluation after other bars."""

    def __init__(self, bar: RunProgressBar) -> None:
        super().__init__()
        self.bar = bar

    def render(self, task: Task) -> Text:
        """Return the text of a bar."""
        if task.id == self.bar.train_progress_bar_id:
            return Text(self.bar.status)
        left = task.time_remaining
        return Text("" if left is None else f"{left:.0f} s left")
