"""Cache of preprocessed data sets: folders that are complete or absent, verified when opened, rebuilt when damaged."""

import errno
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fna_lightning.errors import UsageError

log = logging.getLogger("fna_lightning")

CACHE_VARIABLE = "FNA_CACHE"
MANIFEST = "manifest.json"
# disk full, quota exceeded, file larger than allowed
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def cache_root() -> Path:
    """Return the folder of all caches: $FNA_CACHE, or fna_lightning in the user's cache folder."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "fna_lightning")


def cache_folder(dataset: str, part: str, **settings: object) -> Path:
    """Return the cache folder for a part of a data set that was preprocessed with ``settings``."""
    return cache_root() / dataset / f"{part}-{content_key(**settings)}"


def content_key(**settings: object) -> str:
    """Return a short hash of ``settings``."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def file_digest(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damage(folder: Path) -> str | None:
    """Return why a cache folder is invalid, or None if every file matches its digest."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if not manifest:
            return "it is empty"
        for name, digest in manifest.items():
            if file_digest(folder / name) != digest:
                return f"{name} has changed"
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def ensure(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return ``folder``; call ``build`` first if the folder does not exist or is damaged.

    ``build`` writes into a temporary folder, which is renamed when it is complete. Only one process builds at a time.
    """
    if folder.is_dir() and damage(folder) is None:
        return folder
    from filelock import FileLock

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f"{folder.name}.lock"):
            _build(folder, build)
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        way_out = f"set {CACHE_VARIABLE} to another folder"
        raise UsageError(f"the cache {folder} cannot be written ({error}); {way_out}") from error
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        way_out = f"free some space, or set {CACHE_VARIABLE} to a folder on another disk"
        raise UsageError(f"the cache {folder} cannot be written ({error.strerror}); {way_out}") from error
    return folder


@contextmanager
def cached_files(folder: Path) -> Iterator[None]:
    """Report a file that was removed or damaged after ``ensure`` verified its folder as a ``UsageError``."""
    try:
        yield
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(
            f"the cache {folder} was emptied or changed while it was in use ({type(error).__name__}: {error}); run the "
            "command again to rebuild it"
        ) from error


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    if folder.is_dir():
        # another process may have built it while this process waited for the lock
        reason = damage(folder)
        if reason is None:
            return
        log.warning("the cache %s is damaged (%s) and will be rebuilt", folder, reason)
    # drafts of killed processes; this process holds the lock, so no other process is writing them
    for draft in folder.parent.glob(f"{folder.name}.part.*"):
        shutil.rmtree(draft, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{folder.name}.part.", dir=folder.parent))
    try:
        build(draft)
        manifest = {path.name: file_digest(path) for path in sorted(draft.iterdir())}
        (draft / MANIFEST).write_text(json.dumps(manifest, indent=2))
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
