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


@pytest.mark.parametrize("peer", ["transformers", "ctranslate2"])
def test_a_peer_finds_the_same_translations(peer: str, tmp_path, capsys) -> None:
    pytest.importorskip(peer)
    words = ["--sentences", "5", "--beam", "3", "--seconds", "0.1", "--json", str(tmp_path / "report.json")]
    assert main(["bench", "translate", "--against", peer, *words]) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["same_translations"][peer] == report["work"]["sentences"] == 5
    assert report["ratios"][peer] == pytest.approx(report["seconds"]["fna-lightning"] / report["seconds"][peer])
    # Marian has biases of queries, keys and values in 12 attentions, and two tables of 512 positions
    further = 12 * 3 * 128 + 2 * 512 * 128 if peer == "transformers" else 0
    assert report["parameters"][peer] - report["parameters"]["fna-lightning"] == further
    assert "5 of 5 translations are the same" in capsys.readouterr().out


def test_a_checkpoint_or_a_peer_is_needed(capsys) -> None:
    for words in ([], ["some.ckpt", "--against", "transformers"]):
        assert main(["bench", "translate", *words]) == 2
        assert "give either a checkpoint, or --against, which needs none" in capsys.readouterr().err
    assert main(["bench", "translate", "--against", "transformers,marian"]) == 2
    assert "--against takes transformers and ctranslate2, separated by a comma; got 'marian'" in capsys.readouterr().err
