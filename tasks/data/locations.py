"""Where a data set is: a file, a folder, or a name on the Hugging Face hub. Only ``hub:NAME`` is a name on the hub."""

import difflib
import os
import re
from pathlib import Path

from fna_lightning.errors import UsageError

DATA_VARIABLE = "FNA_DATA"
# a path such as data/mine has the form of a name on the hub, so names on the hub have a prefix
HUB_PREFIX = "hub:"
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", flags=re.ASCII)
MAX_SIMILAR = 3


def local_copy(path: str) -> str:
    """Return the folder in $FNA_DATA with the data set ``hub:owner/name`` if there is one, else ``path``."""
    if not is_on_hub(path):
        return path
    name = path.removeprefix(HUB_PREFIX)
    if not HUB_NAME.fullmatch(name):
        raise UsageError(f"{path!r} is not a name on the hub; write {HUB_PREFIX}NAME or {HUB_PREFIX}OWNER/NAME")
    parent = data_folder()
    folders = [] if parent is None else [parent / name, parent / name.rpartition("/")[2]]
    return next((str(folder) for folder in folders if folder.is_dir()), path)


def is_on_hub(path: str) -> bool:
    """Whether ``path`` is a name on the hub."""
    return path.startswith(HUB_PREFIX)


def data_folder() -> Path | None:
    """Return $FNA_DATA, or None if it is not set; raise a ``UsageError`` if it is not a folder."""
    value = os.environ.get(DATA_VARIABLE)
    if not value:
        return None
    folder = Path(value)
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(
            f"{DATA_VARIABLE} is {value!r}, which {reason}; set it to the folder that holds the data sets, or unset it "
            "to download them from the hub"
        )
    return folder


def missing_in_data_folder(name: str) -> str | None:
    """Return that $FNA_DATA has no folder for the data set ``name`` of the hub; None if it is not set or has one."""
    parent = data_folder()
    if parent is None or not is_on_hub(local_copy(HUB_PREFIX + name)):
        return None
    folders = sorted(path.name for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))
    content = f"it has {', '.join(folders[:20])}" if folders else "it has no folders"
    return f"{DATA_VARIABLE} is {str(parent)!r}, which has no folder {name.rpartition('/')[2]!r} ({content})"


def missing_path(path: str, option: str) -> str:
    """Return that there is no file or folder ``path``, with similar names and, if it may be one, the name on the hub.

    Args:
        path: the path.
        option: the option that it is the value of.
    """
    parent = Path(path).parent
    text = f"no file or folder {path!r}"
    if not parent.is_dir():
        text += f", because there is no folder {str(parent)!r}"
    elif similar := _similar_names(parent, Path(path).name):
        text += f"; similar names in that folder: {', '.join(similar)}"
    text += f"; correct {option}"
    if HUB_NAME.fullmatch(path) and "/" in path:
        text += f", or write {HUB_PREFIX}{path} for a data set on the Hugging Face hub"
    return text


def _similar_names(folder: Path, name: str) -> list[str]:
    try:
        names = {entry.name.lower(): entry.name for entry in sorted(folder.iterdir())}
    except OSError:
        return []
    # the name without its ending, so that mine.tsv is similar to mine.csv
    stem = Path(name).stem.lower()
    close = difflib.get_close_matches(name.lower(), names, n=MAX_SIMILAR, cutoff=0.7)
    close += [other for other in sorted(names) if Path(other).stem == stem and other not in close]
    return [names[other] for other in close[:MAX_SIMILAR]]
