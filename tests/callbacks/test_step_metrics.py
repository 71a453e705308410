"""StepMetrics logs learning rate and speed, and the metrics of the first step."""

import csv
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.optim import SGD

from fna_lightning.callbacks.step_metrics import learning_rates

from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e

SCHEDULE = ("--model.lr_scheduler=WarmupCosine", "--model.lr_scheduler.warmup=0", "--model.optimizer.lr=0.5")


def train(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> tuple[EventAccumulator, list[dict[str, str]]]:
    """Train two epochs of four batches and return the events and the rows of metrics.csv."""
    monkeypatch.setenv("FNA_RUN_DIR", "")
    run = train_tiny(folder, "--trainer.callbacks=[]", "--trainer.max_epochs=2", *more).parents[1]
    board = EventAccumulator(str(run))
    board.Reload()
    with (run / "metrics.csv").open(newline="") as file:
        return board, list(csv.DictReader(file))


def column(rows: list[dict[str, str]], name: str) -> dict[int, float]:
    values = [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]
    assert len(dict(values)) == len(values), "a step is logged twice"
    return dict(values)


def points(board: EventAccumulator, name: str) -> list[int]:
    return [point.step for point in board.Scalars(name)]


def test_the_first_step_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board, rows = train(tmp_path / "every 3", monkeypatch, "--trainer.log_every_n_steps=3")
    _, every = train(tmp_path / "every 1", monkeypatch, "--trainer.log_every_n_steps=1")
    # the logged step counts from 0
    assert points(board, "train/loss_step") == [0, 2, 5]
    losses, all_losses = column(rows, "train/loss_step"), column(every, "train/loss_step")
    assert losses == {step: all_losses[step] for step in (0, 2, 5)}
    assert list(all_losses) == list(range(8))


def test_learning_rate_and_examples_per_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board, rows = train(tmp_path, monkeypatch, "--trainer.log_every_n_steps=2", *SCHEDULE)
    assert points(board, "train/learning_rate") == [0, 1, 3, 5, 7]
    rates = list(column(rows, "train/learning_rate").values())
    # the rate of the step itself, not of the next one
    assert rates[0] == 0.5
    assert rates == sorted(rates, reverse=True)
    # the first step is not timed
    assert points(board, "train/examples_per_second") == [1, 3, 5, 7]
    assert all(point.value > 0 for point in board.Scalars("train/examples_per_second"))
    # metrics.csv of a resumed run is the same, so it holds no times
    assert not [name for row in rows for name in row if "second" in name]


def test_accumulated_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = ("--trainer.accumulate_grad_batches=2", "--trainer.log_every_n_steps=2")
    board, rows = train(tmp_path, monkeypatch, *more)
    assert list(column(rows, "train/loss_step")) == [0, 1, 3]
    assert points(board, "train/learning_rate") == [0, 1, 3]


def test_each_parameter_group_has_its_rate() -> None:
    class FakeTrainer:
        def __init__(self, *rates: float) -> None:
            layers = [nn.Linear(1, 1) for _ in rates]
            groups = [{"params": layer.parameters(), "lr": rate} for layer, rate in zip(layers, rates, strict=True)]
            self.optimizers: list[Any] = [SGD(groups)]

    one_group, two_groups = FakeTrainer(0.1), FakeTrainer(0.1, 0.2)
    assert learning_rates(one_group) == {"train/learning_rate": 0.1}  # type: ignore[arg-type]
    assert learning_rates(two_groups) == {  # type: ignore[arg-type]
        "train/learning_rate_0": 0.1,
        "train/learning_rate_1": 0.2,
    }
