"""The file of a checkpoint, checked before PyTorch opens it: a whole zip archive, and not a bomb.

``torch.save`` writes a zip archive of uncompressed records, each with its CRC-32, which ``torch.load`` does not check.
"""

import re
import struct
import zipfile
from typing import BinaryIO

from fna_lightning.errors import UsageError, one_line

CHUNK = 1 << 20
# bytes of the pickle outside its texts: about 100 a tensor, and each costs PyTorch's strict reader a microsecond
MAX_STRUCTURE = 8 << 20
MAX_RECORDS = 1_000_000
# the last entry of a zip archive without a comment
END_SIZE, END_MARK = 22, b"PK\x05\x06"
# how Python's reader of zip archives fails, depending on which bytes are wrong
NOT_WHOLE = (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError, OverflowError, struct.error)

# instructions of a pickle by the number of bytes that follow them; those of a text come after its length
_FIXED = re.compile(
    rb"(?:[(.012NQRabdelostu)\]}\x81\x85-\x89\x8f-\x91\x93\x94]|[Khq\x80\x82].|[M\x83]..|[Jjr\x84].{4}|[G\x95].{8})*+",
    re.DOTALL,
)
_COUNTED = {b"X": "<I", b"T": "<I", b"B": "<I", b"\x8b": "<I", b"U": "<B", b"C": "<B", b"\x8a": "<B", b"\x8c": "<B"}
_LINES = {b"c": 2, b"i": 2, b"F": 1, b"I": 1, b"L": 1, b"P": 1, b"S": 1, b"V": 1, b"g": 1, b"p": 1}


def check_archive(file: BinaryIO, name: str) -> None:
    """Refuse a file that is no archive as ``torch.save`` writes it, or whose bytes have changed since.

    Args:
        file: open at its beginning, where it is left again.
        name: what errors call it.

    Raises:
        UsageError: naming the damaged record, or what is not as it should be.
    """
    size = file.seek(0, 2)
    # with anything behind the last entry, Python and PyTorch could find different tables of contents
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
    except NOT_WHOLE as error:
        raise UsageError(
            f"{name} is not a checkpoint this program can trust or read: it is no whole zip archive as torch.save "
            f"writes it ({one_line(error)}); copy it again, or take another checkpoint"
        ) from error
    file.seek(0)


def _check_records(records: list[zipfile.ZipInfo], size: int, name: str) -> None:
    """Refuse records that are compressed, larger together than the file, or named twice."""
    if len(records) > MAX_RECORDS:
        raise UsageError(f"{name} has {len(records):,} records, the limit is {MAX_RECORDS:,}; it is no checkpoint")
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
            raise UsageError(f"{name} has two records {record.filename!r}; it is no checkpoint of torch.save")
        names.add(record.filename)
    total = sum(record.file_size for record in records)
    if total > size:
        raise UsageError(
            f"{name} is not a checkpoint this program can trust or read: its records claim {total:,} bytes, and the "
            f"file has {size:,}"
        )


def _check_contents(archive: zipfile.ZipFile, record: zipfile.ZipInfo, name: str) -> None:
    """Read a record to its end, where its CRC-32 is compared; a pickle must not be a bomb."""
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
    """Refuse a pickle with more instructions than any checkpoint has; nothing of it is run."""
    structure = place = 0
    while place < len(content):
        match = _FIXED.match(content, place)
        assert match is not None
        structure += match.end() - place
        if structure > MAX_STRUCTURE:
            raise UsageError(
                f"{name} is not a checkpoint this program can trust or read: its pickle has more than "
                f"{MAX_STRUCTURE:,} bytes of instructions, which is the limit"
            )
        place = match.end()
        if place >= len(content):
            return
        code = content[place : place + 1]
        place += 1
        # each of them costs as much as a few short instructions
        structure += 8
        if code in _COUNTED:
            width = struct.calcsize(_COUNTED[code])
            (length,) = struct.unpack(_COUNTED[code], content[place : place + width])
            place += width + length
        elif code in _LINES:
            for _ in range(_LINES[code]):
                end = content.find(b"\n", place)
                if end < 0:
                    return
                place = end + 1
        else:
            # PyTorch's strict reader ends at an instruction it does not know
            return
