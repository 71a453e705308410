"""`bench translate`: the same translations with and without cache, and consistent numbers."""

import json

import pytest

from fna_lightning.cli import main

from helpers.tiny_translation import train_tiny_translation

pytestmark = pytest.mark.e2e


def test_cached_and_uncached_translations_are_compared(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    checkpoint = train_tiny_translation(tmp_path / "runs")
    words = ["--sentences", "6", "--seconds", "0.1", "--batch-tokens", "20", "--json", str(tmp_path / "report.json")]
    assert main(["bench", "translate", str(checkpoint), *words]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["same_translations"] == report["sentences"] == 6
    assert report["speedup"] == pytest.approx(report["seconds"]["uncached"] / report["seconds"]["cached"])
    assert report["sentences_per_second"] == pytest.approx(6 / report["seconds"]["cached"])
    assert "6 of 6 translations are the same" in capsys.readouterr().out
    assert main(["bench", "translate", str(checkpoint), "--beam", "0"]) == 2
    assert "must be at least 1, got 100, 0 and 4096" in capsys.readouterr().err
