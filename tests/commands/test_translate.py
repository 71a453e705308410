"""translate: one line of output per line of input, for any input."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fna_lightning.cli import main
from fna_lightning.tasks.translation.decoding import Decoding
from fna_lightning.tasks.translation.translator import Translator

from helpers.tiny_runs import train_tiny
from helpers.tiny_translation import train_tiny_translation

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny_translation(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def set_input(monkeypatch) -> Callable[[str | bytes], None]:
    def content(text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))

    return content


LINES = ["twenty one", "", "three hundred and forty two", "seven", "   ", "nine hundred", "eighty"]


def test_lines_are_translated_in_order_for_any_batch_size(checkpoint, set_input, capsys) -> None:
    translator = Translator.open(checkpoint)
    expected = []
    for text in LINES:
        ids, _ = translator.encode(text)
        hypotheses = translator.translate([ids], translator.decoding)[0] if ids else []
        expected.append(translator.codec.decode(hypotheses[0].tokens) if hypotheses else "")
    for batch in ("1", "12", "4096"):
        set_input("\n".join(LINES))
        assert main(["translate", str(checkpoint), "--batch-tokens", batch]) == 0
        assert capsys.readouterr().out.split("\n") == [*expected, ""]
    assert len({line for line in expected if line}) > 1


def test_beam_1_is_greedy_search(checkpoint, set_input, capsys) -> None:
    translator = Translator.open(checkpoint)
    set_input("twenty one\n")
    assert main(["translate", str(checkpoint), "--beam", "1"]) == 0
    ids, _ = translator.encode("twenty one")
    network, prefix = translator.network, [2]
    source = torch.tensor([[*ids, 3]])
    with torch.no_grad():
        while len(prefix) < 40:
            scores = network(source, torch.tensor([source.size(1)]), torch.tensor([prefix]))[0, -1]
            scores[[0, 2]] = -torch.inf
            if int(scores.argmax()) == 3:
                break
            prefix.append(int(scores.argmax()))
    limit = Decoding().longest(source.size(1), network.max_length)
    assert capsys.readouterr().out.strip() == translator.codec.decode(prefix[1:][: limit - 1])


def test_n_best_and_scores_are_columns(checkpoint, set_input, capsys) -> None:
    set_input("seven\n\nten\n")
    assert main(["translate", str(checkpoint), "--beam", "4", "--nbest", "3", "--scores"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)
    assert rows[3][1:] == ["-", ""]
    assert len({row[2] for row in rows[:3]}) == 3


def test_translations_are_the_same_without_a_cache(checkpoint) -> None:
    translator = Translator.open(checkpoint)
    sources = [translator.encode(text)[0] for text in LINES if text.strip()]
    decoding = Decoding(beam=5, length_penalty=0.6)
    cached = translator.translate(sources, decoding, n_best=5)
    uncached = translator.translate(sources, decoding, n_best=5, cached=False)
    for hypotheses, expected in zip(cached, uncached, strict=True):
        assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in expected]
        scores = [hypothesis.score for hypothesis in expected]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(scores, abs=1e-5)


def test_truncation_unknown_words_and_invalid_bytes_are_reported(checkpoint, set_input, capsys) -> None:
    set_input(b"seven \xe2\x98\x83 gr\xc3\xbcn\n" + b"nine " * 2000 + b"\ntw\xffenty\nten\n")
    assert main(["translate", str(checkpoint)]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 4
    assert "line 1 has 2 words the model does not know" in captured.err
    assert "line 2 has 2000 tokens; the model reads the first 31" in captured.err
    assert "line 3 is not UTF-8" in captured.err
    assert "line 4" not in captured.err


def test_empty_input_gives_empty_output(checkpoint, set_input, capsys) -> None:
    set_input("")
    assert main(["translate", str(checkpoint)]) == 0
    assert capsys.readouterr().out == ""


def test_lines_are_translated_before_the_input_ends(checkpoint) -> None:
    command = [sys.executable, "-m", "fna_lightning.cli", "translate", str(checkpoint)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("seven", "twenty one"):
            process.stdin.write(text + "\n")
            process.stdin.flush()
            # this would block if the command waited for the end of the input
            assert process.stdout.readline().endswith("\n")
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_the_alignment_is_a_png_file(checkpoint, set_input, tmp_path) -> None:
    set_input("\ntwenty one\nseven\n")
    assert main(["translate", str(checkpoint), "--align", str(tmp_path / "a.png")]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam", "0"], "--beam must be at least 1 (greedy), got 0"),
        (["--nbest", "9"], "--nbest 9 is larger than the beam size 5; add --beam 9"),
        (["--nbest", "0"], "--nbest and --batch-tokens must be at least 1, got 0 and 4096"),
        (["--align", "picture.nonsense"], "name a file that ends in .png"),
    ],
)
def test_invalid_options_are_errors(checkpoint, set_input, capsys, options, message) -> None:
    set_input("seven\n")
    assert main(["translate", str(checkpoint), *options]) == 2
    assert message in capsys.readouterr().err


def test_an_alignment_needs_a_sentence(checkpoint, set_input, capsys, tmp_path) -> None:
    set_input("\n\n")
    assert main(["translate", str(checkpoint), "--align", str(tmp_path / "a.png")]) == 2
    assert "there is no sentence to draw" in capsys.readouterr().err


def test_a_classifier_is_refused(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    classifier = train_tiny(tmp_path)
    assert main(["translate", str(classifier)]) == 2
    assert f"{classifier} is a text classifier, not a translator" in capsys.readouterr().err
