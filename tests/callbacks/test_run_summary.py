"""RunSummary: results.json, the closing table, and what a resumed run adds to its results."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from fna_lightning.attention import DotProduct, Fractional
from fna_lightning.callbacks import RunSummary
from fna_lightning.callbacks.step_size import describe_step, step_size
from fna_lightning.training.samplers import TokenBatchSampler
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
        "unit": "examples",
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


def step(**options: Any) -> str:
    """Return the description of a step of a trainer without a batch size in its data module."""
    options.setdefault("datamodule", SimpleNamespace(batch_size=None))
    return describe_step(step_size(trainer(world_size=1, accumulate_grad_batches=2, **options)))


def test_the_effective_batch_of_a_loader_of_tokens_is_in_tokens() -> None:
    sampler = TokenBatchSampler(np.arange(1, 9), np.arange(1, 9), 100, shuffle=True)
    loader = DataLoader(TensorDataset(torch.zeros(8)), batch_sampler=sampler)
    text = "effective batch up to 200 tokens = 100 x 1 process x 2 accumulated, learning rate 0.5, 0.25"
    assert step(train_dataloader=loader) == text


def test_the_effective_batch_is_that_of_the_loader() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(8)), batch_size=4)
    text = "effective batch 8 = 4 x 1 process x 2 accumulated, learning rate 0.5, 0.25"
    assert step(train_dataloader=loader) == text
    assert step(train_dataloader=loader, datamodule=SimpleNamespace(batch_size=99)) == text


class Stream(IterableDataset[Any]):
    """A data set without a length that makes batches."""

    def __iter__(self) -> Iterator[Any]:
        return iter([torch.zeros(4)])


def test_a_data_set_that_makes_batches_has_no_batch_size() -> None:
    text = "effective batch = batch of the data loader x 1 process x 2 accumulated, learning rate 0.5, 0.25"
    assert step(train_dataloader=DataLoader(Stream(), batch_size=None)) == text


def test_the_learning_rate_is_that_after_a_warmup() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01)
    assert step(optimizers=[optimizer]).endswith("learning rate 0.5")


def test_only_kernels_of_this_model_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    q = torch.zeros(1, 1, 2, 4)
    Fractional(1.7, kappa=0.3)(q, q, q)
    model, summary = Model(), RunSummary(str(tmp_path))
    model.attention(q, q, q)
    summary.setup(trainer(), model, "fit")
    assert list(summary.state_dict()["kernels"]) == [repr(DotProduct())]
    summary.on_fit_end(trainer(), model)
    assert capsys.readouterr().out.count("│ kernel") == 1


def test_metrics_of_a_limited_evaluation_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(50)), batch_size=4)
    fit(RunSummary(str(tmp_path)), val_dataloaders=loader, num_val_batches=[3])
    assert results(tmp_path)["fit"]["limited"] == {"val": {"evaluated": 12, "total": 50, "unit": "examples"}}
    printed = capsys.readouterr().out
    assert "│ val/ metrics │ on 12 of 50 examples (limit_val_batches)" in printed
    assert "fit finished after epoch 2" in printed


def test_metrics_of_a_whole_evaluation_have_no_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(TensorDataset(torch.zeros(50)), batch_size=4)
    fit(RunSummary(str(tmp_path)), val_dataloaders=loader, num_val_batches=[13])
    assert "limited" not in results(tmp_path)["fit"]
    assert "val/ metrics" not in capsys.readouterr().out


@pytest.mark.parametrize("batches", [math.inf, 3])
def test_a_validation_without_a_length_has_no_note(tmp_path: Path, batches: float) -> None:
    fit(RunSummary(str(tmp_path)), val_dataloaders=DataLoader(Stream(), batch_size=None), num_val_batches=[batches])
    assert "limited" not in results(tmp_path)["fit"]
