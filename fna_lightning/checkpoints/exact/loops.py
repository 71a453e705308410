"""The position of a run in Lightning's loops.

Lightning can restart in the middle of an epoch. It infers the position of the checkpoint from which counters are equal,
and at the end of an epoch it infers wrongly and leaves out a validation or a schedule step. The functions here set the
counters to one of three positions that Lightning infers correctly: between two batches, between two epochs, and before
a validation.
"""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import StochasticWeightAveraging

BATCH = "epoch_loop.batch_progress"
VALIDATION = "epoch_loop.val_loop.batch_progress"


def batches_done(trainer: L.Trainer) -> int:
    """Return the number of batches done in this epoch."""
    return trainer.fit_loop.epoch_loop.batch_progress.current.completed


def accumulating(trainer: L.Trainer) -> bool:
    """Return whether gradients are being accumulated for the next optimizer step."""
    progress = trainer.fit_loop.epoch_loop.batch_progress
    return not progress.is_last_batch and batches_done(trainer) % trainer.accumulate_grad_batches != 0


def is_last_batch(loops: dict[str, Any]) -> bool:
    """Return whether ``loops`` of a checkpoint were saved after the last batch of an epoch."""
    return bool(loops["fit_loop"][BATCH]["is_last_batch"])


def completed_batches(loops: dict[str, Any]) -> int:
    """Return the number of batches of the epoch that are done according to ``loops`` of a checkpoint."""
    return int(loops["fit_loop"][BATCH]["current"]["completed"])


def set_between_batches(loops: dict[str, Any]) -> None:
    """Set ``loops`` of a checkpoint to the position between two batches, with everything before it completed."""
    fit = loops["fit_loop"]
    progress = fit[BATCH]
    # After the last batch of an epoch, the position is before the first batch of the next epoch.
    done = 0 if progress["is_last_batch"] else progress["current"]["completed"]
    _level(progress["current"], done)
    _level(progress["total"], progress["total"]["completed"])
    progress["is_last_batch"] = False
    # The counters of a validation that was itself resumed would mean that it is still running.
    for tracker in ("total", "current"):
        _level(fit[VALIDATION][tracker], fit[VALIDATION][tracker]["completed"])
    if done == 0:
        # The epoch has not begun.
        for tracker in fit["epoch_progress"].values():
            _level(tracker, tracker["processed"])
        return
    for tracker in fit["epoch_progress"].values():
        # When training ends in the middle of an epoch, Lightning counts that epoch as done.
        if tracker["processed"] == tracker["started"]:
            tracker["processed"] = tracker["completed"] = tracker["started"] - 1


def set_before_validation(loops: dict[str, Any]) -> None:
    """Set ``loops`` of a checkpoint to the position after a batch, when the validation has just begun."""
    for part in ("total", "current"):
        tracker = loops["fit_loop"][VALIDATION][part]
        tracker["ready"] = tracker["started"] = tracker["completed"] + 1
        tracker["processed"] = tracker["completed"]
    loops["fit_loop"][VALIDATION]["is_last_batch"] = False


def set_batches_done(trainer: L.Trainer, count: int) -> None:
    """Set the number of batches done in the epoch that is about to continue."""
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    progress.ready = progress.started = progress.processed = progress.completed = count


def finish_batches(trainer: L.Trainer, loader: Any) -> None:
    """Count all batches of ``loader`` as done; their number may differ from that of the interrupted process."""
    try:
        length = len(loader)
    except TypeError:
        return
    limit = trainer.limit_train_batches
    set_batches_done(trainer, min(length, limit) if isinstance(limit, int) else int(length * limit))


def resume_epoch_hooks(trainer: L.Trainer) -> None:
    """Call ``on_train_epoch_start`` of ``StochasticWeightAveraging`` in an epoch that began in another process.

    Lightning does not call it when it restarts in the middle of an epoch, so the callback would not install its
    schedule. The changes it makes to the optimizer are undone, because the state of the optimizer is already restored.
    """
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, StochasticWeightAveraging) and trainer.fit_loop.restarted_mid_epoch:
            groups = [dict(group) for optimizer in trainer.optimizers for group in optimizer.param_groups]
            callback.on_train_epoch_start(trainer, trainer.lightning_module)
            for optimizer in trainer.optimizers:
                for group in optimizer.param_groups:
                    group.update(groups.pop(0))


def end_restart(trainer: L.Trainer, checkpoint: dict[str, Any]) -> None:
    """Leave Lightning's restart mode, so that the loops continue as in an uninterrupted run.

    Lightning skips a validation that was completed before the checkpoint, but still advances schedules and counters for
    it. They are set to those of the checkpoint again.
    """
    trainer.fit_loop._restarting = False
    epoch_loop = trainer.fit_loop.epoch_loop
    epoch_loop._restarting = False
    epoch_loop._batches_that_stepped = checkpoint["loops"]["fit_loop"]["epoch_loop.state_dict"]["_batches_that_stepped"]
    # An interrupted validation counts as begun and starts again.
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
