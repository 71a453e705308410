"""The first signal stops a command with exit code 128 + its number; the second ends it within 2 seconds."""

import ctypes
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.loggers import TensorBoardLogger

from fna_lightning.callbacks import RunSummary
from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.cli import main
from fna_lightning.task import Task
from fna_lightning.tasks.data.split_data import SplitData
from fna_lightning.training import signals
from fna_lightning.training.process_tree import descendants
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE, read_results

from helpers.forked import HUNG, ended, start, wait_for
from helpers.interrupted import COMMON, TASKS

pytestmark = pytest.mark.e2e

RUN = [*TASKS["text"], *COMMON]
INT, TERM = signal.SIGINT, signal.SIGTERM
# maximum number of seconds from the second signal to the end
AT_ONCE = 2.0


def block_in_c() -> None:
    """Block in C code without the interpreter lock, as a collective operation does, so that no Python handler runs."""
    mutex, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def block_in_python() -> None:
    """Wait forever in Python and ignore the exceptions of signal handlers, as cleanup code of a library may."""
    while True:
        try:
            queue.Queue().get()
        except BaseException:
            continue


def at_call(owner: type, name: str, call: int, action: Callable[[], None]) -> None:
    """Run an action before the ``call``-th call of a method. For a forked child: the patch is never undone."""
    original, calls = getattr(owner, name), []

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            action()
        return original(self, *args, **kwargs)

    setattr(owner, name, method)


def fit(folder: Path, prepare: Callable[[], None], arguments: list[str] = RUN) -> int:
    """Train in ``folder`` after ``prepare`` has changed this process."""
    prepare()
    os.environ[RUN_DIR_VARIABLE] = str(folder)
    return main(["fit", *arguments])


PLACES = {"setup": (SplitData, "setup", 1), "training": (Task, "training_step", 15), "end": (RunSummary, "_report", 1)}


