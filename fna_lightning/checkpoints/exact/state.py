"""Exact state of a run: everything needed to resume bit-exactly that Lightning's own checkpoint leaves out."""

import logging
from typing import Any, Literal

import lightning as L

from fna_lightning.checkpoints.exact.dataloader import EpochPosition, ResumableDataLoader
from fna_lightning.checkpoints.exact.gradients import can_be_saved, gradient_state, mean_gradients, set_gradient_state
from fna_lightning.checkpoints.exact.loops import (
    accumulating,
    completed_batches,
    end_restart,
    finish_batches,
    is_last_batch,
    resume_epoch_hooks,
    set_batches_done,
    set_before_validation,
    set_between_batches,
)
from fna_lightning.checkpoints.exact.metrics import add_results, merge_metric_state, metric_state, set_metric_state
from fna_lightning.checkpoints.exact.ranks import gather_over_ranks
from fna_lightning.checkpoints.exact.rng import random_state, set_random_state
from fna_lightning.errors import UsageError

log = logging.getLogger(__name__)

# key of the exact state in a checkpoint
STATE = "exact"

# positions in the loops at which a checkpoint can be written
Place = Literal["batch", "validation"]


def collect_state(trainer: L.Trainer, checkpoint: dict[str, Any], place: Place, rows: int) -> None:
    """Add the exact state to a checkpoint that Lightning has just filled. All processes must call it.

    The state consists of the random generators, accumulated gradients and epoch metrics of every process, and of the
    examples used in this epoch.

    Args:
        trainer: trainer of the run.
        checkpoint: checkpoint to complete; its loop counters are set to ``place``.
        place: "batch" between two batches, "validation" before a validation.
        rows: number of rows in metrics.csv.
    """
    loader = resumable_loader(trainer)
    loops = checkpoint["loops"]
    epoch_over = is_last_batch(loops)
    if place == "batch":
        set_between_batches(loops)
    else:
        set_before_validation(loops)
    batches = completed_batches(loops)
    module = trainer.lightning_module
    rank_state = {
        "random": random_state(),
        # After the last batch, the next epoch begins at this point.
        "epoch_start": random_state() if epoch_over else loader.epoch_start,
        "metrics": metric_state(trainer, module),
        "gradients": gradient_state(module) if accumulating(trainer) else {},
    }
    checkpoint[STATE] = {
        "place": place,
        "batches": batches,
        "data": loader.used_data(batches, trainer.world_size),
        "epoch_over": place == "validation" and epoch_over,
        # A run that ended early stays ended when it is resumed, unless it is asked to train for longer.
        "ended": trainer.should_stop and [trainer.max_epochs, trainer.max_steps],
        "rows": rows,
        "ranks": gather_over_ranks(rank_state, trainer.world_size),
    }


def can_collect(trainer: L.Trainer) -> bool:
    """Return whether the exact state is complete now; sharded gradients that are being accumulated cannot be saved."""
    return not accumulating(trainer) or can_be_saved(trainer.lightning_module)


def resumable_loader(trainer: L.Trainer) -> ResumableDataLoader:
    """Return the training loader of a run."""
    loader = trainer.train_dataloader
    if not isinstance(loader, ResumableDataLoader):
        raise UsageError(
            f"exact checkpoints need a ResumableDataLoader, got a {type(loader).__name__}; "
            "pass the data module to the trainer as fna_lightning.training.dataloading.RunData(data)"
        )
    return loader


class ExactRestore:
    """Restores the exact state of a checkpoint: first the position in the data, then everything else.

    Args:
        trainer: trainer of the resumed run.
        module: module of the resumed run.
        checkpoint: checkpoint with the exact state.

    Attributes:
        waiting: whether ``restore`` is still to be called.
    """

    def __init__(self, trainer: L.Trainer, module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self.waiting = True
        self.state: dict[str, Any] = checkpoint[STATE]
        self._checkpoint = {key: checkpoint[key] for key in ("loops", "lr_schedulers", "optimizer_states")}
        # logged values that are added after the first batch
        self._results: dict[str, Any] = {}
        ranks = self.state["ranks"]
        self.same_ranks = len(ranks) == trainer.world_size
        if self.same_ranks:
            self._rank_state = ranks[trainer.global_rank]
        else:
            metrics = [rank["metrics"] for rank in ranks]
            self._rank_state = {
                "metrics": merge_metric_state(module, metrics, trainer.global_rank, trainer.world_size),
                "gradients": mean_gradients([rank["gradients"] for rank in ranks]),
            }
            _warn(
                trainer,
                "the run had %d processes and has %d now: random numbers such as those of dropout differ from those "
                "of an uninterrupted run",
                len(ranks),
                trainer.world_size,
            )
        if self.state["ended"] == [trainer.max_epochs, trainer.max_steps]:
            trainer.should_stop = True

    def restore_position(self, trainer: L.Trainer) -> None:
        """Set the position in the data; call it when training starts, before the first batch."""
        loader = resumable_loader(trainer)
        loader.resume_at = self._position(trainer, loader)
        resume_epoch_hooks(trainer)

    def restore(self, trainer: L.Trainer) -> None:
        """Restore metrics and gradients and leave Lightning's restart mode; call it at the place of the checkpoint."""
        module = trainer.lightning_module
        metrics = self._rank_state["metrics"]
        if not self.same_ranks and not self.state["epoch_over"]:
            # Whether a value is summed over processes is known only when this process has logged it.
            self._results, metrics = metrics["results"], {**metrics, "results": {}}
        set_metric_state(trainer, module, metrics)
        if self._rank_state["gradients"]:
            set_gradient_state(module, self._rank_state["gradients"])
        end_restart(trainer, self._checkpoint)
        self.waiting = False

    def restore_random_state(self) -> None:
        """Set the random generators at the start of a validation; between batches, the loader does it."""
        if self.same_ranks:
            set_random_state(self._rank_state["random"])

    def finish_batch(self, trainer: L.Trainer) -> None:
        """Complete the logged values; call it after each batch."""
        if self._results:
            add_results(trainer, self._results)
            self._results = {}

    def _position(self, trainer: L.Trainer, loader: ResumableDataLoader) -> EpochPosition | None:
        """Return where the first epoch of this process continues; None for its beginning."""
        state = self.state
        if state["epoch_over"]:
            finish_batches(trainer, loader)
            return None
        done, skipped = loader.continue_after(
            state["data"], state["batches"], trainer.current_epoch, trainer.world_size
        )
        if (done, skipped) != (state["batches"], state["batches"]):
            set_batches_done(trainer, done)
            _warn(
                trainer,
                "the batches of this epoch have changed (batch size, number of processes or size of the data); it "
                "continues with the unused examples after batch %d%s",
                done,
                ", without the interrupted validation" if state["place"] == "validation" else "",
            )
        if not self.same_ranks:
            return EpochPosition(skipped, random_state(), None)
        # After a validation, the generators are restored when the validation starts.
        now = self._rank_state["random"] if state["place"] == "batch" else None
        return EpochPosition(skipped, self._rank_state["epoch_start"], now)


def _warn(trainer: L.Trainer, message: str, *values: object) -> None:
    if trainer.is_global_zero:
        log.warning(message, *values)
