"""Records of finished runs: a study continues from them in another folder, and only while its recipe is unchanged."""

import json
from pathlib import Path

import pytest

from fna_lightning.errors import UsageError
from fna_lightning.experiments.epochs import mean_by_epoch
from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.records import record_path, restore_record, save_record, sync_records
from fna_lightning.training.run_folder import read_results

METRICS = "epoch,val/accuracy,heads/a/0/gap\n0,0.5,1\n0,0.75,1\n1,0.875,1\n"


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "small_fna.yaml"
    path.write_text("seed_everything: 0\n")
    return path


def finish(cell: Cell, root: Path, accuracy: float) -> None:
    folder = cell.start(root)
    fit = {"metrics": {"val/accuracy": 0.875, "heads/a/0/gap": 1.0, "train/loss_step": 2.0}, "seconds": 60.0}
    results = {"run": {"seed": cell.seed}, "fit": fit, "test": {"metrics": {"test/accuracy": accuracy}}}
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "metrics.csv").write_text(METRICS)


def test_a_record_replaces_its_run_in_another_folder(config, tmp_path) -> None:
    cell = Cell(str(config), (("lr", "0.1"),), 1)
    finish(cell, tmp_path / "first", 0.75)
    path = save_record(cell, tmp_path / "first", tmp_path / "records")
    assert path == record_path(cell, tmp_path / "records")
    assert not cell.finished(tmp_path / "second")
    assert restore_record(cell, tmp_path / "second", tmp_path / "records")
    assert cell.finished(tmp_path / "second")
    restored = read_results(cell.folder(tmp_path / "second"))
    assert restored["test"]["metrics"] == {"test/accuracy": 0.75}
    assert restored["fit"]["metrics"] == {"val/accuracy": 0.875}
    assert restored["fit"]["seconds"] == 60.0
    assert mean_by_epoch([cell], tmp_path / "second", "val/accuracy") == {0: 0.75, 1: 0.875}
    assert str(tmp_path) not in path.read_text()


def test_a_record_of_another_recipe_is_not_used(config, tmp_path) -> None:
    cell = Cell(str(config), (), 0)
    finish(cell, tmp_path / "first", 0.75)
    save_record(cell, tmp_path / "first", tmp_path / "records")
    config.write_text("seed_everything: 0\ntrainer:\n  max_epochs: 9\n")
    assert not restore_record(cell, tmp_path / "second", tmp_path / "records")
    assert not cell.finished(tmp_path / "second")


def test_sync_restores_missing_runs_and_saves_finished_ones(config, tmp_path) -> None:
    cells = [Cell(str(config), (), seed) for seed in range(3)]
    finish(cells[0], tmp_path / "first", 0.5)
    save_record(cells[0], tmp_path / "first", tmp_path / "records")
    finish(cells[1], tmp_path / "second", 0.625)
    assert sync_records(cells, tmp_path / "second", tmp_path / "records") == 1
    assert [cell.finished(tmp_path / "second") for cell in cells] == [True, True, False]
    assert record_path(cells[1], tmp_path / "records").is_file()
    assert sync_records(cells, tmp_path / "second", tmp_path / "records") == 0


@pytest.mark.parametrize("content", ["[]", "{}", '{"results": {"run": {}, "fit": {}, "test": 1}}'])
def test_a_file_that_is_not_a_record_is_an_error(config, tmp_path, content) -> None:
    cell = Cell(str(config), (), 0)
    path = record_path(cell, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(UsageError, match=r"seed_0\.json does not have the structure of a record of a run; restore it"):
        restore_record(cell, tmp_path / "runs", tmp_path)
