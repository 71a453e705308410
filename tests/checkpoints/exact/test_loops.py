"""Positions in Lightning's loops."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest

from fna_lightning.checkpoints.exact.loops import (
    accumulating,
    batches_done,
    completed_batches,
    finish_batches,
    is_last_batch,
    set_batches_done,
    set_before_validation,
    set_between_batches,
)

from helpers.linear_task import fit, new_trainer


class SavedLoops(L.Callback):
    """Keeps the loop counters of a checkpoint after a number of training batches, and at the start of a validation."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.after_batch: dict[str, Any] = {}
        self.before_validation: dict[str, Any] = {}

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.global_step == self.batches:
            self.after_batch = trainer._checkpoint_connector.dump_checkpoint()["loops"]

    def on_validation_start(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.global_step == self.batches:
            self.before_validation = trainer._checkpoint_connector.dump_checkpoint()["loops"]


def counters(loops: dict[str, Any], name: str) -> set[int]:
    return set(loops["fit_loop"][name]["current"].values())


def test_a_position_between_batches(tmp_path: Path) -> None:
    saved = SavedLoops(8)
    fit(new_trainer(tmp_path, saved))
    loops = saved.after_batch
    # the hook runs inside the batch, so the counters differ
    assert not is_last_batch(loops)
    set_between_batches(loops)
    assert counters(loops, "epoch_loop.batch_progress") == {completed_batches(loops)}
    epoch = loops["fit_loop"]["epoch_progress"]["total"]
    assert (epoch["ready"], epoch["started"], epoch["processed"], epoch["completed"]) == (2, 2, 1, 1)


def test_the_position_after_the_last_batch_is_the_next_epoch(tmp_path: Path) -> None:
    saved = SavedLoops(6)
    fit(new_trainer(tmp_path, saved))
    loops = saved.before_validation
    assert is_last_batch(loops)
    assert completed_batches(loops) == 6
    set_between_batches(loops)
    assert not is_last_batch(loops)
    assert completed_batches(loops) == 0
    assert len(set(loops["fit_loop"]["epoch_progress"]["total"].values())) == 1


def test_a_position_before_a_validation(tmp_path: Path) -> None:
    saved = SavedLoops(6)
    fit(new_trainer(tmp_path, saved))
    loops = saved.before_validation
    set_before_validation(loops)
    progress = loops["fit_loop"]["epoch_loop.val_loop.batch_progress"]
    for tracker in (progress["total"], progress["current"]):
        assert tracker["ready"] == tracker["started"] == tracker["completed"] + 1
        assert tracker["processed"] == tracker["completed"]
    assert completed_batches(loops) == 6


def test_gradients_are_accumulated_between_optimizer_steps(tmp_path: Path) -> None:
    class Accumulating(L.Callback):
        def on_batch_boundary(self, trainer: L.Trainer) -> None:
            states.append((batches_done(trainer), accumulating(trainer)))

    states: list[tuple[int, bool]] = []
    fit(new_trainer(tmp_path, Accumulating(), accumulate_grad_batches=3, max_epochs=1, limit_train_batches=5))
    assert states == [(0, False), (1, True), (2, True), (3, False), (4, True)]


def test_the_number_of_batches_done_can_be_set(tmp_path: Path) -> None:
    trainer = new_trainer(tmp_path)
    set_batches_done(trainer, 4)
    assert batches_done(trainer) == 4


@pytest.mark.parametrize(("limit", "done"), [(1.0, 10), (3, 3), (20, 10), (0.5, 5)])
def test_all_batches_of_a_loader_are_done(limit: float, done: int, tmp_path: Path) -> None:
    trainer = new_trainer(tmp_path, limit_train_batches=limit)
    finish_batches(trainer, range(10))
    assert batches_done(trainer) == done
    # a loader without a length changes nothing
    finish_batches(trainer, iter(()))
    assert batches_done(trainer) == done
