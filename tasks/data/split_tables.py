"""The tables of a data set of the user: a file, a folder or a data set on the hub, and files for the other splits."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.cache import file_digest
from fna_lightning.tasks.data.hub import content_fingerprint, open_dataset
from fna_lightning.tasks.data.locations import DATA_VARIABLE, is_on_hub, local_copy, missing_path
from fna_lightning.tasks.data.splits import OPTIONS, SPLIT_NAMES
from fna_lightning.tasks.data.tables import Table, read_table

DEFAULT_SHARE = 0.1
LAYOUT = "expected a split named train as .parquet, .csv or .jsonl files, such as train.csv"


@dataclass(frozen=True)
class SplitTables:
    """The table of the training split, and those of other splits as far as they are given.

    Args:
        path: a file, a folder, or ``hub:`` and a name on the hub.
        validation: share of the training rows that is held out, or a file, or the name of a split of the data set;
            None for the validation split of the data set if it has one, else a share of 0.1.
        test: the same for the test split.
        subset: name of the configuration of a data set on the hub that has several.
        header: whether the first line of a CSV or TSV file has the names of the columns.
    """

    path: str
    validation: float | str | None = None
    test: float | str | None = None
    subset: str | None = None
    header: bool = True

    def __post_init__(self) -> None:
        shares = [value for value in (self.validation, self.test) if isinstance(value, float | int)]
        if any(not 0.0 < share < 1.0 for share in shares) or sum(shares) >= 1.0:
            raise UsageError(
                "validation and test must be files, or shares between 0 and 1 whose sum is less than 1, got "
                f"{self.validation} and {self.test}; 0.1 holds out 10 % of the rows"
            )

    @cached_property
    def content_digest(self) -> str:
        """Identifies the content of all files in cache keys."""
        location = self.location(self.path, OPTIONS["train"])
        parts = [str(self.header), str(self.subset), self.digest(location)]
        for option, value in ((OPTIONS["val"], self.validation), (OPTIONS["test"], self.test)):
            # otherwise it is a share, or the name of a split
            is_file = isinstance(value, str) and (Path(value).exists() or not self._own_splits(location))
            parts.append(self.digest(self.location(str(value), option)) if is_file else str(value))
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()

    def shares(self, tables: Mapping[str, Table]) -> dict[str, float]:
        """Return the share to hold out for each split that is not among ``tables``."""
        shares = {"val": self.validation, "test": self.test}
        return {
            name: share if isinstance(share, float | int) else DEFAULT_SHARE
            for name, share in shares.items()
            if name not in tables
        }

    @contextmanager
    def open(self) -> Iterator[dict[str, Table]]:
        """Yield the tables of the given splits by name: "train", and "val" and "test" if they are given."""
        location = self.location(self.path, OPTIONS["train"])
        if not self._own_splits(location):
            yield self._with_files({"train": self.read_file(location)})
            return
        way_out = (
            "connect to the internet once so that it can be downloaded from the hub, or set --data.path to a folder "
            f"with its files; {DATA_VARIABLE} can name the parent folder"
        )
        with open_dataset(location, LAYOUT, way_out, self.subset) as splits:
            yield self._with_files(self._named_splits(splits))

    def read_file(self, location: str) -> Table:
        """Return the table at a location that is not a folder or a name on the hub."""
        return read_table(Path(location), header=self.header)

    def digest(self, location: str) -> str:
        """Return what identifies the content at a location."""
        return content_fingerprint(location) if self._own_splits(location) else file_digest(Path(location))

    def location(self, value: str, option: str) -> str:
        """Return where the data of an option is; raise a ``UsageError`` if there is no such file."""
        location = local_copy(value)
        if not is_on_hub(location) and not Path(location).exists():
            raise UsageError(missing_path(value, f"--data.{option}"))
        if option != OPTIONS["train"] and self._own_splits(location):
            raise UsageError(f"--data.{option} is {value!r}, which is not a file; give a file or a share such as 0.1")
        return location

    def _own_splits(self, location: str) -> bool:
        """Whether the data set at a location has splits of its own: a folder, or a data set on the hub."""
        return is_on_hub(location) or Path(location).is_dir()

    def _named_splits(self, splits: Mapping[str, Any]) -> dict[str, Table]:
        """Return the splits of a data set that are used, by our names."""
        values = {"train": None, "val": self.validation, "test": self.test}
        tables = {}
        for split, value in values.items():
            names = SPLIT_NAMES[split] if value is None else (str(value),)
            name = next((name for name in names if name in splits), None)
            if name is not None:
                tables[split] = _hub_table(splits[name], f"split {name!r} of {self.path}")
            elif split == "train" or (isinstance(value, str) and not Path(value).exists()):
                missing = repr(value or "train")
                raise UsageError(f"{self.path} has the splits {', '.join(splits)} and no {missing}; {LAYOUT}")
        return tables

    def _with_files(self, tables: dict[str, Table]) -> dict[str, Table]:
        for split, value in (("val", self.validation), ("test", self.test)):
            if isinstance(value, str) and split not in tables:
                tables[split] = self.read_file(self.location(value, OPTIONS[split]))
        return tables


def _hub_table(examples: Any, name: str) -> Table:
    """Return a split of the `datasets` library as a table."""
    if len(examples) == 0:
        raise UsageError(f"{name} is empty; it needs one row per example")
    names = {column: list(feature.names) for column, feature in examples.features.items() if hasattr(feature, "names")}
    return Table(name, list(examples.column_names), lambda column: list(examples[column]), class_names=names)
