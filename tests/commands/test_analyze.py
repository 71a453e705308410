"""``analyze`` on texts: numbers, figures and tables."""

import json
from pathlib import Path

import pytest
import torch

from fna_lightning.analysis import load
from fna_lightning.checkpoints.load import load_task
from fna_lightning.cli import main
from fna_lightning.graph import measure
from fna_lightning.introspection.ablation import ablated

from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e

TEXT = "the plot was gripping and the music was not what i call tinny"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> tuple[Path, Path]:
    paths = []
    for config in ("reviews_fna.yaml", "reviews_dp.yaml"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FNA_RUN_DIR", "")
            paths.append(train_tiny(tmp_path_factory.mktemp("runs"), config=config))
    return paths[0], paths[1]


def analyze(folder: Path, *arguments: object) -> dict:
    assert main(["analyze", *map(str, arguments), "--out", str(folder)]) == 0
    return json.loads((folder / "results.json").read_text())


def test_results_match_the_graph_functions(checkpoints, tmp_path) -> None:
    results = analyze(tmp_path, checkpoints[0], "--text", TEXT, "--json", tmp_path / "copy.json")
    assert json.loads((tmp_path / "copy.json").read_text()) == results
    model = load(checkpoints[0])
    (layer,) = model.maps(model.codec.encode(TEXT)).values()
    expected = measure(layer.weights, layer.lengths)
    (example,) = results["examples"]
    assert example["words"] == TEXT.split()
    *heads, mean = example["models"][0]["heads"]
    assert mean["head"] == -1
    for head in heads:
        for name, values in expected.items():
            assert head["measures"][name] == pytest.approx(values[0, head["head"]].item())
        assert head["spectrum"][0] == pytest.approx(1)
        assert 1 - head["spectrum"][1] == pytest.approx(head["measures"]["spectral_gap"], abs=1e-6)
    assert results["split"] is None
    for name in ("spectrum", "hops", "diffusion_map", "ablation", "lengths"):
        assert (tmp_path / f"{name}.png").stat().st_size > 3000


def test_a_split_and_a_comparison(checkpoints, tmp_path, capsys) -> None:
    first, other = checkpoints
    results = analyze(tmp_path, first, "--against", other, "--split", "test", "--count", "6", "--max-length", "24")
    assert [model["label"] for model in results["models"]] == ["reviews_fna", "reviews_dp"]
    assert results["split"]["count"] == 6
    assert len(results["split"]["models"]) == len(results["ablation"]) == len(results["lengths"]) == 2
    for curve in results["ablation"]:
        assert curve["p"][0] == 0
        assert curve["p"][-1] == 1
        assert curve["edges"]["accuracy"][0] == curve["nodes"]["accuracy"][0]
        # at p = 1 everything is removed, whether edges or nodes
        assert curve["edges"]["probability"][-1] == pytest.approx(curve["nodes"]["probability"][-1])
    printed = capsys.readouterr().out
    assert "mean over 6 texts spread evenly over the split 'test' and over all heads" in printed
    assert "4 heads in 1 layer " in printed
    mean = sum(head["measures"]["spectral_gap"]["mean"] for head in results["split"]["models"][1] if head["head"] >= 0)
    assert f"{mean / 4:.4f}" in printed
    labelled = [example["models"][0]["correct"] for example in results["examples"]]
    assert f"reviews_fna: {sum(labelled)} of 6 predictions are right" in printed
    assert ("(wrong)" in printed) is any(
        not model["correct"] for part in results["examples"] for model in part["models"]
    )


def test_texts_and_a_split_together_and_run_folders_everywhere(checkpoints, tmp_path, capsys) -> None:
    first, other = (path.parents[1] for path in checkpoints)
    options = ("--text", TEXT, "--count", "3", "--depth", "1", "--max-length", "16")
    results = analyze(tmp_path, first, "--against", other, *options)
    assert [example["stored"] for example in results["examples"]] == [True, True, False, False]
    assert results["examples"][0]["title"] == "text 1"
    assert results["split"]["name"] == "val"
    assert results["split"]["count"] == 3
    # without a terminal, progress is one line for each part of the work
    error = capsys.readouterr().err
    assert [line for line in error.splitlines() if "steps" in line] == [
        "examples: 4 steps",
        "ablation: 44 steps",
        "measures against length: 10 steps",
        "files: 3 steps",
    ]


def test_ablation_with_p_zero_changes_nothing_and_with_p_one_removes_attention(checkpoints) -> None:
    task = load_task(checkpoints[0])
    tokens, lengths = torch.arange(2, 12)[None], torch.tensor([10])
    with torch.no_grad():
        intact = task(tokens, lengths)
        with ablated(task, 0.0, "edges", torch.Generator()):
            torch.testing.assert_close(task(tokens, lengths), intact, rtol=1e-4, atol=1e-5)
        with ablated(task, 1.0, "nodes", torch.Generator()):
            removed = task(tokens, lengths)
        assert torch.equal(task(tokens, lengths), intact)
    assert not torch.allclose(removed, intact)


def test_a_text_of_one_token(checkpoints, tmp_path) -> None:
    results = analyze(tmp_path, checkpoints[0], "--text", "plot")
    for head in results["examples"][0]["models"][0]["heads"]:
        assert head["measures"]["spectral_gap"] == 1
        assert head["measures"]["mean_hops"] is None
    assert "NaN" not in (tmp_path / "results.json").read_text()


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda content: content.pop("codec"), ["--text", "a"], "has no codec (tokenizer or image size"),
        (lambda content: content.pop("model_config"), ["--text", "a"], "carries no model_config"),
        (
            lambda content: content["state_dict"]["embedding.tokens.weight"].fill_(torch.nan),
            ["--text", "the plot"],
            "are not finite (NaN or infinite); the model has diverged",
        ),
        (lambda content: None, [], "is not in a run folder"),
        (lambda content: None, ["--text", "  "], "has no token"),
        (lambda content: None, ["--text", "a", "--count", "0"], "--count must be at least 1, got 0"),
    ],
    ids=["another task", "no model_config", "nan", "no data", "no token", "no count"],
)
def test_errors(checkpoints, tmp_path, capsys, change, arguments, message) -> None:
    content = torch.load(checkpoints[0], weights_only=True)
    change(content)
    torch.save(content, tmp_path / "other.ckpt")
    assert main(["analyze", str(tmp_path / "other.ckpt"), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_models_with_different_tokens_are_not_compared(checkpoints, tmp_path, capsys) -> None:
    content = torch.load(checkpoints[1], weights_only=True)
    content["codec"]["tokenizer"] = content["codec"]["tokenizer"].replace("gripping", "grippy")
    torch.save(content, tmp_path / "other.ckpt")
    assert main(["analyze", str(checkpoints[0]), "--against", str(tmp_path / "other.ckpt"), "--text", "a"]) == 2
    assert "has different tokens from" in capsys.readouterr().err
