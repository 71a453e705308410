"""CheckSharding: the processes together evaluate every example once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from fna_lightning.callbacks import CheckSharding
from fna_lightning.errors import UsageError

from helpers.linear_task import LinearTask, NoisyExamples, fit, new_trainer


def two_processes(evaluated_by_the_other: int, **settings: Any) -> Any:
    """Return the trainer of one of two processes; the other one has evaluated this many examples."""
    return SimpleNamespace(
        **{
            "world_size": 2,
            "sanity_checking": False,
            "limit_val_batches": 1.0,
            "limit_test_batches": 1.0,
            "val_dataloaders": DataLoader(NoisyExamples(10), 4),
            "test_dataloaders": DataLoader(NoisyExamples(10), 4),
            "strategy": SimpleNamespace(reduce=lambda count, reduce_op: count + evaluated_by_the_other),
        }
        | settings
    )


def evaluate(trainer: Any, sizes: list[int]) -> None:
    """Run the hooks of a validation and of a test with batches of these sizes."""
    callback, task = CheckSharding(), LinearTask()
    for stage in ("validation", "test"):
        getattr(callback, f"on_{stage}_epoch_start")(trainer, task)
        for index, size in enumerate(sizes):
            batch = (torch.zeros(size, 3), torch.zeros(size))
            getattr(callback, f"on_{stage}_batch_end")(trainer, task, None, batch, index)
        getattr(callback, f"on_{stage}_epoch_end")(trainer, task)


def test_every_example_once_passes() -> None:
    evaluate(two_processes(4), [4, 2])


@pytest.mark.parametrize("others", [3, 5])
def test_a_missing_or_repeated_example_is_an_error(others: int) -> None:
    message = rf"2 processes have evaluated {6 + others} val examples of 10, so the metrics would be wrong"
    with pytest.raises(UsageError, match=message):
        evaluate(two_processes(others), [4, 2])


def test_tests_are_checked_as_well() -> None:
    # limited validation batches are not compared
    with pytest.raises(UsageError, match="11 test examples of 10"):
        evaluate(two_processes(5, limit_val_batches=2), [4, 2])


def test_one_process_and_limited_batches_are_not_checked(tmp_path: Path) -> None:
    evaluate(two_processes(100, world_size=1), [4, 2])
    evaluate(two_processes(100, limit_val_batches=1, limit_test_batches=0.5), [4, 2])
    callback = CheckSharding()
    fit(new_trainer(tmp_path, callback))
    assert callback.examples == 5
