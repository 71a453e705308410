"""From a CSV file to a map: by ``fit`` alone, and by ``map`` from a checkpoint."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fna_lightning.attention import Fractional
from fna_lightning.cli import main
from fna_lightning.tasks import CategoricalLikelihood, FieldRegression, GaussianLikelihood, SquaredError
from fna_lightning.tasks.fields.maps import predict_map
from fna_lightning.tasks.fields.table import PointTable

pytestmark = pytest.mark.e2e

COLUMNS = ["--data.coordinates", "[lon, lat]", "--data.value", "height"]
FAST = [
    *("--data.episodes.train_size=160", "--data.episodes.val_size=16", "--data.episodes.test_size=16"),
    *("--trainer.max_epochs=2", "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with survey.csv and the run that was trained on it."""
    path = tmp_path_factory.mktemp("survey")
    points = np.random.default_rng(0).random((60, 2))
    lines = [f"{10 + x},{50 + y},{500 + 100 * np.sin(4 * x) * y}" for x, y in points]
    (path / "survey.csv").write_text("\n".join(["lon,lat,height", *lines]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        patch.delenv("FNA_RUN_DIR", raising=False)
        assert main(["fit", "--config", "field_fna.yaml", "--data.path", "survey.csv", *COLUMNS, *FAST]) == 0
        patch.delenv("FNA_RUN_DIR", raising=False)
    return path


def rows(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_fit_writes_map_and_error_curve(folder: Path) -> None:
    run = folder / "runs/field_fna/version_0"
    for name in ("map.png", "error_curve.png"):
        with Image.open(run / name) as picture:
            assert picture.width > 300
    header, *lines = rows(run / "map.csv")
    assert header == ["lon", "lat", "height", "standard_deviation"]
    table = np.array(lines, dtype=float)
    assert table.shape == (10_000, 4)
    assert table[:, 0].min() >= 10.0
    assert table[:, 1].max() <= 51.0
    assert 300.0 < table[:, 2].mean() < 700.0
    assert (table[:, 3] > 0.0).all()


def test_map_from_the_checkpoint(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = folder / "runs/field_fna/version_0/checkpoints/last.ckpt"
    assert main(["map", str(checkpoint), str(folder / "survey.csv"), "--out", str(tmp_path)]) == 0
    assert f"map.png and map.csv in {tmp_path}: 10000 points from 60" in capsys.readouterr().out
    assert rows(tmp_path / "map.csv") == rows(folder / "runs/field_fna/version_0/map.csv")


def test_map_with_other_columns(folder: Path, tmp_path: Path) -> None:
    checkpoint = folder / "runs/field_fna/version_0/checkpoints/best.ckpt"
    other = tmp_path / "other.csv"
    other.write_text("east;north;depth\n0;0;1\n5;5;2\n5;0;3\n")
    arguments = ["--coordinates", "east,north", "--value", "depth", "--resolution", "5", "--out", str(tmp_path)]
    assert main(["map", str(checkpoint), str(other), *arguments]) == 0
    assert len(rows(tmp_path / "map.csv")) == 26


def test_test_draws_the_error_curve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("FNA_RUN_DIR", raising=False)
    run = folder / "runs/field_fna/version_0"
    before = (run / "error_curve.png").read_bytes()
    assert main(["test", "--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints/best.ckpt")]) == 0
    assert (run / "error_curve.png").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--value", "depth"], "no column 'depth'"),
        (["--coordinates", "lon"], "this model has 2 coordinates and 1 values per point, but the table has 1 and 1"),
        (["--resolution", "1"], "resolution must be at least 2, got 1"),
    ],
)
def test_bad_arguments(folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = folder / "runs/field_fna/version_0/checkpoints/best.ckpt"
    assert main(["map", str(checkpoint), str(folder / "survey.csv"), *arguments]) != 0
    assert message in capsys.readouterr().err


def model(coordinates: int, likelihood: object) -> FieldRegression:
    torch.manual_seed(0)
    return FieldRegression(coordinates, 1, [], Fractional(1.2, 0.1, 2), likelihood)  # type: ignore[arg-type]


def table(dim: int) -> PointTable:
    rng = np.random.default_rng(0)
    return PointTable(rng.random((30, dim)), rng.random(30), [*"xyz"[:dim], "height"])


def test_a_profile_of_one_coordinate() -> None:
    for likelihood in (GaussianLikelihood(), SquaredError()):
        prediction = predict_map(model(1, likelihood), table(1), resolution=20)
        assert prediction.mean.shape == (20,)
        assert (prediction.deviation is None) is isinstance(likelihood, SquaredError)
        assert prediction.figure().axes


def test_what_has_no_map_is_refused() -> None:
    from fna_lightning.errors import UsageError

    with pytest.raises(UsageError, match="a map needs one or two coordinates, got 3: x, y, z"):
        predict_map(model(3, None), table(3))
    with pytest.raises(UsageError, match="this model predicts labels, and a map needs a model that predicts values"):
        predict_map(model(2, CategoricalLikelihood()), table(2))
