"""`demo`: reconstructs terrain with four attentions and draws them."""

import json

import numpy as np
import pytest

from fna_lightning.cli import main
from fna_lightning.reproduction.fields.demo import STARTS, example_terrain, map_error
from fna_lightning.tasks.fields.terrain import WINDOW


@pytest.mark.e2e
def test_demo_writes_picture_and_errors(tmp_path, capsys) -> None:
    code = main(["demo", "--steps", "2", "--out", str(tmp_path / "new"), "--json", str(tmp_path / "demo.json")])
    assert code == 0
    output = capsys.readouterr().out
    assert "picture:" in output
    assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")
    values = json.loads((tmp_path / "demo.json").read_text())
    assert list(values) == list(STARTS)
    assert list(values["fna"]["errors"]) == ["16", "64", "256", "1024"]


def test_demo_refuses_no_steps(capsys) -> None:
    assert main(["demo", "--steps", "0"]) == 2
    assert "--steps must be at least 1" in capsys.readouterr().err


def test_the_map_and_its_measurements_are_the_same_window() -> None:
    terrain = example_terrain()
    position = np.rint((terrain.points + 1.0) * (0.5 * (WINDOW - 1))).astype(int)
    nearest = terrain.truth[position[:, 0], position[:, 1]]
    assert np.corrcoef(nearest, terrain.values[:, 0])[0, 1] > 0.98
    assert map_error(terrain, terrain.truth) == 0.0
