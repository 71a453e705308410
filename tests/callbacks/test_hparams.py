"""HParams logs the settings of the model_config and the best metric to TensorBoard."""

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from fna_lightning.attention import DotProduct, Fractional, Spherical
from fna_lightning.callbacks.hparams import attention_settings, plain_settings
from fna_lightning.nn import EncoderConfig
from fna_lightning.tasks import TextClassification

from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e


def test_nested_settings_are_flattened() -> None:
    attention = {"class_path": "fna_lightning.attention.Fractional", "init_args": {"alpha": 1.2, "dropout": 0.1}}
    arguments = {"attention": attention, "pooling": {"class_path": "a.Mean"}, "sizes": [1, 2], "cut": None}
    assert dict(plain_settings({"class_path": "a.B", "init_args": arguments})) == {
        "attention.dropout": 0.1,
        "pooling": "Mean",
        "sizes": "[1, 2]",
        "cut": "none",
    }


def test_kappa_is_the_number_that_a_rule_gives() -> None:
    def settings(attention: Any) -> dict[str, Any]:
        return attention_settings(TextClassification(10, 2, attention, EncoderConfig(dim=16, num_heads=2, ffn_dim=8)))

    assert settings(Fractional(1.5, kappa="vision")) == {"attention": "Fractional", "d": 8, "alpha": 1.5, "kappa": 8.0}
    assert settings(Fractional(1.5, kappa=[1.0, 2.0]))["kappa"] == 1.5
    assert settings(Spherical(2.0))["kappa"] == 1.0
    assert settings(DotProduct()) == {"attention": "DotProduct", "d": 8}


def test_a_run_logs_settings_and_best_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    columns, values = {}, {}
    for config in ("reviews_fna.yaml", "reviews_dp.yaml"):
        folder = train_tiny(tmp_path / config, config=config).parents[1]
        board = EventAccumulator(str(folder))
        board.Reload()
        content = board.PluginTagToContent("hparams")
        experiment = metadata.parse_experiment_plugin_data(content[metadata.EXPERIMENT_TAG])
        # TensorBoard sorts the columns by name and shows the first five
        columns[config] = sorted(info.name for info in experiment.hparam_infos)[:5]
        start = metadata.parse_session_start_info_plugin_data(content[metadata.SESSION_START_INFO_TAG])
        values[config] = start.hparams
        assert {info.name.tag for info in experiment.metric_infos} == {
            *("test/accuracy", "best/val/accuracy", "attention/spectral_gap", "attention/mean_hops")
        }
    # TensorBoard takes the columns of a sweep from one of its runs, so a run without alpha must declare it too
    shown = ["alpha", "attention", "d", "kappa", "seed"]
    assert columns["reviews_fna.yaml"] == columns["reviews_dp.yaml"] == shown
    fna = values["reviews_fna.yaml"]
    assert [fna[name].number_value for name in ("alpha", "d", "kappa", "seed")] == [1.2, 16.0, 1.0, 0.0]
    assert fna["settings.encoder.dim"].number_value == 64.0
    assert "alpha" not in values["reviews_dp.yaml"]
    assert values["reviews_dp.yaml"]["attention"].string_value == "DotProduct"
    last = board.Scalars("best/val/accuracy")[-1].value
    assert last == pytest.approx(max(point.value for point in board.Scalars("val/accuracy")))
