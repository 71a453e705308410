"""Forked child processes, which start fast because all modules are already imported."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

HUNG = "hung"


def start(work: Callable[[], int], log: Path) -> int:
    """Run ``work`` in a forked child, its output appended to ``log``; return its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        # A new process group, so that all processes it starts can be found.
        os.setpgid(0, 0)
        # Before and after a command, a signal ends the process.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        # A test runner may have replaced these streams.
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, seconds: float) -> int | str:
    """Return the exit code of a child, minus the number of the signal that killed it, or HUNG after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return HUNG
        time.sleep(0.002)


def wait_for(path: Path, child: int, seconds: float = 60) -> None:
    """Wait until ``path`` exists; a child that ends before is an error."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        pid, status = os.waitpid(child, os.WNOHANG)
        assert not pid, f"the process has ended with {os.waitstatus_to_exitcode(status)}"
        assert time.monotonic() < deadline, f"{path} has not appeared"
        time.sleep(0.005)
