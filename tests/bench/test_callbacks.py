"""bench callbacks: what watching costs."""

import json
from pathlib import Path

from fna_lightning.cli import main


def test_it_measures_both_and_writes_json(tmp_path: Path, capsys) -> None:
    small = ["--set", "data.train_size=64", "--set", "data.eval_size=16", "--set", "data.longest=40"]
    assert main(["bench", "callbacks", *small, "--repeats", "1", "--json", str(tmp_path / "cost.json")]) == 0
    said = json.loads((tmp_path / "cost.json").read_text())
    assert said["look"] > 0
    assert said["draw"] > 0
    assert said["epochs"] == 4
    assert len(said["ratios"]) == len(said["processor_ratios"]) == 1
    assert "by its own clock" in capsys.readouterr().out


def test_no_repeats_are_refused(capsys) -> None:
    assert main(["bench", "callbacks", "--repeats", "0"]) == 2
    assert "--repeats, --epochs and --steps must be at least 1, got 0, 1 and None" in capsys.readouterr().err
