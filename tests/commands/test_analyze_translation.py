"""``analyze`` on a translation model: graphs of source and translation, figure of the cross-attention."""

import json
from pathlib import Path

import pytest
import torch

from fna_lightning.analysis import load, study
from fna_lightning.analysis.translation_models import TranslationModel
from fna_lightning.cli import main
from fna_lightning.graph import effective_neighbors, measure

from helpers.tiny_translation import train_tiny_translation

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny_translation(tmp_path_factory.mktemp("runs"))


def test_source_and_translation_are_graphs(checkpoint, tmp_path) -> None:
    text = "two hundred and forty one"
    assert main(["analyze", str(checkpoint), "--text", text, "--against", str(checkpoint), "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    source, translation = results["examples"]
    assert source["words"] == [*text.split(), "</s>"]
    assert translation["words"][0] == "<s>"
    model = load(checkpoint)
    assert isinstance(model, TranslationModel)
    ids = [*model.codec.encode(text), 3]
    hypothesis = model.translate([ids])[0]
    assert source["models"][0]["prediction"] == model.codec.decode(hypothesis.tokens)
    assert translation["words"][1:] == model.codec.target_words(hypothesis.tokens)
    maps = model.pair_maps(ids, hypothesis.tokens)
    for example, part in ((source, ".encoder."), (translation, ".decoder.")):
        heads = [head for head in example["models"][0]["heads"] if head["head"] >= 0]
        assert heads
        for head in heads:
            assert part in head["layer"]
            layer = maps[head["layer"]]
            expected = measure(layer.weights, layer.lengths)["entropy"][0, head["head"]].item()
            assert head["measures"]["entropy"] == pytest.approx(expected, abs=1e-5)
    # the decoder is causal, so later tokens cannot be reached
    assert all(head["measures"]["unreachable"] > 0 for head in translation["models"][0]["heads"])
    assert translation["models"][0]["probability"] == pytest.approx(
        torch.tensor(hypothesis.log_probability).exp().item(), rel=1e-3
    )
    for name in ("cross_attention", "cross_attention_2", "hops", "ablation"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    # rows of the cross-attention are target words, columns are source words
    report = study(model, sources=[text])
    assert report.kind == "translation"
    source_report, target_report = report.examples
    assert source_report.models[0].cross == []
    assert target_report.source_words == source["words"]
    assert target_report.target_words == [*translation["words"][1:], "</s>"]
    for head, written in zip(target_report.models[0].cross, translation["models"][0]["cross"], strict=True):
        layer = maps[head.layer].weights[0].float()
        expected = layer.mean(dim=0) if head.head == -1 else layer[head.head]
        assert head.weights is not None
        torch.testing.assert_close(head.weights, expected)
        assert head.weights.shape == (len(translation["words"]), len(source["words"]))
        assert written["neighbors"] == pytest.approx(effective_neighbors(expected).mean().item())
    assert report.models[0].layers[target_report.models[0].cross[0].layer] == "decoder layer 1 (cross)"


def test_a_split_and_its_ablation(checkpoint, tmp_path, capsys) -> None:
    assert main(["analyze", str(checkpoint), "--split", "test", "--count", "5", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["split"]["count"] == 5
    # two graphs for each text; the references are known
    assert len(results["examples"]) == 10
    assert [part["stored"] for part in results["examples"]] == [True] * 6 + [False] * 4
    assert all(part["label"] for part in results["examples"])
    # the split has the heads of the encoder and of the decoder
    layers = {head["layer"].split(".")[1] for head in results["split"]["models"][0]}
    assert layers == {"encoder", "decoder"}
    (curve,) = results["ablation"]
    assert curve["edges"]["accuracy"][0] == curve["nodes"]["accuracy"][0]
    assert curve["edges"]["probability"][-1] == pytest.approx(curve["nodes"]["probability"][-1])
    assert "mean over 5 texts spread evenly over the split 'test' and over all heads" in capsys.readouterr().out


def test_an_empty_text_is_refused(checkpoint, capsys) -> None:
    assert main(["analyze", str(checkpoint), "--text", " "]) == 2
    assert "has no token" in capsys.readouterr().err
