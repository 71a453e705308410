"""Atomic writing: unpredictable temporary names, no symbolic links followed, no temporary files left behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fna_lightning.callbacks.prediction_writer import PredictionWriter
from fna_lightning.checkpoints.atomic_io import AtomicCheckpointIO
from fna_lightning.errors import UsageError
from fna_lightning.tasks.translation.scores import Report
from fna_lightning.training.csv_logger import MetricsCSVLogger
from fna_lightning.utils import files
from fna_lightning.utils.files import atomic_write, remove_leftovers, write_text

pytestmark = pytest.mark.e2e


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside the run folder that must not change."""
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


def test_a_symbolic_link_does_not_redirect_a_checkpoint(tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / ".last.ckpt.part").symlink_to(victim)
    AtomicCheckpointIO().save_checkpoint({"state_dict": {}}, folder / "last.ckpt")
    assert victim.read_text() == "precious"
    assert not (folder / "last.ckpt").is_symlink()


def test_a_guessed_temporary_name_is_not_opened(tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "0" * 2 * size)
    name = f".file.{files._process_key()}-{os.getpid()}-{'0' * 16}.part"
    (tmp_path / name).symlink_to(victim)
    with pytest.raises(UsageError, match="cannot write"):
        write_text(tmp_path / "file", "other")
    assert victim.read_text() == "precious"


def test_two_writers_do_not_share_a_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def write(file: Any) -> None:
        file.write(b"outer, first half; ")
        # another process writes the same file at the same time
        code = (
            "import sys, pathlib; from fna_lightning.utils.files import atomic_write\n"
            "atomic_write(pathlib.Path(sys.argv[1]), lambda file: file.write(b'inner'))"
        )
        subprocess.run([sys.executable, "-c", code, path], check=True)
        assert path.read_bytes() == b"inner"
        file.write(b"second half")

    atomic_write(path, write)
    assert path.read_bytes() == b"outer, first half; second half"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def leftover(folder: Path, pid: int, name: str = "last.ckpt", key: str | None = None) -> Path:
    path = folder / f".{name}.{key or files._process_key()}-{pid}-{'ab' * 8}.part"
    path.write_bytes(b"half")
    return path


def test_temporary_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed, own = leftover(tmp_path, ended.pid), leftover(tmp_path, os.getpid())
    running = leftover(tmp_path, os.getppid())
    elsewhere, other = leftover(tmp_path, 1, key="0" * 8), leftover(tmp_path, ended.pid, name="best.ckpt")
    write_text(tmp_path / "last.ckpt", "new")
    assert not killed.exists()
    assert not own.exists()
    assert running.exists()
    assert elsewhere.exists()
    assert other.exists()
    hour_ago = time.time() - 2 * files.ABANDONED
    os.utime(elsewhere, (hour_ago, hour_ago))
    remove_leftovers(tmp_path / "last.ckpt")
    assert not elsewhere.exists()


def test_only_regular_files_are_removed(tmp_path: Path, victim: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    link = leftover(tmp_path, ended.pid)
    link.unlink()
    link.symlink_to(victim)
    write_text(tmp_path / "last.ckpt", "new")
    assert victim.read_text() == "precious"


def test_the_next_writer_removes_the_file_of_a_killed_one(tmp_path: Path) -> None:
    code = (
        "import sys, os, pathlib; from fna_lightning.utils.files import atomic_write\n"
        "atomic_write(pathlib.Path(sys.argv[1]), lambda file: (file.write(b'half'), os.kill(os.getpid(), 9)))"
    )
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code, tmp_path / "file"]).returncode == -9
        # the second process removed the file of the first
        assert len(list(tmp_path.iterdir())) == 1
    write_text(tmp_path / "file", "whole")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def metrics(folder: Path) -> None:
    log = MetricsCSVLogger(folder)
    log.log_metrics({"loss": 1.0}, 0)
    log.save()
    (folder / "metrics.csv").replace(folder / "kept.csv")
    (folder / "metrics.csv").symlink_to(folder.parent / "victim")
    log.log_metrics({"loss": 2.0}, 1)
    log.save()


def predictions(folder: Path) -> None:
    (folder / "predictions.csv").symlink_to(folder.parent / "victim")
    trainer: Any = SimpleNamespace(world_size=1, datamodule=None)
    batches = [{"label": torch.tensor([0, 1])}]
    PredictionWriter(str(folder)).write_on_epoch_end(trainer, None, batches, [[[0, 1]]])  # type: ignore[arg-type]


def scores(folder: Path) -> None:
    for name in ("test.hyp.txt", "test.scores.json"):
        (folder / name).symlink_to(folder.parent / "victim")
    Report({}, {}, ["a"], ["b"]).write(folder, "test", ["c"], SimpleNamespace())  # type: ignore[arg-type]


def figure(folder: Path) -> None:
    from matplotlib.figure import Figure

    from fna_lightning.reproduction.context import Context

    (folder / "curve.png").symlink_to(folder.parent / "victim")
    Context(None, folder, folder).save(Figure(), "curve")  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [metrics, predictions, scores, figure], ids=lambda write: write.__name__)
def test_a_link_in_a_run_folder_is_not_followed(write: Any, tmp_path: Path, victim: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    try:
        write(folder)
    except UsageError as error:
        assert "is a symbolic link, and links are not followed here; remove it" in str(error)  # noqa: PT017
    assert victim.read_text() == "precious"


def test_rows_are_not_appended_to_a_deleted_run(tmp_path: Path) -> None:
    """Otherwise metrics.csv would have no header after a checkpoint has created the folder again."""
    folder = tmp_path / "run"
    folder.mkdir()
    log = MetricsCSVLogger(folder)
    log.log_metrics({"loss": 1.0}, 0)
    log.save()
    (folder / "metrics.csv").unlink()
    log.log_metrics({"loss": 2.0}, 1)
    with pytest.raises(UsageError, match=r"metrics\.csv: its folder is gone: deleted or moved while the program was"):
        log.save()
    assert not (folder / "metrics.csv").exists()


def test_text_that_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    write_text(tmp_path / "file", json.dumps({"a": 1}) + os.fsdecode(b"\xff"))
    assert (tmp_path / "file").read_text() == '{"a": 1}\\udcff'
