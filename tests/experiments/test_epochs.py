"""Metrics by epoch from metrics.csv."""

from pathlib import Path

import pytest

from fna_lightning.experiments.epochs import mean_by_epoch, mean_epochs, read_epochs
from fna_lightning.experiments.grid import Cell

CSV = """epoch,step,val/accuracy,val/loss
0,1,,0.9
0,2,0.5,
0,3,0.625,0.75
,4,0.9,
1,5,0.75,
"""


def test_the_last_value_of_an_epoch_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(CSV)
    both = read_epochs(path, ["val/accuracy", "val/loss"])
    assert both == {0: {"val/accuracy": 0.625, "val/loss": 0.75}, 1: {"val/accuracy": 0.75}}
    assert read_epochs(path, ["val/loss"]) == {0: {"val/loss": 0.75}}
    assert read_epochs(tmp_path / "missing.csv", ["val/loss"]) == {}


def test_means_are_taken_over_the_runs_that_reached_an_epoch() -> None:
    runs = [{0: {"loss": 1.0}, 1: {"loss": 3.0}}, {0: {"loss": 2.0, "gap": 0.5}}]
    assert mean_epochs(runs) == {0: {"loss": 1.5, "gap": 0.5}, 1: {"loss": 3.0}}


def test_mean_over_the_cells_of_a_sweep(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("trainer: {}\n")
    cells = [Cell(str(tmp_path / "recipe.yaml"), (), seed) for seed in range(3)]
    for cell, value in zip(cells, (0.5, 0.75), strict=False):
        (cell.start(tmp_path) / "metrics.csv").write_text(f"epoch,val/accuracy\n0,{value}\n")
    assert mean_by_epoch(cells, tmp_path, "val/accuracy") == {0: pytest.approx(0.625)}
    assert mean_by_epoch(cells, tmp_path, "val/loss") == {}
