"""`export`: the folder, the ONNX model and the torch.export program give the outputs of the trained model."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.checkpoints.load import load_task
from fna_lightning.cli import main
from fna_lightning.config.resolve import deviations

from helpers.interrupted import COMMON, TASKS, fit
from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e

hub = pytest.importorskip("fna_lightning.integrations.hub", reason="needs the extra `export`")
LENGTHS = (1, 17, 512)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_tiny(tmp_path_factory.mktemp("run"), config="reviews_fna.yaml")


@pytest.fixture(scope="module")
def folder(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript", reason="needs the extra `export`")
    folder = tmp_path_factory.mktemp("published") / "model"
    assert main(["export", str(trained), str(folder), "--onnx", "--program"]) == 0
    return folder


@pytest.fixture(scope="module")
def task(trained: Path) -> torch.nn.Module:
    return load_task(trained)


@pytest.fixture(scope="module")
def program(folder: Path) -> torch.nn.Module:
    return torch.export.load(folder / "model.pt2").module()


def batch(length: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    lengths = torch.randint(1, length + 1, (size,), generator=generator)
    lengths[0] = length
    return torch.randint(1, 60, (size, length), generator=generator), lengths


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("size", [1, 3])
def test_onnx_gives_the_same_output(task: torch.nn.Module, folder: Path, length: int, size: int) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra `export`")
    session = runtime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    tokens, lengths = batch(length, size)
    (output,) = session.run(None, {"tokens": tokens.numpy(), "lengths": lengths.numpy()})
    with torch.no_grad():
        assert_close(torch.from_numpy(output), task(tokens, lengths), rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("size", [1, 3])
def test_the_program_gives_the_same_output(
    task: torch.nn.Module, program: torch.nn.Module, length: int, size: int
) -> None:
    tokens, lengths = batch(length, size)
    with torch.no_grad():
        assert_close(program(tokens, lengths), task(tokens, lengths), rtol=0, atol=1e-5)
    # The program does not use this package.
    assert not any("fna_lightning" in str(node.target) for node in program.graph.nodes)


def test_the_folder_loads_without_the_checkpoint(task: torch.nn.Module, folder: Path) -> None:
    model = hub.PublishedModel.from_pretrained(folder)
    tokens, lengths = batch(17, 3)
    with torch.no_grad():
        assert_close(model(tokens, lengths), task(tokens, lengths), rtol=0, atol=0)
    (prediction,) = model.classify(["the plot was gripping"])
    assert prediction["label"] in model.codec.class_names
    assert 0.0 < prediction["probability"] <= 1.0


def test_the_model_card_shows_the_results_of_the_run(trained: Path, folder: Path) -> None:
    card = (folder / "README.md").read_text()
    results = json.loads((trained.parents[1] / "results.json").read_text())
    assert "# reviews_fna" in card
    assert "alpha = 1.2" in card
    assert f"| val/accuracy | {results['fit']['metrics']['val/accuracy']:.4f} |" in card
    assert "None recorded for this configuration." in card
    about = {"config": "imdb_fna", "deviations": deviations("imdb_fna.yaml")}
    model_config = hub.PublishedModel.from_pretrained(folder).model_config
    card = hub.PublishedModel(model_config=model_config, about=about).generate_model_card().content
    assert len(about["deviations"]) > 1
    assert all(f"- {deviation}" in card for deviation in about["deviations"])
    assert "The run recorded none." in card


def test_push_to_hub_uploads_a_loadable_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is replaced by a local folder."""
    import huggingface_hub

    uploaded: dict[str, Any] = {}

    def create_repo(self: Any, repo_id: str, **_: Any) -> Any:
        uploaded["repo"] = repo_id
        return type("Repo", (), {"repo_id": repo_id})

    def upload_folder(self: Any, *, folder_path: str, **_: Any) -> str:
        shutil.copytree(folder_path, tmp_path / "hub")
        return "uploaded"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    model = hub.PublishedModel.from_pretrained(folder)
    model.push_to_hub("someone/fna")
    assert uploaded["repo"] == "someone/fna"
    reloaded = hub.PublishedModel.from_pretrained(tmp_path / "hub")
    tokens, lengths = batch(17, 2)
    with torch.no_grad():
        assert_close(reloaded(tokens, lengths), model(tokens, lengths), rtol=0, atol=0)


@pytest.mark.parametrize("task_name", ["images", "translation"])
def test_other_tasks_are_exported(
    task_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, folder = tmp_path / "run/version_0", tmp_path / "published"
    assert fit(run, monkeypatch, [*TASKS[task_name], *COMMON, "--trainer.max_epochs=1"]) == 0
    checkpoint = run / "checkpoints/best.ckpt"
    assert main(["export", str(checkpoint), str(folder), "--onnx"]) == 2
    assert (
        "is not a text classifier, and only text classifiers can be exported as programs; omit --onnx"
        in capsys.readouterr().err
    )
    assert not folder.exists()
    assert main(["export", str(checkpoint), str(folder)]) == 0
    model, task = hub.PublishedModel.from_pretrained(folder), load_task(checkpoint)
    assert model.codec.state() == torch.load(checkpoint, weights_only=True)["codec"]
    weights = task.state_dict()
    assert weights.keys() == model.task.state_dict().keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.task.state_dict().items())
    with pytest.raises(ValueError, match="is not a text classifier: call the model with its own inputs"):
        model.classify(["a text"])


def test_usage_errors(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years")
    assert main(["export", str(trained), str(tmp_path / "full")]) == 2
    assert "exists and is not an empty folder; give a new one" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "none.ckpt"), str(tmp_path / "new")]) == 2
    assert "no checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
