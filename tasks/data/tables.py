"""Tables in CSV, TSV, JSONL and Parquet files. Reading one never executes code; values stay as they are written."""

import csv
import difflib
import io
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError, one_line
from fna_lightning.tasks.data.text_encoding import MAX_BYTES, read_text_file
from fna_lightning.utils.limits import MAX_JSON_BYTES

SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
# a Parquet file of a few kilobytes can have more rows than fit into memory
MAX_ROWS = 50_000_000
PARQUET_BATCH = 1024
MAX_SHOWN = 20


@dataclass(frozen=True)
class Table:
    """Columns of equal length, read when they are requested.

    Args:
        name: what error messages call the table.
        columns: names of the columns.
        read: returns the values of a column.
        row: what error messages call a row, with "{}" for its number, counted from 1.
        class_names: names of the values 0, 1, ... of some columns.
    """

    name: str
    columns: list[str]
    read: Callable[[str], list[Any]]
    row: str = "row {}"
    class_names: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = Counter(name for name in self.columns if name)
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise UsageError(
                f"{self.name} has {counts[repeated[0]]} columns named {repeated[0]!r}; give each a name of its own"
            )

    def column(self, name: str, option: str) -> list[Any]:
        """Return the values of a column; raise a ``UsageError`` that names ``option`` if there is no such column."""
        if name not in self.columns:
            similar = difflib.get_close_matches(name, self.columns, n=1)
            hint = f"did you mean {similar[0]!r}? " if similar else ""
            raise UsageError(f"{self.name} has no column {name!r}; {hint}{self.listing}; correct {option}")
        return self.read(name)

    @property
    def listing(self) -> str:
        """The names of the columns, for error messages."""
        shown = ", ".join(name if len(name) <= 40 else f"{name[:40]}..." for name in self.columns[:MAX_SHOWN])
        return f"it has the columns {shown}{', ...' if len(self.columns) > MAX_SHOWN else ''}"

    def check_filled(self, values: list[Any], name: str, way_out: str = "") -> None:
        """Raise a ``UsageError`` if a value of the column ``name`` is missing: null, NaN or an empty text."""
        empty = [number for number, value in enumerate(values, start=1) if _is_missing(value)]
        if empty:
            count = "1 row" if len(empty) == 1 else f"{len(empty)} rows"
            where = f"{'' if len(empty) == 1 else 'first in '}{self.row.format(empty[0])}"
            raise UsageError(
                f"{self.name} has {count} without a value in the column {name!r} ({where}); fill it in or remove the "
                f"row{'' if len(empty) == 1 else 's'}{way_out}"
            )

    def texts(self, name: str, option: str) -> list[str]:
        """Return a column of texts, none of which is empty."""
        values = self.column(name, option)
        self.check_filled(values, name)
        for number, value in enumerate(values, start=1):
            if not isinstance(value, str):
                raise UsageError(
                    f"{self.row.format(number)} of {self.name} has {str(value)[:40]!r} in the column {name!r}, which "
                    f"is not a text; correct {option} or the file"
                )
        return values


