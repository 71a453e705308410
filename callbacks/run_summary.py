"""The end of a run, for a person (a table) and for programs (results.json)."""

import logging
import os
import platform
import time
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from rich.console import Console
from rich.table import Table

import fna_lightning
from fna_lightning.attention import Attention
from fna_lightning.attention.kernels import chosen_kernels
from fna_lightning.training.run_folder import write_results

log = logging.getLogger(__name__)


class RunSummary(L.Callback):
    """Writes results.json and prints a closing table: metrics, time, kernel, where to look.

    Args:
        folder: the run folder.
        seed: the seed of the run, for results.json.
    """

    def __init__(self, folder: str, seed: int | None = None) -> None:
        self.folder = Path(folder)
        self.seed = seed
        self.steps: dict[str, Any] = {}
        self._earlier: dict[str, Any] = {}
        self._ended: dict[str, Any] = {}
        self._start()

    def _start(self) -> None:
        self.started, self.started_cpu = time.perf_counter(), time.process_time()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run has to add to its own part: time, kernels, the first size of a step, the end."""
        return {**self._times("fit"), "steps": self.steps, "kernels": self._kernels(), "ended": self._ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._earlier = state_dict
        self._ended = state_dict["ended"]

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.steps = step_size(trainer)
        if self._earlier.get("steps"):
            # the schedule has moved the learning rate since the run began
            self.steps["learning_rate"] = self._earlier["steps"]["learning_rate"]
        if trainer.is_global_zero:
            log.info("%s", in_words(self.steps))

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # a run that is resumed after its end does not get here, and reports what it had
        self._ended = {"metrics": last_metrics(trainer), "epochs": trainer.current_epoch}

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start()

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close(trainer, pl_module, "fit")

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._close(trainer, pl_module, "test")

    def _close(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if not trainer.is_global_zero:
            return
        part: dict[str, Any] = {"metrics": last_metrics(trainer), **self._times(stage)}
        if stage == "fit":
            part |= {"epochs": trainer.current_epoch, "steps": trainer.global_step, **self._ended} | self._best(trainer)
            part["step_size"] = self.steps or self._earlier.get("steps", {})
        path = write_results(self.folder, {stage: part, "run": self._facts(trainer, pl_module)})
        self._print(stage, part, path)

    def _times(self, stage: str) -> dict[str, float]:
        """Return the time of a stage; that of a training includes the parts before each resume."""
        earlier = self._earlier if stage == "fit" else {}
        return {
            "seconds": round(earlier.get("seconds", 0.0) + time.perf_counter() - self.started, 3),
            # of all threads: what the run would cost on a machine that does nothing else
            "cpu_seconds": round(earlier.get("cpu_seconds", 0.0) + time.process_time() - self.started_cpu, 3),
        }

    def _kernels(self) -> dict[str, str]:
        """Return the kernel of each attention, also where it ran before the run was resumed."""
        return {**self._earlier.get("kernels", {}), **chosen_kernels()}

    def _best(self, trainer: L.Trainer) -> dict[str, Any]:
        saver = trainer.checkpoint_callback
        if not isinstance(saver, ModelCheckpoint) or not saver.best_model_path:
            return {}
        score = None if saver.best_model_score is None else float(saver.best_model_score)
        # relative, so that a run folder can be moved
        path = os.path.relpath(saver.best_model_path, self.folder)
        return {"best_checkpoint": path, "best_metric": saver.monitor, "best_value": score}

    def _facts(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
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
            "versions": {
                "fna_lightning": fna_lightning.__version__,
                "lightning": L.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }

    def _print(self, stage: str, part: dict[str, Any], path: Path) -> None:
        table = Table("", "", title=f"{stage} finished", title_justify="left", show_header=False)
        for name, value in part["metrics"].items():
            if not name.endswith("_step"):
                table.add_row(name, f"{value:.4f}")
        if "best_value" in part and part["best_value"] is not None:
            table.add_row(f"best {part['best_metric']}", f"{part['best_value']:.4f}")
        if part.get("step_size"):
            table.add_row("step", in_words(part["step_size"]))
        table.add_row("time", f"{part['seconds']:.1f} s")
        for attention, kernel in self._kernels().items():
            table.add_row("kernel", f"{kernel} for {attention}")
        if "best_checkpoint" in part:
            table.add_row("checkpoint", str(self.folder / part["best_checkpoint"]))
        table.add_row("results", str(path))
        console = Console(soft_wrap=True)
        console.print(table)
        # on a line of its own, so that it can be copied whole
        console.print(f"tensorboard --logdir {self.folder}", highlight=False)


def last_metrics(trainer: L.Trainer) -> dict[str, float]:
    """Return the last value of every metric that was logged."""
    return {name: float(value) for name, value in sorted(trainer.callback_metrics.items())}


def step_size(trainer: L.Trainer) -> dict[str, Any]:
    """Return what one optimiser step is made of: the batch of a process, the effective one, the learning rate."""
    batch = getattr(getattr(trainer, "datamodule", None), "batch_size", None)
    count = trainer.world_size * trainer.accumulate_grad_batches
    return {
        "batch_size": batch,
        "processes": trainer.world_size,
        "accumulated": trainer.accumulate_grad_batches,
        "effective_batch": batch * count if isinstance(batch, int) else None,
        "learning_rate": [group["lr"] for one in trainer.optimizers for group in one.param_groups],
    }


def in_words(steps: dict[str, Any]) -> str:
    """Return the size of a step for a person."""
    rate = ", ".join(f"{one:g}" for one in steps["learning_rate"])
    return (
        f"effective batch {steps['effective_batch'] or 'unknown'} = {steps['batch_size'] or '?'} x "
        f"{steps['processes']} process{'es' * (steps['processes'] > 1)} x {steps['accumulated']} accumulated, "
        f"learning rate {rate}"
    )
