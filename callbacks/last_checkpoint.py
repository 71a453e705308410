"""The last checkpoint: from it a run goes on exactly, whenever and however it was stopped."""

import logging
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint

from fna_lightning.checkpoints.exact.dataloader import Position, ResumableDataLoader
from fna_lightning.checkpoints.exact.gradients import can_be_saved, gradient_state, mean_gradients, set_gradient_state
from fna_lightning.checkpoints.exact.loops import (
    accumulating,
    batches_done,
    continue_as_usual,
    finish_batches,
    place_before_validation,
    place_between_batches,
    resume_epoch_hooks,
    set_batches_done,
)
from fna_lightning.checkpoints.exact.metrics import (
    add_results,
    keep_measuring,
    merged,
    metric_state,
    set_metric_state,
)
from fna_lightning.checkpoints.exact.rng import random_state, set_random_state
from fna_lightning.errors import UsageError
from fna_lightning.nn.fsdp import local_part
from fna_lightning.training.csv_logger import rows_written
from fna_lightning.training.signals import StoppedError, StopRequest

log = logging.getLogger(__name__)

STATE = "exact"
NAME = "last.ckpt"


class LastCheckpoint(Checkpoint):
    """Keeps checkpoints/last.ckpt: before each validation, every few minutes, at the end, and when a signal asks.

    It is written between two batches or before a validation, and holds what Lightning's own leaves out: the random
    generators of every process, accumulated gradients, the examples of the epoch that are used, and the metrics of the
    epoch so far. SIGTERM and Ctrl-C write it
    and end the run; a second one ends it at once.

    Args:
        minutes: longest time of training that a power cut or a kill can cost.
    """

    def __init__(self, minutes: float = 10.0) -> None:
        if not minutes > 0.0:
            raise ValueError(f"minutes must be positive, got {minutes}; 10 writes a checkpoint every ten minutes")
        self.path = Path(NAME)
        self.minutes = minutes
        self.request = StopRequest()
        self._trainer: L.Trainer | None = None
        self._loader: ResumableDataLoader | None = None
        self._saved_at = time.monotonic()
        self._place = ""
        self._resumed: dict[str, Any] | None = None
        self._here: dict[str, Any] = {}
        self._pending: dict[str, Any] = {}
        self._after_step = torch.get_rng_state()

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        self._trainer = trainer
        self.path = trainer.strategy.broadcast(Path(trainer.default_root_dir) / "checkpoints" / NAME)
        data: Any = getattr(trainer, "datamodule", None)
        make = data.train_dataloader

        def train_dataloader() -> Any:
            self._loader = ResumableDataLoader(make(), self._between_batches)
            return self._loader

        # an attribute of this instance shadows the method; teardown takes it away
        vars(data)["train_dataloader"] = train_dataloader

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        data: Any = getattr(trainer, "datamodule", None)
        getattr(data, "__dict__", {}).pop("train_dataloader", None)
        self.request.close()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self.request.close()

    def on_sanity_check_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.request.reinstall()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._saved_at = time.monotonic()
        self.request.listen()
        if self._resumed is not None:
            assert self._loader is not None
            self._loader.resume_at = self._position(trainer, self._loader, self._resumed[STATE])
            resume_epoch_hooks(trainer)

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        self._after_step = torch.get_rng_state()
        if self._pending:
            add_results(trainer, self._pending)
            self._pending = {}

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self._resumed is not None:
            if "random" in self._here:
                set_random_state(self._here["random"])
            self._restore(trainer, pl_module)
        elif self._can_save(trainer):
            # a loader that starts its workers now draws a number, one that has them does not: it shall not matter
            torch.set_rng_state(self._after_step)
            self._save("validation")

    def on_validation_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        # several processes may have different numbers of batches here and could not agree; they stop after it
        alone = trainer.world_size == 1 and not trainer.sanity_checking
        if self.request.number and alone and self._can_save(trainer):
            self._stop(self.request.number)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._save("batch")

    def _between_batches(self) -> None:
        """Restore here, or save and stop here, if it is time."""
        trainer = self._trainer
        assert trainer is not None
        if not trainer.training:
            return
        if batches_done(trainer):
            keep_measuring(trainer)
        if self._resumed is not None:
            self._restore(trainer, trainer.lightning_module)
            return
        due = time.monotonic() - self._saved_at > 60 * self.minutes
        # one number for both, so that processes agree with one message: a signal, or 1 for "it is time"
        wish = self._any(trainer, self.request.number or int(due and trainer.is_global_zero))
        if not wish or not self._can_save(trainer):
            return
        self._save("batch")
        if wish > 1:
            self._stop(wish)

    def _can_save(self, trainer: L.Trainer) -> bool:
        """Return whether a checkpoint made now is complete; sharded gradients that are being accumulated cannot be."""
        return not accumulating(trainer) or can_be_saved(trainer.lightning_module)

    def _any(self, trainer: L.Trainer, mine: int) -> int:
        """Return the largest of the numbers that the processes bring."""
        if trainer.world_size == 1:
            return mine
        votes = torch.tensor(float(mine), device=trainer.strategy.root_device)
        agreed = trainer.strategy.reduce(votes, reduce_op="max")
        assert isinstance(agreed, torch.Tensor)
        return int(agreed)

    def _stop(self, number: int) -> None:
        self.request.agree(number)
        folder = self.path.parent.parent
        raise StoppedError(number, f"all is saved; `fna-lightning resume {folder}` goes on from here")

    def _save(self, place: str) -> None:
        trainer = self._trainer
        assert trainer is not None
        if getattr(trainer, "fast_dev_run", False):
            return
        parameters = trainer.lightning_module.named_parameters()
        bad = next((name for name, one in parameters if not local_part(one).isfinite().all()), "")
        # a process that sees only a shard of them must not wait for one that has left
        if self._any(trainer, int(bool(bad))):
            raise UsageError(
                f"{bad or 'what another process holds'} holds numbers that are not finite after step "
                f"{trainer.global_step}, so it is not saved; {self.path} is from before"
            )
        # what is on disk must be at least as far as the checkpoint says
        for logger in trainer.loggers:
            logger.save()
        self._place = place
        try:
            trainer.save_checkpoint(self.path, weights_only=False)
        finally:
            self._place = ""
        self._saved_at = time.monotonic()

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self._place:
            return
        assert self._loader is not None
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        # after the last batch of all, the next epoch would begin here
        begun = random_state() if progress["is_last_batch"] else self._loader.epoch_start
        epoch_over = self._place == "validation" and progress["is_last_batch"]
        if self._place == "batch":
            place_between_batches(checkpoint["loops"])
        else:
            place_before_validation(checkpoint["loops"])
        mine = {
            "random": random_state(),
            "epoch_start": begun,
            "measured": metric_state(trainer, pl_module),
            "gradients": gradient_state(pl_module) if accumulating(trainer) else {},
        }
        batches = progress["current"]["completed"]
        checkpoint[STATE] = {
            "place": self._place,
            "batches": batches,
            "data": self._loader.used_data(batches, trainer.world_size),
            "epoch_over": epoch_over,
            # a run that has ended early must not go on when it is resumed, unless it is asked to train for longer
            "ended": trainer.should_stop and [trainer.max_epochs, trainer.max_steps],
            "rows": rows_written(trainer.loggers),
            "ranks": _gathered(mine, trainer.world_size),
        }

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != "fit" or STATE not in checkpoint:
            return
        self._resumed = {key: checkpoint[key] for key in (STATE, "loops", "lr_schedulers", "optimizer_states")}
        state = checkpoint[STATE]
        ranks = state["ranks"]
        if len(ranks) == trainer.world_size:
            self._here = ranks[trainer.global_rank]
        else:
            self._here = {
                "measured": merged(
                    pl_module, [rank["measured"] for rank in ranks], trainer.global_rank, trainer.world_size
                ),
                "gradients": mean_gradients([rank["gradients"] for rank in ranks]),
            }
            self._warn(
                trainer,
                "the run had %d processes and has %d now: random numbers such as those of dropout are not the ones of "
                "a run that was never stopped",
                len(ranks),
                trainer.world_size,
            )
        if state["ended"] == [trainer.max_epochs, trainer.max_steps]:
            trainer.should_stop = True

    def _position(self, trainer: L.Trainer, loader: ResumableDataLoader, state: dict[str, Any]) -> Position | None:
        """Return where the first epoch of this process begins; None at its beginning."""
        if state["epoch_over"]:
            finish_batches(trainer, loader)
            return None
        done, skipped = loader.continue_after(
            state["data"], state["batches"], trainer.current_epoch, trainer.world_size
        )
        if (done, skipped) != (state["batches"], state["batches"]):
            set_batches_done(trainer, done)
            self._warn(
                trainer,
                "the batches of this epoch are other ones than before (batch size, number of processes or size of the "
                "data); it goes on with the examples that are not used yet, after batch %d%s",
                done,
                ", without the validation that was interrupted" if state["place"] == "validation" else "",
            )
        if "epoch_start" not in self._here:
            return Position(skipped, random_state(), None)
        # after a validation the numbers it draws come first
        now = self._here["random"] if state["place"] == "batch" else None
        return Position(skipped, self._here["epoch_start"], now)

    def _warn(self, trainer: L.Trainer, message: str, *values: object) -> None:
        if trainer.is_global_zero:
            log.warning(message, *values)

    def _restore(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set everything to where the checkpoint was made."""
        assert self._resumed is not None
        measured = self._here["measured"]
        if "random" not in self._here and not self._resumed[STATE]["epoch_over"]:
            # whether a value is summed over processes is known once this process has logged it
            self._pending, measured = measured["results"], {**measured, "results": {}}
        set_metric_state(trainer, pl_module, measured)
        if self._here["gradients"]:
            set_gradient_state(pl_module, self._here["gradients"])
        continue_as_usual(trainer, self._resumed)
        self._resumed, self._here = None, {}


def _gathered(mine: dict[str, Any], world_size: int) -> list[dict[str, Any]]:
    """Return the state of every process, in the order of their ranks."""
    if world_size == 1:
        return [mine]
    everyone: list[Any] = [None] * world_size
    torch.distributed.all_gather_object(everyone, mine)
    return everyone
