"""The place of a run in Lightning's loops, written so that Lightning goes on from exactly there.

Lightning can restart in the middle of an epoch, but guesses where the checkpoint was made from which counters are
equal, and guesses wrong at the ends of epochs: it leaves out a validation or a schedule step. Here the counters are
made to say one of three things, each of which it reads right: between two batches, between two epochs, before a
validation.
This is the one file that knows Lightning's private counters.
"""

from typing import Any

import lightning as L

BATCH = "epoch_loop.batch_progress"
VALIDATION = "epoch_loop.val_loop.batch_progress"


def batches_done(trainer: L.Trainer) -> int:
    """Return how many batches of this epoch are trained on."""
    return trainer.fit_loop.epoch_loop.batch_progress.current.completed


def accumulating(trainer: L.Trainer) -> bool:
    """Whether gradients wait for more batches before the next step; a checkpoint would lose them."""
    return batches_done(trainer) % trainer.accumulate_grad_batches != 0


def place_between_batches(trainer: L.Trainer, loops: dict[str, Any]) -> None:
    """Let ``loops`` of a checkpoint say: so many batches of this epoch are done, and all that belongs to them."""
    fit = loops["fit_loop"]
    progress = fit[BATCH]
    # after the last batch of an epoch, the place is before the first of the next one
    done = 0 if progress["is_last_batch"] else progress["current"]["completed"]
    _level(progress["current"], done)
    _level(progress["total"], progress["total"]["completed"])
    progress["is_last_batch"] = False
    if done == 0:
        # nothing of this epoch has happened, so it has not begun
        for part in fit["epoch_progress"].values():
            _level(part, part["processed"])
        return
    for part in fit["epoch_progress"].values():
        # when training ends early, in the middle of an epoch, Lightning counts that epoch as done
        if part["processed"] == part["started"]:
            part["processed"] = part["completed"] = part["started"] - 1
    fetcher = trainer.fit_loop._data_fetcher
    if fetcher is not None and trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher):
        # the validation due here is done; Lightning will pass over it, and count one step too many
        fit["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1


def place_before_validation(loops: dict[str, Any]) -> None:
    """Let ``loops`` of a checkpoint say: the batch is done, the validation after it has just begun."""
    for part in ("total", "current"):
        tracker = loops["fit_loop"][VALIDATION][part]
        tracker["ready"] = tracker["started"] = tracker["completed"] + 1
        tracker["processed"] = tracker["completed"]
    loops["fit_loop"][VALIDATION]["is_last_batch"] = False


def continue_as_usual(trainer: L.Trainer) -> None:
    """Tell the loops that the restart is over: an epoch that was taken up ends like any other, schedules included."""
    trainer.fit_loop._restarting = False
    trainer.fit_loop.epoch_loop._restarting = False


def _level(tracker: dict[str, int], value: int) -> None:
    for name in tracker:
        tracker[name] = value
