"""Atomic writing of files: contents, and error messages with a way out. Attacks are in reliability/test_writing.py."""

import errno
import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from matplotlib.figure import Figure

from fna_lightning.errors import UsageError
from fna_lightning.utils import files
from fna_lightning.utils.files import (
    atomic_write,
    cannot_write,
    existing,
    no_follow,
    write_bytes,
    write_figure,
    write_text,
)


def test_contents_and_parent_folders(tmp_path: Path) -> None:
    write_text(tmp_path / "a/b/text", "grün\n")
    assert (tmp_path / "a/b/text").read_bytes() == "grün\n".encode()
    write_bytes(tmp_path / "bytes", b"\x00\xff")
    write_bytes(tmp_path / "bytes", b"\x01")
    assert (tmp_path / "bytes").read_bytes() == b"\x01"


@pytest.mark.parametrize(("suffix", "beginning"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_suffix_selects_the_format_of_a_figure(tmp_path: Path, suffix: str, beginning: bytes) -> None:
    write_figure(tmp_path / f"figure.{suffix}", Figure(), dpi=20)
    assert (tmp_path / f"figure.{suffix}").read_bytes().startswith(beginning)


@pytest.mark.parametrize("error_class", [ValueError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_previous_file(tmp_path: Path, error_class: type[BaseException]) -> None:
    write_text(tmp_path / "file", "previous")

    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise error_class

    with pytest.raises(error_class):
        atomic_write(tmp_path / "file", write)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "previous"


@pytest.mark.parametrize("code", files.WAYS_OUT, ids=errno.errorcode.get)
def test_an_error_of_the_system_names_the_way_out(tmp_path: Path, code: int) -> None:
    write_text(tmp_path / "file", "previous")

    def write(file: Any) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(UsageError) as caught:
        atomic_write(tmp_path / "file", write)
    assert str(caught.value) == (
        f"cannot write {tmp_path / 'file'}: {files.WAYS_OUT[code]} and run again (the one written before is kept)"
    )
    assert (tmp_path / "file").read_text() == "previous"


def test_an_unknown_error_of_the_system_keeps_its_text(tmp_path: Path) -> None:
    message = cannot_write(tmp_path / "file", OSError(errno.EBUSY, "Device or resource busy"))
    assert (
        message == f"cannot write {tmp_path / 'file'}: Device or resource busy; see what is wrong there and run again"
    )


def test_openers(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(FileNotFoundError):
        existing(str(path), os.O_WRONLY | os.O_CREAT)
    with open(path, "w", opener=no_follow) as file:
        file.write("a")
    with open(path, "a", opener=existing) as file:
        file.write("b")
    assert path.read_text() == "ab"
    for opener in (existing, no_follow):
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            opener(str(link), os.O_WRONLY)
