"""PredictionWriter: one row per example, in the order of the data set."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from fna_lightning.callbacks import PredictionWriter


def write(folder: Path, batches: list[dict[str, Any]], indices: list[list[int]], **options: Any) -> None:
    trainer: Any = SimpleNamespace(**{"world_size": 1, "global_rank": 0, "datamodule": None, **options})
    PredictionWriter(str(folder)).write_on_epoch_end(trainer, None, batches, [indices])  # type: ignore[arg-type]


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_rows_are_sorted_by_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = [
        {"class": torch.tensor([1, 0]), "probability": torch.tensor([0.75, 0.5])},
        {"class": torch.tensor([1]), "probability": torch.tensor([1.0])},
    ]
    write(tmp_path, batches, [[2, 0], [1]])
    header, *rows = read(tmp_path / "predictions.csv")
    assert header == ["index", "class", "probability"]
    assert rows == [["0", "0", "0.5"], ["1", "1", "1.0"], ["2", "1", "0.75"]]
    assert capsys.readouterr().out == f"3 predictions in {tmp_path / 'predictions.csv'}\n"


def test_example_names_replace_the_index(tmp_path: Path) -> None:
    data = SimpleNamespace(example_names=lambda: ["a.png", "b.png"])
    write(tmp_path, [{"label": ["dog", "cat"]}], [[1, 0]], datamodule=data)
    assert read(tmp_path / "predictions.csv") == [["file", "label"], ["a.png", "cat"], ["b.png", "dog"]]


def test_a_label_is_not_a_formula(tmp_path: Path) -> None:
    write(tmp_path, [{"label": ["=1+1"]}], [[0]])
    assert read(tmp_path / "predictions.csv")[1] == ["0", "'=1+1"]


def test_each_process_writes_its_own_file(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path, [{"class": torch.tensor([rank])}], [[rank]], world_size=2, global_rank=rank)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["predictions.0.csv", "predictions.1.csv"]
    assert read(tmp_path / "predictions.1.csv") == [["index", "class"], ["1", "1"]]


def test_without_predictions_the_file_has_a_header_only(tmp_path: Path) -> None:
    write(tmp_path, [], [])
    assert read(tmp_path / "predictions.csv") == [["index"]]
