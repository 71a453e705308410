"""Escapes untrusted text for CSV and Markdown files."""

import csv
import html
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

# a spreadsheet reads a cell that starts with one of these, or with its full-width form, as a formula
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# characters with a meaning in Markdown; an underscore has one only at the edge of a word
_MARKDOWN = re.compile(r"([\\`*\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV in which no cell is a formula to a spreadsheet."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([csv_cell(value) for value in row] for row in rows)
    return text.getvalue()


def csv_cell(value: Any) -> Any:
    """Return a value for a CSV file, with an apostrophe before text that a spreadsheet would read as a formula.

    Numbers, and text that is a number, are not changed.
    """
    if not isinstance(value, str) or not value.lstrip(" ").startswith(FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def markdown_code(value: Any) -> str:
    """Return a value as inline code in Markdown; nothing in it ends the code span or the table cell."""
    visible = "".join(char if char.isprintable() else " " for char in str(value))
    return f"`{' '.join(visible.split()).replace('`', chr(0x2019)).replace('|', chr(0xA6))}`"


def markdown_text(value: Any) -> str:
    """Return a value as one line of Markdown that renders as the value itself, also inside a table.

    HTML becomes entities, Markdown characters are escaped, URLs do not become links, and line breaks, control
    characters and characters that change the text direction become spaces.
    """
    visible = "".join(char if char.isprintable() else " " for char in str(value))
    line = _MARKDOWN.sub(r"\\\1", html.escape(" ".join(visible.split()), quote=False))
    return line.replace("://", "&#58;//")
