"""Atomic writing of files: after a crash, a full disk or a kill, the previous file is intact."""

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from fna_lightning.errors import UsageError

WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the folder is read-only; make it writable",
    errno.EACCES: "there is no permission to write there; change it",
    errno.EPERM: "there is no permission to write there; change it",
    errno.EIO: "the disk reports an error; check it",
    errno.ENOENT: "its folder is gone: deleted or moved while the program was writing there; restore it",
    errno.ELOOP: "it is a symbolic link, and links are not followed here; remove it",
    errno.EFBIG: "the file would be larger than this system or its limits (ulimit -f) allow; raise the limit",
}
# Windows does not have this flag
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
# age in seconds at which a temporary file of another machine counts as abandoned
ABANDONED = 3600.0

# temporary files that this process is writing
_open_temporaries: set[str] = set()


def atomic_write(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write a file atomically: ``path`` gets all of the contents that ``write`` writes, or stays as it was.

    The contents go to a temporary file in the same folder, which is synced to disk and then renamed. The name of the
    temporary file cannot be predicted, and it is never opened through a symbolic link. If writing fails, a UsageError
    names the reason.
    """
    temporary = path.with_name(f".{path.name}.{_process_key()}-{os.getpid()}-{secrets.token_hex(8)}.part")
    _open_temporaries.add(str(temporary))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        with open_new(temporary) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UsageError(cannot_write(path, error)) from error
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    finally:
        _open_temporaries.discard(str(temporary))


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8 atomically; characters that UTF-8 cannot encode (broken file names) are escaped."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically."""
    atomic_write(path, lambda file: file.write(content))


def write_figure(path: Path, figure: Any, **options: Any) -> None:
    """Write a Matplotlib figure atomically; ``options`` go to ``Figure.savefig``."""
    atomic_write(path, lambda file: figure.savefig(file, format=path.suffix.removeprefix("."), **options))


def open_new(path: Path) -> BinaryIO:
    """Create a file and open it for writing; fail if the name exists, even as a symbolic link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def no_follow(path: str, flags: int) -> int:
    """Open a file, but not through a symbolic link; use as ``opener`` of ``open``."""
    return os.open(path, flags | NO_FOLLOW, 0o666)


def existing(path: str, flags: int) -> int:
    """Open an existing file, but not through a symbolic link; use as ``opener`` of ``open``."""
    return os.open(path, (flags | NO_FOLLOW) & ~os.O_CREAT)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of ``path`` that killed processes left behind.

    Only regular files with the name pattern of ``atomic_write`` are removed: those of processes of this machine that
    have ended, and those of other machines that have not changed for an hour.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.(?P<key>[0-9a-f]{{8}})-(?P<pid>\d{{1,10}})-[0-9a-f]{{16}}\.part")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is None or str(path.with_name(entry.name)) in _open_temporaries:
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                here = match["key"] == _process_key()
                ended = here and not _other_process_runs(int(match["pid"]))
                if stat.S_ISREG(status.st_mode) and (ended or time.time() - status.st_mtime > ABANDONED):
                    os.unlink(entry.path)


def cannot_write(path: Path, error: OSError) -> str:
    """Return the error message for a file that could not be written: the reason and what to do."""
    way_out = WAYS_OUT.get(error.errno or 0, f"{error.strerror or error}; see what is wrong there")
    kept = " (the one written before is kept)" if path.is_file() else ""
    return f"cannot write {path}: {way_out} and run again{kept}"


@functools.cache
def _process_key() -> str:
    """Return a short key of the machine and container that this process id belongs to."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return hashlib.sha256(f"{socket.gethostname()} {namespace}".encode()).hexdigest()[:8]


def _other_process_runs(pid: int) -> bool:
    """Whether another process with this id is running; files of this process are in ``_open_temporaries``."""
    if pid == os.getpid():
        return False
    if os.name == "nt":
        # os.kill would end the process on Windows
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        # it is running and belongs to another user
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that a renamed file keeps its new name after a crash; ignored if not supported."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
