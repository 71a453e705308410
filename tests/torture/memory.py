"""Trains for ten thousand steps and plots the memory of the process, which must not grow.

    python tests/torture/memory.py --out docs/results

Validation, checkpoints and both loggers are active. Not part of the test suite: it takes minutes.
"""

import fna_lightning  # noqa: F401 - before anything imports torchvision

# isort: split

import argparse
import gc
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch

from fna_lightning.cli import main
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE

SETTINGS = [
    *("--config", "reviews_fna.yaml", "--data.train_size=800", "--data.eval_size=40", "--data.longest=40"),
    *("--data.batch_size=8", "--model.encoder.dropout=0.1", "--model.encoder.dim=16", "--model.encoder.ffn_dim=16"),
    *("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu"),
    *("--trainer.max_epochs=-1", "--trainer.callbacks=[]"),
]


def resident() -> float:
    """Return the resident memory of this process in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def watch(steps: int, every: int = 50) -> list[tuple[int, float]]:
    """Train ``steps`` steps and return the memory as pairs (step, megabytes)."""
    samples: list[tuple[int, float]] = []
    original = L.Trainer._run_stage

    class Watcher(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
            if trainer.global_step % every == 0:
                gc.collect()
                samples.append((trainer.global_step, resident()))

    def run_stage(trainer: L.Trainer) -> Any:
        trainer.callbacks.insert(0, Watcher())
        return original(trainer)

    L.Trainer._run_stage = run_stage
    assert main(["fit", *SETTINGS, f"--trainer.max_steps={steps}"]) == 0
    return samples


def plot(samples: list[tuple[int, float]], slope: float, path: Path) -> None:
    """Plot memory against steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*samples, strict=True), linewidth=1)
    axes.set_ylim(0, 1.15 * max(size for _, size in samples))
    axes.set_xlabel("training steps")
    axes.set_ylabel("resident memory, MB")
    axes.set_title(f"memory of a run: {slope:+.2f} MB per 1000 steps after the first fifth", fontsize=10)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--out", type=Path, required=True, help="folder for memory.json and memory.png")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[RUN_DIR_VARIABLE] = folder
        samples = watch(args.steps)
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in Path(folder).rglob("*.*")}
    settled = np.array([sample for sample in samples if sample[0] > args.steps / 5])
    slope = float(1000 * np.polyfit(settled[:, 0], settled[:, 1], 1)[0])
    result = {
        "steps": args.steps,
        "megabytes_first": round(samples[0][1], 1),
        "megabytes_after_a_fifth": round(float(settled[0, 1]), 1),
        "megabytes_last": round(samples[-1][1], 1),
        "megabytes_per_1000_steps_after_a_fifth": round(slope, 3),
        "run_folder_kilobytes": round(sum(sizes.values()) / 1024, 1),
        "run_folder_files": sorted(name for name in sizes if "tfevents" not in name),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "memory.json").write_text(json.dumps(result, indent=2) + "\n")
    plot(samples, slope, args.out / "memory.png")
    print(json.dumps(result, indent=2))
