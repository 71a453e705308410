"""The position of a run in Lightning's loops, written so that Lightning continues from exactly there.

Lightning can restart in the middle of an epoch, but infers where the checkpoint was made from which counters are
equal. At the ends of epochs it infers wrongly and leaves out a validation or a schedule step. Here the counters are
set to one of three positions that it infers correctly: between two batches, between two epochs, before a validation.
This is the only module that uses Lightning's private counters.
"""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import StochasticWeightAveraging

BATCH = "epoch_loop.batch_progress"
VALIDATION = "epoch_loop.val_loop.batch_progress"


def batches_done(trainer: L.Trainer) -> int:
    """Return the number of batches of this epoch that are trained on."""
    return trainer.fit_loop.epoch_loop.batch_progress.current.completed


def accumulating(trainer: L.Trainer) -> bool:
    """Return whether gradients wait for more batches before the next optimiser step."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    return not progress.is_last_batch and batches_done(trainer) % trainer.accumulate_grad_batches != 0


def place_between_batches(loops: dict[str, Any]) -> None:
    """Let ``loops`` of a checkpoint say: so many batches of this epoch are done, and all that belongs to them."""
    fit = loops["fit_loop"]
    progress = fit[BATCH]
    # after the last batch of an epoch, the position is before the first batch of the next epoch
    done = 0 if progress["is_last_batch"] else progress["current"]["completed"]
    _level(progress["current"], done)
    _level(progress["total"], progress["total"]["completed"])
    progress["is_last_batch"] = False
    # counters of a validation that was itself resumed would say that one is still running
    for tracker in ("total", "current"):
        _level(fit[VALIDATION][tracker], fit[VALIDATION][tracker]["completed"])
    if done == 0:
        # nothing of this epoch has happened, so it has not begun
        for tracker in fit["epoch_progress"].values():
            _level(tracker, tracker["processed"])
        return
    for tracker in fit["epoch_progress"].values():
        # when training ends early, in the middle of an epoch, Lightning counts that epoch as done
        if tracker["processed"] == tracker["started"]:
            tracker["processed"] = tracker["completed"] = tracker["started"] - 1


def place_before_validation(loops: dict[str, Any]) -> None:
    """Let ``loops`` of a checkpoint say: the batch is done, the validation after it has just begun."""
    for part in ("total", "current"):
        tracker = loops["fit_loop"][VALIDATION][part]
        tracker["ready"] = tracker["started"] = tracker["completed"] + 1
        tracker["processed"] = tracker["completed"]
    loops["fit_loop"][VALIDATION]["is_last_batch"] = False


def set_batches_done(trainer: L.Trainer, count: int) -> None:
    """Let an epoch that is about to continue count ``count`` batches as done."""
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    progress.ready = progress.started = progress.processed = progress.completed = count


def finish_batches(trainer: L.Trainer, loader: Any) -> None:
    """Let an epoch whose last batch is done count all batches of ``loader``, maybe another number than before."""
    try:
        length = len(loader)
    except TypeError:
        return
    limit = trainer.limit_train_batches
    set_batches_done(trainer, min(length, limit) if isinstance(limit, int) else int(length * limit))


def resume_epoch_hooks(trainer: L.Trainer) -> None:
    """Prepare callbacks that initialise themselves when an epoch starts for an epoch that started in another process.

    Lightning does not call ``on_train_epoch_start`` for it, and ``StochasticWeightAveraging`` would not install its
    schedule. What it changes in the optimiser by that is undone, since the optimiser's state is restored already.
    """
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, StochasticWeightAveraging) and trainer.fit_loop.restarted_mid_epoch:
            groups = [dict(group) for optimizer in trainer.optimizers for group in optimizer.param_groups]
            callback.on_train_epoch_start(trainer, trainer.lightning_module)
            for optimizer in trainer.optimizers:
                for group in optimizer.param_groups:
                    group.update(groups.pop(0))


def continue_as_usual(trainer: L.Trainer, checkpoint: dict[str, Any]) -> None:
    """End the restart: the loops go on like those of a run that was never stopped.

    Lightning passes over a validation that is done by the time of the checkpoint, but moves schedules and counters
    once more for it. They are set to those of the checkpoint again.
    """
    trainer.fit_loop._restarting = False
    epoch_loop = trainer.fit_loop.epoch_loop
    epoch_loop._restarting = False
    epoch_loop._batches_that_stepped = checkpoint["loops"]["fit_loop"]["epoch_loop.state_dict"]["_batches_that_stepped"]
    # a validation that was interrupted counts as begun, and is begun again
    validation: Any = epoch_loop.val_loop.batch_progress.total
    validation.ready = validation.started = validation.processed = validation.completed
    for config, state in zip(trainer.lr_scheduler_configs, checkpoint["lr_schedulers"], strict=False):
        config.scheduler.load_state_dict(state)
    for optimizer, state in zip(trainer.optimizers, checkpoint["optimizer_states"], strict=False):
        for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=False):
            group["lr"] = saved["lr"]


def _level(tracker: dict[str, int], value: int) -> None:
    for name in tracker:
        tracker[name] = value
