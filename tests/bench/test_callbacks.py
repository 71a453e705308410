"""`bench callbacks`: cost of the AttentionGraph callback."""

import json
from pathlib import Path

import pytest

from fna_lightning.bench.callbacks import callback_settings, full_measurements
from fna_lightning.cli import main

pytestmark = pytest.mark.e2e


def test_fits_with_and_without_the_callback_are_measured(tmp_path: Path, capsys) -> None:
    small = ["--set", "data.train_size=64", "--set", "data.eval_size=16", "--set", "data.longest=40"]
    assert main(["bench", "callbacks", *small, "--repeats", "1", "--json", str(tmp_path / "cost.json")]) == 0
    report = json.loads((tmp_path / "cost.json").read_text())
    assert report["measure_seconds"] > 0
    assert report["draw_seconds"] > 0
    assert report["epochs"] == 4
    # two batches per epoch: at four validations and after the first step
    assert report["measurements"] == 5
    assert len(report["ratios"]) == len(report["cpu_ratios"]) == 1
    assert "measured by the callback itself" in capsys.readouterr().out


def test_the_settings_of_the_configuration_are_used() -> None:
    callbacks = [
        {"class_path": "LearningRateMonitor"},
        {"class_path": "a.AttentionGraph", "init_args": {"sequences": 2}},
    ]
    assert callback_settings({"callbacks": callbacks}) == {"sequences": 2}
    assert callback_settings({}) == {}
    fit = {"epochs": 3, "steps_per_epoch": 50.0, "every_n_steps": 0}
    # three validations, and after 1 and 10 steps; step 100 is not in the first epoch
    assert full_measurements(fit) == 5
    assert full_measurements(fit | {"every_n_steps": 40}) == 3


def test_zero_repeats_are_an_error(capsys) -> None:
    assert main(["bench", "callbacks", "--repeats", "0"]) == 2
    assert "--repeats, --epochs and --steps must be at least 1, got 0, 1 and None" in capsys.readouterr().err
