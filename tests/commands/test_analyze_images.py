"""``analyze`` on images: patches are tokens, and attention is drawn over the image."""

import json
from pathlib import Path

import pytest
import torch

from fna_lightning.cli import main
from fna_lightning.plotting.images import grid_side, hops_on_grid, patch_attention
from fna_lightning.tasks import DigitsData

from helpers.cifar_folder import png

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        arguments = ["--config=digits_fna.yaml", f"--trainer.default_root_dir={folder}", "--trainer.max_epochs=1"]
        assert main(["fit", *arguments, "--trainer.enable_progress_bar=false"]) == 0
    (path,) = folder.glob("*/version_*/checkpoints/best.ckpt")
    return path


def analyze(folder: Path, *arguments: object) -> dict:
    assert main(["analyze", *map(str, arguments), "--out", str(folder)]) == 0
    return json.loads((folder / "results.json").read_text())


def test_a_split(checkpoint, tmp_path) -> None:
    results = analyze(tmp_path, checkpoint, "--split", "test", "--count", 2)
    example = results["examples"][0]
    assert example["words"][:2] == ["CLS", "1,1"]
    assert len(example["words"]) == 17
    assert "pixels" not in example
    assert results["lengths"][0]["lengths"] == []
    assert all(
        part["models"][0]["correct"] is (part["models"][0]["prediction"] == part["label"])
        for part in results["examples"]
    )
    assert (tmp_path / "over_image_1.png").stat().st_size > 3000


def test_an_image_file_and_a_comparison(checkpoint, tmp_path) -> None:
    file = tmp_path / "seven.png"
    file.write_bytes(png(DigitsData().split("test")[7].images[0, 0].numpy()))
    results = analyze(tmp_path / "out", checkpoint, "--image", file, "--against", checkpoint)
    (example,) = results["examples"]
    assert example["title"] == "seven.png"
    assert results["split"] is None
    assert len(example["models"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "a film"], "is an image model and does not take texts; pass images by --image"),
        (["--image", "nowhere.png"], "no image 'nowhere.png'; give the path of a file that ends in .jpg"),
    ],
)
def test_errors(checkpoint, tmp_path, capsys, arguments, message) -> None:
    assert main(["analyze", str(checkpoint), *arguments, "--out", str(tmp_path)]) != 0
    assert message in " ".join(capsys.readouterr().err.split())


def test_values_on_the_patch_grid() -> None:
    weights = torch.full((5, 5), 0.2)
    weights[0] = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    assert patch_attention(weights).tolist() == [
        [pytest.approx(0.1), pytest.approx(0.2)],
        [pytest.approx(0.3), pytest.approx(0.4)],
    ]
    assert patch_attention(torch.eye(4)).eq(0.25).all()
    assert hops_on_grid(torch.full((4, 4), 0.25)).eq(1).all()
    assert grid_side(64) == (8, 0)
    assert grid_side(65) == (8, 1)
    with pytest.raises(ValueError, match="67 tokens do not form a square grid"):
        grid_side(67)
