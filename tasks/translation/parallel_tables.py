"""Sentences and their translations in files of the user: two text files, or a table with two columns."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.cache import file_digest
from fna_lightning.tasks.data.locations import missing_path
from fna_lightning.tasks.data.split_tables import SplitTables
from fna_lightning.tasks.data.splits import hold_out
from fna_lightning.tasks.data.tables import SUFFIXES, Table, first_row, read_table
from fna_lightning.tasks.translation.parallel_source import ParallelTexts, read_lines

SOURCE_OPTION, TARGET_OPTION = "--data.source_column", "--data.target_column"
# two cells such as "en" and "de" are the names of columns, not sentences
COLUMN_NAME = re.compile(r"[a-z]{2,3}([-_][A-Za-z]{2,4})?|source|target|src|tgt|trg|input|output|english|german|french")


@dataclass(frozen=True)
class ParallelTables(SplitTables):
    """Sentence pairs of all splits. A location is that of a table, or of two text files separated by a comma.

    Args:
        source_column: the column with the sentences; None for the first of two columns.
        target_column: the column with their translations; None for the second of two columns.
        split_seed: random seed of the held-out pairs.
    """

    source_column: str | None = None
    target_column: str | None = None
    split_seed: int = 0

    @cached_property
    def fingerprint(self) -> str:
        """Identifies the sentences of all splits in cache keys."""
        settings = f"{self.source_column} {self.target_column} {self.split_seed}"
        return hashlib.sha256(f"{self.content_digest} {settings}".encode()).hexdigest()

    def read(self) -> ParallelTexts:
        """Return the sentences of all splits."""
        with self.open() as tables:
            pairs = {name: self._sides(table) for name, table in tables.items()}
        sources, targets = pairs["train"]
        same_class = np.zeros(len(sources), dtype=np.int64)
        rows = hold_out(same_class, self.shares(tables), self.split_seed, tables["train"].name)
        held_out = {
            name: ([sources[row] for row in chosen], [targets[row] for row in chosen]) for name, chosen in rows.items()
        }
        return {**pairs, **held_out}

    def read_file(self, location: str) -> Table:
        files = two_files(location)
        if files:
            return read_two_files(*files)
        path = Path(location)
        if path.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"{path} is neither a table ({', '.join(SUFFIXES)}) nor two text files; write two text files with a "
                "comma between them, for example --data.path english.txt,german.txt"
            )
        return read_table(path, header=path.suffix.lower() not in (".csv", ".tsv") or self._has_header(path))

    def digest(self, location: str) -> str:
        files = two_files(location)
        return " ".join(file_digest(file) for file in files) if files else super().digest(location)

    def location(self, value: str, option: str) -> str:
        files = two_files(value)
        for file in files:
            if not file.is_file():
                raise UsageError(missing_path(str(file), f"--data.{option}"))
        return value if files else super().location(value, option)

    def _has_header(self, path: Path) -> bool:
        columns = [column for column in (self.source_column, self.target_column) if column is not None]
        if columns:
            return not all(column.isdecimal() for column in columns)
        return all(COLUMN_NAME.fullmatch(cell.strip()) for cell in first_row(path))

    def _sides(self, table: Table) -> tuple[list[str], list[str]]:
        table = _expand(table)
        source, target = self.source_column, self.target_column
        if len(table.columns) == 2:
            source = source or next(column for column in table.columns if column != target)
            target = target or next((column for column in table.columns if column != source), None)
        if source is None or target is None:
            raise UsageError(f"set {SOURCE_OPTION} and {TARGET_OPTION} to two columns of {table.name}: {table.listing}")
        if source == target:
            raise UsageError(
                f"{SOURCE_OPTION} and {TARGET_OPTION} are both {source!r}; the translations need a column of their own"
            )
        return table.texts(source, SOURCE_OPTION), table.texts(target, TARGET_OPTION)


def two_files(value: str) -> tuple[Path, ...]:
    """Return the two files of a value such as ``english.txt,german.txt``; empty if it does not name two files."""
    if Path(value).exists() or "," not in value:
        return ()
    parts = [part.strip() for part in value.split(",")]
    if len(parts) != 2 or not all(parts):
        raise UsageError(
            f"{value!r} must be two text files with one comma between them, for example english.txt,german.txt"
        )
    return Path(parts[0]), Path(parts[1])


def read_two_files(source: Path, target: Path) -> Table:
    """Return two text files as a table: line i of one is the translation of line i of the other."""
    sides = {str(path): read_lines(path) for path in (source, target)}
    if len(sides) == 1:
        raise UsageError(f"{source} is given twice; the translations need a file of their own")
    for name, lines in sides.items():
        if not any(lines):
            raise UsageError(f"{name} is empty; it needs one sentence per line")
    counts = [len(lines) for lines in sides.values()]
    if counts[0] != counts[1]:
        raise UsageError(
            f"{source} has {counts[0]} lines and {target} has {counts[1]}; line i of one file must be the translation "
            "of line i of the other"
        )
    for name, lines in sides.items():
        if empty := [number for number, line in enumerate(lines, start=1) if not line.strip()]:
            count = "1 empty line" if len(empty) == 1 else f"{len(empty)} empty lines"
            first = f"line {empty[0]}" if len(empty) == 1 else f"first line {empty[0]}"
            raise UsageError(f"{name} has {count} ({first}); fill in the sentence, or remove the line from both files")
    return Table(f"{source},{target}", list(sides), sides.__getitem__, "line {}")


def _expand(table: Table) -> Table:
    """Return the languages of the column "translation", as translation data sets on the hub have it, as columns."""
    if "translation" not in table.columns:
        return table
    values = table.read("translation")
    if not all(isinstance(value, dict) for value in values):
        return table
    return Table(table.name, list(values[0]), lambda name: [value.get(name) for value in values], table.row)
