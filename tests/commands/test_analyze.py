"""analyze: numbers, figures and a page that works in a browser, from a file, without a network."""

import asyncio
import json
import re
from pathlib import Path

import pytest
import torch

from fna_lightning.analysis.models import Subject
from fna_lightning.analysis.page import embed
from fna_lightning.checkpoints.load import load_task
from fna_lightning.cli import main
from fna_lightning.graph import measure, shortest_path
from fna_lightning.introspection.ablation import ablated

from helpers.browser import CHROMIUM, browser
from helpers.tiny_runs import train_tiny

TEXT = "the plot was gripping and the music was not what i call tinny"
HOSTILE = "the plot </script><script>alert(1)</script> <img src=x onerror=alert(2)> {{data}} was gripping"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> tuple[Path, Path]:
    paths = []
    for config in ("reviews_fna.yaml", "reviews_dp.yaml"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FNA_RUN_DIR", "")
            paths.append(train_tiny(tmp_path_factory.mktemp("runs"), config=config))
    return paths[0], paths[1]


def analyse(folder: Path, *words: object) -> dict:
    assert main(["analyze", *map(str, words), "--out", str(folder)]) == 0
    return json.loads((folder / "results.json").read_text())


def test_numbers_are_those_of_the_graph_functions(checkpoints, tmp_path) -> None:
    found = analyse(tmp_path, checkpoints[0], "--text", TEXT, "--json", tmp_path / "copy.json")
    assert json.loads((tmp_path / "copy.json").read_text()) == found
    subject = Subject.open(checkpoints[0])
    ids = subject.codec.encode(TEXT)
    (one,) = subject.maps(ids).values()
    expected = measure(one.weights, one.lengths)
    (example,) = found["examples"]
    assert example["words"] == TEXT.split()
    for head in example["models"][0]["heads"]:
        for name, values in expected.items():
            assert head["measures"][name] == pytest.approx(values[0, head["head"]].item())
        assert head["spectrum"][0] == pytest.approx(1)
        assert 1 - head["spectrum"][1] == pytest.approx(head["measures"]["spectral_gap"], abs=1e-6)
    assert found["split"] is None
    for name in ("spectrum", "hops", "diffusion_map", "ablation", "path_length"):
        assert (tmp_path / f"{name}.png").stat().st_size > 3000


def test_a_split_and_a_comparison(checkpoints, tmp_path, capsys) -> None:
    one, other = checkpoints
    found = analyse(tmp_path, one, "--against", other, "--split", "test", "--count", "6", "--max-length", "24")
    assert [model["label"] for model in found["models"]] == ["reviews_fna", "reviews_dp"]
    assert found["split"]["count"] == 6
    assert len(found["split"]["models"]) == len(found["ablation"]) == len(found["growth"]) == 2
    for curve in found["ablation"]:
        assert curve["p"][0] == 0
        assert curve["p"][-1] == 1
        assert curve["edges"]["accuracy"][0] == curve["nodes"]["accuracy"][0]
        # with everything removed it does not matter what was
        assert curve["edges"]["probability"][-1] == pytest.approx(curve["nodes"]["probability"][-1])
    assert "mean over 6 texts of test" in capsys.readouterr().out


def test_no_damage_changes_nothing_and_all_of_it_silences_attention(checkpoints) -> None:
    task = load_task(checkpoints[0])
    tokens, lengths = torch.arange(2, 12)[None], torch.tensor([10])
    with torch.no_grad():
        intact = task(tokens, lengths)
        with ablated(task, 0.0, "edges", torch.Generator()):
            torch.testing.assert_close(task(tokens, lengths), intact, rtol=1e-4, atol=1e-5)
        with ablated(task, 1.0, "nodes", torch.Generator()):
            silent = task(tokens, lengths)
        assert torch.equal(task(tokens, lengths), intact)
    assert not torch.allclose(silent, intact)


def test_one_token_has_clear_answers(checkpoints, tmp_path) -> None:
    found = analyse(tmp_path, checkpoints[0], "--text", "plot")
    for head in found["examples"][0]["models"][0]["heads"]:
        assert head["measures"]["spectral_gap"] == 1
        assert head["measures"]["mean_hops"] is None
    assert "NaN" not in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("change", "words", "said"),
    [
        (lambda content: content.pop("codec"), ["--text", "a"], "has no codec (tokenizer or image size"),
        (lambda content: content.pop("model_config"), ["--text", "a"], "carries no model_config"),
        (
            lambda content: content["state_dict"]["embedding.tokens.weight"].fill_(torch.nan),
            ["--text", "the plot"],
            "are not finite (NaN or infinite); the model has diverged",
        ),
        (lambda content: None, [], "lies in no run folder"),
        (lambda content: None, ["--text", "  "], "has no token"),
        (lambda content: None, ["--text", "a", "--count", "0"], "--count must be at least 1, got 0"),
    ],
    ids=["another task", "no model_config", "nan", "no data", "no token", "no count"],
)
def test_what_cannot_be_studied_is_said(checkpoints, tmp_path, capsys, change, words, said) -> None:
    content = torch.load(checkpoints[0], weights_only=True)
    change(content)
    torch.save(content, tmp_path / "other.ckpt")
    assert main(["analyze", str(tmp_path / "other.ckpt"), *words]) == 2
    assert said in capsys.readouterr().err


