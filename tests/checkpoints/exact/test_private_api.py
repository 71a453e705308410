"""Private attributes of Lightning and torchmetrics: a missing one is reported with the tested version."""

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torchmetrics

from fna_lightning.callbacks import LastCheckpoint
from fna_lightning.checkpoints.exact.private_api import TESTED, check_private_attributes
from fna_lightning.checkpoints.exact.strategies import set_data_parallel_size
from fna_lightning.errors import UsageError
from fna_lightning.training.fsdp import FullySharded

from helpers.linear_task import fit, new_trainer


def test_the_installed_versions_have_all_attributes(tmp_path: Path) -> None:
    check_private_attributes(new_trainer(tmp_path))


@pytest.mark.parametrize(
    "path",
    [
        "trainer._logger_connector",
        "trainer._logger_connector._callback_metrics",
        "trainer._logger_connector._first_loop_iter",
        "trainer.fit_loop._restarting",
        "trainer.fit_loop.epoch_loop._restarting",
        "trainer.fit_loop.epoch_loop._batches_that_stepped",
        "trainer.fit_loop.epoch_loop._results",
    ],
)
def test_a_missing_attribute_of_lightning_is_named(path: str, tmp_path: Path) -> None:
    trainer = new_trainer(tmp_path)
    owner: Any = trainer
    _, *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    delattr(owner, name)
    message = (
        f"this program uses the private attribute {path}, which lightning {version('lightning')} does not have; "
        f"install lightning=={TESTED['lightning']}, the tested version"
    )
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        check_private_attributes(trainer)


@pytest.mark.parametrize("name", ["_computed", "_defaults", "_reductions", "_update_count"])
def test_a_missing_attribute_of_torchmetrics_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = torchmetrics.SumMetric()
    vars(metric).pop(name)
    monkeypatch.setattr("fna_lightning.checkpoints.exact.private_api.SumMetric", lambda: metric)
    with pytest.raises(UsageError, match=f"private attribute Metric.{name}, which torchmetrics .* does not have"):
        check_private_attributes(new_trainer(tmp_path))


def test_they_are_checked_when_a_fit_starts(tmp_path: Path) -> None:
    trainer = new_trainer(tmp_path, LastCheckpoint())
    del trainer.fit_loop.epoch_loop._batches_that_stepped
    with pytest.raises(UsageError, match=r"private attribute trainer\.fit_loop\.epoch_loop\._batches_that_stepped"):
        fit(trainer)


def test_a_missing_attribute_of_a_strategy_is_named() -> None:
    strategy = FullySharded()
    set_data_parallel_size(strategy, 3)
    assert strategy._data_parallel_size == 3
    del strategy._data_parallel_size
    with pytest.raises(UsageError, match=r"private attribute FullySharded\._data_parallel_size"):
        set_data_parallel_size(strategy, 3)


def test_the_tested_version_is_within_the_required_range() -> None:
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert f'"lightning>={TESTED["lightning"]},<2.7"' in project
    assert L.__version__.startswith("2.6.")
