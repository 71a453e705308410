"""Image classification: training, orthogonal projections, averaged weights, predictions of a folder of images."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fna_lightning.checkpoints.load import load_task
from fna_lightning.cli import main
from fna_lightning.config.instantiate import from_config
from fna_lightning.introspection.maps import attention_layers
from fna_lightning.tasks import DigitsData
from fna_lightning.training.run_folder import read_results

from helpers.cifar_folder import png

pytestmark = pytest.mark.e2e


def fit(folder: Path, *more: str) -> Path:
    """Train on the digits and return the run folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        words = ["--config=digits_fna.yaml", f"--trainer.default_root_dir={folder}"]
        assert main(["fit", *words, "--trainer.enable_progress_bar=false", *more]) == 0
    (run,) = folder.glob("*/version_*")
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return fit(tmp_path_factory.mktemp("runs"), "--trainer.max_epochs=4")


def predict(run: Path, folder: Path) -> int:
    words = [f"--config={run / 'config.yaml'}", f"--ckpt_path={run / 'checkpoints' / 'best.ckpt'}"]
    return main(["predict", *words, f"--data.predict_folder={folder}"])


def test_accuracy_after_four_epochs(run) -> None:
    assert read_results(run)["fit"]["best_value"] > 0.9


def test_split_seed_does_not_change_the_test_split() -> None:
    splits = [
        {name: set(DigitsData(split_seed=seed).split(name).rows) for name in ("train", "val", "test")}
        for seed in (0, 1)
    ]
    assert splits[0]["test"] == splits[1]["test"]
    assert splits[0]["val"] != splits[1]["val"]
    for split in splits:
        assert len(split["train"] | split["val"] | split["test"]) == sum(map(len, split.values())) == 1797


def test_predict_folder(run, tmp_path) -> None:
    images = DigitsData().split("test")
    for index in range(6):
        pixels, labels = images[index]
        Image.fromarray(pixels[0, 0].numpy()).save(tmp_path / f"{index}_{int(labels)}.png")
    # An image of another size, in a subfolder.
    (tmp_path / "more").mkdir()
    Image.fromarray(np.zeros((20, 30), dtype=np.uint8)).save(tmp_path / "more" / "black.jpg")
    assert predict(run, tmp_path) == 0
    with (run / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "class", "probability"]
    assert [row["file"] for row in rows] == [*sorted(path.name for path in tmp_path.glob("*.png")), "more/black.jpg"]
    assert sum(row["class"] == row["file"][2] for row in rows[:6]) >= 4
    task = load_task(run / "checkpoints" / "best.ckpt")
    expected = task(torch.cat([images[index].images for index in range(6)])).softmax(-1).amax(-1)
    assert [float(row["probability"]) for row in rows[:6]] == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.png", png(np.zeros((8, 8), dtype=np.uint8))[:40], "cut.png cannot be decoded as an image"),
        ("words.jpg", b"not a picture", "words.jpg cannot be decoded as an image"),
        ("notes.txt", b"", "notes.txt is not a file that ends in .jpg, .jpeg, .png, .webp, .bmp, .gif; convert it, or"),
        (".DS_Store", b"", "contains no image; file names must end in .jpg, .jpeg, .png, .webp, .bmp, .gif"),
    ],
)
def test_invalid_file_is_named(run, tmp_path, capsys, name, content, message) -> None:
    (tmp_path / name).write_bytes(content)
    assert predict(run, tmp_path) != 0
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert str(tmp_path) in error


def test_missing_folder(run, tmp_path, capsys) -> None:
    assert predict(run, tmp_path / "nowhere") != 0
    assert f"folder not found: --data.predict_folder {tmp_path / 'nowhere'}" in capsys.readouterr().err


def test_orthogonal_projections_stay_orthogonal(tmp_path) -> None:
    orthogonal = "model.vit.encoder.projection=OrthogonalProjection"
    run = fit(tmp_path, "--trainer.max_epochs=3", "--data.batch_size=128", f"--{orthogonal}")
    layers = attention_layers(load_task(run / "checkpoints" / "last.ckpt"))
    start = attention_layers(from_config("digits_fna.yaml", [orthogonal]).task)
    assert len(layers) == 2
    for name, layer in layers.items():
        for which in ("query", "key"):
            matrix = getattr(layer.projection, which).weight
            assert (matrix.mT @ matrix - torch.eye(48)).abs().max() < 1e-5
            # Training has changed them.
            assert (matrix - getattr(start[name].projection, which).weight).abs().max() > 1e-3


def test_best_checkpoint_contains_the_averaged_weights(tmp_path) -> None:
    average = "--trainer.callbacks+=lightning.pytorch.callbacks.EMAWeightAveraging"
    run = fit(tmp_path, "--trainer.max_epochs=1", average, "--trainer.callbacks.decay=1.0")
    # With decay 1, the average stays at the weights after the first step, close to the initial weights.
    kept = load_task(run / "checkpoints" / "best.ckpt").vit.head.weight
    moved = (kept - from_config("digits_fna.yaml").task.vit.head.weight).abs().max()
    assert 0 < moved < 4e-3
    assert read_results(run)["fit"]["metrics"]["train/accuracy"] > 0.5 > read_results(run)["fit"]["best_value"]
