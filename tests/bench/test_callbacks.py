"""`bench callbacks`: cost of the AttentionGraph callback."""

import json
from pathlib import Path

import pytest

from fna_lightning.cli import main

pytestmark = pytest.mark.e2e


def test_fits_with_and_without_the_callback_are_measured(tmp_path: Path, capsys) -> None:
    small = ["--set", "data.train_size=64", "--set", "data.eval_size=16", "--set", "data.longest=40"]
    assert main(["bench", "callbacks", *small, "--repeats", "1", "--json", str(tmp_path / "cost.json")]) == 0
    report = json.loads((tmp_path / "cost.json").read_text())
    assert report["measure_seconds"] > 0
    assert report["draw_seconds"] > 0
    assert report["epochs"] == 4
    assert len(report["ratios"]) == len(report["cpu_ratios"]) == 1
    assert "measured by the callback itself" in capsys.readouterr().out


def test_zero_repeats_are_an_error(capsys) -> None:
    assert main(["bench", "callbacks", "--repeats", "0"]) == 2
    assert "--repeats, --epochs and --steps must be at least 1, got 0, 1 and None" in capsys.readouterr().err
