"""Descendant processes."""

import contextlib
import multiprocessing
import os
import signal
import subprocess
import time
from pathlib import Path

# seconds for the other ranks of a stopped run to end
PATIENCE = 5.0


def descendants(pid: int) -> list[int]:
    """Return the process ids of all descendants of ``pid``; without /proc, the children of multiprocessing."""
    children: dict[int, list[int]] = {}
    for entry in _processes():
        # A process may end while it is read.
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name in parentheses may contain spaces and parentheses; the state and the parent follow it.
            fields = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry))
    if not children and pid == os.getpid():
        return [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    parents, result = [pid], []
    while parents:
        started = children.get(parents.pop(), [])
        result += started
        parents += started
    return result


def kill_descendants() -> None:
    """Send SIGKILL to all descendants of this process."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def end_ranks(ranks: "list[subprocess.Popen[bytes]]", *, ask: bool) -> None:
    """Wait until the other ranks of a stopped run have ended; kill those that have not after ``PATIENCE`` seconds.

    Args:
        ranks: processes started by the launcher.
        ask: whether to send SIGTERM first; False if they have already agreed to stop.
    """
    deadline = time.monotonic() + PATIENCE
    for rank in ranks if ask else []:
        rank.send_signal(signal.SIGTERM)
    for rank in ranks:
        try:
            rank.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()


def _processes() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
