"""Files that are whole or absent: a crash, a full disk or a kill leaves the file that was there before."""

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
# Windows has no such flag
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
# seconds after which a temporary file whose process cannot be looked up is taken for a leftover
ABANDONED = 3600.0

# temporary files this process is writing now
_open_drafts: set[str] = set()


def atomic_write(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Give ``path`` the contents that ``write`` puts into a file, all of them or none.

    The contents go to a new file in the same folder, reach the disk, and then take the name in one step. The name of
    that temporary file is not known before, and it is never opened through a link. If the contents cannot be written,
    the error is one sentence and the file that was there stays.
    """
    draft = path.with_name(f".{path.name}.{_process_key()}-{os.getpid()}-{secrets.token_hex(8)}.part")
    _open_drafts.add(str(draft))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        with open_new(draft) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UsageError(cannot_write(path, error)) from error
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    finally:
        _open_drafts.discard(str(draft))


def write_text(path: Path, text: str) -> None:
    """Give ``path`` this text in UTF-8, all of it or none; what is no Unicode (a broken file name) is escaped."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Give ``path`` these bytes, all of them or none."""
    atomic_write(path, lambda file: file.write(content))


def write_figure(path: Path, figure: Any, **options: Any) -> None:
    """Give ``path`` a Matplotlib figure, all of it or none; ``options`` are those of ``Figure.savefig``."""
    atomic_write(path, lambda file: figure.savefig(file, format=path.suffix.removeprefix("."), **options))


def open_new(path: Path) -> BinaryIO:
    """Create a file and open it for writing; fail if there is anything of this name, a link included."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def no_follow(path: str, flags: int) -> int:
    """Open a file, but not through a symbolic link; an ``opener`` for ``open``."""
    return os.open(path, flags | NO_FOLLOW, 0o666)


def existing(path: str, flags: int) -> int:
    """Open a file that must be there, and not through a symbolic link; an ``opener`` for ``open``."""
    return os.open(path, (flags | NO_FOLLOW) & ~os.O_CREAT)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of ``path`` that processes left when they were killed.

    Only regular files of this name's own pattern are removed: those of a process that has ended on this machine, and
    those of other machines that have not changed for an hour.
    """
    pattern = re.compile(rf"\.{re.escape(path.name)}\.(?P<key>[0-9a-f]{{8}})-(?P<pid>\d{{1,10}})-[0-9a-f]{{16}}\.part")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is None or str(path.with_name(entry.name)) in _open_drafts:
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                here = match["key"] == _process_key()
                ended = here and not _other_process_runs(int(match["pid"]))
                if stat.S_ISREG(status.st_mode) and (ended or time.time() - status.st_mtime > ABANDONED):
                    os.unlink(entry.path)


def cannot_write(path: Path, error: OSError) -> str:
    """Return one sentence on a file that could not be written: which, why, what is left, what to do."""
    way_out = WAYS_OUT.get(error.errno or 0, f"{error.strerror or error}; see what is wrong there")
    kept = " (the one written before is kept)" if path.is_file() else ""
    return f"cannot write {path}: {way_out} and run again{kept}"


@functools.cache
def _process_key() -> str:
    """Return a short key of the machine and container in which process ids mean something."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        namespace = 0
    return hashlib.sha256(f"{socket.gethostname()} {namespace}".encode()).hexdigest()[:8]


def _other_process_runs(pid: int) -> bool:
    """Whether another process of this number runs; what this process itself writes is in ``_open_drafts``."""
    if pid == os.getpid():
        return False
    if os.name == "nt":
        # there os.kill would end the process instead of looking it up
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        # it runs, and belongs to somebody else
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Make the new name itself reach the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
