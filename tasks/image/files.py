"""Image files in a folder: which files are images, and errors for folders and files that cannot be used."""

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError
from fna_lightning.tasks.image.codec import ENDINGS, ImageCodec

# files and folders of operating systems that are skipped, besides those whose names start with a dot
JUNK = ("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx")
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar")


def checked_folder(path: str | None, option: str, example: str) -> Path:
    """Return ``path`` as a folder that exists.

    Args:
        path: path of the user; None if it was not set.
        option: the option that sets it, for error messages.
        example: what the option is set to in an example.
    """
    if not path:
        raise UsageError(f"{option} is not set; it must name a folder of images, for example {option} {example}")
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise UsageError(f"{option} {path} is a file; {_instead_of_file(folder)}")
    raise UsageError(f"folder not found: {option} {path}{_near_names(folder)}")


def list_images(folder: Path, root: Path) -> list[Path]:
    """Return the sorted image files in a folder and its subfolders.

    Junk of operating systems is skipped. Any other file, and a link to a file outside ``root``, is an error.
    """
    images = []
    for path in visible(folder):
        if path.is_symlink():
            check_link(path, root)
        if path.is_dir():
            images += list_images(path, root)
        elif is_image_name(path) and path.is_file():
            images.append(path)
        else:
            raise UsageError(
                f"{path} is not a file that ends in {', '.join(ENDINGS)}; convert it, or move it out of the folder"
            )
    return images


def visible(folder: Path) -> Iterator[Path]:
    """Yield the sorted content of a folder without hidden files and junk of operating systems."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise UsageError(f"{folder} cannot be read ({error.strerror}); change its permissions") from error
    for name in names:
        if not name.startswith(".") and name.lower() not in JUNK:
            yield folder / name


def is_image_name(path: Path) -> bool:
    """Whether the file name ends like that of an image."""
    return path.suffix.lower() in ENDINGS


def check_link(path: Path, root: Path) -> None:
    """Raise a ``UsageError`` unless a symbolic link leads to a file inside ``root``.

    Links to folders are refused as well, because they can form loops.
    """
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{path} is a broken link; remove it") from error
    if target.is_dir() or not target.is_relative_to(root.resolve()):
        kind = "folder" if target.is_dir() else f"file outside {root}"
        raise UsageError(
            f"{path} is a link to a {kind} ({target}); copy the files behind the links with `cp -rL {root} COPY` and "
            "use COPY"
        )


def read_folder(path: str, codec: ImageCodec) -> tuple[NDArray[np.uint8], list[str]]:
    """Return the (N, C, S, S) pixels and the sorted names of all images in a folder and its subfolders."""
    folder = checked_folder(path, "--data.predict_folder", "new_photos/")
    files = list_images(folder, folder)
    if not files:
        raise UsageError(f"the folder {path} contains no image; file names must end in {', '.join(ENDINGS)}")
    return np.stack([codec.read(file) for file in files]), [str(file.relative_to(folder)) for file in files]


def _instead_of_file(file: Path) -> str:
    """Return what to do instead of naming a file."""
    if is_image_name(file):
        return "give the folder that contains it"
    if file.suffix.lower() in ARCHIVES:
        return "unpack it and give the folder"
    return "give a folder of images"


def _near_names(folder: Path) -> str:
    """Return the folders with a similar name, to be appended to an error message; empty if there are none."""
    missing = folder
    while not missing.parent.is_dir():
        missing = missing.parent
    siblings = [entry.name for entry in visible(missing.parent) if entry.is_dir()]
    similar = difflib.get_close_matches(missing.name, siblings, n=2)
    if similar:
        return f"; did you mean {' or '.join(str(missing.parent / name) for name in similar)}?"
    return "" if folder.is_absolute() else f" in {Path.cwd()}"
