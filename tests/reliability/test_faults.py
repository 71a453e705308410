"""Faults of disks, power, worker processes and numbers: the error is one sentence and the last good file stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.cli import main
from fna_lightning.config.messages import explain
from fna_lightning.errors import UsageError
from fna_lightning.task import Task
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE
from fna_lightning.utils import files
from fna_lightning.utils.files import atomic_write

from helpers.interrupted import COMMON, TASKS, fit, interrupt

pytestmark = pytest.mark.e2e

RUN = [*TASKS["text"], *COMMON]


def at_step(monkeypatch: pytest.MonkeyPatch, call: int, action: Any, *, after: bool = False) -> None:
    """Call ``action(task)`` in the ``call``-th training step, before or after the loss is computed."""
    original, calls = Task.training_step, []

    def step(self: Task, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == call and not after:
            action(self)
        loss = original(self, *args)
        if len(calls) == call and after:
            action(self)
        return loss

    monkeypatch.setattr(Task, "training_step", step)


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error message that was printed, which must be one line without a traceback."""
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    (line,) = [line for line in printed.splitlines() if line.startswith("fna-lightning: error:")]
    return line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_keeps_the_last_good_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run/version_0"
    last = folder / "checkpoints/last.ckpt"

    def fill_the_disk(task: Task) -> None:
        # Every write to a new file fails because the disk is full.
        monkeypatch.setattr(files, "open_new", lambda path: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb"))

    at_step(monkeypatch, 15, fill_the_disk)
    assert fit(folder, monkeypatch, RUN) == 2
    assert f"cannot write {last}: the disk is full; free some space and run again (the one written before is kept)" in (
        error_line(capsys)
    )
    assert read_checkpoint(last)["global_step"] == 10


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="no permission to write there"):
        atomic_write(tmp_path / "last.ckpt", lambda file: None)


def test_a_folder_of_runs_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A file with the name of the folder stops all users, including root.
    (tmp_path / "runs").write_text("")
    assert main(["fit", *RUN, f"--trainer.default_root_dir={tmp_path / 'runs'}"]) == 2
    message = error_line(capsys)
    assert f"cannot write {tmp_path / 'runs/reviews_fna'}: Not a directory; see what is wrong there" in message
    assert "--trainer.default_root_dir names another folder" in message


