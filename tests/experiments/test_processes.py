"""Worker processes: every job runs once, a dead worker is reported, and none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fna_lightning.experiments.processes import run_jobs
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE

from helpers.interrupted import COMMON, TASKS
from helpers.jobs import job

pytestmark = pytest.mark.e2e

CLI = [sys.executable, "-m", "fna_lightning.cli"]
SETTINGS = [word.removeprefix("--") for word in [*TASKS["text"][2:], *COMMON, "--trainer.max_epochs=9999"]]
SWEEP = [
    *("sweep", "--config", "reviews_fna.yaml", "--seeds", "2", "--workers", "2", "--out", "grid"),
    *(word for setting in SETTINGS for word in ("--set", setting)),
]
# seconds within which all processes must have ended, also on a busy machine
TIMEOUT = 30


def descendants(pid: int) -> list[int]:
    """Return the processes below a process."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [process for child in children for process in (child, *descendants(child))]


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def start(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", RUN_DIR_VARIABLE: ""}
    return subprocess.Popen(
        [*CLI, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A process group of its own, so that a signal can be sent to all of it.
        start_new_session=True,
    )


def wait_until(ready: Callable[[], bool], run: subprocess.Popen[str], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert run.poll() is None, run.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def still_running(processes: list[int]) -> list[int]:
    """Wait for the processes and return those that have not ended within the timeout."""
    deadline = time.monotonic() + TIMEOUT
    while (running := [pid for pid in processes if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return running


def stop(
    run: subprocess.Popen[str], ready: Callable[[], bool], number: signal.Signals, send: Callable[[int, int], None]
) -> str:
    """Signal a command once it is ready; return its standard error when it and all its descendants have ended."""
    workers = []
    try:
        wait_until(ready, run)
        workers = descendants(run.pid)
        assert len(workers) >= 2
        send(run.pid, number)
        _, errors = run.communicate(timeout=TIMEOUT)
        assert still_running(workers) == []
    finally:
        run.kill()
        for pid in filter(is_running, workers):
            os.kill(pid, signal.SIGKILL)
    return errors


@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGKILL, os.kill), (signal.SIGTERM, os.kill), (signal.SIGTERM, os.killpg)],
    ids=["SIGKILL", "SIGTERM", "SIGTERM to all"],
)
def test_a_stopped_sweep_leaves_no_processes_and_saves_its_runs(
    number: signal.Signals, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    run = start(SWEEP, tmp_path)
    errors = stop(run, lambda: len(list(tmp_path.glob("grid/*/*/checkpoints/last.ckpt"))) == 2, number, send)
    logs = [path.read_text() for path in tmp_path.glob("grid/*/*/log.txt")]
    assert len(logs) == 2
    assert all("all is saved; `fna-lightning resume" in log for log in logs)
    if number is signal.SIGTERM:
        assert run.returncode == 143
        assert errors.splitlines() == ["fna-lightning: stopped by SIGTERM"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
def test_a_stopped_reproduction_leaves_no_processes(number: signal.Signals, tmp_path: Path) -> None:
    run = start(["reproduce", "prop-1", "generator", "fig-spectrum", "--workers", "2", "--out", "report"], tmp_path)
    # The signal is sent when two artifacts have started.
    errors = stop(run, lambda: len(list(tmp_path.glob("report/artifacts/*"))) >= 2, number, os.kill)
    if number is signal.SIGINT:
        assert run.returncode == 130
        assert errors.splitlines() == ["interrupted"]


def results_of(behaviors: list[str], *, fresh: bool) -> list[str | None]:
    """Run one job per behavior and return their results."""
    results: dict[int, str | None] = {}

    def done(number: int, result: str | None) -> None:
        assert number not in results
        results[number] = result

    run_jobs(job, [(behavior,) for behavior in behaviors], done, workers=1, fresh=fresh)
    assert list(results) == list(range(len(behaviors)))
    return list(results.values())


def test_a_dead_process_is_reported_and_the_other_jobs_run() -> None:
    first, second, killed, raised, third, exited, succeeded = results_of(
        ["where", "where", "die", "raise", "where", "leave", "well"], fresh=False
    )
    assert first == second
    assert len({first, third, str(os.getpid())}) == 3
    assert killed == "its process ended without a result, by SIGKILL; the system does this when memory runs out"
    assert raised == "ValueError: a mistake"
    assert exited == "its process ended without a result, with exit code 3"
    assert succeeded is None


def test_fresh_starts_a_new_process_for_each_job() -> None:
    first, second = results_of(["where", "where"], fresh=True)
    assert first != second