def test_other_tokens_do_not_compare(checkpoints, tmp_path, capsys) -> None:
    content = torch.load(checkpoints[1], weights_only=True)
    content["codec"]["tokenizer"] = content["codec"]["tokenizer"].replace("gripping", "grippy")
    torch.save(content, tmp_path / "other.ckpt")
    assert main(["analyze", str(checkpoints[0]), "--against", str(tmp_path / "other.ckpt"), "--text", "a"]) == 2
    assert "reads other tokens than" in capsys.readouterr().err


def test_texts_cannot_break_out_of_the_page(checkpoints, tmp_path) -> None:
    data = embed({"words": [HOSTILE, "\u2028", "<!--"], "value": float("nan")})
    assert "<" not in data
    assert "\u2028" not in data
    assert json.loads(data) == {"words": [HOSTILE, "\u2028", "<!--"], "value": None}
    analyse(tmp_path, checkpoints[0], "--text", HOSTILE)
    page = (tmp_path / "index.html").read_text()
    assert page.count("</script>") == 2
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_clicking_two_tokens_shows_the_path(checkpoints, tmp_path) -> None:
    pytest.importorskip("aiohttp", reason="the browser is driven over a web socket: pip install aiohttp")
    analyse(tmp_path, checkpoints[0], "--against", checkpoints[1], "--text", f"{TEXT} {HOSTILE}")

    async def visit() -> tuple[list[list[str]], list[str], list[str]]:
        async with browser(tmp_path / "profile") as tab:
            await tab.open((tmp_path / "index.html").as_uri())
            await tab.click("#tokens [data-token='1']")
            await tab.click("#tokens [data-token='9']")
            routes = await tab.run(
                "[...document.querySelectorAll('.route')].map(r => [...r.querySelectorAll('.token')]"
                ".map(t => t.textContent))"
            )
            shown = await tab.run("[...document.querySelectorAll('#tokens .token')].map(t => t.textContent)")
            return routes, shown, tab.problems

    routes, shown, problems = asyncio.run(visit())
    assert problems == []
    words = [*TEXT.split(), *HOSTILE.split()]
    # what a person typed is shown, never obeyed
    assert shown == words
    for path, route in zip(checkpoints, routes, strict=True):
        subject = Subject.open(path)
        (one,) = subject.maps(subject.codec.encode(" ".join(words))).values()
        assert route == [words[place] for place in shortest_path(one.weights[0, 0].double(), 1, 9)]
