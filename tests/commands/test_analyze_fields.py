"""``analyze`` on field models: effective neighbors against the number of points, and weights over the map."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fna_lightning.analysis.fields import open_field_model, study_fields
from fna_lightning.cli import main
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
    model = open_field_model(runs[0])
    assert model is not None
    stream = Terrain(
        survey="levy", eval_surveys=["levy", "even"], episodes=EpisodeConfig(test_size=16), batch_size=16
    ).split("test")
    batch = stream.__getitems__([16 + index for index in range(4)])  # the second evaluation set, n = 64
    expected = {
        key: effective_neighbors(weights).mean().item() for key, weights in query_weights(model.task, batch).items()
    }
    assert len(expected) == 4
    for head in results["heads"][0]:
        assert head["neighbors"]["n64"]["mean"] == pytest.approx(expected[head["layer"], head["head"]])
        assert head["neighbors"]["n64"]["count"] == 4 * 32
    printed = capsys.readouterr().out
    assert "n256_even" in printed
    assert f"{results['heads'][0][3]['neighbors']['n64']['mean']:.1f}" in printed
    for name in ("neighbors.png", "weights.png"):
        with Image.open(tmp_path / name) as picture:
            assert picture.width > 300


def test_uniform_attention_has_n_neighbors(runs: tuple[Path, Path]) -> None:
    models = [open_field_model(path) for path in runs]
    report = study_fields([model for model in models if model], split="val", count=2)
    assert [info.label for info in report.models] == ["terrain_fna", "terrain_uniform"]
    for head in report.heads[1]:
        assert head.neighbors["n256"].mean == pytest.approx(256, rel=1e-4)
        assert head.neighbors["n16_even"].mean == pytest.approx(16, rel=1e-4)
    assert report.episode is not None
    for weights in report.episode.weights[1].values():
        np.testing.assert_allclose(weights, 1 / weights.shape[-1], rtol=1e-5)


def test_queries_go_from_dense_to_sparse(runs: tuple[Path, Path]) -> None:
    model = open_field_model(runs[0])
    assert model is not None
    episode = study_fields([model], split="val", count=1).episode
    assert episode is not None
    distances = np.linalg.norm(episode.queries[:, None] - episode.context, axis=-1)
    near = np.sort(distances, axis=1)[:, :4].mean(axis=1)
    assert near[0] < near[1] < near[2]


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
        (["--text", "a text"], "neither texts nor images"),
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
    assert "is not a field model" in capsys.readouterr().err
