"""HParams logs the settings of the model_config and the best metric to TensorBoard."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fna_lightning.callbacks.hparams import plain_settings

from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e


def test_nested_settings_are_flattened() -> None:
    attention = {"class_path": "fna_lightning.attention.Fractional", "init_args": {"alpha": 1.2, "kappa": "auto"}}
    model_config = {"class_path": "a.B", "init_args": {"attention": attention, "sizes": [1, 2], "cut": None}}
    assert dict(plain_settings(model_config)) == {
        "attention": "Fractional",
        "attention.alpha": 1.2,
        "attention.kappa": "auto",
        "sizes": "[1, 2]",
        "cut": "none",
    }


def test_a_run_logs_settings_and_best_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    folder = train_tiny(tmp_path, config="reviews_fna.yaml").parents[1]
    board = EventAccumulator(str(folder))
    board.Reload()
    content = board.PluginTagToContent("hparams")
    assert b"attention.alpha" in content["_hparams_/session_start_info"]
    assert b"hp/val/accuracy" in content["_hparams_/experiment"]
    last = board.Scalars("hp/val/accuracy")[-1].value
    assert last == pytest.approx(max(point.value for point in board.Scalars("val/accuracy")))
