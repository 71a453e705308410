"""Run locks: only one process trains in a run folder, and a lock ends with its process."""

import errno
import fcntl
import os
import signal
import time
from pathlib import Path

import pytest

from fna_lightning.cli import main
from fna_lightning.errors import UsageError
from fna_lightning.task import Task
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE, own_run_folder, read_results, write_results
from fna_lightning.training.run_lock import hold_run, release_runs, require_free

from helpers.forked import ended, start, wait_for
from helpers.interrupted import COMMON, TASKS, assert_same_run, fit

pytestmark = pytest.mark.e2e

RUN = [*TASKS["text"], *COMMON, "--trainer.max_epochs=2"]


@pytest.fixture(autouse=True)
def _release_all_locks() -> object:
    yield
    release_runs(set())


def blocked_fit(folder: Path, arguments: list[str], reached: Path) -> int:
    """Train in ``folder`` and block in the fifteenth step."""
    original, calls = Task.training_step, []

    def step(self: Task, *args: object) -> object:
        calls.append(1)
        if len(calls) == 15:
            reached.touch()
            time.sleep(600)
        return original(self, *args)

    Task.training_step = step
    os.environ[RUN_DIR_VARIABLE] = str(folder)
    return main(["fit", *arguments])


def test_a_running_run_is_locked_and_a_killed_run_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, reached = tmp_path / "run/version_0", tmp_path / "reached"
    folder.mkdir(parents=True)
    # worker processes inherit the lock and outlive a killed parent by seconds
    arguments = [*RUN, "--data.num_workers=1"]
    live = start(lambda: blocked_fit(folder, arguments, reached), tmp_path / "log.txt")
    try:
        wait_for(reached, live)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
        capsys.readouterr()
        assert main(["resume", str(folder)]) == 2
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
        assert line == (
            f"fna-lightning: error: {folder} is being trained by process {live}; wait until it has ended, or stop it "
            "and run again"
        )
        assert {path: path.read_bytes() for path in before} == before
        # a new run in the same folder is refused, too
        monkeypatch.setenv(RUN_DIR_VARIABLE, str(folder))
        assert main(["fit", *arguments]) == 2
        assert "is being trained by process" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in before} == before
    finally:
        os.kill(live, signal.SIGKILL)
        os.waitpid(live, 0)
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    assert main(["resume", str(folder)]) == 0
    assert fit(tmp_path / "whole/version_0", monkeypatch, RUN) == 0
    assert_same_run(folder, tmp_path / "whole/version_0")


def slow_resume(folder: Path, refused: Path) -> int:
    """Resume a run and wait in its first step until the other process is refused."""
    original = Task.training_step

    def step(self: Task, *args: object) -> object:
        deadline = time.monotonic() + 20
        while not refused.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        refused.touch()
        return original(self, *args)

    Task.training_step = step
    code = main(["resume", str(folder), "--trainer.max_epochs=2"])
    if code == 2:
        refused.touch()
    return code


def test_only_one_of_two_concurrent_resumes_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run/version_0"
    assert fit(folder, monkeypatch, [*RUN, "--trainer.max_epochs=1"]) == 0
    monkeypatch.delenv(RUN_DIR_VARIABLE)
    children = [
        start(lambda: slow_resume(folder, tmp_path / "refused"), tmp_path / f"log_{number}.txt") for number in range(2)
    ]
    assert sorted(ended(child, 120) for child in children) == [0, 2]
    logs = [(tmp_path / f"log_{number}.txt").read_text() for number in range(2)]
    assert sum("is being trained by process" in log for log in logs) == 1
    assert fit(tmp_path / "whole/version_0", monkeypatch, RUN) == 0
    assert_same_run(folder, tmp_path / "whole/version_0")


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    victim, run = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    run.mkdir()
    (run / ".lock").symlink_to(victim)
    (run / ".results.lock").symlink_to(victim)
    with pytest.raises(UsageError, match="is a symbolic link, which a lock file must not be; delete it"):
        hold_run(run)
    with pytest.raises(UsageError, match="is a symbolic link"):
        write_results(run, {"fit": {}})
    assert victim.read_text() == "precious"

    (run / ".lock").unlink()
    os.link(victim, run / ".lock")
    hold_run(run)
    assert victim.read_text() == "precious"


def test_the_lock_is_released_after_the_run(tmp_path: Path) -> None:
    with own_run_folder(tmp_path):
        # nested in the same process, as `resume` and the training that it starts
        with own_run_folder(tmp_path):
            hold_run(tmp_path)
        code = ended(start(lambda: _refused(tmp_path), tmp_path / "log.txt"), 30)
        assert code == 7, (tmp_path / "log.txt").read_text()
    require_free(tmp_path)


def _refused(folder: Path) -> int:
    try:
        hold_run(folder)
    except UsageError:
        return 7
    return 0


def test_other_ranks_take_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = start(lambda: hold_run(tmp_path) or (tmp_path / "held").touch() or time.sleep(600) or 0, tmp_path / "log")
    try:
        wait_for(tmp_path / "held", child)
        monkeypatch.setenv("LOCAL_RANK", "1")
        with own_run_folder(tmp_path):
            pass
        monkeypatch.setenv("LOCAL_RANK", "0")
        with pytest.raises(UsageError, match=f"is being trained by process {child};"), own_run_folder(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_system_without_locks_causes_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(handle: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with own_run_folder(tmp_path):
        hold_run(tmp_path)
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == (
        f"the file system of {tmp_path} has no file locks; make sure that only one process writes to it at a time"
    )


def test_concurrent_writers_keep_all_results(tmp_path: Path) -> None:
    def write(number: int) -> int:
        for count in range(40):
            write_results(tmp_path, {f"{number}-{count}": count})
        return 0

    children = [start(lambda number=number: write(number), tmp_path / "log.txt") for number in range(3)]
    assert [ended(child, 120) for child in children] == [0, 0, 0], (tmp_path / "log.txt").read_text()
    assert len(read_results(tmp_path)) == 120
