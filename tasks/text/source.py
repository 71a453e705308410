"""Labelled texts from the hub or from a folder in the hub's layout, through the `datasets` library."""

import hashlib
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fna_lightning.errors import UsageError, first_line
from fna_lightning.tasks.data.cache import file_digest

DATA_VARIABLE = "FNA_DATA"

T = TypeVar("T")

# texts and labels of each split
LabelledTexts = dict[str, tuple[list[str], list[int]]]


def hub_answers() -> bool:
    """Whether the hub can be reached; behind a proxy only the library itself can tell."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout=5).close()
    except OSError:
        return False
    return True


@contextmanager
def open_dataset(path: str, expected: str, ways: str) -> Iterator[Mapping[str, Any]]:
    """Load a data set by splits, from a folder or from the hub.

    Args:
        path: the folder, or a name on the hub.
        expected: what the folder should hold, for the report of a mistake.
        ways: how the data set can be had, for the same.
    """
    local = Path(path).is_dir()
    if not local and (Path(path).is_absolute() or path.startswith(".")):
        raise UsageError(f"no folder {path!r}; {ways}")
    if not local and not hub_answers():
        # without this the library tries again for half a minute; its own cache may still serve
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    # a second to import, and needed only when no cache serves
    import datasets
    from pyarrow import ArrowException

    # what is read from a folder need not be kept a third time, beside the folder and our own cache
    with tempfile.TemporaryDirectory() if local else nullcontext() as scratch:
        way_out = expected if local else ways
        try:
            found = datasets.load_dataset(path, cache_dir=scratch)
        except Exception as error:
            raise UsageError(_cannot_be_loaded(path, error, way_out)) from error
        try:
            yield found
        except (UnicodeError, ArrowException, OSError) as error:
            # some damage shows only when a text is asked for
            raise UsageError(_cannot_be_loaded(path, error, way_out)) from error


def check_texts(texts: list[Any], where: str) -> None:
    """Refuse a column of a data set in which something is not a text: null, NaN, a number."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            value = "null" if text is None else repr(text)
            raise UsageError(f"row {row} of {where} is {value} and not a text; remove the row, or fill in its text")


def _cannot_be_loaded(path: str, error: Exception, way_out: str) -> str:
    # a damaged file fails in many ways; the first of them is the one that says something
    reason = first_line(error.__cause__ or error)
    return f"the data set {path!r} cannot be loaded ({reason}); {way_out}"


@dataclass(frozen=True)
class TextSource:
    """Where labelled texts come from.

    Args:
        path: a folder, or a name on the hub.
        num_classes: labels are 0 ... num_classes - 1.
    """

    path: str
    num_classes: int

    @classmethod
    def find(cls, path: str | None, folder: str, hub_name: str, num_classes: int) -> "TextSource":
        """Return the source at ``path``; else ``folder`` in FNA_DATA if it is there; else the hub's."""
        if path is None:
            local = Path(os.environ.get(DATA_VARIABLE) or os.devnull) / folder
            path = str(local) if local.is_dir() else hub_name
        return cls(path, num_classes)

    @cached_property
    def fingerprint(self) -> str:
        """What the texts are: the contents of a folder's files, or the hub's name, whose data sets do not change."""
        folder = Path(self.path)
        if not folder.is_dir():
            return f"hub:{self.path}"
        files = sorted(one for one in folder.rglob("*") if one.is_file() and not one.name.startswith("."))
        named = "\n".join(f"{one.relative_to(folder)} {file_digest(one)}" for one in files)
        return hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()

    def read(self) -> LabelledTexts:
        """Return texts and labels of the hub's splits "train" and "test"."""
        return self.load(self._checked)

    def load(self, take: Callable[[Mapping[str, Any], str], T]) -> dict[str, T]:
        """Return what ``take`` makes of the splits "train" and "test" of the data set, given it and their names."""
        with open_dataset(self.path, self._expected(), self._ways()) as found:
            return {split: take(found, split) for split in ("train", "test")}

    def _checked(self, found: Mapping[str, Any], split: str) -> tuple[list[str], list[int]]:
        """Return texts and labels of a split, if they are what they should be."""
        if split not in found:
            raise UsageError(f"{self.path} has the splits {', '.join(found)} and no {split!r}; {self._expected()}")
        part = found[split]
        if missing := {"text", "label"} - set(part.column_names):
            raise UsageError(
                f"split {split!r} of {self.path} has the columns {', '.join(part.column_names)} and no "
                f"{' and no '.join(sorted(missing))}; {self._expected()}"
            )
        texts, labels = list(part["text"]), list(part["label"])
        check_texts(texts, f"column 'text' of split {split!r} of {self.path}")
        if strange := set(labels) - set(range(self.num_classes)):
            label = "null" if None in strange else min(strange, key=str)
            raise UsageError(f"split {split!r} of {self.path} has the label {label}; {self._expected()}")
        return texts, labels

    def _expected(self) -> str:
        return (
            "expected are the splits train and test (train-*.parquet and test-*.parquet), each with the columns "
            f"text and label (0 to {self.num_classes - 1})"
        )

    def _ways(self) -> str:
        return (
            "either connect to the internet once, so that it is fetched from the hub, or set "
            f"--data.path to a folder that holds train-*.parquet and test-*.parquet ({DATA_VARIABLE} names the folder "
            "above it)"
        )
