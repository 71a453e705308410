"""Partial trainings of the paper's recipes: which runs there are, and a table that states what is missing."""

import json

import pytest

from fna_lightning.reproduction.artifacts import paper_recipes
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.scales import PAPER, SCALES, SMALL

from helpers.fake_runs import finish


def test_one_seed_of_every_attention_and_task() -> None:
    cells = paper_recipes.cells(SMALL)
    assert [cell.label.partition("_")[0] for cell in cells] == ["imdb"] * 4 + ["cifar10"] * 4 + ["multi30k"] * 4
    assert {cell.seed for cell in cells} == {0}


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_there_are_runs_at_every_scale(scale) -> None:
    assert len(set(paper_recipes.cells(scale))) == 12


def test_partial_trainings_are_stated_as_partial(tmp_path) -> None:
    context = Context(SMALL, tmp_path / "runs", tmp_path / "artifact")
    cell = paper_recipes.RECIPES[1].run(SMALL, "fna")
    assert ("trainer.max_epochs", "30") in cell.fixed
    finish([cell], context.runs, [0.7125])
    results = cell.folder(context.runs) / "results.json"
    stages = json.loads(results.read_text())
    stages["fit"] |= {"epochs": 30, "cpu_seconds": 2700.0}
    results.write_text(json.dumps(stages))
    (results.parent / "metrics.csv").write_text("epoch,val/accuracy\n0,0.5\n1,0.7225\n2,0.72\n")
    result = paper_recipes.run(context)
    lines = {line[0]: line[1:] for line in result.tables[1].lines}
    assert lines["FNA (alpha = 1.2)"] == ["30", "125", "71.25", "72.25", "76.17", "45.0"]
    assert lines["uniform"] == ["not run", "125", "", "", "-", ""]
    assert "partial" in result.notes[0]
    assert (context.folder / "paper_recipes.png").stat().st_size > 3000


def test_the_published_values_are_those_of_the_paper() -> None:
    imdb, cifar, translation = paper_recipes.RECIPES
    assert [recipe.published("fna") for recipe in (imdb, cifar, translation)] == [84.14, 76.17, 34.64]
    assert imdb.published("uniform") is None
    assert len(paper_recipes.cells(PAPER)) == 12
