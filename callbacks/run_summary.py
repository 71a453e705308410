"""RunSummary: results.json and a closing table at the end of a run."""

import logging
import os
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from rich.console import Console
from rich.table import Table

from fna_lightning.attention import Attention
from fna_lightning.attention.kernels import chosen_kernels
from fna_lightning.callbacks.step_size import describe_step, step_size
from fna_lightning.training.dataloading import count_examples
from fna_lightning.training.loggers import viewers
from fna_lightning.training.run_folder import write_results
from fna_lightning.utils.versions import package_versions, processor

log = logging.getLogger(__name__)


class RunSummary(L.Callback):
    """Writes results.json and prints a table: metrics, time, kernels, and the paths of checkpoint and results.

    Args:
        folder: the run folder.
        seed: seed of the run; None if it has none.
    """

    def __init__(self, folder: str, seed: int | None = None) -> None:
        self.folder = Path(folder)
        self.seed = seed
        self.steps: dict[str, Any] = {}
        # state of the run before it was resumed
        self._earlier: dict[str, Any] = {}
        # metrics and number of epochs at the end of training
        self._ended: dict[str, Any] = {}
        self._module: L.LightningModule | None = None
        self._start_clock()

    def _start_clock(self) -> None:
        self.started, self.started_cpu = time.perf_counter(), time.process_time()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run adds to its results: times, kernels, initial step size and final metrics."""
        return {**self._times("fit"), "steps": self.steps, "kernels": self._kernels(), "ended": self._ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier = state_dict
        self._ended = state_dict["ended"]

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._module = pl_module

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._module = None

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start_clock()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.steps = step_size(trainer)
        if self._earlier.get("steps"):
            # report the initial learning rate; the schedule has changed it since
            self.steps["learning_rate"] = self._earlier["steps"]["learning_rate"]
        if trainer.is_global_zero:
            log.info("%s", describe_step(self.steps))

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # not called if a finished run is resumed; the state of the checkpoint is reported then
        self._ended = {"metrics": last_metrics(trainer), "epochs": trainer.current_epoch} | limited(trainer, "val")

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn == "validate":
            self._start_clock()

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start_clock()

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._report(trainer, pl_module, "fit")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn == "validate":
            self._report(trainer, pl_module, "validate")

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._report(trainer, pl_module, "test")

    def _report(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if not trainer.is_global_zero:
            return
        part: dict[str, Any] = {"metrics": last_metrics(trainer), **self._times(stage)}
        if stage == "fit":
            part |= {"epochs": trainer.current_epoch, "steps": trainer.global_step, **self._ended} | self._best(trainer)
            part["step_size"] = self.steps or self._earlier.get("steps", {})
        else:
            part |= limited(trainer, "test" if stage == "test" else "val")
        path = write_results(self.folder, {stage: part, "run": self._facts(trainer, pl_module)})
        self._print(stage, part, path, viewers(trainer.loggers))

    def _times(self, stage: str) -> dict[str, float]:
        """Return the time of a stage; the time of training includes the parts before each resume."""
        earlier = self._earlier if stage == "fit" else {}
        return {
            "seconds": round(earlier.get("seconds", 0.0) + time.perf_counter() - self.started, 3),
            # CPU time of all threads, which does not depend on what else the machine runs
            "cpu_seconds": round(earlier.get("cpu_seconds", 0.0) + time.process_time() - self.started_cpu, 3),
        }

    def _kernels(self) -> dict[str, str]:
        """Return the kernel of each attention of the model, including those used before the run was resumed."""
        return {**self._earlier.get("kernels", {}), **(chosen_kernels(self._module) if self._module else {})}

    def _best(self, trainer: L.Trainer) -> dict[str, Any]:
        """Return path and metric of the best checkpoint; empty if there is none."""
        checkpoint = trainer.checkpoint_callback
        if not isinstance(checkpoint, ModelCheckpoint) or not checkpoint.best_model_path:
            return {}
        score = None if checkpoint.best_model_score is None else float(checkpoint.best_model_score)
        # relative, so that a run folder can be moved
        path = os.path.relpath(checkpoint.best_model_path, self.folder)
        return {"best_checkpoint": path, "best_metric": checkpoint.monitor, "best_value": score}

    def _facts(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        """Return what the results depend on: model, kernels, seed, devices, precision, versions."""
        attentions = sorted({repr(module) for module in pl_module.modules() if isinstance(module, Attention)})
        kernels = self._kernels()
        return {
            "task": type(pl_module).__name__,
            "attention": attentions,
            "kernel": {name: kernels[name] for name in attentions if name in kernels},
            "parameters": sum(p.numel() for p in pl_module.parameters()),
            "seed": self.seed,
            "devices": trainer.world_size,
            "precision": str(trainer.precision),
            "threads": torch.get_num_threads(),
            "processor": processor(),
            "versions": package_versions(),
        }

    def _print(self, stage: str, part: dict[str, Any], path: Path, lines: list[str]) -> None:
        epochs = f" after epoch {part['epochs']}" if part.get("epochs") else ""
        table = Table("", "", title=f"{stage} finished{epochs}", title_justify="left", show_header=False)
        for name, value in part["metrics"].items():
            # Lightning repeats a metric under the names of its step and its epoch; details are in results.json
            if not name.endswith(("_step", "_epoch")) and not name.startswith("attention_detail/"):
                table.add_row(name, f"{value:.4f}")
        for split, counts in part.get("limited", {}).items():
            table.add_row(f"{split}/ metrics", describe_limit(split, counts))
        if "best_value" in part and part["best_value"] is not None:
            table.add_row(f"best {part['best_metric']}", f"{part['best_value']:.4f}")
        if part.get("step_size"):
            table.add_row("step", describe_step(part["step_size"]))
        table.add_row("time", f"{part['seconds']:.1f} s")
        for attention, kernel in self._kernels().items():
            table.add_row("kernel", f"{kernel} for {attention}")
        if "best_checkpoint" in part:
            table.add_row("checkpoint", str(self.folder / part["best_checkpoint"]))
        table.add_row("results", str(path))
        console = Console(soft_wrap=True)
        console.print(table)
        # outside the table, so that they can be copied
        for line in lines:
            console.print(line, highlight=False)


def last_metrics(trainer: L.Trainer) -> dict[str, float]:
    """Return the last value of every metric that was logged."""
    return {name: float(value) for name, value in sorted(trainer.callback_metrics.items())}


def limited(trainer: L.Trainer, split: str) -> dict[str, Any]:
    """Return how much of a split was evaluated, under the key "limited"; empty if all of it was.

    Args:
        trainer: trainer after the evaluation.
        split: "val" or "test".
    """
    loader: Any = getattr(trainer, f"{split}_dataloaders", None)
    batches = getattr(trainer, f"num_{split}_batches", None)
    if not hasattr(loader, "__len__") or isinstance(loader, list | tuple | dict) or not batches:
        return {}
    try:
        evaluated, total = batches[0], len(loader)
    except TypeError:
        # an IterableDataset without a length
        return {}
    if not 0 < evaluated < total:
        return {}
    counts = count_examples(loader, evaluated)
    if counts is None:
        return {"limited": {split: {"evaluated": evaluated, "total": total, "unit": "batches"}}}
    return {"limited": {split: {"evaluated": counts[0], "total": counts[1], "unit": "examples"}}}


def describe_limit(split: str, counts: dict[str, Any]) -> str:
    """Return one entry of ``limited`` as text."""
    return f"on {counts['evaluated']} of {counts['total']} {counts['unit']} (limit_{split}_batches)"
