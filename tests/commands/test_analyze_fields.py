"""``analyze`` on field models: effective neighbors against the number of points, and weights over the map."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fna_lightning.analysis import load, study
from fna_lightning.cli import main
from fna_lightning.errors import UsageError
from fna_lightning.graph import effective_neighbors
from fna_lightning.plotting.fields import half_weight_radius
from fna_lightning.tasks import Terrain
from fna_lightning.tasks.fields.episodes import EpisodeConfig
from fna_lightning.tasks.fields.weights import query_weights

from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e

FAST = [
    *("--data.episodes.train_size=32", "--data.episodes.val_size=16", "--data.episodes.test_size=16"),
    *("--trainer.max_epochs=1", "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"),
]


def train(folder: Path, config: str, *options: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FNA_RUN_DIR", "")
        assert main(["fit", "--config", config, *FAST, *options]) == 0
        patch.delenv("FNA_RUN_DIR", raising=False)
    return folder / "runs" / Path(config).stem / "version_0"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("fields")
    return train(folder, "terrain_fna.yaml"), train(folder, "terrain_uniform.yaml")


def test_numbers_are_those_of_the_graph_functions(runs: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    command = ["analyze", str(runs[0]), "--split", "test", "--count", "4", "--out", str(tmp_path)]
    assert main([*command, "--json", str(tmp_path / "copy.json")]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results == json.loads((tmp_path / "copy.json").read_text())
    model = load(runs[0])
    assert model.kind == results["kind"] == "field"
    stream = Terrain(
        survey="levy", eval_surveys=["levy", "even"], episodes=EpisodeConfig(test_size=16), batch_size=16
    ).split("test")
    batch = stream.__getitems__([16 + index for index in range(4)])  # the second evaluation set, n = 64
    expected = {
        key: effective_neighbors(weights).mean().item() for key, weights in query_weights(model.task, batch).items()
    }
    assert len(expected) == 4
    (heads,) = results["split"]["models"]
    assert len(heads) == 4
    for head in heads:
        part = head["measures"]["neighbors_n64"]
        assert part["mean"] == pytest.approx(expected[head["layer"], head["head"]])
        assert part["count"] == 4 * 32
    (lengths,) = results["lengths"]
    assert lengths["lengths"] == [16, 64, 256]
    assert lengths["effective_neighbors"][1]["mean"] == pytest.approx(sum(expected.values()) / 4)
    assert lengths["mean_hops"] == lengths["entropy"] == [None] * 3
    printed = capsys.readouterr().out
    assert "n256_even" in printed
    assert f"{heads[3]['measures']['neighbors_n64']['mean']:.1f}" in printed
    for name in ("neighbors.png", "weights.png"):
        with Image.open(tmp_path / name) as picture:
            assert picture.width > 300


def test_uniform_attention_has_n_neighbors(runs: tuple[Path, Path]) -> None:
    report = study(runs[0], against=[runs[1]], split="val", count=2)
    assert [info.label for info in report.models] == ["terrain_fna", "terrain_uniform"]
    assert report.split is not None
    for head in report.split.models[1]:
        assert head.measures["neighbors_n256"].mean == pytest.approx(256, rel=1e-4)
        assert head.measures["neighbors_n16_even"].mean == pytest.approx(16, rel=1e-4)
    assert [example.title for example in report.examples[:3]] == ["val n16", "val n64", "val n256"]
    for example in report.examples:
        assert example.models[1].heads == []
        for head in example.models[1].cross:
            assert head.weights is not None
            assert head.neighbors == pytest.approx(len(example.words), rel=1e-4)
            np.testing.assert_allclose(head.weights, 1 / len(example.words), rtol=1e-5)


def test_queries_go_from_dense_to_sparse(runs: tuple[Path, Path]) -> None:
    for example in study(runs[0], split="val", count=1).examples:
        assert example.coordinates is not None
        assert example.query_coordinates is not None
        distances = torch.cdist(example.query_coordinates, example.coordinates)
        near = distances.sort(dim=1).values[:, :4].mean(dim=1)
        assert (near.diff() > 0).all()


def test_own_points(runs: tuple[Path, Path], tmp_path: Path) -> None:
    points = torch.rand(30, 3, generator=torch.Generator().manual_seed(0))
    report = study(runs[1], points=points)
    (example,) = report.examples
    assert example.title == "30 points"
    assert report.split is None
    assert [head.neighbors for head in example.models[0].cross] == pytest.approx([30] * 5, rel=1e-4)
    assert example.coordinates is not None
    # the points fill the square that the model was trained on
    assert example.coordinates.amin(dim=0).tolist() == [-1, -1]
    assert example.coordinates.amax(dim=0).tolist() == [1, 1]
    file = tmp_path / "points.csv"
    file.write_text("x,y,elevation\n" + "".join(f"{x},{y},{z}\n" for x, y, z in points.tolist()))
    (read,) = study(runs[1], points=file).examples
    order, other = (part.coordinates[:, 0].argsort() for part in (example, read))
    torch.testing.assert_close(read.coordinates[other], example.coordinates[order])
    with pytest.raises(UsageError, match="at least two rows of x, y, elevation, got the shape"):
        study(runs[1], points=points[:, :2])


def test_recall_has_no_map(tmp_path: Path) -> None:
    run = train(tmp_path, "recall_fna.yaml")
    assert main(["analyze", str(run), "--count", "2"]) == 0
    assert (run / "analysis/neighbors.png").exists()
    assert not (run / "analysis/weights.png").exists()


def test_half_weight_radius() -> None:
    distances, weights = np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.3, 0.5])
    assert half_weight_radius(distances, weights) == 2.0
    assert half_weight_radius(distances, np.array([0.1, 0.6, 0.3])) == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", "a text"], "is a field model and does not take texts; pass points=... in Python, or use --split"),
        (["--image", "a.png"], "is a field model and does not take images"),
        (["--split", "train"], "--split val or --split test"),
    ],
)
def test_unsuitable_options(runs: tuple[Path, Path], options: list[str], message: str, capsys) -> None:
    assert main(["analyze", str(runs[0]), *options]) == 2
    assert message in capsys.readouterr().err


def test_other_kinds_of_models_cannot_be_compared(runs: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        other = train_tiny(tmp_path, config="reviews_fna.yaml")
    assert main(["analyze", str(runs[0]), "--against", str(other)]) == 2
    assert "is a text model and the first is a field model, so they cannot be compared" in capsys.readouterr().err
