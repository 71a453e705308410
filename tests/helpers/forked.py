"""Child processes that have everything imported already, and how they end."""

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
        # a group of its own, so that nothing that it starts is missed at the end
        os.setpgid(0, 0)
        # what a signal does before and after a command: it ends the process
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        # a test runner may have put other streams in place of these
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
