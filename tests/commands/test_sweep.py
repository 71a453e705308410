"""sweep: every cell once, a table that is right, and nothing stale."""

import csv
import json
from pathlib import Path

import pytest
from tiny_runs import TINY

from fna_lightning.cli import main
from fna_lightning.commands.sweep_report import compare
from fna_lightning.grid import Cell, grid_cells, parse_axis, parse_setting, parse_shard


def sweep(folder: Path, *words: str, config: str = "reviews_dp.yaml") -> int:
    fixed = [word for one in TINY for word in ("--set", one)]
    return main(["sweep", "--config", config, "--out", str(folder), *fixed, *words])


def stamps(folder: Path) -> dict[str, int]:
    return {str(one.relative_to(folder)): one.stat().st_mtime_ns for one in folder.glob("*/seed_*/results.json")}


@pytest.mark.filterwarnings("ignore")
def test_a_grid_runs_once_and_is_compared(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.delenv("FNA_RUN_DIR", raising=False)
    grid = ("--grid", "model.optimizer.lr=0.001,0.01", "--seeds", "2", "--baseline", "lr=0.001")
    # one half of the grid here, the other there
    assert sweep(tmp_path, *grid, "--shard", "1/2", "--workers", "2") == 0
    half = stamps(tmp_path)
    assert len(half) == 2
    assert sweep(tmp_path, *grid, "--workers", "2", "--json", str(tmp_path / "table.json")) == 0
    whole = stamps(tmp_path)
    assert len(whole) == 4
    assert half.items() <= whole.items()
    report = json.loads((tmp_path / "table.json").read_text())
    assert report == json.loads((tmp_path / "results.json").read_text())
    assert set(report["summary"]) == {"reviews_dp lr=0.001", "reviews_dp lr=0.01"}
    assert set(report["paired"]) == {"reviews_dp lr=0.01"}
    values = {(run["label"], run["seed"]): run["value"] for run in report["runs"]}
    by_hand = [values["reviews_dp lr=0.01", seed] - values["reviews_dp lr=0.001", seed] for seed in (0, 1)]
    assert report["paired"]["reviews_dp lr=0.01"]["mean"] == pytest.approx(sum(by_hand) / 2)
    with (tmp_path / "results.csv").open() as file:
        assert len(list(csv.reader(file))) == 5
    assert (tmp_path / "results.png").stat().st_size > 1000
    capsys.readouterr()
    assert sweep(tmp_path, *grid) == 0
    assert "4 runs in" in capsys.readouterr().out
    assert stamps(tmp_path) == whole


def cell(tmp_path: Path, **settings) -> Cell:
    config = tmp_path / "one.yaml"
    config.write_text("trainer: {}\n")
    return Cell(str(config), (("model.attention.alpha", "1.2"),), 0, **settings)


def test_a_cell_whose_configuration_changed_is_not_finished(tmp_path) -> None:
    one = cell(tmp_path)
    (one.start(tmp_path) / "results.json").write_text('{"test": {}}')
    assert one.finished(tmp_path)
    Path(one.config).write_text("trainer: {max_epochs: 3}\n")
    assert one.outdated(tmp_path)
    assert not one.finished(tmp_path)
    one.start(tmp_path)
    assert not one.finished(tmp_path)
    assert not one.outdated(tmp_path)


def test_other_fixed_settings_have_other_folders_and_the_same_label(tmp_path) -> None:
    plain, short = cell(tmp_path), cell(tmp_path, fixed=(("trainer.max_epochs", "1"),))
    assert plain.label == short.label == "one alpha=1.2"
    assert plain.folder(tmp_path) != short.folder(tmp_path)
    assert short.arguments()[2:] == ["--seed_everything=0", "--trainer.max_epochs=1", "--model.attention.alpha=1.2"]


def test_shards_share_out_the_grid() -> None:
    cells = grid_cells(["a.yaml", "b.yaml"], [parse_axis("x=1,2,3")], [0, 1])
    assert len(cells) == 12 == len(set(cells))
    shards = [cells[part - 1 :: parts] for part, parts in map(parse_shard, ("1/5", "2/5", "3/5", "4/5", "5/5"))]
    assert sorted(map(repr, sum(shards, []))) == sorted(map(repr, cells))


def test_the_baseline_is_meant_by_whole_words_first() -> None:
    runs = {f"imdb alpha={alpha}": {0: 0.5, 1: 0.5 + alpha} for alpha in (1, 1.2, 1.4)}
    assert set(compare(runs, "alpha=1")) == {"imdb alpha=1.2", "imdb alpha=1.4"}
    with pytest.raises(ValueError, match="--baseline 'imdb' must name one of .*; it fits 3"):
        compare(runs, "imdb")


@pytest.mark.parametrize(("text", "message"), [("x", "key=value,value"), ("x=1,,2", "got 'x=1,,2'"), ("=1", "got '=1'")])
def test_a_grid_that_cannot_be_read_is_named(text, message) -> None:
    with pytest.raises(ValueError, match=message):
        parse_axis(text)


def test_a_fixed_value_may_hold_anything() -> None:
    assert parse_setting("data.path=/a,b=c") == ("data.path", "/a,b=c")
    with pytest.raises(ValueError, match="key=value, got 'data.path'"):
        parse_setting("data.path")
