"""One run of the comparison: train a model, measure its errors on the episodes of a split, store them as JSON."""

import json
import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch.optim import AdamW

from fna_lightning.callbacks.effective_neighbors import head_neighbors
from fna_lightning.introspection.maps import evaluating
from fna_lightning.reproduction.fields.attentions import ATTENTIONS
from fna_lightning.reproduction.fields.scales import FieldScale
from fna_lightning.reproduction.fields.tasks import BATCH_SIZE, TASKS, curve_sizes
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.metrics import PointMean
from fna_lightning.tasks.fields.task import FieldRegression
from fna_lightning.training.schedules import WarmupCosine
from fna_lightning.utils.files import write_text

# Seed of the runs that choose the start values; the compared runs have the seeds 0, 1, ...
SPARE_SEED = 1000
# Increase it when a change of the code changes the results of a run.
RESULT_FORMAT = 1

# evaluation set -> mean error of each batch of episodes
Errors = dict[str, list[float]]


@dataclass(frozen=True)
class FieldRun:
    """A run of the comparison.

    Attributes:
        task: name of the task.
        attention: name of the attention.
        start: start value of the learned scale.
        seed: random seed of the weights and the training episodes.
        split: split on which errors are measured, "val" or "test".
        scale: size of the comparison.
    """

    task: str
    attention: str
    start: float
    seed: int
    split: str
    scale: FieldScale

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        return f"{self.task} {self.attention} seed {self.seed}"

    def path(self, folder: Path) -> Path:
        """Return the file of the result."""
        return folder / self.task / f"{self.attention}_{self.start:.3g}_seed{self.seed}_{self.split}.json"

    def key(self) -> dict[str, Any]:
        """Return everything the result depends on."""
        scale = {name: getattr(self.scale, name) for name in ("embedded", "steps", "episodes")}
        return {**asdict(self), "scale": scale, "format": RESULT_FORMAT}

    def result(self, folder: Path) -> dict[str, Any] | None:
        """Return the stored result; None if there is none that matches the settings."""
        return read_result(self.path(folder), self.key())


def read_result(path: Path, key: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of a JSON file whose "key" equals ``key``; None if there is no such file."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    same = isinstance(values, dict) and values.get("key") == json.loads(json.dumps(key))
    return values if same else None


def run_field(run: FieldRun, folder: Path) -> None:
    """Train and measure one run and write its result; a job of ``run_jobs``."""
    started = time.perf_counter()
    data = TASKS[run.task].data(run.scale, run.seed)
    task = train_field(run, data)
    result = {
        "key": run.key(),
        "errors": split_errors(task, data, run.split),
        "neighbors": {name: neighbors(task, data, name) for name in curve_sizes(data.eval_sets).values()},
        "seconds": round(time.perf_counter() - started, 1),
    }
    path = run.path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(result) + "\n")


def new_task(run: FieldRun, data: FieldData) -> FieldRegression:
    """Return the model of a run before training; the same seed gives every attention the same weights."""
    L.seed_everything(run.seed, verbose=False)
    setting = TASKS[run.task]
    return FieldRegression(
        data.coordinate_dim,
        data.value_dim,
        data.eval_sets,
        ATTENTIONS[run.attention].build(run.start, data.coordinate_dim),
        setting.likelihood,
        setting.network,
        optimizer=partial(AdamW, lr=setting.learning_rate, betas=(0.9, 0.98), weight_decay=1e-4),
        lr_scheduler=partial(WarmupCosine, warmup=0.05),
    )


def train_field(run: FieldRun, data: FieldData) -> FieldRegression:
    """Return the trained model of a run."""
    task = new_task(run, data)
    with _quiet(), warnings.catch_warnings():
        # Advice about loader processes, which would slow these small models down, and uses of deprecated functions.
        warnings.filterwarnings("ignore", module="lightning")
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=1,
            gradient_clip_val=1.0,
            limit_val_batches=0,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(task, data)
    return task


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide messages below warnings inside the context; each run would otherwise print the same few lines."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "fna_lightning")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def split_errors(task: FieldRegression, data: FieldData, split: str) -> Errors:
    """Return the errors on all episodes of a split."""
    metric = task.likelihood.metrics()[task.likelihood.error]
    assert isinstance(metric, PointMean)
    errors: Errors = {name: [] for name in data.eval_sets}
    stream = data.split(split)
    with torch.no_grad(), evaluating(task):
        for start in range(0, len(stream), BATCH_SIZE):
            batch = stream.__getitems__(list(range(start, start + BATCH_SIZE)))
            output = task(batch.context_x, batch.context_y, batch.query_x, batch.context_mask())
            name = data.eval_sets[int(batch.eval_set[0])]
            errors[name].append(metric.function(output, batch.query_y).mean().item())
    return errors


def neighbors(task: FieldRegression, data: FieldData, name: str) -> list[float]:
    """Return the effective number of neighbors of each head on the first test episodes of an evaluation set."""
    stream = data.split("test")
    first = data.eval_sets.index(name) * stream.size
    return list(head_neighbors(task, stream.__getitems__(list(range(first, first + BATCH_SIZE)))).values())
