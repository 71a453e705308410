"""Cost of the AttentionGraph callback with the settings of a configuration: training time with and without it.

Fits with and without the callback alternate and start from the same seed, so both use the same batches. Reported are
the ratio of wall times, the ratio of CPU times (less affected by other load), and the time the callback measures
itself, extrapolated to all epochs of the configuration and their training steps. If a fit without the callback takes as
long as the rest of a fit with it, the callback's own measurement is complete.

Examples:
  fna-lightning bench callbacks --config reviews_fna.yaml
  fna-lightning bench callbacks --config reviews_fna.yaml --epochs 4 --threads 1 --repeats 3
  fna-lightning bench callbacks --config imdb_small_fna.yaml --steps 100 --repeats 3 --json overhead.json
"""

import argparse
import json
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError

# The cost of validation is not measured; the callback needs one batch.
VALIDATION_BATCHES = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench callbacks``."""
    parser.add_argument("--config", "-c", default="reviews_fna.yaml", metavar="YAML", help="default: %(default)s")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key in both fits")
    parser.add_argument("--epochs", type=int, default=1, help="epochs per fit (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="training steps per epoch; default: all")
    parser.add_argument("--repeats", type=int, default=2, help="fits with and without each (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="number of threads; default: PyTorch's choice")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from fna_lightning.bench.timing import prepare_fits

    if args.repeats < 1 or args.epochs < 1 or (args.steps is not None and args.steps < 1):
        raise UsageError(
            f"--repeats, --epochs and --steps must be at least 1, got {args.repeats}, {args.epochs} and {args.steps}"
        )
    prepare_fits(args.threads)
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    fit(args, with_callback=True, epochs=1, steps=3)
    fits: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for turn in range(args.repeats):
        # The order alternates, so that neither always runs after the other.
        for with_callback in (True, False) if turn % 2 == 0 else (False, True):
            fits[with_callback].append(fit(args, with_callback=with_callback, epochs=args.epochs, steps=args.steps))
    report = summary(fits, args)
    print(
        f"{args.config}: {report['epoch_seconds']:.1f} s per epoch; AttentionGraph takes "
        f"{1e3 * report['measure_seconds']:.0f} ms per measurement and {1e3 * report['draw_seconds']:.0f} ms for its "
        "figures at the end\n"
        f"measured by the callback itself: {report['own_share']:.2%} of a run of {report['epochs']} epochs with "
        f"{report['measurements']} measurements\n"
        f"wall time, with / without, fits of {args.epochs} epoch(s): {spread(report['ratios'])}\n"
        f"CPU time, with / without: {spread(report['cpu_ratios'])}; "
        f"without the callback's own time: {spread(report['rest_ratios'])}"
    )
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def spread(ratios: list[float]) -> str:
    """Return the median, minimum and maximum as text."""
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)})"


def fit(args: argparse.Namespace, *, with_callback: bool, epochs: int, steps: int | None) -> dict[str, float]:
    """Train ``epochs`` epochs of ``steps`` steps (None: all), and return the seconds of the fit and the callback."""
    import lightning as L
    from lightning.pytorch.loggers import TensorBoardLogger

    from fna_lightning.callbacks import AttentionGraph
    from fna_lightning.config.instantiate import from_config
    from fna_lightning.config.registry import register_builtins

    register_builtins()
    built = from_config(args.config, args.set)
    callback = AttentionGraph(**callback_settings(built.trainer_settings))
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=epochs,
            limit_train_batches=steps,
            limit_val_batches=VALIDATION_BATCHES,
            num_sanity_val_steps=0,
            devices=1,
            logger=TensorBoardLogger(folder),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            default_root_dir=folder,
            callbacks=[callback] if with_callback else [],
        )
        built.data.prepare_data()
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        trainer.fit(built.task, datamodule=built.data)
        wall, cpu = time.perf_counter() - wall_start, time.process_time() - cpu_start
        loader = built.data.train_dataloader()
    drawing = callback.figures.seconds if callback.figures else 0.0
    return {
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "measure_seconds": callback.seconds - drawing,
        "draw_seconds": drawing,
        "measurements": callback.measurements,
        "epochs": built.trainer_settings.get("max_epochs") or 1,
        "steps": trainer.global_step,
        "steps_per_epoch": len(loader) / trainer.accumulate_grad_batches,
        "every_n_steps": callback.every_n_steps or 0,
    }


def callback_settings(trainer_settings: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the configuration gives AttentionGraph; none if it has no such callback."""
    for callback in trainer_settings.get("callbacks") or []:
        if str(callback.get("class_path")).rpartition(".")[2] == "AttentionGraph":
            return dict(callback.get("init_args") or {})
    return {}


def full_measurements(fit: dict[str, float]) -> int:
    """Return how often the callback measures in the whole training of the configuration."""
    from fna_lightning.callbacks.attention_graph import FIRST_STEPS

    steps = int(fit["epochs"] * fit["steps_per_epoch"])
    if fit["every_n_steps"]:
        return steps // int(fit["every_n_steps"])
    return int(fit["epochs"]) + sum(step <= fit["steps_per_epoch"] for step in FIRST_STEPS)


def summary(fits: dict[bool, list[dict[str, float]]], args: argparse.Namespace) -> dict[str, Any]:
    """Return the measurements as plain values."""
    import torch

    from fna_lightning.utils.versions import package_versions, processor

    pairs = list(zip(fits[True], fits[False], strict=True))
    ratios = [watched["wall_seconds"] / plain["wall_seconds"] for watched, plain in pairs]
    cpu_ratios = [watched["cpu_seconds"] / plain["cpu_seconds"] for watched, plain in pairs]
    rest_ratios = [
        (watched["cpu_seconds"] - watched["measure_seconds"] - watched["draw_seconds"]) / plain["cpu_seconds"]
        for watched, plain in pairs
    ]
    epoch = statistics.median(
        plain["wall_seconds"] / plain["steps"] * plain["steps_per_epoch"] for plain in fits[False]
    )
    # The callback draws once per fit.
    measure = statistics.median(
        watched["measure_seconds"] / max(1.0, watched["measurements"]) for watched in fits[True]
    )
    measurements = full_measurements(fits[True][0])
    draw = statistics.median(watched["draw_seconds"] for watched in fits[True])
    epochs = fits[True][0]["epochs"]
    return {
        "config": args.config,
        "epoch_seconds": epoch,
        "epochs": epochs,
        "measure_seconds": measure,
        "draw_seconds": draw,
        "measurements": measurements,
        "own_share": (measurements * measure + draw) / (epochs * epoch),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "cpu_ratio": statistics.median(cpu_ratios),
        "cpu_ratios": cpu_ratios,
        "rest_ratios": rest_ratios,
        "fits": {"with": fits[True], "without": fits[False]},
        "threads": torch.get_num_threads(),
        "machine": processor(),
        "versions": package_versions(),
    }
