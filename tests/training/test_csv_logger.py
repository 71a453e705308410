"""MetricsCSVLogger: rows, new columns, and the rows that a resumed run keeps."""

import csv
from pathlib import Path

import pytest
import torch

from fna_lightning.training.csv_logger import FLUSH_EVERY, MetricsCSVLogger, rows_written


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def filled(folder: Path, rows: int) -> MetricsCSVLogger:
    """Return a logger that has written ``rows`` rows."""
    logger = MetricsCSVLogger(folder)
    for step in range(rows):
        logger.log_metrics({"loss": step / 4}, step)
    logger.save()
    return logger


def test_tensors_and_floats_become_rows(tmp_path: Path) -> None:
    logger = MetricsCSVLogger(tmp_path)
    logger.log_metrics({"loss": torch.tensor(0.5), "accuracy": 0.25}, 3)
    logger.log_metrics({"loss": 0.125, "accuracy": 1.0})
    logger.finalize("success")
    assert read(tmp_path) == [
        {"accuracy": "0.25", "loss": "0.5", "step": "3"},
        # without a step, the number of the row
        {"accuracy": "1.0", "loss": "0.125", "step": "1"},
    ]


def test_a_new_column_keeps_the_earlier_rows(tmp_path: Path) -> None:
    logger = filled(tmp_path, 1)
    logger.log_metrics({"val/loss": 2.0}, 1)
    logger.save()
    assert read(tmp_path) == [
        {"loss": "0.0", "step": "0", "val/loss": ""},
        {"loss": "", "step": "1", "val/loss": "2.0"},
    ]


def test_rows_are_written_in_blocks(tmp_path: Path) -> None:
    logger = MetricsCSVLogger(tmp_path)
    for step in range(FLUSH_EVERY - 1):
        logger.log_metrics({"loss": 1.0}, step)
    assert read(tmp_path) == []
    logger.log_metrics({"loss": 1.0}, FLUSH_EVERY)
    assert len(read(tmp_path)) == FLUSH_EVERY


@pytest.mark.parametrize("keep", [0, 2, 5, 9])
def test_a_resumed_run_drops_the_rows_after_its_checkpoint(tmp_path: Path, keep: int) -> None:
    filled(tmp_path, 5)
    logger = MetricsCSVLogger(tmp_path, keep=keep)
    logger.log_metrics({"loss": 9.0}, 99)
    logger.save()
    kept = min(keep, 5)
    assert [row["step"] for row in read(tmp_path)] == [*map(str, range(kept)), "99"]
    assert rows_written([logger]) == kept + 1


def test_a_column_of_dropped_rows_is_dropped(tmp_path: Path) -> None:
    logger = filled(tmp_path, 1)
    logger.log_metrics({"other": 1.0}, 1)
    logger.save()
    resumed = MetricsCSVLogger(tmp_path, keep=1)
    resumed.start()
    assert read(tmp_path) == [{"loss": "0.0", "step": "0"}]


def test_the_names_are_those_of_the_run_folder(tmp_path: Path) -> None:
    logger = MetricsCSVLogger(tmp_path / "runs/reviews_fna/version_3")
    assert (logger.name, logger.version) == ("reviews_fna", "version_3")
    assert logger.save_dir == str(tmp_path / "runs")


def test_without_a_csv_logger_no_rows_are_written() -> None:
    assert rows_written([]) == 0
