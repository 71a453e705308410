"""Time training with and without AttentionGraph at its defaults, in one run.

Fits alternate between the two and start from the same seed, so both see the same batches. The ratio of their times is
what a user waits longer. On a busy machine the clock on the wall is mostly noise, so the seconds of processor each fit
took are compared too, and the callback's own clock, for as many epochs as the configuration has, is shown beside them.
That clock misses nothing if the rest of a fit takes as long as a fit without it.

Examples:
  fna-lightning bench callbacks --config reviews_fna.yaml
  fna-lightning bench callbacks --config reviews_fna.yaml --epochs 4 --threads 1 --repeats 3
  fna-lightning bench callbacks --config imdb_small_fna.yaml --steps 100 --repeats 3 --json overhead.json
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError

# validation is no part of the question; one batch lets the callback look
VALIDATION_BATCHES = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--config", "-c", default="reviews_fna.yaml", metavar="YAML", help="default: %(default)s")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key set in both")
    parser.add_argument("--epochs", type=int, default=1, help="epochs of a fit (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="training steps of an epoch; default: all")
    parser.add_argument("--repeats", type=int, default=2, help="fits of each kind (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of PyTorch; default: PyTorch's own choice")
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
    fit(args, watched=True, epochs=1, steps=3)
    fits: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for turn in range(args.repeats):
        # every other turn backwards, so that none always runs in the wake of the other
        for watched in (True, False) if turn % 2 == 0 else (False, True):
            fits[watched].append(fit(args, watched=watched, epochs=args.epochs, steps=args.steps))
    report = summary(fits, args)
    print(
        f"{args.config}: {report['epoch_seconds']:.1f} s an epoch; AttentionGraph looks {1e3 * report['look']:.0f} ms "
        f"at each validation and draws {1e3 * report['draw']:.0f} ms at the end\n"
        f"by its own clock {report['own_clock']:.2%} of a run of {report['epochs']} epochs\n"
        f"these fits of {args.epochs} epochs, with against without, on the wall: {spread(report['ratios'])}\n"
        f"and in seconds of processor: {spread(report['processor_ratios'])}, "
        f"without what its own clock counts {spread(report['rest_ratios'])}"
    )
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


def spread(ratios: list[float]) -> str:
    """Return the median and the ends in words."""
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)})"


def fit(args: argparse.Namespace, *, watched: bool, epochs: int, steps: int | None) -> dict[str, float]:
    """Train ``epochs``, or ``steps`` of each, and return the seconds of it and of the callback."""
    import lightning as L
    from lightning.pytorch.loggers import TensorBoardLogger

    import fna_lightning.tasks  # noqa: F401 - importing is registering
    from fna_lightning.callbacks import AttentionGraph
    from fna_lightning.config.instantiate import build

    built = build(args.config, args.set)
    watch = AttentionGraph()
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
            callbacks=[watch] if watched else [],
        )
        built.data.prepare_data()
        started, busy = time.perf_counter(), time.process_time()
        trainer.fit(built.task, datamodule=built.data)
        seconds, processor = time.perf_counter() - started, time.process_time() - busy
        loader = built.data.train_dataloader()
    return {
        "seconds": seconds,
        "processor": processor,
        "look": watch.seconds - (watch.figures.seconds if watch.figures else 0.0),
        "draw": watch.figures.seconds if watch.figures else 0.0,
        "epochs": built.trainer_settings.get("max_epochs") or 1,
        "steps": trainer.global_step,
        "epoch_steps": len(loader) / trainer.accumulate_grad_batches,
    }


def summary(fits: dict[bool, list[dict[str, float]]], args: argparse.Namespace) -> dict[str, Any]:
    """Return the measurements as plain values."""
    import torch

    from fna_lightning.version import VERSION

    ratios, processor = (
        [one[name] / other[name] for one, other in zip(fits[True], fits[False], strict=True)]
        for name in ("seconds", "processor")
    )
    rest = [
        (one["processor"] - one["look"] - one["draw"]) / other["processor"]
        for one, other in zip(fits[True], fits[False], strict=True)
    ]
    epoch = statistics.median(one["seconds"] / one["steps"] * one["epoch_steps"] for one in fits[False])
    # a fit looks once an epoch and draws once
    look = statistics.median(one["look"] for one in fits[True]) / args.epochs
    draw = statistics.median(one["draw"] for one in fits[True])
    epochs = fits[True][0]["epochs"]
    return {
        "config": args.config,
        "epoch_seconds": epoch,
        "epochs": epochs,
        "look": look,
        "draw": draw,
        "own_clock": (epochs * look + draw) / (epochs * epoch),
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "processor_ratio": statistics.median(processor),
        "processor_ratios": processor,
        "rest_ratios": rest,
        "fits": {"with": fits[True], "without": fits[False]},
        "threads": torch.get_num_threads(),
        "machine": platform.processor() or platform.machine(),
        "versions": {"fna_lightning": VERSION, "torch": torch.__version__, "python": platform.python_version()},
    }
