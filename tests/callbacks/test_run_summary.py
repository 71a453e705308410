"""RunSummary: results.json, the closing table, and what a resumed run adds to its results."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn

from fna_lightning.attention import DotProduct
from fna_lightning.callbacks import RunSummary
from fna_lightning.callbacks.run_summary import describe_step
from fna_lightning.utils.versions import package_versions


class Model(L.LightningModule):
    """Three parameters and one attention."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.attention = DotProduct()


def trainer(**options: Any) -> Any:
    """Return the attributes of a trainer that RunSummary reads, at the end of 2 epochs of 5 steps."""
    optimizer = torch.optim.SGD([{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.ones(1)], "lr": 0.25}])
    state = {
        "is_global_zero": True,
        "callback_metrics": {"val/loss": torch.tensor(0.5), "train/loss_step": torch.tensor(0.25)},
        "current_epoch": 2,
        "global_step": 10,
        "checkpoint_callback": None,
        "world_size": 2,
        "accumulate_grad_batches": 3,
        "precision": "32-true",
        "optimizers": [optimizer],
        "datamodule": SimpleNamespace(batch_size=8),
        "loggers": [],
    }
    return SimpleNamespace(**(state | options))


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def fit(summary: RunSummary, **options: Any) -> None:
    """Call the hooks of a training run."""
    model, state = Model(), trainer(**options)
    summary.on_fit_start(state, model)
    summary.on_train_start(state, model)
    summary.on_train_end(state, model)
    summary.on_fit_end(state, model)


def test_results_of_a_training_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = TensorBoardLogger(tmp_path.parent, name="", version=tmp_path.name)
    fit(RunSummary(str(tmp_path), seed=7), loggers=[logger])
    written = results(tmp_path)
    assert written["fit"]["metrics"] == {"val/loss": 0.5, "train/loss_step": 0.25}
    assert written["fit"]["epochs"] == 2
    assert written["fit"]["steps"] == 10
    assert written["fit"]["step_size"] == {
        "batch_size": 8,
        "processes": 2,
        "accumulated": 3,
        "effective_batch": 48,
        "learning_rate": [0.5, 0.25],
    }
    assert 0 <= written["fit"]["seconds"] < 60
    assert written["run"]["task"] == "Model"
    assert written["run"]["attention"] == [repr(DotProduct())]
    assert written["run"]["parameters"] == 3
    assert written["run"]["seed"] == 7
    assert written["run"]["versions"] == package_versions()
    printed = capsys.readouterr().out
    assert "val/loss" in printed
    assert "train/loss_step" not in printed
    assert f"tensorboard --logdir {tmp_path}" in printed


def test_a_test_keeps_the_results_of_training(tmp_path: Path) -> None:
    summary = RunSummary(str(tmp_path))
    fit(summary)
    before = results(tmp_path)["fit"]
    state = trainer(callback_metrics={"test/accuracy": torch.tensor(0.75)})
    summary.on_test_start(state, Model())
    summary.on_test_end(state, Model())
    written = results(tmp_path)
    assert written["fit"] == before
    assert written["test"]["metrics"] == {"test/accuracy": 0.75}
    assert "epochs" not in written["test"]


def test_a_resumed_run_adds_its_time_and_keeps_the_first_learning_rate(tmp_path: Path) -> None:
    first = RunSummary(str(tmp_path))
    first.on_train_start(trainer(), Model())
    state = first.state_dict()
    state |= {"seconds": 100.0, "cpu_seconds": 200.0, "kernels": {"Attention of before": "chunked"}}
    resumed = RunSummary(str(tmp_path))
    resumed.load_state_dict(state)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.001)
    fit(resumed, optimizers=[optimizer])
    written = results(tmp_path)["fit"]
    assert 100 <= written["seconds"] < 160
    assert 200 <= written["cpu_seconds"] < 260
    assert written["step_size"]["learning_rate"] == [0.5, 0.25]
    assert resumed.state_dict()["kernels"]["Attention of before"] == "chunked"


def test_a_finished_run_that_is_resumed_reports_its_final_metrics(tmp_path: Path) -> None:
    finished = RunSummary(str(tmp_path))
    fit(finished)
    again = RunSummary(str(tmp_path))
    again.load_state_dict(finished.state_dict())
    # Lightning calls neither on_train_start nor on_train_end then, and has no metrics
    state = trainer(callback_metrics={}, current_epoch=0)
    again.on_fit_start(state, Model())
    again.on_fit_end(state, Model())
    written = results(tmp_path)["fit"]
    assert written["metrics"] == {"val/loss": 0.5, "train/loss_step": 0.25}
    assert written["epochs"] == 2
    assert written["step_size"]["effective_batch"] == 48


def test_other_ranks_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(RunSummary(str(tmp_path)), is_global_zero=False)
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().out == ""


def test_an_unknown_batch_size_is_named_so() -> None:
    steps = {"batch_size": None, "processes": 1, "accumulated": 1, "effective_batch": None, "learning_rate": [1e-3]}
    assert describe_step(steps) == "effective batch unknown = ? x 1 process x 1 accumulated, learning rate 0.001"