def read_table(path: Path, *, header: bool = True) -> Table:
    """Return the table in a file, which has at least one row.

    Args:
        path: a file that ends in .csv, .tsv, .jsonl or .parquet.
        header: whether the first line of a CSV or TSV file has the names of the columns; otherwise the columns are
            called "1", "2", ...

    Raises:
        UsageError: if the file is empty, damaged, too large, not UTF-8, or of another kind.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"{path} ends in {suffix!r}, but a table must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}; convert "
            "or rename the file"
        )
    if suffix == ".parquet":
        return _read_parquet(path)
    text = read_text_file(path)
    if not text.strip():
        raise UsageError(f"{path} is empty; it needs one row per example")
    return _read_jsonl(text, path) if suffix == ".jsonl" else _read_csv(text, path, suffix, header=header)


def first_row(path: Path) -> list[str]:
    """Return the cells of the first line of a CSV or TSV file."""
    table = read_table(path, header=False)
    return [str(table.read(name)[0]) for name in table.columns]


def _read_csv(text: str, path: Path, suffix: str, *, header: bool) -> Table:
    import pandas as pd

    first_line = text.lstrip("\r\n").partition("\n")[0]
    # some spreadsheets write semicolons instead of commas
    separator = "\t" if suffix == ".tsv" else ";" if ";" in first_line and "," not in first_line else ","
    # the fields of a TSV file are not quoted: a quotation mark is an ordinary character
    quoting = csv.QUOTE_NONE if suffix == ".tsv" else csv.QUOTE_MINIMAL
    try:
        frame = pd.read_csv(io.StringIO(text), sep=separator, quoting=quoting, header=None, dtype=str, na_filter=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise UsageError(_csv_error(path, one_line(error), quoted=suffix == ".csv")) from error
    if not header:
        columns = [str(number) for number in range(1, frame.shape[1] + 1)]
        return Table(str(path), columns, lambda name: frame[int(name) - 1].tolist())
    columns = [str(name).strip() for name in frame.iloc[0]]
    if len(frame) == 1:
        raise UsageError(f"{path} has no row below its first line, which names the columns; add rows")
    return Table(
        str(path), columns, lambda name: frame[columns.index(name)].iloc[1:].tolist(), "row {} below the header"
    )


def _csv_error(path: Path, reason: str, *, quoted: bool) -> str:
    if match := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason):
        expected, line, count = match.groups()
        way_out = 'write a text that contains the separator in quotation marks: "a, b"' if quoted else "remove a tab"
        return f"line {line} of {path} has {count} fields, but the first line has {expected}; {way_out}"
    if match := re.search(r"EOF inside string starting at row (\d+)", reason):
        return (
            f'a quotation mark in or before line {int(match[1]) + 1} of {path} is not closed; close it, or write "" '
            "for a quotation mark inside a quoted text"
        )
    return f"{path} cannot be read as a table ({reason}); correct it"


def _read_jsonl(text: str, path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    # only line feeds separate lines: a JSON text may contain other line separators
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if len(line) > MAX_JSON_BYTES:
            raise UsageError(f"line {number} of {path} has {len(line):,} characters, the limit is {MAX_JSON_BYTES:,}")
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"line {number} of {path} is not JSON ({one_line(error)}); correct it") from error
        if not isinstance(row, dict):
            raise UsageError(
                f'line {number} of {path} is not a JSON object; write one object per line, such as {{"text": "..."}}'
            )
        rows.append(row)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return Table(str(path), columns, lambda name: [row.get(name) for row in rows])


def _read_parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    way_out = "write it again, or convert it to .csv or .jsonl"
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as Parquet ({one_line(error)[:200]}); {way_out}") from error
    rows = file.metadata.num_rows
    if rows > MAX_ROWS:
        raise UsageError(f"{path} has {rows:,} rows, the limit is {MAX_ROWS:,}; use fewer rows")
    if rows == 0:
        raise UsageError(f"{path} is empty; it needs one row per example")

    def read(name: str) -> list[Any]:
        values: list[Any] = []
        size = 0
        try:
            for batch in file.iter_batches(PARQUET_BATCH, columns=[name]):
                size += batch.nbytes
                if size > MAX_BYTES:
                    raise UsageError(
                        f"the column {name!r} of {path} has more than {MAX_BYTES:,} bytes, which is the limit; use "
                        "fewer rows"
                    )
                values += batch.column(0).to_pylist()
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise UsageError(
                f"the column {name!r} of {path} cannot be read ({one_line(error)[:200]}); {way_out}"
            ) from error
        return values

    return Table(str(path), list(file.schema_arrow.names), read)


def _is_missing(value: Any) -> bool:
    # only NaN differs from itself
    return value is None or (isinstance(value, str) and not value.strip()) or value != value
