"""Checks of a checkpoint file before PyTorch opens it: an intact zip archive that does not exhaust memory or time.

``torch.save`` writes a zip archive of uncompressed records, each with its CRC-32, which ``torch.load`` does not check.
"""

import re
import struct
import zipfile
from typing import BinaryIO

from fna_lightning.errors import UsageError, one_line

CHUNK = 1 << 20
# bytes of the pickle outside its strings: about 100 per tensor, and each costs PyTorch's unpickler about 1 us
MAX_STRUCTURE = 8 << 20
MAX_RECORDS = 1_000_000
# size and first bytes of the last record of a zip archive without a comment
END_SIZE, END_MARK = 22, b"PK\x05\x06"
# errors that Python's zip reader raises, depending on which bytes are wrong
ZIP_ERRORS = (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, OverflowError, struct.error)

# opcodes of a pickle by the number of bytes that follow; a string follows its length
_FIXED = re.compile(
    rb"(?:[(.012NQRabdelostu)\]}\x81\x85-\x89\x8f-\x91\x93\x94]|[Khq\x80\x82].|[M\x83]..|[Jjr\x84].{4}|[G\x95].{8})*+",
    re.DOTALL,
)
_COUNTED = {b"X": "<I", b"T": "<I", b"B": "<I", b"\x8b": "<I", b"U": "<B", b"C": "<B", b"\x8a": "<B", b"\x8c": "<B"}
_LINES = {b"c": 2, b"i": 2, b"F": 1, b"I": 1, b"L": 1, b"P": 1, b"S": 1, b"V": 1, b"g": 1, b"p": 1}


def check_archive(file: BinaryIO, name: str) -> None:
    """Refuse a file that is not an intact archive of ``torch.save``.

    Args:
        file: open file; it is left at its beginning.
        name: name of the file in error messages.

    Raises:
        UsageError: if a record is damaged or the archive is not one that ``torch.save`` writes.
    """
    size = file.seek(0, 2)
    # With bytes after the last record, Python and PyTorch could find different tables of contents.
    file.seek(max(0, size - END_SIZE))
    if file.read(4) != END_MARK:
        raise UsageError(
            f"{name} is not a checkpoint this program can trust or read: it does not end as a zip archive does, "
            "so it is cut off, overwritten or another kind of file; copy it again, or take another checkpoint"
        )
    try:
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            _check_records(records, size, name)
            for record in records:
                _check_contents(archive, record, name)
    except ZIP_ERRORS as error:
        raise UsageError(
            f"{name} is not a checkpoint this program can trust or read: it is not an intact zip archive of "
            f"torch.save ({one_line(error)}); copy it again, or take another checkpoint"
        ) from error
    file.seek(0)


def _check_records(records: list[zipfile.ZipInfo], size: int, name: str) -> None:
    """Refuse records that are compressed, duplicated, or together larger than the file."""
    if len(records) > MAX_RECORDS:
        raise UsageError(f"{name} has {len(records):,} records, the limit is {MAX_RECORDS:,}; it is not a checkpoint")
    is_plain_zip = sum(record.compress_size for record in records) <= size
    if is_plain_zip and not any(record.filename.endswith("data.pkl") for record in records):
        raise UsageError(
            f"{name} is not a checkpoint: it is a zip archive without the record data.pkl, which torch.save writes; "
            "give another file"
        )
    names = set()
    for record in records:
        if record.compress_type != zipfile.ZIP_STORED or record.compress_size != record.file_size:
            raise UsageError(
                f"{name} is not a checkpoint this program can trust or read: its record {record.filename!r} is "
                f"compressed ({record.compress_size:,} bytes for {record.file_size:,}), which torch.save never does"
            )
        if record.filename.endswith("/constants.pkl"):
            raise UsageError(
                f"{name} is not a checkpoint this program can trust or read: it is a TorchScript archive, which is a "
                "program"
            )
        if record.filename in names:
            raise UsageError(f"{name} has two records {record.filename!r}; it is not a checkpoint of torch.save")
        names.add(record.filename)
    total = sum(record.file_size for record in records)
    if total > size:
        raise UsageError(
            f"{name} is not a checkpoint this program can trust or read: its records claim {total:,} bytes, and the "
            f"file has {size:,}"
        )


def _check_contents(archive: zipfile.ZipFile, record: zipfile.ZipInfo, name: str) -> None:
    """Read a record to its end, where its CRC-32 is checked; also check the size of a pickle."""
    try:
        with archive.open(record) as content:
            if record.filename.endswith("data.pkl"):
                check_pickle(content.read(), name)
            while content.read(CHUNK):
                pass
    except zipfile.BadZipFile as error:
        raise UsageError(
            f"{name} is damaged: the bytes of its record {record.filename!r} have changed since it was written "
            f"({error}); copy it again, or take another checkpoint"
        ) from error


def check_pickle(content: bytes, name: str) -> None:
    """Refuse a pickle with more opcodes than any checkpoint has. No opcode is executed."""
    structure = position = 0
    while position < len(content):
        match = _FIXED.match(content, position)
        assert match is not None
        structure += match.end() - position
        if structure > MAX_STRUCTURE:
            raise UsageError(
                f"{name} is not a checkpoint this program can trust or read: its pickle has more than "
                f"{MAX_STRUCTURE:,} bytes of instructions, which is the limit"
            )
        position = match.end()
        if position >= len(content):
            return
        code = content[position : position + 1]
        position += 1
        # These opcodes cost as much as several short ones.
        structure += 8
        if code in _COUNTED:
            width = struct.calcsize(_COUNTED[code])
            (length,) = struct.unpack(_COUNTED[code], content[position : position + width])
            position += width + length
        elif code in _LINES:
            for _ in range(_LINES[code]):
                end = content.find(b"\n", position)
                if end < 0:
                    return
                position = end + 1
        else:
            # PyTorch's unpickler stops at an unknown opcode.
            return
