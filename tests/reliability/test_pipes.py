"""Closed pipes: if the reader of the output closes it, a command ends quietly, as other programs do."""

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

pytestmark = pytest.mark.e2e


def read_one_byte(arguments: list[str], stdin: Path) -> tuple[int, bytes, str]:
    """Run a command with a pipe that is closed after one byte; return exit code, byte and standard error."""
    command = [sys.executable, "-m", "fna_lightning.cli", *arguments]
    with (
        stdin.open("rb") as stream,
        subprocess.Popen(command, stdin=stream, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        # unbuffered, so that the rest of the output is still in the pipe when it is closed
        line = os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        stderr = process.stderr.read().decode()
        return process.wait(60), line, stderr


def assert_quiet(code: int, stderr: str) -> None:
    assert code == READER_GONE == 141
    assert "Traceback" not in stderr
    assert "BrokenPipe" not in stderr
    assert "Broken pipe" not in stderr
    assert "error" not in stderr


def test_translate_to_a_pipe_that_is_closed(tmp_path: Path) -> None:
    checkpoint = train_tiny_translation(tmp_path, "trainer.max_epochs=1")
    lines = tmp_path / "lines.txt"
    lines.write_text("twenty one\n" * 20_000)
    code, line, stderr = read_one_byte(["translate", str(checkpoint), "--beam=1"], lines)
    assert line
    assert_quiet(code, stderr)


def test_classify_to_a_pipe_that_is_closed(tmp_path: Path) -> None:
    checkpoint = train_tiny(tmp_path)
    lines = tmp_path / "lines.txt"
    lines.write_text("a fine film\n" * 20_000)
    code, line, stderr = read_one_byte(["classify", str(checkpoint)], lines)
    assert line
    assert_quiet(code, stderr)


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["list", "--json", os.devnull]])
def test_a_pipe_that_is_closed_before_the_first_line(arguments: list[str]) -> None:
    """Buffered output is flushed while an error can still be handled."""
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-m", "fna_lightning.cli", *arguments], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    # argparse itself ignores the error when it prints the help
    assert_quiet(READER_GONE if arguments == ["--help"] else ended.returncode, ended.stderr)


def test_a_closed_standard_error() -> None:
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
def test_standard_output_on_a_full_disk() -> None:
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "fna_lightning.cli", "list"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 2
    assert "the disk is full" in ended.stderr


def test_a_name_in_another_encoding_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert main(["list", "--json", os.devnull]) == 0
    sys.stdout.write(os.fsdecode(b"caf\xe9.png"))
    sys.stdout.flush()
    assert stdout.buffer.getvalue().endswith(b"caf\\udce9.png")  # type: ignore[attr-defined]
