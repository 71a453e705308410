"""`bench start`: CPU time of processes, as a table and as JSON."""

import json
import sys

import pytest

from fna_lightning.bench import start
from fna_lightning.cli import main
from fna_lightning.errors import UsageError


def test_every_command_has_a_row(tmp_path, monkeypatch, capsys) -> None:
    busy = "sum(i * i for i in range(10**7))"
    monkeypatch.setattr(start, "COMMANDS", {"nothing": ("-c", "pass"), "work": ("-c", busy)})
    assert main(["bench", "start", "--repeats", "1", "--json", str(tmp_path / "start.json")]) == 0
    printed = capsys.readouterr().out
    nothing, work = json.loads((tmp_path / "start.json").read_text())["commands"]
    assert (nothing["command"], work["command"]) == ("nothing", "work")
    assert 0 < nothing["cpu_seconds"] < work["cpu_seconds"]
    assert len(work["all"]) == 1
    assert f"{work['cpu_seconds']:.2f}" in printed


def test_a_command_that_fails_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"-c raise SystemExit\('no disk'\)` failed with exit code 1: no disk"):
        start.cpu_seconds([sys.executable, "-c", "raise SystemExit('no disk')"])


def test_repeats_must_be_positive(capsys) -> None:
    assert main(["bench", "start", "--repeats", "0"]) == 2
    assert "--repeats must be at least 1, got 0" in capsys.readouterr().err
