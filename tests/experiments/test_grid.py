"""A grid: nothing stale is taken for finished, and the baseline is the one that was meant."""

from pathlib import Path
from typing import Any

import pytest

from fna_lightning.experiments.grid import Cell, parse_setting
from fna_lightning.experiments.report import compare


def cell(tmp_path: Path, **settings: Any) -> Cell:
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


def test_the_baseline_is_meant_by_whole_words_first() -> None:
    runs = {f"imdb alpha={alpha}": {0: 0.5, 1: 0.5 + alpha} for alpha in (1, 1.2, 1.4)}
    assert set(compare(runs, "alpha=1")) == {"imdb alpha=1.2", "imdb alpha=1.4"}
    with pytest.raises(ValueError, match=r"--baseline 'imdb' must name one of .*; it fits 3"):
        compare(runs, "imdb")


def test_a_fixed_value_may_hold_anything() -> None:
    assert parse_setting("data.path=/a,b=c") == ("data.path", "/a,b=c")
    with pytest.raises(ValueError, match=r"key=value, got 'data\.path'"):
        parse_setting("data.path")
