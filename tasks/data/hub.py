"""Data sets on the Hugging Face hub or in a folder with the hub's layout, loaded with the `datasets` library."""

import hashlib
import logging
import os
import socket
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.cache import file_digest
from fna_lightning.tasks.data.locations import (
    DATA_VARIABLE,
    HUB_PREFIX,
    data_folder,
    is_on_hub,
    local_copy,
    missing_in_data_folder,
    missing_path,
)

log = logging.getLogger("fna_lightning")


def find_dataset(path: str | None, folder: str, hub_name: str) -> str:
    """Return the location of a data set: a folder, or ``hub:`` and a name on the hub.

    Args:
        path: the location that the user gave, if any.
        folder: name of the data set in $FNA_DATA, which has precedence over the hub.
        hub_name: name of the data set on the hub.

    Raises:
        UsageError: if $FNA_DATA is used and is not a folder.
    """
    if path is not None:
        return local_copy(path)
    parent = data_folder()
    local = None if parent is None else parent / folder
    return str(local) if local is not None and local.is_dir() else HUB_PREFIX + hub_name


def content_fingerprint(path: str) -> str:
    """Return a digest of the files in a folder, or the name of a data set on the hub, where data sets do not change."""
    folder = Path(path)
    if not folder.is_dir():
        return path
    files = sorted(file for file in folder.rglob("*") if file.is_file() and not file.name.startswith("."))
    digests = "\n".join(f"{file.relative_to(folder)} {file_digest(file)}" for file in files)
    return hashlib.sha256(digests.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True)
class HubDataset(ABC):
    """A data set on the hub or in a folder with the hub's layout.

    Args:
        path: a folder, or ``hub:`` and a name on the hub.
    """

    path: str

    @property
    @abstractmethod
    def layout(self) -> str:
        """The splits, files and columns the data set must have, for error messages."""

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the content of the data set in cache keys."""
        return content_fingerprint(self.path)

    @contextmanager
    def open(self) -> Iterator[Mapping[str, Any]]:
        """Load the data set and yield its splits by name."""
        way_out = (
            "connect to the internet once so that it can be downloaded from the hub, or set --data.path to a folder "
            f"with {self.layout}; {DATA_VARIABLE} can name the parent folder"
        )
        with open_dataset(self.path, f"expected {self.layout}", way_out) as splits:
            yield splits

    def checked_split(self, splits: Mapping[str, Any], split: str, names: Iterable[str]) -> Any:
        """Return the split ``split`` if it exists and has the columns ``names``."""
        if split not in splits:
            raise UsageError(f"{self.path} has the splits {', '.join(splits)} and no {split!r}; expected {self.layout}")
        examples = splits[split]
        if missing := sorted(set(names) - set(examples.column_names)):
            raise UsageError(
                f"split {split!r} of {self.path} has the columns {', '.join(examples.column_names)} and no "
                f"{' and no '.join(missing)}; expected {self.layout}"
            )
        return examples


def hub_is_reachable() -> bool:
    """Whether a connection to the hub can be opened; behind a proxy, assume that it can."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def open_dataset(path: str, expected: str, way_out: str, subset: str | None = None) -> Iterator[Mapping[str, Any]]:
    """Load a data set from a folder or from the hub and yield its splits by name.

    Args:
        path: a folder, or ``hub:`` and a name on the hub.
        expected: what the folder must contain, for the error message of a folder.
        way_out: how to get the data set, for the error message of a name on the hub.
        subset: name of the configuration of a data set that has several.
    """
    local = not is_on_hub(path)
    name = path.removeprefix(HUB_PREFIX)
    if local and not Path(path).is_dir():
        if Path(path).exists():
            raise UsageError(f"{path!r} is a file, not a folder; {expected}")
        raise UsageError(f"{missing_path(path, '--data.path')}; {expected}")
    if not local:
        if reason := missing_in_data_folder(name):
            log.warning("%s, so %s is taken from the hub", reason, name)
            way_out = f"{way_out}; {reason}"
        if not hub_is_reachable():
            # otherwise the library retries for half a minute; its own cache may still have the data set
            os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # importing takes a second and is only needed when the cache has no copy
    import datasets
    from pyarrow import ArrowException

    # the data already exists in the folder and in our cache, so the library's own copy is temporary
    with tempfile.TemporaryDirectory() if local else nullcontext() as scratch:
        advice = expected if local else way_out
        try:
            # an absolute path, because a relative one such as "csv" also names a loader of the library
            splits = datasets.load_dataset(str(Path(path).absolute()) if local else name, subset, cache_dir=scratch)
        except Exception as error:
            raise UsageError(_load_error(name, error, advice)) from error
        try:
            yield splits
        except (UnicodeError, ArrowException, OSError) as error:
            # some damage is only detected when an example is read
            raise UsageError(_load_error(name, error, advice)) from error


def check_texts(texts: list[Any], where: str) -> None:
    """Raise a ``UsageError`` if a column contains anything but strings: null, NaN, a number."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            value = "null" if text is None else repr(text)
            raise UsageError(f"row {row} of {where} is {value}, not a text; remove the row or fill in the text")


def check_labels(labels: list[Any], num_classes: int, where: str) -> None:
    """Raise a ``UsageError`` unless all labels are integers from 0 to ``num_classes`` - 1."""
    if invalid := set(labels) - set(range(num_classes)):
        label = "null" if None in invalid else min(invalid, key=str)
        raise UsageError(f"{where} has the label {label}; labels must be integers from 0 to {num_classes - 1}")


def _load_error(name: str, error: Exception, advice: str) -> str:
    # the library wraps the error of its reader, which is the informative one
    reason = str(error.__cause__ or error).strip().partition("\n")[0]
    return f"the data set {name!r} cannot be loaded ({reason}); {advice}"
