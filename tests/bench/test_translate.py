"""bench translate: the same translations both ways, and numbers that belong together."""

import json

import pytest

from fna_lightning.cli import main

from helpers.tiny_translation import train_tiny_translation


def test_it_compares_the_same_translations(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    checkpoint = train_tiny_translation(tmp_path / "runs")
    words = ["--sentences", "6", "--seconds", "0.1", "--batch-tokens", "20", "--json", str(tmp_path / "found.json")]
    assert main(["bench", "translate", str(checkpoint), *words]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["same_translations"] == found["sentences"] == 6
    assert found["speedup"] == pytest.approx(found["seconds"]["anew"] / found["seconds"]["cached"])
    assert found["sentences_per_second"] == pytest.approx(6 / found["seconds"]["cached"])
    assert "6 of 6 translations are the same" in capsys.readouterr().out
    assert main(["bench", "translate", str(checkpoint), "--beam", "0"]) == 2
    assert "must be at least 1, got 100, 0 and 4096" in capsys.readouterr().err
