"""analyze on a translator: source and translation as graphs, cross-attention as a picture."""

import json
from pathlib import Path

import pytest
import torch

from fna_lightning.analysis.translation_models import TranslationSubject
from fna_lightning.cli import main
from fna_lightning.graph import measure

from helpers.tiny_translation import train_tiny_translation


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny_translation(tmp_path_factory.mktemp("runs"))


def test_source_and_translation_are_graphs(checkpoint, tmp_path) -> None:
    text = "two hundred and forty one"
    assert main(["analyze", str(checkpoint), "--text", text, "--against", str(checkpoint), "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    source, translation = found["examples"]
    assert source["words"] == [*text.split(), "</s>"]
    assert translation["words"][0] == "<s>"
    subject = TranslationSubject.open(checkpoint)
    ids = [*subject.codec.encode(text), 3]
    said = subject.translate([ids])[0]
    assert source["models"][0]["prediction"] == subject.codec.decode(said.tokens)
    assert translation["words"][1:] == subject.codec.target_words(said.tokens)
    maps = subject.pair_maps(ids, said.tokens)
    for example, part in ((source, ".encoder."), (translation, ".decoder.")):
        for head in example["models"][0]["heads"]:
            assert part in head["layer"]
            one = maps[head["layer"]]
            expected = measure(one.weights, one.lengths)["entropy"][0, head["head"]].item()
            assert head["measures"]["entropy"] == pytest.approx(expected, abs=1e-5)
    # a token of the translation looks back only: what comes later cannot be reached
    assert all(head["measures"]["unreachable"] > 0 for head in translation["models"][0]["heads"])
    assert translation["models"][0]["probability"] == pytest.approx(
        torch.tensor(said.log_probability).exp().item(), rel=1e-3
    )
    for name in ("cross_attention", "cross_attention_2", "hops", "ablation"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "cross" not in translation["models"][0]


def test_a_split_in_the_mean_and_damage(checkpoint, tmp_path, capsys) -> None:
    assert main(["analyze", str(checkpoint), "--split", "test", "--count", "5", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["split"]["count"] == 5
    assert len(found["examples"]) == 6
    (curve,) = found["ablation"]
    assert curve["edges"]["accuracy"][0] == curve["nodes"]["accuracy"][0]
    assert curve["edges"]["probability"][-1] == pytest.approx(curve["nodes"]["probability"][-1])
    assert "mean over 5" in capsys.readouterr().out


def test_an_empty_text_is_refused(checkpoint, capsys) -> None:
    assert main(["analyze", str(checkpoint), "--text", " "]) == 2
    assert "has no token" in capsys.readouterr().err
