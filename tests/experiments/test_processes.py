"""Jobs in other processes: each is done once, one that dies is named, and none outlives the process that started it."""

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

CLI = [sys.executable, "-m", "fna_lightning.cli"]
SETTINGS = [word.removeprefix("--") for word in [*TASKS["text"][2:], *COMMON, "--trainer.max_epochs=9999"]]
SWEEP = [
    *("sweep", "--config", "reviews_fna.yaml", "--seeds", "2", "--workers", "2", "--out", "grid"),
    *(word for setting in SETTINGS for word in ("--set", setting)),
]
# seconds in which everything must have ended, on a busy machine
SOON = 30


def family(pid: int) -> list[int]:
    """Return the processes below one."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [one for child in children for one in (child, *family(child))]


def runs(pid: int) -> bool:
    """Whether a process is there and has not ended; one that nobody has asked about yet is still listed."""
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
        # a group of its own, so that a signal can go to all of it
        start_new_session=True,
    )


def until(ready: Callable[[], bool], run: subprocess.Popen[str], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert run.poll() is None, run.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def all_end(processes: list[int]) -> list[int]:
    """Return those that have not ended soon."""
    deadline = time.monotonic() + SOON
    while (left := [pid for pid in processes if runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def stop(
    run: subprocess.Popen[str], ready: Callable[[], bool], how: signal.Signals, send: Callable[[int, int], None]
) -> str:
    """Signal a command once it is ready; return what it said when it and everyone below it has ended."""
    everyone = []
    try:
        until(ready, run)
        everyone = family(run.pid)
        assert len(everyone) >= 2
        send(run.pid, how)
        _, said = run.communicate(timeout=SOON)
        assert all_end(everyone) == []
    finally:
        run.kill()
        for pid in filter(runs, everyone):
            os.kill(pid, signal.SIGKILL)
    return said


@pytest.mark.parametrize(
    ("how", "send"),
    [(signal.SIGKILL, os.kill), (signal.SIGTERM, os.kill), (signal.SIGTERM, os.killpg)],
    ids=["SIGKILL", "SIGTERM", "SIGTERM to all"],
)
def test_a_sweep_leaves_no_orphans_and_its_runs_are_saved(
    how: signal.Signals, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    run = start(SWEEP, tmp_path)
    said = stop(run, lambda: len(list(tmp_path.glob("grid/*/*/checkpoints/last.ckpt"))) == 2, how, send)
    logs = [path.read_text() for path in tmp_path.glob("grid/*/*/log.txt")]
    assert len(logs) == 2
    assert all("all is saved; `fna-lightning resume" in log for log in logs)
    if how is signal.SIGTERM:
        assert run.returncode == 143
        assert said.splitlines() == ["fna-lightning: stopped by SIGTERM"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "SIGINT"])
def test_a_reproduction_leaves_no_orphans(how: signal.Signals, tmp_path: Path) -> None:
    run = start(["reproduce", "prop-1", "generator", "fig-spectrum", "--workers", "2", "--out", "page"], tmp_path)
    # two pieces have begun
    said = stop(run, lambda: len(list(tmp_path.glob("page/pieces/*"))) >= 2, how, os.kill)
    if how is signal.SIGINT:
        assert run.returncode == 130
        assert said.splitlines() == ["interrupted"]


def said_by(kinds: list[str], *, fresh: bool) -> list[str | None]:
    """Run jobs and return what each said."""
    said: dict[int, str | None] = {}

    def done(number: int, words: str | None) -> None:
        assert number not in said
        said[number] = words

    run_jobs(job, [(kind,) for kind in kinds], done, workers=1, fresh=fresh)
    assert list(said) == list(range(len(kinds)))
    return list(said.values())


def test_a_process_that_dies_is_named_and_the_others_go_on() -> None:
    first, second, died, raised, third, left, well = said_by(
        ["where", "where", "die", "raise", "where", "leave", "well"], fresh=False
    )
    assert first == second
    assert len({first, third, str(os.getpid())}) == 3
    assert died == "its process ended without a word, by SIGKILL; the system does so when memory runs out"
    assert raised == "ValueError: a mistake"
    assert left == "its process ended without a word, with exit code 3"
    assert well is None


def test_a_fresh_process_for_each_job() -> None:
    first, second = said_by(["where", "where"], fresh=True)
    assert first != second
