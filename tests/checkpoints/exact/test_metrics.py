"""State of the metrics of an interrupted epoch."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torchmetrics import CatMetric, MaxMetric, MeanMetric

from fna_lightning.checkpoints.exact.metrics import merge_metric_state, metric_state, set_metric_state
from fna_lightning.errors import UsageError

from helpers.linear_task import LinearTask, fit, new_trainer


class Saved(L.Callback):
    """Saves the metric state after a number of batches."""

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.state: dict[str, Any] = {}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *args: Any) -> None:
        if trainer.global_step == self.batches:
            self.state = metric_state(trainer, pl_module)


def saved_state(folder: Path, batches: int = 4) -> dict[str, Any]:
    callback = Saved(batches)
    fit(new_trainer(folder, callback, max_epochs=1))
    return callback.state


def test_the_state_is_that_of_the_epoch_so_far(tmp_path: Path) -> None:
    state = saved_state(tmp_path)
    metric = state["metrics"]["metrics.train_metrics.error"]
    assert metric["updates"] == 4
    assert metric["states"]["total"] == 16
    loss = state["results"]["training_step.train/loss"]
    assert (loss["reduce_fx"], loss["on_epoch"], loss["on_step"]) == ("mean", True, True)
    # sum of the losses weighted by the number of examples, and that number
    assert loss["states"]["cumulated_batch_size"] == 16
    assert "train/loss_step" in state["callback_metrics"]


def test_a_new_trainer_continues_the_sums(tmp_path: Path) -> None:
    state = saved_state(tmp_path)
    trainer, task = new_trainer(tmp_path), LinearTask()
    trainer.strategy.connect(task)
    set_metric_state(trainer, task, state)
    again = metric_state(trainer, task)
    assert again["metrics"] == state["metrics"]
    assert again["results"].keys() == state["results"].keys()
    assert again["results"]["training_step.train/loss"] == state["results"]["training_step.train/loss"]
    assert again["callback_metrics"].keys() == state["callback_metrics"].keys()


def test_another_number_of_processes_keeps_the_totals(tmp_path: Path) -> None:
    state, task = saved_state(tmp_path), LinearTask()
    merged = [merge_metric_state(task, [state, state, state], rank, 2) for rank in range(2)]
    name, loss = "metrics.train_metrics.error", "training_step.train/loss"
    assert merged[0]["metrics"][name]["states"]["total"] == 3 * 16
    assert merged[0]["metrics"][name]["updates"] == 3 * 4
    assert name not in merged[1]["metrics"]
    sums = [rank["results"][loss]["states"] for rank in merged]
    for key, value in state["results"][loss]["states"].items():
        assert sums[0][key] == 3 * value
        assert sums[1][key] == 0
    assert all(rank["results"][loss]["sync_dist"] for rank in merged)


class ThreeMetrics(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.largest, self.values = MeanMetric(), MaxMetric(), CatMetric()


def test_metrics_are_merged_by_their_own_reduction() -> None:
    states = []
    for numbers in ([1.0, 2.0], [6.0]):
        module = ThreeMetrics()
        for metric in (module.mean, module.largest, module.values):
            metric.update(torch.tensor(numbers))
        trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
        states.append(metric_state(trainer, module))
    resumed = ThreeMetrics()
    set_metric_state(trainer, resumed, merge_metric_state(resumed, states, 0, 1))
    assert resumed.mean.compute() == 3.0
    assert resumed.largest.compute() == 6.0
    assert resumed.values.compute().tolist() == [1.0, 2.0, 6.0]


def test_an_unknown_reduction_is_refused(tmp_path: Path) -> None:
    state = saved_state(tmp_path)
    entry = state["results"]["training_step.train/loss"]
    entry["reduce_fx"] = "save"
    trainer, task = new_trainer(tmp_path), LinearTask()
    with pytest.raises(UsageError, match="reduces 'train/loss' by 'save', which is not one of mean, sum, max, min"):
        set_metric_state(trainer, task, state)
