"""Grid cells: outdated runs are not finished, and the baseline is matched by whole words first."""

from pathlib import Path
from typing import Any

import pytest

from fna_lightning.experiments.grid import Cell, parse_setting
from fna_lightning.experiments.report import compare


def make_cell(tmp_path: Path, **settings: Any) -> Cell:
    config = tmp_path / "recipe.yaml"
    config.write_text("trainer: {}\n")
    return Cell(str(config), (("model.attention.alpha", "1.2"),), 0, **settings)


def test_a_cell_with_a_changed_configuration_is_not_finished(tmp_path) -> None:
    cell = make_cell(tmp_path)
    (cell.start(tmp_path) / "results.json").write_text('{"test": {}}')
    assert cell.finished(tmp_path)
    Path(cell.config).write_text("trainer: {max_epochs: 3}\n")
    assert cell.outdated(tmp_path)
    assert not cell.finished(tmp_path)
    cell.start(tmp_path)
    assert not cell.finished(tmp_path)
    assert not cell.outdated(tmp_path)


def test_fixed_settings_change_the_folder_but_not_the_label(tmp_path) -> None:
    plain, short = make_cell(tmp_path), make_cell(tmp_path, fixed=(("trainer.max_epochs", "1"),))
    assert plain.label == short.label == "recipe alpha=1.2"
    assert plain.folder(tmp_path) != short.folder(tmp_path)
    assert short.arguments()[2:] == ["--seed_everything=0", "--trainer.max_epochs=1", "--model.attention.alpha=1.2"]


def test_the_baseline_is_matched_by_whole_words_first() -> None:
    runs = {f"imdb alpha={alpha}": {0: 0.5, 1: 0.5 + alpha} for alpha in (1, 1.2, 1.4)}
    assert set(compare(runs, "alpha=1")) == {"imdb alpha=1.2", "imdb alpha=1.4"}
    with pytest.raises(ValueError, match=r"--baseline 'imdb' must match exactly one of .*; it matches 3"):
        compare(runs, "imdb")


def test_a_setting_may_contain_commas_and_equal_signs() -> None:
    assert parse_setting("data.path=/a,b=c") == ("data.path", "/a,b=c")
    with pytest.raises(ValueError, match=r"key=value, got 'data\.path'"):
        parse_setting("data.path")
