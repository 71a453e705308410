"""Text files in UTF-8: reading them, and naming the line that is not UTF-8."""

import codecs
from pathlib import Path

from fna_lightning.errors import UsageError

# the limit of a file, and of the text of a Parquet file, which can be many times larger than the file
MAX_BYTES = 1 << 31


def read_text_file(path: Path, way_out: str = "check the path and its permissions") -> str:
    """Return the content of a text file in UTF-8, without a byte order mark.

    Args:
        path: the file.
        way_out: what to do about a file that cannot be read, for the error message.

    Raises:
        UsageError: if the file cannot be read, is too large, or is not UTF-8.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UsageError(f"{path} has {size:,} bytes, the limit is {MAX_BYTES:,}; use fewer rows")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); {way_out}") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(_encoding_error(content, path)) from error


def _encoding_error(content: bytes, path: Path) -> str:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"{path} is UTF-16; convert it to UTF-8, for example with `iconv -f UTF-16 -t UTF-8`"
    invalid: list[tuple[int, int]] = []  # line and byte, both counted from 1
    others = 0
    for number, line in enumerate(content.split(b"\n"), start=1):
        try:
            others += not line.decode("utf-8").isascii()
        except UnicodeDecodeError as error:
            invalid.append((number, error.start + 1))
    line_number, byte = invalid[0]
    text = f"line {line_number} of {path} is not UTF-8 (byte {byte})"
    if others:
        lines = f"{others} other line{'s are' if others > 1 else ' is'}"
        count = "this line" if len(invalid) == 1 else f"the {len(invalid)} lines that are not"
        return f"{text}, but {lines}, so the file mixes encodings; convert or remove {count}"
    return f"{text}; convert the file, for example with `iconv -f LATIN1 -t UTF-8`"
