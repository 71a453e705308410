"""classify: one line of output per text, for any text."""

import io
import json
import sys
from pathlib import Path

import pytest
import torch

from fna_lightning.checkpoints.load import load_task
from fna_lightning.cli import main
from fna_lightning.tasks import ReviewData
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.tasks.text.data import pad
from fna_lightning.tasks.translation.codec import TranslationCodec

from helpers.imdb_folder import BAD, GOOD, imdb_folder
from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("FNA_RUN_DIR", raising=False)
        path = train_tiny(tmp_path_factory.mktemp("runs"))
        patch.delenv("FNA_RUN_DIR", raising=False)
    return path


def set_input(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_label_and_probability_match_the_model(checkpoint, capsys) -> None:
    texts = ["the plot was gripping", "i found the music tinny and the acting wooden"]
    assert main(["classify", str(checkpoint), *texts]) == 0
    data = ReviewData()
    batch = pad([(torch.tensor(data.encode(text)).numpy(), 0) for text in texts])
    answer = load_task(checkpoint).predict_step(batch, 0)
    expected = [
        f"{data.class_names[number]}\t{probability:.4f}"
        for number, probability in zip(answer["class"].tolist(), answer["probability"].tolist(), strict=True)
    ]
    assert capsys.readouterr().out.splitlines() == expected


def test_lines_of_standard_input_are_texts(checkpoint, capsys, monkeypatch) -> None:
    set_input(monkeypatch, b"the plot was gripping\r\nthe ending was hollow\nno newline at the end" * 20)
    assert main(["classify", str(checkpoint)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 41
    assert len(set(lines[0::2])) > 1


def test_the_answer_for_an_empty_text_is_empty(checkpoint, capsys, monkeypatch, tmp_path) -> None:
    set_input(monkeypatch, b"the plot\n\n   \nthe plot\n")
    assert main(["classify", str(checkpoint), "--json", str(tmp_path / "answers.json")]) == 0
    captured = capsys.readouterr()
    first, second, third, fourth = captured.out.splitlines()
    assert second == third == "empty\t-"
    assert first == fourth != second
    assert "text 2 is empty" in captured.err
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert [answer["label"] is None for answer in answers] == [False, True, True, False]
    assert answers[0]["probability"] == pytest.approx(float(first.split("\t")[1]), abs=1e-4)


def test_a_long_text_is_truncated(checkpoint, capsys, monkeypatch) -> None:
    head = "the plot was gripping " * 10
    set_input(monkeypatch, (head + "the music was tinny " * 25_000).encode() + b"\n" + head.encode())
    assert main(["classify", str(checkpoint)]) == 0
    captured = capsys.readouterr()
    long, short = captured.out.splitlines()
    # the model reads 40 words, which is the length of the head
    assert long == short
    assert "text 1 has 100040 tokens; the model reads the first 40" in captured.err


def test_invalid_bytes_are_replaced(checkpoint, capsys, monkeypatch) -> None:
    set_input(monkeypatch, b"the plot was gripping\nthe plot w\xe4s \xff\xfe gripping\n")
    assert main(["classify", str(checkpoint)]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert "text 2 is not UTF-8" in captured.err
    assert "text 1" not in captured.err


def test_invalid_bytes_in_an_argument_are_replaced(checkpoint, capsys) -> None:
    assert main(["classify", str(checkpoint), "the plot w\udce4s"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_missing_checkpoint_is_an_error(capsys, tmp_path) -> None:
    assert main(["classify", str(tmp_path / "none.ckpt"), "a"]) == 2
    assert "no checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.pop("codec"), "other.ckpt has no codec (tokenizer or image size, and class names)"),
        (
            lambda content: content["codec"].pop("kind"),
            "other.ckpt has no kind (known kinds: field, image, text, translation)",
        ),
        (lambda content: content["codec"].update(kind="audio"), "other.ckpt is of the unknown kind 'audio'"),
        (
            lambda content: content.update(codec=TranslationCodec("", "", 8).state()),
            "other.ckpt is a translator, not a text classifier",
        ),
    ],
    ids=["no codec", "no kind", "unknown kind", "another kind"],
)
def test_a_checkpoint_without_a_text_codec_is_an_error(checkpoint, capsys, tmp_path, change, message) -> None:
    content = torch.load(checkpoint, weights_only=True)
    change(content)
    torch.save(content, tmp_path / "other.ckpt")
    assert main(["classify", str(tmp_path / "other.ckpt"), "a"]) == 2
    assert message in capsys.readouterr().err


def test_classify_needs_only_the_checkpoint(tmp_path, monkeypatch, capsys) -> None:
    folder, cache = imdb_folder(tmp_path / "imdb", train=400), tmp_path / "cache"
    monkeypatch.setenv("FNA_CACHE", str(cache))
    monkeypatch.delenv("FNA_RUN_DIR", raising=False)
    tokenization = {"kind": "word", "vocab_size": 100, "max_length": 64, "lowercase": "true"}
    arguments = ["fit", "--config", "imdb_small_uniform.yaml", f"--data.path={folder}", "--trainer.max_epochs=5"]
    arguments += [f"--data.tokenization.{key}={value}" for key, value in tokenization.items()]
    arguments += [f"--trainer.default_root_dir={tmp_path / 'runs'}", "--trainer.enable_progress_bar=false"]
    assert main([*arguments, "--model.optimizer.lr=0.01", "--data.batch_size=64"]) == 0
    (best,) = tmp_path.glob("runs/*/version_0/checkpoints/best.ckpt")
    # the data and the cache are no longer needed
    folder.rename(tmp_path / "away")
    cache.rename(tmp_path / "away_too")
    capsys.readouterr()
    assert main(["classify", str(best), " ".join(["film", *GOOD]), " ".join(["film", *BAD])]) == 0
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["positive", "negative"]
    codec = TextCodec.from_checkpoint(torch.load(best, weights_only=True), best)
    assert codec.max_length == 64
