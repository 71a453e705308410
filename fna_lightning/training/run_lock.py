"""Locks of a run folder: one process trains a run at a time, and results.json has one writer at a time."""

import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from fna_lightning.errors import UsageError
from fna_lightning.utils.files import cannot_write

log = logging.getLogger(__name__)

# held while a process trains the run
RUN_LOCK = ".lock"
# held while results.json is read, changed and written
RESULTS_LOCK = ".results.lock"

# seconds to wait for another process that is writing results.json
RESULTS_TIMEOUT = 60.0

# error codes of file systems without locks, such as NFS without a lock server
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)

# locks by process id and run folder; a forked child inherits this table, but not the locks
_held: dict[tuple[int, Path], FileLock] = {}


def hold_run(folder: Path) -> None:
    """Lock a run folder until ``release_runs``; raise a UsageError if another process trains in it.

    The operating system releases the lock when the process ends, even if it is killed. Locking a folder again in the
    same process has no effect.
    """
    folder = folder.resolve()
    if (os.getpid(), folder) in _held:
        return
    path = folder / RUN_LOCK
    lock = FileLock(path, timeout=0)
    try:
        _acquire(lock, path)
    except Timeout as error:
        raise UsageError(
            f"{folder} is being trained by {_owner(path)}; wait until it has ended, or stop it and run again"
        ) from error
    _held[os.getpid(), folder] = lock
    _sign(path)


def held_runs() -> set[Path]:
    """Return the folders that this process has locked."""
    return {folder for process, folder in _held if process == os.getpid()}


def release_runs(kept: set[Path]) -> None:
    """Release the locks of all run folders except ``kept``."""
    for folder in held_runs() - kept:
        _held.pop((os.getpid(), folder)).release()


def require_free(folder: Path) -> None:
    """Raise a UsageError if another process trains in a run folder."""
    kept = held_runs()
    hold_run(folder)
    release_runs(kept)


@contextlib.contextmanager
def results_lock(folder: Path) -> Iterator[None]:
    """Context manager that keeps other processes from changing results.json of a run folder."""
    path = folder / RESULTS_LOCK
    lock = FileLock(path, timeout=RESULTS_TIMEOUT)
    try:
        _acquire(lock, path)
    except Timeout as error:
        raise UsageError(
            f"{folder / 'results.json'} has been locked by another process for {RESULTS_TIMEOUT:.0f} seconds; "
            "stop that process and run again"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: FileLock, path: Path) -> None:
    """Acquire a lock; on a file system without locks, log a warning and continue without it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link")
        lock.acquire()
    except Timeout:
        raise
    except OSError as error:
        if error.errno in NO_LOCKS:
            log.warning(
                "the file system of %s has no file locks; make sure that only one process writes to it at a time",
                path.parent,
            )
            return
        if error.errno == errno.ELOOP:
            raise UsageError(f"{path} is a symbolic link, which a lock file must not be; delete it") from error
        raise UsageError(cannot_write(path, error)) from error


def _sign(path: Path) -> None:
    """Write process id and host into the lock file, for the error message of other processes."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            status = os.fstat(handle)
            # a hard link may be another file that must not be overwritten
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())
        finally:
            os.close(handle)


def _owner(path: Path) -> str:
    """Return the process that holds a lock, as written in the lock file."""
    try:
        process, _, host = path.read_text(encoding="utf-8", errors="replace")[:300].strip().partition(" ")
    except OSError:
        process = host = ""
    if not process.isdigit():
        return "another process"
    return f"process {process}" + (f" on {host}" if host != socket.gethostname() else "")
