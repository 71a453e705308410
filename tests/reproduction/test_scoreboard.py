"""Scoreboard: correct statistics of runs with known results, and complete cells."""

import json

import pytest

from fna_lightning.reproduction.artifacts import scoreboard
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.scales import SMALL, SMOKE

from helpers.fake_runs import finish

VALUES = {"fna": [0.90, 0.91, 0.92], "dp": [0.89, 0.90, 0.91], "uniform": [0.80, 0.85, 0.81]}


@pytest.fixture
def context(tmp_path) -> Context:
    return Context(SMALL, tmp_path / "runs", tmp_path / "artifact")


def test_every_attention_has_three_seeds_on_three_tasks() -> None:
    cells = scoreboard.cells(SMALL)
    assert {cell.seed for cell in cells} == {0, 1, 2}
    for family in scoreboard.BOARDS:
        assert {"fna", "la", "dp", "uniform"} <= set(scoreboard.attentions(family))
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert {cell.label.split("_")[0] for cell in scoreboard.cells(SMOKE)} == {"imdb"}


def test_statistics_of_known_results(context) -> None:
    for name, values in VALUES.items():
        finish(scoreboard.board_cells(SMALL, "imdb_strong", name), context.runs, values)
    result = scoreboard.run(context)
    written = json.loads((context.folder / "scoreboard.json").read_text())
    rows = {row["attention"]: row for row in written["comparisons"]}
    assert rows.keys() == {"dp", "uniform"}
    assert rows["dp"]["difference"] == pytest.approx(1.0)
    # The paired t-test of 10, 6 and 11 against 0: t = 9 / (2.6458 / sqrt(3)) = 5.892, two degrees of freedom.
    assert rows["uniform"]["difference"] == pytest.approx(9.0)
    assert rows["uniform"]["p_value"] == pytest.approx(0.02762, abs=1e-4)
    assert rows["uniform"]["corrected"] == pytest.approx(0.02762, abs=1e-4)
    lines = {line[0]: line for line in result.tables[0].lines}
    assert lines["FNA (alpha = 1.2)"][1:3] == ["3", "91.00"]
    assert lines["DP"][4] == "89.00, 90.00, 91.00"
    assert lines["LA (alpha = 2)"][1] == "0"
    page = (context.folder / "scoreboard.md").read_text()
    assert "| uniform | 3 | 82.00 |" in page
    assert "fna-lightning reproduce scoreboard --scale small" in page


def test_the_linear_classifier_is_a_row_of_its_own(context) -> None:
    cells = scoreboard.board_cells(SMALL, "imdb_strong", "fna")
    finish(cells, context.runs, [0.92, 0.93, 0.91])
    for cell in cells:
        path = cell.folder(context.runs) / "results.json"
        results = json.loads(path.read_text())
        results["test"]["metrics"] |= {"test/linear_accuracy": 0.90, "test/network_accuracy": 0.88}
        path.write_text(json.dumps(results))
    result = scoreboard.run(context)
    (line,) = [line for line in result.tables[0].lines if line[0] == "linear classifier alone"]
    assert line[1:3] == ["3", "90.00"]
    columns = result.tables[0].columns
    assert line[columns.index("FNA minus this")] == "+2.00"
    (ours,) = [line for line in result.tables[0].lines if line[0] == "FNA (alpha = 1.2)"]
    assert ours[columns.index("network alone")] == "88.00"
    assert {len(line) for line in result.tables[0].lines} == {len(columns)}


def test_without_runs_there_is_a_page_but_no_figure(context) -> None:
    result = scoreboard.run(context)
    assert not result.figures
    assert (context.folder / "scoreboard.md").is_file()
