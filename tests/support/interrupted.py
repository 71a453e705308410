"""Runs that are stopped at chosen moments and resumed, beside one that never was."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from fna_lightning.cli import main
from fna_lightning.run_folder import RUN_DIR_VARIABLE
from fna_lightning.task import Task

# every task's embedded data, small: a new task joins by one line
TASKS = {
    "text": [
        *("--config", "reviews_fna.yaml", "--data.train_size=100", "--data.eval_size=30", "--data.longest=40"),
        *("--data.batch_size=10", "--model.encoder.dropout=0.1", "--model.encoder.dim=16", "--model.encoder.hidden=16"),
    ],
    "images": [
        *("--config", "digits_fna.yaml", "--data.batch_size=130", "--model.encoder.dropout=0.1"),
        *("--model.encoder.dim=16", "--model.encoder.hidden=16", "--model.encoder.depth=1"),
    ],
    "translation": [
        *("--config", "numbers_fna.yaml", "--data.train_size=110", "--data.eval_size=30", "--data.batch_tokens=100"),
        *("--model.network.dim=16", "--model.network.hidden=16", "--model.network.depth=1"),
        *("--model.network.dropout=0.1", "--model.bleu_every=2"),
    ],
}
QUIET = ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
COMMON = [
    *QUIET,
    "--trainer.callbacks=[]",
    "--trainer.log_every_n_steps=1",
    "--trainer.max_epochs=3",
    "--trainer.accelerator=cpu",
]


class PowerCutError(BaseException):
    """Ends a run with no chance to save anything."""


def fit(folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> int:
    """Train a new run in ``folder``."""
    folder.mkdir(parents=True)
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(folder))
    return main(["fit", *arguments])


def interrupt(monkeypatch: pytest.MonkeyPatch, hook: str, call: int, how: signal.Signals | None) -> None:
    """Let the ``call``-th call of a step send this process a signal, or cut its power."""
    original = getattr(Task, hook)
    calls = 0

    def step(self: Task, *args: Any) -> Any:
        nonlocal calls
        calls += not self.trainer.sanity_checking
        if calls == call and not self.trainer.sanity_checking:
            if how is None:
                raise PowerCutError
            os.kill(os.getpid(), how)
        return original(self, *args)

    monkeypatch.setattr(Task, hook, step)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of the last checkpoint of a run."""
    return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def assert_same_run(one: Path, other: Path) -> None:
    """Every logged number and every weight of two runs is the same, bit for bit."""
    assert (one / "metrics.csv").read_text() == (other / "metrics.csv").read_text()
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name in ("best", "last"):
        states = [torch.load(run / f"checkpoints/{name}.ckpt", weights_only=True) for run in (one, other)]
        assert states[0]["global_step"] == states[1]["global_step"]
        assert states[0]["epoch"] == states[1]["epoch"]
