"""The page "Train on your own images": its commands in their order, and mistakes on the command line."""

import json
import re
import shlex
from pathlib import Path

import pytest

from fna_lightning.cli import main

from helpers.photo_folder import photo_folder

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[3] / "docs/how-to/own-images.md").read_text()
COMMANDS = [shlex.split(line)[1:] for line in PAGE.splitlines() if line.startswith("fna-lightning ")]
CHECKPOINT = "runs/images_fna/version_0/checkpoints/best.ckpt"
SHORT = ["--data.batch_size=8", "--trainer.enable_progress_bar=false"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FNA_RUN_DIR", "")
    monkeypatch.chdir(tmp_path)


def test_commands_of_the_page(capsys, tmp_path) -> None:
    (drawing,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(drawing.replace("range(100)", "range(40)"), {})
    assert [command[0] for command in COMMANDS] == ["fit", "test", "classify", "predict", "analyze", "analyze", "fit"]
    for command in COMMANDS[:-1]:
        extra = {"fit": SHORT, "analyze": ["--count=2"], "classify": ["--json=answers.json"]}.get(command[0], [])
        capsys.readouterr()
        assert main([*command, *extra]) == 0, command
        if command[0] == "classify":
            lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 41
    assert [line[2] for line in lines[:2]] == ["photos/circle/0.jpg", "photos/square/0.jpg"]
    answers = json.loads(Path("answers.json").read_text())
    assert set(answers[0]["probabilities"]) == {"circle", "square", "triangle"}
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1.0)
    assert f"{answers[0]['probability']:.4f}" == lines[0][1]
    rows = (tmp_path / "runs/images_fna/version_0/predictions.csv").read_text().splitlines()
    assert rows[0] == "file,class,probability"
    assert len(rows) == 121
    assert rows[1].startswith("circle/0.jpg,")
    # a third of random answers is right
    assert sum(Path(row.split(",")[0]).parent.name == row.split(",")[1] for row in rows[1:]) > 72
    assert [row.split(",")[1] for row in rows[41:81]] == [line[0] for line in lines[1:]]
    assert (tmp_path / "runs/images_fna/version_0/analysis/index.html").is_file()
    check_classify_errors(capsys)


def check_classify_errors(capsys) -> None:
    capsys.readouterr()
    assert main(["classify", CHECKPOINT]) == 2
    assert capsys.readouterr().err == (
        f"fna-lightning: error: {CHECKPOINT} is an image classifier; name image files or folders, for example "
        f"fna-lightning classify {CHECKPOINT} photo.jpg\n"
    )
    Path("empty").mkdir()
    assert main(["classify", CHECKPOINT, "empty"]) == 2
    assert "the folder empty contains no image; file names must end in .jpg" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--data.path is not set; it must name a folder of images, for example --data.path photos/"),
        (["--data.path=phtos"], "folder not found: --data.path phtos; did you mean photos?"),
        (["--data.path=photos/circle/0.jpg"], "--data.path photos/circle/0.jpg is a file; give the folder that"),
        (
            ["--data.path=photos", "--data.image_size=60"],
            (
                "tokens of 8 pixels do not tile an image of 60; choose strides whose product divides 60, or an image "
                "size that is a multiple of 8, such as 64"
            ),
        ),
        (["--data=HubImages", "--data.path=photos/cats"], "folder not found: --data.path photos/cats"),
    ],
)
def test_mistakes(tmp_path, capsys, arguments, message) -> None:
    photo_folder(tmp_path / "photos", 3)
    assert main(["fit", "--config=images_fna.yaml", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "setting",
    ["--data.channels=1", "--model.augmentations=null", "--model.attention=DotProduct", "--data.image_size=96"],
)
def test_settings_of_the_page(tmp_path, setting) -> None:
    assert setting.replace("=", " ").split(" ")[0] in PAGE
    photo_folder(tmp_path / "photos", 3)
    assert main(["fit", "--config=images_fna.yaml", "--data.path=photos", setting, "--trainer.fast_dev_run=true"]) == 0
