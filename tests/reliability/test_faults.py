"""What goes wrong outside: disks, power, worker processes, numbers. One sentence, and the last good file stays."""

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
from fna_lightning.utils import files as atomic_file
from fna_lightning.utils.files import atomic_write

from helpers.interrupted import COMMON, TASKS, fit, interrupt

RUN = [*TASKS["text"], *COMMON]


def at_step(monkeypatch: pytest.MonkeyPatch, call: int, action: Any, *, after: bool = False) -> None:
    """Do something to the task in its ``call``-th training step, before or after the loss is computed."""
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


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("fna-lightning: error:")]
    return line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_keeps_the_last_good_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run/version_0"
    last = folder / "checkpoints/last.ckpt"

    def fill_the_disk(task: Task) -> None:
        # whatever is written to a new file meets a full disk
        monkeypatch.setattr(atomic_file, "open_new", lambda path: os.fdopen(os.open("/dev/full", os.O_WRONLY), "wb"))

    at_step(monkeypatch, 15, fill_the_disk)
    assert fit(folder, monkeypatch, RUN) == 2
    assert f"cannot write {last}: the disk is full; free some space and run again (the one written before is kept)" in (
        complaint(capsys)
    )
    assert read_checkpoint(last)["global_step"] == 10


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="no permission to write there"):
        atomic_write(tmp_path / "last.ckpt", lambda file: None)


def test_a_folder_of_runs_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # a file in its place refuses everybody, root too
    (tmp_path / "runs").write_text("")
    assert main(["fit", *RUN, f"--trainer.default_root_dir={tmp_path / 'runs'}"]) == 2
    said = complaint(capsys)
    assert f"cannot write {tmp_path / 'runs/reviews_fna'}: Not a directory; see what is wrong there" in said
    assert "--trainer.default_root_dir names another folder" in said


@pytest.mark.parametrize(
    ("number", "words"), [("EROFS", "the folder is read-only"), ("EDQUOT", "quota"), ("EIO", "reports an error")]
)
def test_other_disks_that_refuse(number: str, words: str, tmp_path: Path) -> None:
    import errno

    path = tmp_path / "last.ckpt"
    path.write_text("good")

    def write(file: object) -> None:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

    with pytest.raises(UsageError, match=f"{words}.*the one written before is kept"):
        atomic_write(path, write)
    assert path.read_text() == "good"
    assert [one.name for one in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_file_is_never_seen_half_written(tmp_path: Path) -> None:
    """Looked at while it is written again and again, and after its writer is killed."""
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
    seen = {_whole(path.read_bytes()) for _ in range(100)}
    while len(seen) == 1 and time.monotonic() < deadline:
        # a writer on a busy machine may not have had its turn yet
        seen.add(_whole(path.read_bytes()))
    writer.kill()
    writer.wait()
    assert len(seen) > 1
    assert _whole(path.read_bytes()) in range(256)


def _whole(found: bytes) -> int:
    assert found == found[:1] * 2_000_000
    return found[0]


def test_a_loss_that_is_not_finite_stops_before_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run/version_0"
    seen: dict[str, torch.Tensor] = {}

    def spoil(task: Any) -> None:
        self_attn = task.encoder.layers[0].self_attn
        with torch.no_grad():
            # head 2 of 4, 4 coordinates each: finite, but its values are not
            self_attn.value.weight[8:12] = 3e38
        seen.update({name: parameter.detach().clone() for name, parameter in task.named_parameters()})
        seen["task"] = task

    at_step(monkeypatch, 15, spoil)
    assert fit(folder, monkeypatch, RUN) == 2
    said = complaint(capsys)
    assert "at step 14 (epoch 1), so training stops before the weights change" in said
    assert "it begins in the attention layer encoder.layers.0.self_attn, head 2;" in said
    task: Any = seen.pop("task")
    assert all(torch.equal(parameter, seen[name]) for name, parameter in task.named_parameters())
    assert read_checkpoint(folder / "checkpoints/last.ckpt")["global_step"] == 10


def test_weights_that_are_not_finite_are_never_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run/version_0"

    def spoil(task: Any) -> None:
        task.head.bias.data[0] = torch.nan
        os.kill(os.getpid(), signal.SIGTERM)

    at_step(monkeypatch, 15, spoil, after=True)
    # the signal decides the exit code, the sentence is that of the error
    assert fit(folder, monkeypatch, RUN) == 143
    assert "holds numbers that are not finite after step 15, so it is not saved" in complaint(capsys)
    assert read_checkpoint(folder / "checkpoints/last.ckpt")["global_step"] == 10


# kills the processes that load its data in its third step
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
    """In a process of its own: PyTorch raises from the signal handler, wherever the interpreter happens to be."""
    # more batches than the worker has made already
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
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("fna-lightning: error:")]
    assert "a process that loads data has died" in said
    assert "resume" in said


def test_the_folder_of_a_run_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run/version_0"
    arguments = [*RUN, "--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.minutes=1e-6"]
    with monkeypatch.context() as patch:
        interrupt(patch, "training_step", 17, signal.SIGTERM)
        assert fit(folder, monkeypatch, arguments) == 143
    # written after every step, and still one file
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
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "smaller --data.batch_size"),
        (OSError(28, "No space left on device"), "the disk is full; free some space"),
        (ValueError("some text"), "some text"),
        (KeyError(), "KeyError"),
    ],
)
def test_errors_of_libraries_in_words(error: Exception, words: str) -> None:
    assert words in explain(error)


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert main(["fit", "--config", "reviews_fna.yaml", "--trainer.accelerator=gpu"]) == 2
    assert "there is no GPU that PyTorch can use here; leave --trainer.accelerator out" in complaint(capsys)


def test_lightnings_own_fsdp_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert main(["fit", "--config", "reviews_fna.yaml", "--trainer.strategy=fsdp", "--trainer.devices=2"]) == 2
    assert "fsdp is Lightning's and needs a GPU; fsdp2 shards parameters with GPUs and without" in complaint(capsys)
