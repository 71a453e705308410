"""`sweep`: every cell is a run, no work is repeated, and one table compares the runs."""

import csv
import json
import os
from pathlib import Path

import pytest

from fna_lightning.cli import main
from fna_lightning.experiments.grid import Cell, grid_cells, parse_axis, parse_shard

pytestmark = pytest.mark.e2e

TINY = [
    *("--set", "data.train_size=32", "--set", "data.eval_size=20", "--set", "data.longest=40"),
    *("--set", "trainer.max_epochs=1"),
]


def test_a_sweep_trains_tests_compares_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["sweep", "-c", "reviews_fna.yaml", "--grid", "model.attention.alpha=1.2,2", "--seeds", "2", *TINY]
    argv += ["--out", "grid", "--baseline", "alpha=2", "--workers", "2", "--json", "table.json"]
    (tmp_path / "paper.yaml").write_text("reviews_fna: 0.5\nreviews_fna alpha=2: 0.625\n")
    argv += ["--paper", "paper.yaml", "--publish", "docs/reviews"]
    assert main(argv) == 0
    output = capsys.readouterr().out
    assert "4 runs in grid, 4 to do here" in output
    report = json.loads((tmp_path / "table.json").read_text())
    assert {run["seed"] for run in report["runs"]} == {0, 1}
    assert len(report["summary"]) == 2
    assert all(summary["count"] == 2 for summary in report["summary"].values())
    assert len(report["paired"]) == 1
    assert len(list(csv.DictReader((tmp_path / "grid/results.csv").open()))) == 4
    assert (tmp_path / "grid/results.png").stat().st_size > 5000
    page = (tmp_path / "docs/reviews.md").read_text()
    assert "(reviews_training.png)" in page
    assert (tmp_path / "docs/reviews.png").read_bytes() == (tmp_path / "grid/results.png").read_bytes()
    assert json.loads((tmp_path / "docs/reviews.json").read_text()) == report
    assert "fna-lightning sweep --config reviews_fna.yaml --grid model.attention.alpha=1.2,2" in page
    assert sum("0.5000" in line or "0.6250" in line for line in page.splitlines() if "seeds" not in line) >= 2
    assert report["published"] == {label: 0.625 if "alpha=2" in label.split() else 0.5 for label in report["summary"]}
    assert "validation by epoch" in output
    assert "mean hops" in output
    assert (tmp_path / "grid/training.png").stat().st_size > 5000
    stamps = {path: os.stat(path).st_mtime_ns for path in (tmp_path / "grid").glob("*/*/results.json")}
    assert len(stamps) == 4

    assert main(argv) == 0
    assert "4 runs in grid, 0 to do here" in capsys.readouterr().out
    assert {path: os.stat(path).st_mtime_ns for path in stamps} == stamps

    # Ask for one seed more than there is.
    argv[argv.index("--seeds") + 1] = "3"
    assert main([*argv, "--no-train"]) == 0
    assert "6 runs in grid, 2 to do here" in capsys.readouterr().out
    assert json.loads((tmp_path / "table.json").read_text())["runs"] == report["runs"]
    assert "Not run: 2 of the 6 runs of this grid." in (tmp_path / "grid/results.md").read_text()
    assert main([*argv, "--no-train", "--out", "elsewhere"]) == 2
    assert "no finished run of this grid in elsewhere" in capsys.readouterr().err


def test_a_failing_cell_is_reported_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "-c", "reviews_dp", "--grid", "model.encoder.num_heads=5,4", *TINY, "--out", "grid"]) == 1
    output = capsys.readouterr().out
    assert "num_heads=5" in output
    assert "dim (64) must be a multiple of num_heads (5)" in output
    assert "num_heads=4" in output
    assert (tmp_path / "grid/results.json").is_file()


def test_the_grid_contains_every_combination() -> None:
    cells = grid_cells(["a/one.yaml", "two.yaml"], [("x.y", ["1", "2"]), ("z", ["3"])], [0, 1])
    assert len(cells) == len(set(cells)) == 8
    assert cells[0].label == "one y=1 z=3"
    assert cells[0].arguments() == ["--config", "a/one.yaml", "--seed_everything=0", "--x.y=1", "--z=3"]
    assert len({cell.folder(Path("r")) for cell in cells}) == 8


def test_shards_cover_the_grid() -> None:
    cells = [Cell("c.yaml", (), seed) for seed in range(7)]
    parts = [cells[i - 1 :: 3] for i, _ in map(parse_shard, ["1/3", "2/3", "3/3"])]
    assert sorted(cell.seed for part in parts for cell in part) == list(range(7))


@pytest.mark.parametrize("text", ["alpha", "=1", "a=", "a=1,,2"])
def test_a_malformed_grid_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="key=value,value"):
        parse_axis(text)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b"])
def test_a_malformed_shard_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="i/n with 1 <= i <= n"):
        parse_shard(text)


def test_a_malformed_file_of_published_values_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("- 1\n- 2\n")
    for name, reason in (("bad.yaml", "must map words of a label to numbers"), ("none.yaml", "cannot be read")):
        assert main(["sweep", "-c", "reviews_fna.yaml", "--paper", str(tmp_path / name)]) == 2
        assert reason in capsys.readouterr().err
