"""The how-to pages for data of the user: each command works, in the order of the page."""

import csv
import io
import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fna_lightning.cli import main

pytestmark = pytest.mark.e2e

HOW_TO = Path(__file__).parents[2] / "docs/how-to"
# fewer epochs than on the page
LIMITS = {
    "own-text": ["--trainer.max_epochs=3"],
    "own-translation": ["--trainer.max_epochs=3", "--model.network.encoder.dim=32", "--model.network.encoder.depth=1"],
}


@pytest.fixture
def fresh_folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FNA_DATA", raising=False)
    return tmp_path


def follow(page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Run the script and the commands of a page; return the output of each command by its name."""
    text = (HOW_TO / f"{page}.md").read_text(encoding="utf-8")
    match = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert match
    exec(match[1], {})
    printed = {}
    for line in re.findall(r"^(?:echo .* \| )?fna-lightning .*$", text, flags=re.MULTILINE):
        typed, _, command = line.rpartition("fna-lightning ")
        words = shlex.split(command)
        if typed:
            content = shlex.split(typed)[1] + "\n"
            monkeypatch.setattr(
                sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content.encode()), isatty=lambda: False)
            )
        assert main([*words, *(LIMITS[page] if words[0] == "fit" else [])]) == 0, line
        printed[words[0]] = capsys.readouterr().out
    return printed


def test_own_texts(fresh_folder, monkeypatch, capsys) -> None:
    printed = follow("own-text", monkeypatch, capsys)
    assert set(printed) == {"fit", "classify", "test", "predict", "analyze"}
    answers = [line.split("\t") for line in printed["classify"].splitlines()]
    assert [label for label, _ in answers] == ["sports", "cooking"]
    run = fresh_folder / "runs/text_fna/version_0"
    assert json.loads((run / "results.json").read_text())["test"]["metrics"]["test/accuracy"] > 0.7
    rows = list(csv.DictReader((run / "predictions.csv").open()))
    assert len(rows) == 60
    assert {row["class"] for row in rows} == {"sports", "cooking", "travel"}
    assert (run / "analysis/index.html").is_file()
    # spectral gap and path length of the attention graphs
    assert "attention/spectral_gap" in printed["fit"]
    assert "attention/mean_hops" in printed["fit"]

    # another test file means other training rows and another tokenizer
    (fresh_folder / "new.csv").write_text("review,topic\na goal,sports\n")
    evaluate = ["test", f"--config={run / 'config.yaml'}", f"--ckpt_path={run / 'checkpoints/best.ckpt'}"]
    assert main([*evaluate, "--data.test=new.csv"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fna-lightning: error: the data does not have the tokenizer of the checkpoint, so predictions would be wrong; "
        "use the data that the model was trained on, or train it again"
    )


def test_own_translations(fresh_folder, monkeypatch, capsys) -> None:
    printed = follow("own-translation", monkeypatch, capsys)
    assert set(printed) == {"fit", "translate", "test", "analyze"}
    score, translation = printed["translate"].rstrip("\n").split("\t")
    assert float(score) < 0
    assert translation
    run = fresh_folder / "runs/parallel_fna/version_0"
    assert len((run / "test.hyp.txt").read_text().splitlines()) == 100
    assert (run / "analysis/index.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--config=text_fna.yaml"],
            (
                "TextFiles needs a file to read; set --data.path, for example --data.path mine.csv --data.text_column "
                "review --data.label_column topic"
            ),
        ),
        (
            ["--config=parallel_fna.yaml"],
            "ParallelText needs files to read; set --data.path, for example --data.path english.txt,german.txt",
        ),
        (
            ["--config=text_fna.yaml", "--data.path=mine.csv", "--data.text_column=revew", "--data.label_column=topic"],
            (
                "mine.csv has no column 'revew'; did you mean 'review'? it has the columns review, topic; correct "
                "--data.text_column"
            ),
        ),
        (
            ["--config=text_fna.yaml", "--data.path=mine.cvs"],
            ("no file or folder 'mine.cvs'; similar names in that folder: mine.csv; correct --data.path"),
        ),
        (
            ["--config=text_fna.yaml", "--data.path=mine.csv", "--data.validation=0.2", "--data.test=0.9"],
            (
                "validation and test must be files, or shares between 0 and 1 whose sum is less than 1, got 0.2 and "
                "0.9; 0.1 holds out 10 % of the rows"
            ),
        ),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(fresh_folder, arguments, message, capsys) -> None:
    (fresh_folder / "mine.csv").write_text("review,topic\na goal,sports\n")
    assert main(["fit", *arguments]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"fna-lightning: error: {message}"
