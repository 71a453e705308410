"""Resuming is bit-exact on CPU: every logged number and every weight equals that of an uninterrupted run."""

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fna_lightning.callbacks import RunSummary
from fna_lightning.checkpoints.resume import ResumePoint, changes
from fna_lightning.cli import main
from fna_lightning.errors import UsageError
from fna_lightning.task import Task
from fna_lightning.training.cli import unsaved_settings

from helpers.interrupted import COMMON, TASKS, PowerCutError, assert_same_run, checkpoint, fit, interrupt, results

pytestmark = pytest.mark.e2e

TERM, INT = signal.SIGTERM, signal.SIGINT

# Each process in turn is stopped at a call of a hook, by a signal or, for None, by a power cut. An epoch has about ten
# batches.
STOPS = {
    "in the middle of an epoch": [("training_step", 4, TERM), ("training_step", 3, INT)],
    "in its first and last step": [("training_step", 1, TERM), ("training_step", 9, INT), ("training_step", 1, INT)],
    "in a validation": [("validation_step", 2, TERM), ("validation_step", 1, INT)],
    "by power cuts": [("training_step", 4, None), ("validation_step", 2, None), ("training_step", 7, None)],
}


def stop_and_resume(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], stops: list[tuple[str, int, object]]
) -> None:
    """Train to the end, with the interruptions ``stops`` on the way."""
    for leg, (hook, call, number) in enumerate(stops):
        with monkeypatch.context() as patch:
            interrupt(patch, hook, call, number)
            start = (lambda: main(["resume", str(folder)])) if leg else (lambda: fit(folder, patch, arguments))
            if number is None:
                with pytest.raises(PowerCutError):
                    start()
            else:
                assert start() == 128 + number
    assert main(["resume", str(folder)]) == 0


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("stops", STOPS.values(), ids=STOPS)
def test_a_resumed_run_is_exact(
    task: str, stops: list[tuple[str, int, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*TASKS[task], *COMMON]
    assert fit(tmp_path / "whole/version_0", monkeypatch, arguments) == 0
    stop_and_resume(tmp_path / "parts/version_0", monkeypatch, arguments, stops)
    assert_same_run(tmp_path / "whole/version_0", tmp_path / "parts/version_0")


@pytest.mark.parametrize(
    "settings",
    [
        ["--trainer.accumulate_grad_batches=2"],
        ["--trainer.val_check_interval=0.5"],
        ["--trainer.max_epochs=-1", "--trainer.max_steps=25"],
        ["--data.num_workers=1"],
        ["--trainer.log_every_n_steps=4", "--trainer.callbacks+=AttentionGraph"],
        ["--model.lr_scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau", "--model.lr_scheduler.patience=0"],
    ],
    ids=str,
)
def test_with_other_loop_settings(settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*TASKS["text"], *COMMON, *settings]
    assert fit(tmp_path / "whole/version_0", monkeypatch, arguments) == 0
    stops = [("training_step", 5, TERM), ("validation_step", 2, TERM), ("training_step", 3, TERM)]
    stop_and_resume(tmp_path / "parts/version_0", monkeypatch, arguments, stops)
    assert_same_run(tmp_path / "whole/version_0", tmp_path / "parts/version_0")


def test_settings_given_to_resume_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run/version_0"
    assert fit(folder, monkeypatch, [*TASKS["text"], *COMMON, "--trainer.max_epochs=1"]) == 0
    before = (folder / "config.yaml").read_text()
    with caplog.at_level("INFO"):
        assert main(["resume", str(folder), "--trainer.max_epochs", "2", "--data.eval_size=20"]) == 0
    changed = [record.getMessage() for record in caplog.records if record.getMessage().startswith("changed:")]
    assert changed == ["changed: data.init_args.eval_size: 30 -> 20", "changed: trainer.max_epochs: 1 -> 2"]
    assert "ckpt_path: null" in (folder / "config.yaml").read_text()
    assert (folder / "config.yaml").read_text() != before
    assert json.loads((folder / "results.json").read_text())["fit"]["epochs"] == 2


def test_adding_epochs_equals_a_longer_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*TASKS["text"], *COMMON]
    assert fit(tmp_path / "whole/version_0", monkeypatch, arguments) == 0
    assert fit(tmp_path / "parts/version_0", monkeypatch, [*arguments, "--trainer.max_epochs=2"]) == 0
    moved = (tmp_path / "parts/version_0").rename(tmp_path / "parts/version_1")
    assert main(["resume", str(moved), "--trainer.max_epochs=3"]) == 0
    assert_same_run(tmp_path / "whole/version_0", moved)


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no run folder: it has no config\.yaml; give the folder of a run"):
        ResumePoint.of(tmp_path)
    (tmp_path / "config.yaml").write_text("{}")
    assert ResumePoint.of(tmp_path) == ResumePoint(None)


def test_changes_are_listed_by_setting() -> None:
    before = "a: 1\nb:\n  c: [1, 2]\n  d: x\nckpt_path: null\n"
    assert list(changes(before, "b:\n  d: x\n  c: [1, 3]\na: 1\ne: true\nckpt_path: y\n")) == [
        "b.c: [1, 2] -> [1, 3]",
        "e: (not set) -> True",
    ]


SWA = ["--trainer.callbacks+=StochasticWeightAveraging", "--trainer.callbacks.swa_lrs=0.01"]
EMA = ["--trainer.callbacks+=EMAWeightAveraging", "--trainer.callbacks.decay=0.9"]
# settings of a run, and the calls of hooks at which each process in turn is stopped
SPECIAL = {
    "a validation while gradients are accumulated": (
        ["--trainer.accumulate_grad_batches=2", "--trainer.val_check_interval=5"],
        [("validation_step", 1, TERM), ("training_step", 3, TERM), ("validation_step", 3, None)],
    ),
    "between batches while gradients are accumulated": (
        ["--trainer.accumulate_grad_batches=3"],
        [("training_step", 4, TERM), ("training_step", 1, TERM), ("training_step", 8, TERM)],
    ),
    "the end of a validation that was resumed": (
        ["--trainer.val_check_interval=0.25"],
        [("validation_step", 1, TERM), ("on_validation_epoch_end", 1, TERM), ("on_validation_epoch_end", 2, TERM)],
    ),
    "stochastic weight averaging": (
        [*SWA, "--trainer.callbacks.swa_epoch_start=1"],
        [("training_step", 4, TERM), ("validation_step", 1, TERM), ("training_step", 15, TERM)],
    ),
    "stochastic weight averaging that has not begun": (
        [
            *(*SWA, "--trainer.callbacks.swa_epoch_start=2"),
            *("--model.lr_scheduler=ExponentialLR", "--model.lr_scheduler.gamma=0.5"),
        ],
        [("training_step", 4, TERM), ("training_step", 14, TERM)],
    ),
    "exponential weight averaging": (EMA, [("training_step", 4, TERM), ("validation_step", 1, TERM)]),
    "early stopping": (
        [
            *("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/loss"),
            *("--trainer.callbacks.mode=max", "--trainer.callbacks.patience=1", "--trainer.max_epochs=5"),
        ],
        [("training_step", 4, TERM), ("on_train_end", 1, None)],
    ),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_a_resumed_run_is_exact_with(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, stops = SPECIAL[name]
    arguments = [*TASKS["text"], *COMMON, *settings]
    assert fit(tmp_path / "whole/version_0", monkeypatch, arguments) == 0
    stop_and_resume(tmp_path / "parts/version_0", monkeypatch, arguments, stops)
    assert_same_run(tmp_path / "whole/version_0", tmp_path / "parts/version_0")


@pytest.mark.parametrize("settings", [["--trainer.max_steps=14"], []], ids=["in an epoch", "after an epoch"])
def test_resuming_a_finished_run_changes_nothing(
    settings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*TASKS["text"], *COMMON, "--trainer.max_epochs=2", *settings]
    whole, killed = tmp_path / "whole/version_0", tmp_path / "killed/version_0"
    assert fit(whole, monkeypatch, arguments) == 0
    before = results(whole)
    assert before["metrics"]
    assert main(["resume", str(whole)]) == 0
    assert results(whole) == before
    # killed after the last checkpoint and before results.json
    with monkeypatch.context() as patch:
        interrupt(patch, "on_fit_end", 1, None, RunSummary)
        with pytest.raises(PowerCutError):
            fit(killed, patch, arguments)
    assert not (killed / "results.json").exists()
    assert main(["resume", str(killed)]) == 0
    assert_same_run(whole, killed)
    runs = [json.loads((folder / "results.json").read_text())["run"] for folder in (whole, killed)]
    assert runs[0] == runs[1]


def test_the_time_of_all_parts_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run/version_0"
    clock = iter(range(0, 10**9, 100))
    monkeypatch.setattr("fna_lightning.callbacks.run_summary.time.perf_counter", lambda: float(next(clock)))
    stop_and_resume(folder, monkeypatch, [*TASKS["text"], *COMMON], [("training_step", 15, TERM)])
    seconds = json.loads((folder / "results.json").read_text())["fit"]["seconds"]
    saved = checkpoint(folder)["callbacks"]["RunSummary"]["seconds"]
    # The clock advances 100 s with every reading, and each of the two processes reads it at least twice.
    assert seconds >= saved >= 300.0


class TrainedExamples:
    """Records the examples of all training steps by epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.epochs: dict[int, list[bytes]] = {}
        original = Task.training_step

        def step(task: Task, batch: Any, batch_idx: int) -> Any:
            rows = [tokens[:length].numpy().tobytes() for tokens, length in zip(batch[0], batch[1], strict=True)]
            self.epochs.setdefault(task.current_epoch, []).extend(rows)
            return original(task, batch, batch_idx)

        monkeypatch.setattr(Task, "training_step", step)


@pytest.mark.parametrize(
    ("call", "hook"),
    [(4, "training_step"), (1, "validation_step"), (3, "on_validation_epoch_end")],
    ids=str,
)
@pytest.mark.parametrize("batch_size", [3, 64], ids=str)
def test_another_batch_size_uses_every_example_once(
    call: int, hook: str, batch_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run/version_0"
    examples = TrainedExamples(monkeypatch)
    arguments = [*TASKS["text"], *COMMON, "--trainer.val_check_interval=0.5", "--data.longest=200"]
    with monkeypatch.context() as patch:
        interrupt(patch, hook, call, TERM)
        assert fit(folder, patch, arguments) == 128 + TERM
    assert main(["resume", str(folder), f"--data.batch_size={batch_size}"]) == 0
    whole = Counter(examples.epochs[2])
    assert sum(whole.values()) == 100
    assert all(Counter(rows) == whole for rows in examples.epochs.values())
    assert results(folder)["epochs"] == 3


@pytest.mark.parametrize("train_size", [40, 300], ids=str)
def test_another_size_of_the_data(train_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run/version_0"
    with monkeypatch.context() as patch:
        interrupt(patch, "training_step", 17, TERM)
        assert fit(folder, patch, [*TASKS["text"], *COMMON]) == 128 + TERM
    examples = TrainedExamples(monkeypatch)
    assert main(["resume", str(folder), f"--data.train_size={train_size}"]) == 0
    # 70 of 100 examples were used, so 230 of 300 are left; with 40 examples the epoch ends with one batch.
    assert len(examples.epochs[1]) == max(train_size - 70, 1)
    assert len(examples.epochs[2]) == train_size
    assert results(folder)["epochs"] == 3


def test_settings_that_cannot_be_saved_are_named() -> None:
    assert unsaved_settings("a: 1\nb:\n  c: Unable to serialize instance <x>\n") == ["b.c"]
    assert not unsaved_settings("a: 1\n")
