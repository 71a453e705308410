"""RunClock and remaining_work: the time that a training run takes."""

import math
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from lightning.pytorch.callbacks import Timer

from fna_lightning.config.resolve import shipped_configs
from fna_lightning.training import run_time
from fna_lightning.training.durations import SECONDS, faster_config
from fna_lightning.training.run_time import WARMUP, RemainingWork, RunClock, clock_time, duration, remaining_work


def trainer(**options: Any) -> Any:
    """Return the attributes of a trainer in the third of 10 epochs of 100 batches, with a validation after each."""
    state = {
        "num_training_batches": 100,
        "current_epoch": 2,
        "max_epochs": 10,
        "max_steps": -1,
        "global_step": 230,
        "accumulate_grad_batches": 1,
        "num_val_batches": [20],
        "enable_validation": True,
        "check_val_every_n_epoch": 1,
        "val_check_batch": 100,
        "callbacks": [],
    }
    return SimpleNamespace(**(state | options))


@pytest.mark.parametrize(
    ("options", "batches", "validations"),
    [
        ({}, 770, 8),
        ({"val_check_batch": 25}, 770, 31),
        ({"check_val_every_n_epoch": 2}, 770, 4),
        ({"check_val_every_n_epoch": None, "val_check_batch": 150}, 770, 5),
        ({"enable_validation": False}, 770, 0),
        ({"max_steps": 300}, 70, 1),
        ({"max_steps": 300, "max_epochs": -1}, 70, 1),
        ({"max_steps": 100, "global_step": 58, "accumulate_grad_batches": 4}, 168, 1),
        ({"max_epochs": -1}, math.inf, 0),
        ({"num_training_batches": math.inf}, math.inf, 0),
        ({"num_training_batches": math.inf, "val_check_batch": math.inf, "max_steps": 300}, 70, 0),
        ({"num_training_batches": math.inf, "current_epoch": 0, "val_check_batch": 50, "max_steps": 300}, 70, 2),
        ({"max_epochs": 2}, 0, 0),
    ],
    ids=str,
)
def test_work_that_remains(options: dict[str, Any], batches: float, validations: float) -> None:
    work = remaining_work(trainer(**options), 30)
    assert work.batches == batches
    assert work.validations == validations
    assert work.time_limit == math.inf


def test_max_time_limits_the_rest(clock_ticks: list[float]) -> None:
    timer = Timer(duration=timedelta(hours=1))
    work = remaining_work(trainer(callbacks=[timer]), 30)
    assert work.time_limit == 3600
    clock = measured(clock_ticks, [100.0] * 5)
    assert clock.seconds_left(work) == 3600


@pytest.fixture
def clock_ticks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list whose only element is the time that RunClock reads."""
    ticks = [0.0]
    monkeypatch.setattr(run_time.time, "monotonic", lambda: ticks[0])
    return ticks


def measured(ticks: list[float], batches: list[float], examples: int = 16) -> RunClock:
    """Return a clock that has measured these batches after a slow warmup."""
    clock = RunClock()
    for seconds in [9.0] * WARMUP + batches:
        ticks[0] += seconds
        clock.end_batch(examples)
    return clock


def test_the_warmup_does_not_count(clock_ticks: list[float]) -> None:
    clock = measured(clock_ticks, [0.5, 1.5])
    assert clock.batches == 2
    assert clock.batch_seconds == 1.0
    assert clock.examples_per_second == 16.0
    assert clock.elapsed == 29.0
    assert measured(clock_ticks, []).batch_seconds is None
    assert measured(clock_ticks, [1.0], examples=0).examples_per_second is None


def test_time_left_includes_validations(clock_ticks: list[float]) -> None:
    clock = measured(clock_ticks, [1.0] * 4)
    work = RemainingWork(batches=100, validations=2, validation_batches=30)
    # before the first validation, a validation batch counts as a third of a training batch
    assert clock.seconds_left(work) == pytest.approx(100 + 2 * 10)
    clock.end_validation()
    clock_ticks[0] += 26.0
    clock.end_batch(16)
    assert clock.batch_seconds == 1.0
    assert clock.seconds_left(work) == pytest.approx(100 + 2 * 25)
    assert clock.seconds_left(RemainingWork(math.inf, 0, 30)) is None
    clock.restart()
    assert clock.seconds_left(work) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(40.4, "40 s"), (150, "2 min"), (3500, "58 min"), (7800, "2 h 10 min"), (7000, "2 h"), (46_000, "13 h")],
)
def test_durations_are_rounded(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_clock_time() -> None:
    assert [clock_time(seconds) for seconds in (5, 3725.4, 360_000)] == ["0:00:05", "1:02:05", "100:00:00"]


def configs() -> Iterator[str]:
    for durations in SECONDS.values():
        yield from durations


def test_measured_configurations_are_shipped() -> None:
    assert {f"{name}.yaml" for name in configs()} <= set(shipped_configs())


def test_a_faster_configuration_of_the_same_task() -> None:
    assert faster_config("TextClassification", "imdb_fna", 50_000) == ("imdb_small_fna", 761)
    assert faster_config("TextClassification", "imdb_small_fna", 50_000) == ("reviews_fna", 44)
    assert faster_config("ImageClassification", "cifar10_fna", 4000) == ("digits_fna", 12)
    assert faster_config("Translation", "multi30k_fna", 50_000) == ("numbers_fna", 25)
    assert faster_config("TextClassification", "my_own", 50_000) is None
    assert faster_config("MyTask", "imdb_fna", 50_000) is None
