"""LastCheckpoint with a small task and a plain data module: when it writes, and that resuming is bit-exact."""

import os
import signal
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from fna_lightning.callbacks import LastCheckpoint
from fna_lightning.checkpoints.exact.state import STATE
from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.errors import UsageError
from fna_lightning.training.signals import StoppedError

from helpers.linear_task import LinearTask, PlainData, fit, new_trainer

# six batches per epoch
BATCHES = 6


class PowerFailureError(BaseException):
    """Ends a fit without a chance to save."""


class After(L.Callback):
    """Runs an action after a number of training batches."""

    def __init__(self, batches: int, action: Any) -> None:
        self.batches = batches
        self.action = action

    def on_train_batch_end(self, *args: Any) -> None:
        self.batches -= 1
        if self.batches == 0:
            self.action()


def power_failure() -> None:
    raise PowerFailureError


def last(folder: Path) -> Path:
    return folder / "checkpoints/last.ckpt"


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("batches", [1, 4, BATCHES, BATCHES + 2, 2 * BATCHES])
def test_a_plain_data_module_resumes_exactly(batches: int, num_workers: int, tmp_path: Path) -> None:
    whole = fit(new_trainer(tmp_path / "whole", LastCheckpoint()), data=PlainData(num_workers))
    # A timer that is always due saves between all batches.
    stop = After(batches, power_failure)
    with pytest.raises(PowerFailureError):
        fit(new_trainer(tmp_path / "parts", LastCheckpoint(minutes=1e-9), stop), data=PlainData(num_workers))
    trainer = new_trainer(tmp_path / "parts", LastCheckpoint())
    resumed = fit(trainer, last(tmp_path / "parts"), PlainData(num_workers))
    assert trainer.global_step == 2 * BATCHES
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, resumed.get_parameter(name)), name
    # Metrics of the interrupted epoch cover the whole epoch.
    states = [read_checkpoint(last(tmp_path / name))[STATE]["ranks"][0]["metrics"] for name in ("whole", "parts")]
    assert states[0]["callback_metrics"] == states[1]["callback_metrics"]
    assert "train/error" in states[0]["callback_metrics"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(number: signal.Signals, tmp_path: Path) -> None:
    before = signal.getsignal(number)
    stop = After(4, lambda: os.kill(os.getpid(), number))
    with pytest.raises(StoppedError, match=f"all is saved; `fna-lightning resume {tmp_path}` continues from here"):
        fit(new_trainer(tmp_path, LastCheckpoint(), stop))
    assert read_checkpoint(last(tmp_path))["global_step"] == 4
    assert signal.getsignal(number) is before


def test_it_is_written_before_validations_and_at_the_end_only(tmp_path: Path) -> None:
    class Steps(LastCheckpoint):
        def on_save_checkpoint(self, trainer: L.Trainer, *args: Any) -> None:
            super().on_save_checkpoint(trainer, *args)
            steps.append(trainer.global_step)

    steps: list[int] = []
    fit(new_trainer(tmp_path, Steps()))
    assert steps == [BATCHES, 2 * BATCHES, 2 * BATCHES]


def test_weights_that_are_not_finite_are_not_saved(tmp_path: Path) -> None:
    class Spoil(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, pl_module: LinearTask, *args: Any) -> None:
            if trainer.global_step == 2 * BATCHES:
                pl_module.linear.bias.data[0] = torch.nan

    with pytest.raises(UsageError, match=r"linear\.bias holds numbers that are not finite after step 12, so it is not"):
        fit(new_trainer(tmp_path, LastCheckpoint(), Spoil()))
    assert read_checkpoint(last(tmp_path))["global_step"] == BATCHES


def test_a_loader_that_cannot_be_resumed_is_named(tmp_path: Path) -> None:
    trainer = new_trainer(tmp_path, LastCheckpoint(minutes=1e-9))
    with pytest.raises(UsageError, match=r"need a ResumableDataLoader, got a DataLoader; pass .*RunData\(data\)"):
        trainer.fit(LinearTask(), datamodule=PlainData())


def test_no_time_between_checkpoints_is_refused() -> None:
    with pytest.raises(ValueError, match="minutes must be positive, got 0"):
        LastCheckpoint(minutes=0)
