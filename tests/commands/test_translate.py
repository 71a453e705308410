"""translate: one line for each line, whatever the line is."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fna_lightning.cli import main
from fna_lightning.tasks.translation.checkpointed_translator import CheckpointedTranslator
from fna_lightning.tasks.translation.decoding import Decoding

from helpers.tiny_runs import train_tiny
from helpers.tiny_translation import train_tiny_translation


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny_translation(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def give(monkeypatch) -> Callable[[str | bytes], None]:
    def content(text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))

    return content


LINES = ["twenty one", "", "three hundred and forty two", "seven", "   ", "nine hundred", "eighty"]


def test_one_line_each_in_order_whatever_the_batch(checkpoint, give, capsys) -> None:
    translator = CheckpointedTranslator.open(checkpoint)
    expected = []
    for text in LINES:
        ids, _ = translator.read(text)
        found = translator.translate([ids], translator.decoding) if ids else None
        expected.append(translator.codec.decode(found[0][0].tokens) if found else "")
    for batch in ("1", "12", "4096"):
        give("\n".join(LINES))
        assert main(["translate", str(checkpoint), "--batch-tokens", batch]) == 0
        assert capsys.readouterr().out.split("\n") == [*expected, ""]
    assert len({line for line in expected if line}) > 1


def test_greedy_is_one_place(checkpoint, give, capsys) -> None:
    translator = CheckpointedTranslator.open(checkpoint)
    give("twenty one\n")
    assert main(["translate", str(checkpoint), "--beam", "1"]) == 0
    ids, _ = translator.read("twenty one")
    network, said = translator.network, [2]
    source = torch.tensor([[*ids, 3]])
    with torch.no_grad():
        while len(said) < 40:
            scores = network(source, torch.tensor([source.size(1)]), torch.tensor([said]))[0, -1]
            scores[[0, 2]] = -torch.inf
            if int(scores.argmax()) == 3:
                break
            said.append(int(scores.argmax()))
    limit = Decoding().longest(source.size(1), network.max_length)
    assert capsys.readouterr().out.strip() == translator.codec.decode(said[1:][: limit - 1])


def test_n_best_and_scores_are_columns(checkpoint, give, capsys) -> None:
    give("seven\n\nten\n")
    assert main(["translate", str(checkpoint), "--beam", "4", "--nbest", "3", "--scores"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    assert rows[3][1:] == ["-", ""]
    assert len({row[2] for row in rows[:3]}) == 3


def test_with_and_without_a_cache(checkpoint) -> None:
    translator = CheckpointedTranslator.open(checkpoint)
    sources = [translator.read(text)[0] for text in LINES if text.strip()]
    decoding = Decoding(beam=5, length_penalty=0.6)
    cached = translator.translate(sources, decoding, n_best=5)
    anew = translator.translate(sources, decoding, n_best=5, cached=False)
    for some, others in zip(cached, anew, strict=True):
        assert [one.tokens for one in some] == [one.tokens for one in others]
        for one, other in zip(some, others, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-5)


def test_what_the_model_cannot_read_is_noted(checkpoint, give, capsys) -> None:
    give(b"seven \xe2\x98\x83 gr\xc3\xbcn\n" + b"nine " * 2000 + b"\ntw\xffenty\nten\n")
    assert main(["translate", str(checkpoint)]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4
    assert "line 1 has 2 words the model does not know" in said.err
    assert "line 2 has 2000 tokens; the model reads the first 31" in said.err
    assert "line 3 is not UTF-8" in said.err
    assert "line 4" not in said.err


def test_no_input_is_no_output(checkpoint, give, capsys) -> None:
    give("")
    assert main(["translate", str(checkpoint)]) == 0
    assert capsys.readouterr().out == ""


def test_answers_come_while_questions_wait(checkpoint) -> None:
    command = [sys.executable, "-m", "fna_lightning.cli", "translate", str(checkpoint)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("seven", "twenty one"):
            process.stdin.write(text + "\n")
            process.stdin.flush()
            # would wait for ever if the whole input were read first
            assert process.stdout.readline().endswith("\n")
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_the_alignment_is_a_picture(checkpoint, give, tmp_path) -> None:
    give("\ntwenty one\nseven\n")
    assert main(["translate", str(checkpoint), "--align", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--beam", "0"], "--beam must be at least 1 (greedy), got 0"),
        (["--nbest", "9"], "--nbest 9 is more than the beam holds (5); say --beam 9 too"),
        (["--nbest", "0"], "--nbest and --batch-tokens must be at least 1, got 0 and 4096"),
        (["--align", "picture.nonsense"], "name a file that ends in .png"),
    ],
)
def test_mistakes_are_sentences(checkpoint, give, capsys, words, message) -> None:
    give("seven\n")
    assert main(["translate", str(checkpoint), *words]) == 2
    assert message in capsys.readouterr().err


def test_nothing_to_align_is_said(checkpoint, give, capsys, tmp_path) -> None:
    give("\n\n")
    assert main(["translate", str(checkpoint), "--align", str(tmp_path / "a.png")]) == 2
    assert "there was no sentence to draw" in capsys.readouterr().err


def test_a_classifier_does_not_translate(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    other = train_tiny(tmp_path)
    assert main(["translate", str(other)]) == 2
    assert "carries no tokenizers of two languages" in capsys.readouterr().err
