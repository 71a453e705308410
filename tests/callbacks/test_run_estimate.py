"""RunEstimate and RunProgressBar: the size of a run, its time, and its status."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from rich.console import Console
from torch.utils.data import DataLoader, IterableDataset

from fna_lightning.callbacks import RunEstimate, RunProgressBar, progress_bar, run_estimate
from fna_lightning.training import run_time

from helpers.linear_task import LinearTask, NoisyExamples, PlainData, fit, new_trainer


class SlowClock:
    """A clock on which every reading takes the same time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += self.seconds
        return self.now


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Yield a function that returns the messages of RunEstimate."""
    with caplog.at_level(logging.INFO, logger=run_estimate.__name__):
        yield lambda: [record.message for record in caplog.records if record.name == run_estimate.__name__]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a batch take minutes."""
    monkeypatch.setattr(run_time, "time", SlowClock(60.0))


@pytest.mark.usefixtures("slow")
def test_a_run_is_described_and_its_time_estimated(tmp_path: Path, messages: Any) -> None:
    fit(new_trainer(tmp_path, RunEstimate("imdb_fna"), max_epochs=20))
    size, estimate = messages()
    assert size == "4 parameters, 6 steps per epoch, 120 steps in all"
    assert estimate == "about 2 h on this machine"


@pytest.mark.usefixtures("slow")
def test_a_long_run_of_a_shipped_configuration_names_a_faster_one(
    tmp_path: Path, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_estimate, "faster_config", lambda task, config, seconds: (f"{task} {config}", 761))
    fit(new_trainer(tmp_path, RunEstimate("imdb_fna"), max_epochs=20))
    text = "about 2 h on this machine; LinearTask imdb_fna took 13 min on one core of an AMD EPYC"
    assert messages()[-1] == text


def test_a_short_run_has_no_estimate(tmp_path: Path, messages: Any) -> None:
    fit(new_trainer(tmp_path, RunEstimate(), max_epochs=20, limit_val_batches=1, accumulate_grad_batches=4))
    assert messages() == [
        "4 parameters, 2 steps per epoch, 40 steps in all, validation on 4 of 5 examples (limit_val_batches)"
    ]


class StreamData(PlainData):
    """Training data without a length."""

    def train_dataloader(self) -> DataLoader[Any]:
        class Stream(IterableDataset[Any]):
            def __iter__(self) -> Iterator[Any]:
                return iter(NoisyExamples(8)[index % 8] for index in range(120))

        return DataLoader(Stream(), 4)


@pytest.mark.usefixtures("slow")
def test_data_without_a_length_has_no_estimate_without_max_steps(tmp_path: Path, messages: Any) -> None:
    fit(new_trainer(tmp_path, RunEstimate(), max_epochs=1), data=StreamData())
    assert messages() == [
        "4 parameters, epochs of unknown length",
        "the length of the training data is unknown, so there is no estimate of the time left",
    ]


@pytest.mark.usefixtures("slow")
def test_data_without_a_length_and_max_steps(tmp_path: Path, messages: Any) -> None:
    fit(new_trainer(tmp_path, RunEstimate(), max_epochs=-1, max_steps=60), data=StreamData())
    size, estimate = messages()
    assert size == "4 parameters, epochs of unknown length, 60 steps in all"
    assert estimate.startswith("about ")


@pytest.mark.usefixtures("slow")
def test_a_resumed_run_estimates_the_rest(tmp_path: Path, messages: Any) -> None:
    first = new_trainer(tmp_path, max_epochs=10)
    fit(first)
    first.save_checkpoint(tmp_path / "half.ckpt")
    fit(new_trainer(tmp_path, RunEstimate(), max_epochs=20), tmp_path / "half.ckpt")
    size, estimate = messages()
    assert size == "4 parameters, 6 steps per epoch, 120 steps in all, 60 done"
    assert estimate.endswith("left on this machine")


@pytest.mark.usefixtures("slow")
def test_without_a_bar_the_status_is_logged_now_and_then(tmp_path: Path, messages: Any) -> None:
    fit(new_trainer(tmp_path, RunEstimate(report_minutes=1e-9), max_epochs=2))
    lines = [message for message in messages() if message.startswith("epoch ")]
    assert lines[-1].startswith("epoch 2/2, step 12: loss ")
    assert " ex/s, " in lines[-1]
    assert lines[-1].endswith("0:00:00 left")


def test_training_is_not_changed(tmp_path: Path) -> None:
    tasks = [fit(new_trainer(tmp_path, *callbacks)) for callbacks in ((), (RunEstimate(report_minutes=1e-9),))]
    for first, second in zip(tasks[0].parameters(), tasks[1].parameters(), strict=True):
        assert torch.equal(first, second)
    assert RunEstimate().state_dict() == {}


def bar_trainer(folder: Path, *callbacks: L.Callback) -> L.Trainer:
    options: dict[str, Any] = {"logger": False, "enable_model_summary": False, "enable_checkpointing": False}
    return L.Trainer(accelerator="cpu", max_epochs=12, default_root_dir=folder, callbacks=list(callbacks), **options)


def test_the_bar_fits_into_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "is_interactive", lambda: True)
    monkeypatch.setattr(progress_bar, "STATUS_INTERVAL", 0.0)
    bar = RunProgressBar()
    trainer = bar_trainer(tmp_path, RunEstimate(), bar)
    lines: list[str] = []

    class Look(L.Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            console = Console(file=io.StringIO(), width=80)
            assert bar.progress is not None
            bar.status = "loss 0.6931, 12345 ex/s, 123:45:59 left" if len(lines) == 1 else bar.status
            console.print(bar.progress.get_renderable())
            lines.append(console.file.getvalue())  # type: ignore[attr-defined]

    trainer.callbacks.append(Look())  # type: ignore[attr-defined]
    trainer.fit(LinearTask(), datamodule=PlainData())
    assert "ex/s" in lines[-1]
    assert lines[-1].rstrip().endswith("0:00:00 left")
    assert len(lines[1].strip().splitlines()) == 1
    assert "123:45:59 left" in lines[1]


def test_without_a_terminal_there_is_no_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bar = RunProgressBar()
    trainer = bar_trainer(tmp_path, RunEstimate(), bar)
    trainer.fit(LinearTask(), datamodule=PlainData())
    assert bar.is_disabled
    assert "Epoch" not in capsys.readouterr().out
