"""Texts from outside in files that other programs interpret: CSV, Markdown and HTML."""

import csv
import html
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

# a spreadsheet takes a cell that opens with one of these for a formula; it also knows their full-width forms
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# what Markdown interprets inside a line or a table; an underscore only at the edge of a word
_MARKS = re.compile(r"([\\`*\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV; no cell of it is a formula to a spreadsheet."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([csv_cell(value) for value in row] for row in rows)
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a value for a CSV file: a text that a spreadsheet would take for a formula opens with an apostrophe.

    Numbers, and texts that are numbers, stay as they are.
    """
    if not isinstance(value, str) or not value.lstrip(" ").startswith(FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def markdown_code(value: Any) -> str:
    """Return a value as one line of Markdown in the type of code; nothing in it ends the code or a table's cell."""
    visible = "".join(sign if sign.isprintable() else " " for sign in str(value))
    return f"`{' '.join(visible.split()).replace('`', chr(0x2019)).replace('|', chr(0xA6))}`"


def markdown_text(value: Any) -> str:
    """Return a value as one line of Markdown that shows it as it is, inside a table too.

    HTML becomes entities, marks of Markdown are escaped, an address is not made a link, and line breaks, control
    characters and characters that reverse the direction of writing become spaces.
    """
    visible = "".join(sign if sign.isprintable() else " " for sign in str(value))
    line = _MARKS.sub(r"\\\1", html.escape(" ".join(visible.split()), quote=False))
    return line.replace("://", "&#58;//")