@pytest.mark.parametrize("number", [INT, TERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("block", [block_in_c, block_in_python])
def test_a_second_signal_ends_what_is_blocked(
    block: Callable[[], None], place: str, number: signal.Signals, tmp_path: Path
) -> None:
    reached = tmp_path / "reached"

    def prepare() -> None:
        at_call(*PLACES[place], lambda: (reached.touch(), block()))

    child = start(lambda: fit(tmp_path, prepare), tmp_path / "log.txt")
    wait_for(reached, child)
    os.kill(child, number)
    time.sleep(0.1)
    os.kill(child, number)
    assert ended(child, AT_ONCE) == 128 + number, (tmp_path / "log.txt").read_text()
    last = tmp_path / "checkpoints/last.ckpt"
    assert (read_checkpoint(last)["global_step"] if last.is_file() else 0) == {"setup": 0, "training": 10, "end": 30}[
        place
    ]


@pytest.mark.parametrize("number", [INT, TERM], ids=["SIGINT", "SIGTERM"])
def test_a_logger_that_hangs_does_not_keep_the_process_alive(number: signal.Signals, tmp_path: Path) -> None:
    """TensorBoard joins the queue of its writer thread, which blocks forever if a signal has interrupted that queue."""
    reached = tmp_path / "reached"

    def prepare() -> None:
        at_call(Task, "training_step", 15, lambda: os.kill(os.getpid(), number))
        at_call(TensorBoardLogger, "finalize", 1, lambda: (reached.touch(), block_in_python()))

    child = start(lambda: fit(tmp_path, prepare), tmp_path / "log.txt")
    wait_for(reached, child)
    os.kill(child, number)
    assert ended(child, AT_ONCE) == 128 + number, (tmp_path / "log.txt").read_text()
    assert read_checkpoint(tmp_path / "checkpoints/last.ckpt")["global_step"] == 15


def test_two_signals_in_one_moment(tmp_path: Path) -> None:
    def twice() -> None:
        os.kill(os.getpid(), INT)
        # The system may merge two pending signals of the same number, but not two of different numbers.
        os.kill(os.getpid(), TERM)
        time.sleep(60)

    child = start(
        lambda: fit(tmp_path, lambda: at_call(Task, "training_step", 15, twice)),
        tmp_path / "log.txt",
    )
    assert ended(child, 60) in (128 + INT, 128 + TERM)
    assert read_checkpoint(tmp_path / "checkpoints/last.ckpt")["global_step"] == 10


def test_cleanup_before_training_has_a_time_limit(tmp_path: Path) -> None:
    def prepare() -> None:
        signals.GRACE = 1.0
        sys.modules["fna_lightning.commands.train"].GRACE = 1.0
        at_call(SplitData, "setup", 1, lambda: os.kill(os.getpid(), TERM))
        at_call(TensorBoardLogger, "finalize", 1, block_in_python)

    child = start(lambda: fit(tmp_path, prepare), tmp_path / "log.txt")
    assert ended(child, 30) == 143, (tmp_path / "log.txt").read_text()
    assert "not stopped in the 1 seconds after SIGTERM: ended at once" in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("number", [INT, TERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("place", ["setup", "training", "end"])
def test_the_first_signal_decides_the_exit_code(place: str, number: signal.Signals, tmp_path: Path) -> None:
    def prepare() -> None:
        at_call(*PLACES[place], lambda: os.kill(os.getpid(), number))

    child = start(lambda: fit(tmp_path, prepare), tmp_path / "log.txt")
    assert ended(child, 60) == 128 + number, (tmp_path / "log.txt").read_text()
    assert "Traceback" not in (tmp_path / "log.txt").read_text()
    # A run that had finished has its results.
    assert ("fit" in read_results(tmp_path)) == (place == "end")


@pytest.mark.parametrize("number", [INT, TERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_that_becomes_an_error_of_a_library(number: signal.Signals, tmp_path: Path) -> None:
    def interrupted() -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(1)
        except BaseException as error:
            raise RuntimeError("multiarray failed to import") from error

    child = start(lambda: fit(tmp_path, lambda: at_call(SplitData, "setup", 1, interrupted)), tmp_path / "log.txt")
    assert ended(child, 60) == 128 + number, (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("number", [INT, TERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_while_an_error_is_reported(number: signal.Signals, tmp_path: Path) -> None:
    def prepare() -> None:
        from fna_lightning.config import messages

        original = messages.explain
        messages.explain = lambda error: (os.kill(os.getpid(), number), original(error))[1]
        at_call(SplitData, "setup", 1, lambda: {}["a mistake"])

    child = start(lambda: fit(tmp_path, prepare), tmp_path / "log.txt")
    assert ended(child, 60) == 128 + number, (tmp_path / "log.txt").read_text()
    assert "Traceback" not in (tmp_path / "log.txt").read_text()


def test_worker_processes_end_with_a_second_signal(tmp_path: Path) -> None:
    reached = tmp_path / "reached"

    def prepare() -> None:
        at_call(Task, "training_step", 15, lambda: (reached.touch(), block_in_c()))

    child = start(lambda: fit(tmp_path, prepare, [*RUN, "--data.num_workers=2"]), tmp_path / "log.txt")
    wait_for(reached, child)
    workers = descendants(child)
    assert len(workers) >= 2
    os.kill(child, TERM)
    time.sleep(0.1)
    os.kill(child, TERM)
    assert ended(child, AT_ONCE) == 143
    deadline = time.monotonic() + AT_ONCE
    while (running := [pid for pid in workers if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running == []


def test_a_forked_child_counts_its_own_signals(tmp_path: Path) -> None:
    """The signals that a forked child receives are not those of its parent."""

    def ignore_signals() -> int:
        signal.signal(INT, lambda number, frame: None)
        for _ in range(600):
            time.sleep(0.1)
        return 0

    def work() -> int:
        with signals.stop_by_signal() as state:
            state.deferred = True
            child = start(ignore_signals, tmp_path / "child.txt")
            for _ in range(3):
                time.sleep(0.1)
                os.kill(child, INT)
            time.sleep(0.2)
            os.kill(child, signal.SIGKILL)
            return 50 + state.number

    assert ended(start(work, tmp_path / "log.txt"), 30) == 50


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("frozen", [0, 1])
def test_two_signals_end_a_rank_that_waits_for_a_frozen_one(frozen: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fna_lightning.cli", "fit", *RUN, "--trainer.max_epochs=9999"]
    command += ["--trainer.devices=2", "--trainer.strategy=ddp", f"--trainer.default_root_dir={tmp_path}"]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", RUN_DIR_VARIABLE: ""}
    with (tmp_path / "log.txt").open("w") as log:
        first = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    ranks = [first.pid]
    try:
        deadline = time.monotonic() + 300
        while not list(tmp_path.glob("*/*/checkpoints/last.ckpt")):
            assert first.poll() is None, (tmp_path / "log.txt").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        ranks += descendants(first.pid)
        os.kill(ranks[frozen], signal.SIGSTOP)
        # The other rank waits for it in the next collective operation.
        time.sleep(1)
        other = ranks[1 - frozen]
        os.kill(other, TERM)
        time.sleep(0.5)
        assert _runs(other)
        os.kill(other, TERM)
        if frozen == 1:
            assert first.wait(AT_ONCE) == 143
        else:
            # The frozen parent has not collected its exit code, so it remains as a zombie.
            deadline = time.monotonic() + AT_ONCE
            while _runs(other) and time.monotonic() < deadline:
                time.sleep(0.01)
            code = int(Path(f"/proc/{other}/stat").read_text().split()[-1])
            assert os.waitstatus_to_exitcode(code) == 143
    finally:
        for pid in filter(_runs, ranks):
            os.kill(pid, signal.SIGKILL)
        first.wait()


def test_a_process_that_does_not_end_is_reported(tmp_path: Path) -> None:
    """The helper ``ended`` of these tests can fail."""
    assert ended(start(lambda: time.sleep(60) or 0, tmp_path / "log.txt"), 0.2) == HUNG
