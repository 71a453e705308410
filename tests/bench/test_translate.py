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


def test_transformers_finds_the_same_translations(tmp_path, capsys) -> None:
    words = ["--sentences", "5", "--beam", "3", "--seconds", "0.1", "--json", str(tmp_path / "report.json")]
    assert main(["bench", "translate", "--against", "transformers", *words]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["same_translations"] == report["work"]["sentences"] == 5
    assert report["ratio"] == pytest.approx(report["seconds"]["fna-lightning"] / report["seconds"]["transformers"])
    # biases of queries, keys and values in 12 attentions, and two tables of 512 positions
    parameters = report["parameters"]
    assert parameters["transformers"] - parameters["fna-lightning"] == 12 * 3 * 128 + 2 * 512 * 128
    assert "5 of 5 translations are the same" in capsys.readouterr().out


def test_a_checkpoint_or_a_peer_is_needed(capsys) -> None:
    for words in ([], ["some.ckpt", "--against", "transformers"]):
        assert main(["bench", "translate", *words]) == 2
        assert "give either a checkpoint, or --against transformers, which needs none" in capsys.readouterr().err
