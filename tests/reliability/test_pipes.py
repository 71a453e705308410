"""Somebody who reads only the first line: the command ends quietly, as other programs do."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fna_lightning.cli import main
from fna_lightning.config.messages import explain
from fna_lightning.utils.output import READER_GONE, reader_is_gone

from helpers.tiny_runs import train_tiny
from helpers.tiny_translation import train_tiny_translation


def first_line(arguments: list[str], given: Path) -> tuple[int, bytes, str]:
    """Run a command through a real pipe whose reader leaves after a byte; return code, byte and standard error."""
    command = [sys.executable, "-m", "fna_lightning.cli", *arguments]
    with (
        given.open("rb") as stream,
        subprocess.Popen(command, stdin=stream, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        # unbuffered: what is not read is still in the pipe when its reader leaves
        line = os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        said = process.stderr.read().decode()
        return process.wait(60), line, said


def assert_quiet(code: int, said: str) -> None:
    assert code == READER_GONE == 141
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    assert "Broken pipe" not in said
    assert "error" not in said


def test_translate_to_a_reader_of_one_line(tmp_path: Path) -> None:
    checkpoint = train_tiny_translation(tmp_path, "trainer.max_epochs=1")
    lines = tmp_path / "lines.txt"
    lines.write_text("twenty one\n" * 20_000)
    code, line, said = first_line(["translate", str(checkpoint), "--beam=1"], lines)
    assert line
    assert_quiet(code, said)


def test_classify_to_a_reader_of_one_line(tmp_path: Path) -> None:
    checkpoint = train_tiny(tmp_path)
    lines = tmp_path / "lines.txt"
    lines.write_text("a fine film\n" * 20_000)
    code, line, said = first_line(["classify", str(checkpoint)], lines)
    assert line
    assert_quiet(code, said)


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["list", "--json", os.devnull]])
def test_a_reader_that_leaves_before_the_first_line(arguments: list[str]) -> None:
    """What is buffered until the end is flushed where an error can still be handled."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "fna_lightning.cli", *arguments], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    # argparse itself drops a help text that nobody reads
    assert_quiet(READER_GONE if arguments == ["--help"] else ended.returncode, ended.stderr)


def test_errors_that_nobody_reads() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "fna_lightning.cli", "classify", "no.ckpt", "text"], stdout=writing, stderr=writing
    )
    os.close(writing)
    assert ended.returncode == 2


def test_a_broken_pipe_to_another_process_is_an_error() -> None:
    assert not reader_is_gone(BrokenPipeError(32, "Broken pipe"))
    assert "another process" in explain(BrokenPipeError(32, "Broken pipe"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_standard_output() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "fna_lightning.cli", "list"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 2
    assert "the disk is full" in ended.stderr


def test_a_name_in_another_encoding_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["list", "--json", os.devnull]) == 0
    sys.stdout.write(os.fsdecode(b"caf\xe9.png"))
    sys.stdout.flush()
    assert shown.buffer.getvalue().endswith(b"caf\\udce9.png")  # type: ignore[attr-defined]
