"""Files that are whole or absent: a crash, a full disk or a kill leaves the file that was there before."""

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from fna_lightning.errors import UsageError

WAYS_OUT = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the folder is read-only; make it writable",
    errno.EACCES: "there is no permission to write there; change it",
    errno.EPERM: "there is no permission to write there; change it",
    errno.EIO: "the disk reports an error; check it",
}


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Give ``path`` the contents that ``write`` puts into a file, all of them or none.

    They go to a file beside it, reach the disk, and then take the name in one step. What cannot be written is one
    sentence, and the file that was there stays.
    """
    draft = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
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


def cannot_write(path: Path, error: OSError) -> str:
    """Return one sentence on a file that could not be written: which, why, what is left, what to do."""
    way_out = WAYS_OUT.get(error.errno or 0, f"{error.strerror or error}; see what is wrong there")
    kept = " (the one written before is kept)" if path.is_file() else ""
    return f"cannot write {path}: {way_out} and run again{kept}"


def _sync_folder(folder: Path) -> None:
    """Make the new name itself reach the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