@pytest.mark.parametrize(
    ("name", "message"), [("EROFS", "the folder is read-only"), ("EDQUOT", "quota"), ("EIO", "reports an error")]
)
def test_other_disk_errors(name: str, message: str, tmp_path: Path) -> None:
    import errno

    path = tmp_path / "last.ckpt"
    path.write_text("good")

    def write(file: object) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    with pytest.raises(UsageError, match=f"{message}.*the one written before is kept"):
        atomic_write(path, write)
    assert path.read_text() == "good"
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_file_is_never_partly_written(tmp_path: Path) -> None:
    """Read it while it is written again and again, and after its writer is killed."""
    path = tmp_path / "file"
    code = (
        "import sys, pathlib; from fna_lightning.utils.files import atomic_write\n"
        "for i in range(10**9):\n"
        "    atomic_write(pathlib.Path(sys.argv[1]), lambda file: file.write(bytes([i % 256]) * 2_000_000))"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
    deadline = time.monotonic() + 300
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    versions = {_version(path.read_bytes()) for _ in range(100)}
    while len(versions) == 1 and time.monotonic() < deadline:
        # On a busy machine the writer may not have written a second version yet.
        versions.add(_version(path.read_bytes()))
    writer.kill()
    writer.wait()
    assert len(versions) > 1
    assert _version(path.read_bytes()) in range(256)


def _version(content: bytes) -> int:
    """Return the byte that fills a complete file."""
    assert content == content[:1] * 2_000_000
    return content[0]


def test_a_loss_that_is_not_finite_stops_before_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run/version_0"
    spoiled: dict[str, torch.Tensor] = {}

    def spoil(task: Any) -> None:
        self_attn = task.encoder.layers[0].self_attn
        with torch.no_grad():
            # Head 2 of 4, with 4 coordinates each: the weights are finite, but the values overflow.
            self_attn.value.weight[8:12] = 3e38
        spoiled.update({name: parameter.detach().clone() for name, parameter in task.named_parameters()})
        spoiled["task"] = task

    at_step(monkeypatch, 15, spoil)
    assert fit(folder, monkeypatch, RUN) == 2
    message = error_line(capsys)
    assert "at step 14 (epoch 1), so training stops before the weights change" in message
    assert "it begins in the attention layer encoder.layers.0.self_attn, head 2;" in message
    task: Any = spoiled.pop("task")
    assert all(torch.equal(parameter, spoiled[name]) for name, parameter in task.named_parameters())
    assert read_checkpoint(folder / "checkpoints/last.ckpt")["global_step"] == 10


def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run/version_0"

    def spoil(task: Any) -> None:
        task.head.bias.data[0] = torch.nan
        os.kill(os.getpid(), signal.SIGTERM)

    at_step(monkeypatch, 15, spoil, after=True)
    # The signal decides the exit code; the message is that of the error.
    assert fit(folder, monkeypatch, RUN) == 143
    assert "holds numbers that are not finite after step 15, so it is not saved" in error_line(capsys)
    assert read_checkpoint(folder / "checkpoints/last.ckpt")["global_step"] == 10


# kills the workers of its data loader in the third step
DEAD_WORKER = """
import multiprocessing, os, signal, sys
from fna_lightning.cli import main
from fna_lightning.task import Task

original, calls = Task.training_step, []

def step(self, *args):
    calls.append(1)
    if len(calls) == 3:
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)
    return original(self, *args)

Task.training_step = step
sys.exit(main(["fit", *sys.argv[1:]]))
"""


def test_a_dead_worker_ends_the_run(tmp_path: Path) -> None:
    """In a separate process, because PyTorch raises the error in a signal handler, at any point of the program."""
    # There are more batches than the worker has already prepared.
    arguments = [*RUN, "--data.num_workers=1", "--data.batch_size=2"]
    ended = subprocess.run(
        [sys.executable, "-c", DEAD_WORKER, *arguments],
        env={**os.environ, RUN_DIR_VARIABLE: str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
    (message,) = [line for line in ended.stderr.splitlines() if line.startswith("fna-lightning: error:")]
    assert "a process that loads data has died" in message
    assert "resume" in message


def test_checkpoints_do_not_accumulate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run/version_0"
    arguments = [*RUN, "--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.minutes=1e-6"]
    with monkeypatch.context() as patch:
        interrupt(patch, "training_step", 17, signal.SIGTERM)
        assert fit(folder, monkeypatch, arguments) == 143
    # It was written after every step, but there is one file.
    assert read_checkpoint(folder / "checkpoints/last.ckpt")["global_step"] == 17
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("[pair.cc:537] Read error [127.0.0.1]:1: Connection reset by peer"), "another process of this"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), "is killed by signal: Killed"),
        (RuntimeError("No supported gpu backend found!"), "there is no GPU that PyTorch can use here"),
        (
            RuntimeError("FSDP needs a non-CPU accelerator device, but no"),
            "fsdp2 shards parameters with GPUs and without",
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "smaller --batch-size"),
        (OSError(28, "No space left on device"), "the disk is full; free some space"),
        (ValueError("some text"), "some text"),
        (KeyError(), "KeyError"),
    ],
)
def test_errors_of_libraries_are_explained(error: Exception, words: str) -> None:
    assert words in explain(error)


def test_a_missing_gpu_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert main(["fit", "--config", "reviews_fna.yaml", "--trainer.accelerator=gpu"]) == 2
    assert "there is no GPU that PyTorch can use here; leave --trainer.accelerator out" in error_line(capsys)


def test_lightnings_own_fsdp_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert main(["fit", "--config", "reviews_fna.yaml", "--trainer.strategy=fsdp", "--trainer.devices=2"]) == 2
    assert "fsdp is Lightning's and needs a GPU; fsdp2 shards parameters with GPUs and without" in error_line(capsys)
