"""Runs that are interrupted at chosen moments and resumed, to compare with an uninterrupted run."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from fna_lightning.cli import main
from fna_lightning.task import Task
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE

# small settings for the embedded data of every task; add a line for a new task
TASKS = {
    "text": [
        *("--config", "reviews_fna.yaml", "--data.train_size=100", "--data.eval_size=30", "--data.longest=40"),
        *(
            "--data.batch_size=10",
            "--model.encoder.dropout=0.1",
            "--model.encoder.dim=16",
            "--model.encoder.ffn_dim=16",
        ),
    ],
    "images": [
        *("--config", "digits_fna.yaml", "--data.batch_size=130", "--model.vit.encoder.dropout=0.1"),
        *("--model.vit.encoder.dim=16", "--model.vit.encoder.ffn_dim=16", "--model.vit.encoder.depth=1"),
    ],
    "fields": [
        *("--config", "pixels_fna.yaml", "--data.episodes.train_size=160", "--data.episodes.val_size=10"),
        *("--data.episodes.context=[16, 64]", "--data.episodes.eval_context=[16, 64]"),
    ],
    "translation": [
        *("--config", "numbers_fna.yaml", "--data.train_size=110", "--data.eval_size=30", "--data.batch_tokens=100"),
        *("--model.network.encoder.dim=16", "--model.network.encoder.ffn_dim=16", "--model.network.encoder.depth=1"),
        *("--model.network.encoder.dropout=0.1", "--model.bleu_every=2"),
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
    """Ends a run without a chance to save."""


def fit(folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> int:
    """Train a new run in ``folder``."""
    folder.mkdir(parents=True)
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(folder))
    return main(["fit", *arguments])


def interrupt(
    monkeypatch: pytest.MonkeyPatch, hook: str, call: int, number: signal.Signals | None, owner: type = Task
) -> None:
    """Make the ``call``-th call of a method send this process a signal; None raises ``PowerCutError`` instead."""
    original = getattr(owner, hook)
    calls = 0

    def step(self: Any, *args: Any) -> Any:
        nonlocal calls
        sanity_checking = isinstance(self, Task) and self.trainer.sanity_checking
        calls += not sanity_checking
        if calls == call and not sanity_checking:
            if number is None:
                raise PowerCutError
            os.kill(os.getpid(), number)
        return original(self, *args)

    monkeypatch.setattr(owner, hook, step)


def checkpoint(folder: Path, name: str = "last") -> dict[str, Any]:
    """Return a checkpoint of a run."""
    return torch.load(folder / f"checkpoints/{name}.ckpt", weights_only=True)


def results(folder: Path) -> dict[str, Any]:
    """Return the training section of results.json without the times."""
    fit = json.loads((folder / "results.json").read_text())["fit"]
    return {key: value for key, value in fit.items() if key not in ("seconds", "cpu_seconds")}


def assert_same_run(expected: Path, actual: Path) -> None:
    """Check that two runs have bit-identical logged numbers, results, weights, optimizer states and schedules."""
    assert (expected / "metrics.csv").read_text() == (actual / "metrics.csv").read_text()
    assert results(expected) == results(actual)
    first, second = checkpoint(expected), checkpoint(actual)
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        leaves = [torch.utils._pytree.tree_flatten(state[part]) for state in (first, second)]
        assert leaves[0][1] == leaves[1][1]
        for a, b in zip(leaves[0][0], leaves[1][0], strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, part
    for name in ("best", "last"):
        first, second = checkpoint(expected, name), checkpoint(actual, name)
        assert first["global_step"] == second["global_step"]
        assert first["epoch"] == second["epoch"]
