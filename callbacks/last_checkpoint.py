"""The checkpoint from which a run resumes."""

from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint

from fna_lightning.checkpoints.exact.loops import batches_done
from fna_lightning.checkpoints.exact.metrics import keep_epoch_metrics
from fna_lightning.checkpoints.exact.private_api import check_private_attributes
from fna_lightning.checkpoints.exact.ranks import max_over_ranks
from fna_lightning.checkpoints.exact.state import STATE, ExactRestore, Place, can_collect, collect_state
from fna_lightning.errors import UsageError
from fna_lightning.nn.fsdp import nonfinite_parameter
from fna_lightning.training.csv_logger import rows_written
from fna_lightning.training.signals import StoppedError, StopRequest
from fna_lightning.training.timer import IntervalTimer

NAME = "last.ckpt"


class LastCheckpoint(Checkpoint):
    """Writes checkpoints/last.ckpt, from which a run resumes bit-exactly on CPU.

    It is written before each validation, every few minutes between two batches, at the end, and after SIGTERM or
    Ctrl-C, which then end the run. A second signal ends the run at once.

    Args:
        minutes: maximum training time that a power failure or SIGKILL can cost.
    """

    def __init__(self, minutes: float = 10.0) -> None:
        self.path = Path(NAME)
        self.timer = IntervalTimer(minutes)
        self.request = StopRequest()
        self._restore: ExactRestore | None = None
        # set while this callback writes a checkpoint
        self._place: Place | None = None
        self._rng_after_step = torch.get_rng_state()

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage == "fit":
            check_private_attributes(trainer)
            self.path = trainer.strategy.broadcast(Path(trainer.default_root_dir) / "checkpoints" / NAME)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.request.close()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self.request.close()

    def on_sanity_check_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.request.reinstall()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.timer.restart()
        self.request.listen()
        if self._restore is not None and self._restore.waiting:
            self._restore.restore_position(trainer)

    def on_batch_boundary(self, trainer: L.Trainer) -> None:
        """Restore a checkpoint, or save and stop, between two batches; called by the training loader."""
        if not trainer.training:
            return
        if batches_done(trainer):
            keep_epoch_metrics(trainer)
        if self._restore is not None and self._restore.waiting:
            self._restore.restore(trainer)
            return
        # Processes agree with one message: the number of a signal, or 1 if the timer is due.
        request = self.request.number or int(self.timer.is_due and trainer.is_global_zero)
        request = max_over_ranks(trainer, request)
        if not request or not can_collect(trainer):
            return
        self._save(trainer, "batch")
        if request > 1:
            self._stop(request)

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        self._rng_after_step = torch.get_rng_state()
        if self._restore is not None:
            self._restore.finish_batch(trainer)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self._restore is not None and self._restore.waiting:
            self._restore.restore_random_state()
            self._restore.restore(trainer)
        elif can_collect(trainer):
            # A validation loader draws a random number only if it starts workers, so undo that draw.
            torch.set_rng_state(self._rng_after_step)
            self._save(trainer, "validation")

    def on_validation_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        # Several processes may have different numbers of validation batches and could not agree here; they stop later.
        single = trainer.world_size == 1 and not trainer.sanity_checking
        if self.request.number and single and can_collect(trainer):
            self._stop(self.request.number)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._save(trainer, "batch")

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._place is not None:
            collect_state(trainer, checkpoint, self._place, rows_written(trainer.loggers))

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == "fit" and STATE in checkpoint:
            self._restore = ExactRestore(trainer, pl_module, checkpoint)

    def _save(self, trainer: L.Trainer, place: Place) -> None:
        if getattr(trainer, "fast_dev_run", False):
            return
        name = nonfinite_parameter(trainer.lightning_module)
        # Sharded parameters differ between processes, so all of them must agree to go on.
        if max_over_ranks(trainer, int(name is not None)):
            raise UsageError(
                f"{name or 'a parameter of another process'} holds numbers that are not finite after step "
                f"{trainer.global_step}, so it is not saved; {self.path} is from before"
            )
        # The logged values of all steps before the checkpoint must be on disk first.
        for logger in trainer.loggers:
            logger.save()
        self._place = place
        try:
            trainer.save_checkpoint(self.path, weights_only=False)
        finally:
            self._place = None
        self.timer.restart()

    def _stop(self, number: int) -> None:
        self.request.agree(number)
        folder = self.path.parent.parent
        raise StoppedError(number, f"all is saved; `fna-lightning resume {folder}` continues from here")
