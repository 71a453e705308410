"""Untrusted names in model cards, Markdown tables and CSV files stay text: no HTML, markup or formulas."""

import csv
import io
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fna_lightning.experiments.translation_runs import comparison_markdown
from fna_lightning.integrations.hub.card import model_card
from fna_lightning.utils.escaping import csv_cell, csv_text, markdown_code, markdown_text

EVIL = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "x\n---\nlicense: evil\n---\n# x",
    "a | b\n| c | d |",
    "[click](javascript:alert(1))",
    "![x](http://evil.example/pixel.png)",
    "``` \n<b>",
    "`code`",
    "&lt;b&gt;",
    "\u202egnp.exe",
    "{task} {0.__class__}",
    "http://evil.example",
)


@pytest.mark.parametrize("name", EVIL)
def test_a_model_card_escapes_names(name: str) -> None:
    attention = {"class_path": name, "init_args": {"alpha": name}}
    model_config = {"class_path": f"tasks.{name.replace('.', '')}", "init_args": {"attention": attention}}
    results = {
        "fit": {"metrics": {name: 0.5}, "epochs": name},
        "run": {"seed": name, "versions": {name: name}},
        "test": {"metrics": {"test/accuracy": 0.75, "forged": "<b>"}},
    }
    card = model_card(model_config, {"config": name, "results": results, "deviations": [name]}, 5)
    head, front, body = card.split("---\n", 2)
    assert head == ""
    assert yaml.safe_load(front)["license"] == "apache-2.0"
    assert "| test/accuracy | 0.7500 |" in body
    assert "forged" not in body
    introduction, _, rest = body.partition("## Results")
    assert not re.search(r"<(?!/?https)", rest)
    assert not re.search(r"(?<!\\)\[[^\]]*\]\(", rest)
    assert not re.search(r"(?<!\\)`", rest)
    assert "://" not in rest
    assert "---\n" not in rest.replace("|---|---|\n", "")
    assert "\u202e" not in card
    assert "<" not in introduction
    # every row of the table has two cells, whatever a name contains
    table = [line for line in rest.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 3 for line in table)


@pytest.mark.parametrize("wrong", [None, 3, "x", ["x"]])
def test_a_model_card_without_valid_results(wrong: Any) -> None:
    about = {"config": None, "results": wrong, "deviations": wrong if not isinstance(wrong, list) else None}
    assert "The run recorded none." in model_card({"class_path": "a.Task", "init_args": wrong}, about, 1)
    inner = {"results": {"fit": wrong, "run": wrong, "test": {"metrics": wrong}}}
    assert "The run recorded none." in model_card({"class_path": "a.Task"}, inner, 1)


def test_ordinary_names_are_not_escaped() -> None:
    assert markdown_text("imdb_fna alpha=1.2 (test/accuracy)") == "imdb_fna alpha=1.2 (test/accuracy)"


@given(st.text())
def test_markdown_is_one_line_without_html(text: str) -> None:
    for shown in (markdown_text(text), markdown_code(text)):
        assert len(shown.splitlines()) <= 1
        assert not re.search(r"(?<!\\)\|", shown)
    assert "<" not in markdown_text(text)
    assert markdown_code(text).count("`") == 2


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "  =1", "\uff1d1"])
def test_formulas_get_an_apostrophe(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_text([[text, "x"]]), newline=""))
    assert row == [f"'{text}", "x"]


@pytest.mark.parametrize("value", [-1, -0.5, 1e-9, "-1", "-1e-5", "+3", "-inf", "a=b", "", None, "cat, dog"])
def test_numbers_and_other_text_are_unchanged(value: Any) -> None:
    assert csv_cell(value) is value


def test_a_comparison_escapes_names() -> None:
    scores = {
        "metrics": {"bleu": 1.0},
        "signatures": {"<b>": "a`<b>`"},
        "decoding": {"beam": "<b>|"},
        "sentences": "<b>",
    }
    row = {
        "name": "<b>|x",
        "command": "fit `<b>`",
        "threads": "<b>",
        "versions": {"<b>": 1},
        "scores": {"test": scores},
    }
    row |= dict.fromkeys(("epochs", "minutes", "cpu_minutes", "seed"), "<b>|")
    text = comparison_markdown("Translation", [row])
    assert "<b>" not in re.sub(r"`[^`\n]*`", "", text)
    (line,) = [line for line in text.splitlines() if line.startswith("| &lt;b&gt;")]
    assert len(re.findall(r"(?<!\\)\|", line)) == 13
