"""A run that was stopped and resumed is the run that never was: every logged number and every weight, bit for bit."""

import json
import signal
from pathlib import Path

import pytest
from interrupted import COMMON, TASKS, PowerCutError, assert_same_run, fit, interrupt

from fna_lightning.cli import main
from fna_lightning.errors import UsageError
from fna_lightning.resuming import ResumePoint, changes

TERM, INT = signal.SIGTERM, signal.SIGINT

# about ten batches an epoch: the step at which each process in turn is stopped, and how; None is a power cut
STOPS = {
    "in the middle of an epoch": [("training_step", 4, TERM), ("training_step", 3, INT)],
    "in its first and last step": [("training_step", 1, TERM), ("training_step", 9, INT), ("training_step", 1, INT)],
    "in a validation": [("validation_step", 2, TERM), ("validation_step", 1, INT)],
    "by power cuts": [("training_step", 4, None), ("validation_step", 2, None), ("training_step", 7, None)],
}


def stop_and_resume(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], stops: list[tuple[str, int, object]]
) -> None:
    """Train to the end, stopped on the way as ``stops`` says."""
    for number, (hook, call, how) in enumerate(stops):
        with monkeypatch.context() as patch:
            interrupt(patch, hook, call, how)
            start = (lambda: main(["resume", str(folder)])) if number else (lambda: fit(folder, patch, arguments))
            if how is None:
                with pytest.raises(PowerCutError):
                    start()
            else:
                assert start() == 128 + how
    assert main(["resume", str(folder)]) == 0


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("stops", STOPS.values(), ids=STOPS)
def test_stopped_anywhere(
    task: str, stops: list[tuple[str, int, object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*TASKS[task], *COMMON]
    assert fit(tmp_path / "whole/version_0", monkeypatch, arguments) == 0
    stop_and_resume(tmp_path / "parts/version_0", monkeypatch, arguments, stops)
    assert_same_run(tmp_path / "whole/version_0", tmp_path / "parts/version_0")


@pytest.mark.parametrize(
    "more",
    [
        ["--trainer.accumulate_grad_batches=2"],
        ["--trainer.val_check_interval=0.5"],
        ["--trainer.max_epochs=-1", "--trainer.max_steps=25"],
        ["--data.num_workers=1"],
        ["--model.lr_scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau", "--model.lr_scheduler.patience=0"],
    ],
    ids=str,
)
def test_with_every_way_to_count(more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*TASKS["text"], *COMMON, *more]
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


def test_longer_training_is_the_longer_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*TASKS["text"], *COMMON]
    assert fit(tmp_path / "whole/version_0", monkeypatch, arguments) == 0
    assert fit(tmp_path / "parts/version_0", monkeypatch, [*arguments, "--trainer.max_epochs=2"]) == 0
    moved = (tmp_path / "parts/version_0").rename(tmp_path / "parts/version_1")
    assert main(["resume", str(moved), "--trainer.max_epochs=3"]) == 0
    assert_same_run(tmp_path / "whole/version_0", moved)


def test_what_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is no run folder: it has no config\.yaml; give the folder of a run"):
        ResumePoint.of(tmp_path)
    (tmp_path / "config.yaml").write_text("{}")
    assert ResumePoint.of(tmp_path) == ResumePoint(None)


def test_changes_are_settings_not_lines() -> None:
    before = "a: 1\nb:\n  c: [1, 2]\n  d: x\nckpt_path: null\n"
    assert list(changes(before, "b:\n  d: x\n  c: [1, 3]\na: 1\ne: true\nckpt_path: y\n")) == [
        "b.c: [1, 2] -> [1, 3]",
        "e: (not set) -> True",
    ]
