"""Learning-rate schedules that take the length of training from the trainer."""

import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric, MetricCollection

from fna_lightning.task import Task
from fna_lightning.training.schedules import InverseSqrt, StepwiseLR, WarmupCosine

STEPS_PER_EPOCH = 5


def rates(total: float, schedule_class: type[StepwiseLR], steps: int | None = None, **settings: Any) -> list[float]:
    """Return the learning rates before each step and after the last one, for a peak of 2."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = schedule_class(optimizer, **settings)
    schedule.set_total_steps(total)
    learning_rates = []
    for _ in range(int(total) if steps is None else steps):
        learning_rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return [*learning_rates, optimizer.param_groups[0]["lr"]]


def test_warmup_cosine_rises_to_the_peak_and_falls_to_the_floor() -> None:
    learning_rates = rates(100, WarmupCosine, warmup=0.2, floor=0.1)
    assert learning_rates.index(max(learning_rates)) == 20
    assert max(learning_rates) == pytest.approx(2.0)
    assert learning_rates[:21] == sorted(learning_rates[:21])
    assert learning_rates[20:] == sorted(learning_rates[20:], reverse=True)
    assert 0 < learning_rates[0] < 0.2
    assert learning_rates[-1] == pytest.approx(0.2)


def test_inverse_sqrt_with_cooldown_ends_at_zero() -> None:
    learning_rates = rates(100, InverseSqrt, warmup=10, cooldown=0.2)
    assert learning_rates[0] == pytest.approx(0.2)
    assert max(learning_rates) == learning_rates[9] == pytest.approx(2.0)
    assert learning_rates[39] == pytest.approx(1.0)
    assert learning_rates[89] == pytest.approx(2.0 * (10 / 90) ** 0.5 * 11 / 20)
    assert learning_rates[100] == 0.0
    assert all(rate > 0.0 for rate in learning_rates[:100])


def test_inverse_sqrt_without_cooldown_needs_no_length() -> None:
    learning_rates = rates(math.inf, InverseSqrt, steps=100, warmup=10)
    assert learning_rates[99] == pytest.approx(2.0 * (10 / 100) ** 0.5)
    assert learning_rates == rates(50, InverseSqrt, steps=100, warmup=10)


@pytest.mark.parametrize(
    ("schedule_class", "settings", "message"),
    [
        (WarmupCosine, {"warmup": 5}, r"warmup must be a fraction of all steps in \[0, 1\), got 5"),
        (WarmupCosine, {"floor": -1}, r"floor must be a fraction of the peak rate in \[0, 1\], got -1"),
        (InverseSqrt, {"warmup": 0}, "warmup must be at least 1 step, got 0"),
        (InverseSqrt, {"cooldown": 1.5}, r"cooldown must be a fraction of all steps in \[0, 1\], got 1\.5"),
    ],
)
def test_invalid_settings(schedule_class: type[StepwiseLR], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rates(10, schedule_class, **settings)


@pytest.mark.parametrize(
    ("schedule_class", "settings"), [(WarmupCosine, {}), (InverseSqrt, {"cooldown": 0.5})], ids=["cosine", "sqrt"]
)
def test_unlimited_training_is_an_error(schedule_class: type[StepwiseLR], settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"needs the length of the training; set trainer\.max_epochs or max_steps"):
        rates(math.inf, schedule_class, steps=1, **settings)


class RecordRates(Task):
    """Task that records the learning rate of every step."""

    def __init__(self, schedule_class: type[StepwiseLR], **settings: Any) -> None:
        super().__init__(
            MetricCollection({"mean": MeanMetric()}),
            lambda parameters: torch.optim.SGD(parameters, lr=2.0),
            lambda optimizer: schedule_class(optimizer, **settings),
        )
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.rates: list[float] = []

    def loss(self, batch: Tensor, stage: str) -> Tensor:
        self.stage_metrics(stage).update(0.0)
        return self.weight.sum()

    def batch_size(self, batch: Tensor) -> int:
        return len(batch)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])


SCHEDULES: dict[str, tuple[type[StepwiseLR], dict[str, Any]]] = {
    "WarmupCosine": (WarmupCosine, {"warmup": 0.2}),
    "InverseSqrt with cool-down": (InverseSqrt, {"warmup": 3, "cooldown": 0.5}),
    "InverseSqrt": (InverseSqrt, {"warmup": 3}),
}


def fit(task: Task, folder: Path, epochs: int, checkpoint: Path | None = None) -> Path:
    """Train for ``epochs`` in total and return the checkpoint of the last epoch."""
    trainer = L.Trainer(
        max_epochs=epochs, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(task, DataLoader(torch.zeros(STEPS_PER_EPOCH), batch_size=1), ckpt_path=checkpoint, weights_only=True)
    trainer.save_checkpoint(folder / "last.ckpt")
    return folder / "last.ckpt"


@pytest.mark.parametrize("name", SCHEDULES)
def test_resuming_with_more_epochs_follows_the_longer_schedule(name: str, tmp_path: Path) -> None:
    schedule_class, settings = SCHEDULES[name]
    whole, short, resumed = (RecordRates(schedule_class, **settings) for _ in range(3))
    fit(whole, tmp_path, 4)
    checkpoint = fit(short, tmp_path, 2)
    fit(resumed, tmp_path, 4, checkpoint)
    assert len(resumed.rates) == 2 * STEPS_PER_EPOCH
    assert resumed.rates == whole.rates[2 * STEPS_PER_EPOCH :]
    assert all(rate > 0.0 for rate in (*short.rates, *resumed.rates))


@pytest.mark.parametrize("name", SCHEDULES)
def test_resuming_with_the_same_length_continues_the_schedule(name: str, tmp_path: Path) -> None:
    schedule_class, settings = SCHEDULES[name]
    whole, first, resumed = (RecordRates(schedule_class, **settings) for _ in range(3))
    fit(whole, tmp_path, 4)
    stop = L.pytorch.callbacks.LambdaCallback(
        on_train_epoch_end=lambda trainer, _: setattr(trainer, "should_stop", trainer.current_epoch == 1)
    )
    trainer = L.Trainer(
        max_epochs=4, min_epochs=1, callbacks=[stop], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(first, DataLoader(torch.zeros(STEPS_PER_EPOCH), batch_size=1))
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
    fit(resumed, tmp_path, 4, tmp_path / "stopped.ckpt")
    assert [*first.rates, *resumed.rates] == whole.rates
