"""Finding the checkpoint of a run folder, and recognizing files that are not checkpoints."""

import logging
from pathlib import Path
from typing import BinaryIO

from fna_lightning.errors import UsageError

EXAMPLE = "runs/reviews_fna/version_0/checkpoints/best.ckpt"
# checkpoints of a run, in the order of preference: for a trained model, and to continue its training
TRAINED, UNFINISHED = ("best.ckpt", "last.ckpt"), ("last.ckpt", "best.ckpt")
# bytes that are read to recognize a text
HEAD = 4096

log = logging.getLogger(__name__)


def checkpoint_file(path: str | Path, preferred: tuple[str, ...] = TRAINED) -> Path:
    """Return the checkpoint of a run folder, and log which one it is; any other path is returned as it is.

    Args:
        path: run folder, its folder ``checkpoints``, or a checkpoint.
        preferred: names of the checkpoints, best choice first.
    """
    refuse_address(path)
    folder = Path(path)
    if not folder.is_dir():
        return folder
    for file in (parent / name for parent in (folder / "checkpoints", folder) for name in preferred):
        if file.is_file():
            log.info("%s is a folder; using %s", path, file)
            return file
    raise UsageError(
        f"{path} is a folder without checkpoints/best.ckpt and checkpoints/last.ckpt; give the folder of a run that "
        f"has saved a checkpoint, or a file such as {EXAMPLE}"
    )


def refuse_address(path: str | Path) -> None:
    """Raise a UsageError for an address such as s3://..., which ``Path`` would turn into the name of a file."""
    if "://" in str(path):
        raise UsageError(f"a checkpoint must be a file, got the address {path}; download it first")


def refuse_other_files(file: BinaryIO, path: str | Path) -> None:
    """Raise a UsageError that names the right file if ``file`` is empty or a text.

    Args:
        file: open file; it is left at its beginning.
        path: path of the file.
    """
    head = file.read(HEAD)
    file.seek(0)
    if not head:
        raise UsageError(f"{path} is not a checkpoint: it is empty; copy it again, or give a file such as {EXAMPLE}")
    if not _is_text(head):
        return
    best = Path(path).absolute().parent / "checkpoints" / "best.ckpt"
    right = best if best.is_file() else f"a file such as {EXAMPLE}"
    if Path(path).suffix in (".yaml", ".yml"):
        raise UsageError(f"{path} is a configuration, not a checkpoint; pass it with --config, and give {right} here")
    raise UsageError(f"{path} is not a checkpoint: it is a text file; give {right}")


def _is_text(head: bytes) -> bool:
    """Whether the beginning of a file is text in UTF-8; the last character may be cut off."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) < HEAD or error.start < len(head) - 4:
            return False
        text = head[: error.start].decode("utf-8")
    return all(character.isprintable() or character.isspace() for character in text)
