"""The processes below this one."""

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
    """Return the processes that ``pid`` and its descendants have started; without /proc, those of multiprocessing."""
    children: dict[int, list[int]] = {}
    for entry in _processes():
        # a process may end while it is looked at
        with contextlib.suppress(OSError, ValueError, IndexError):
            # the name in parentheses may hold spaces and parentheses; then state and parent
            fields = Path(f"/proc/{entry}/stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(entry))
    if not children and pid == os.getpid():
        return [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    waiting, below = [pid], []
    while waiting:
        started = children.get(waiting.pop(), [])
        below += started
        waiting += started
    return below


def kill_descendants() -> None:
    """Send SIGKILL to every process below this one."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def end_ranks(ranks: "list[subprocess.Popen[bytes]]", *, ask: bool) -> None:
    """Wait until the other ranks of a stopped run have ended; end those that have not after ``PATIENCE`` seconds.

    Args:
        ranks: the processes that the launcher has started.
        ask: send SIGTERM first; otherwise they have agreed to stop already.
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
