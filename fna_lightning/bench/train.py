"""Time the training steps of configurations against each other, in one run.

Blocks of steps alternate between the configurations, so that a machine that slows down slows all of them; a ratio is
the median over the blocks. The profile says where a step spends its time: loading, forward, backward, optimiser, and
what Lightning adds. With the same data settings all configurations see the same batches.

Examples:
  fna-lightning bench train --config imdb_small_fna.yaml --against imdb_small_dp.yaml
  fna-lightning bench train --config reviews_fna.yaml --against reviews_dp.yaml --steps 20 --repeats 3 --json times.json
"""

import argparse
import itertools
import json
import platform
import statistics
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--config", "-c", required=True, metavar="YAML", help="what is measured")
    parser.add_argument("--against", action="append", default=[], metavar="YAML", help="may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key set in all of them")
    parser.add_argument("--steps", type=int, default=50, help="training steps in a block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="blocks of each configuration (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the first block (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="threads of PyTorch; default: PyTorch's own choice")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, print ratios and profiles."""
    from fna_lightning.bench.timing import prepare_fits

    if min(args.steps, args.repeats) < 1 or args.warmup < 0:
        raise ValueError(
            f"--steps and --repeats must be at least 1 and --warmup at least 0, got {args.steps}, {args.repeats} "
            f"and {args.warmup}"
        )
    # every block is a fit of its own
    prepare_fits(args.threads)
    warnings.filterwarnings("ignore", message=".*have no `val_dataloader`.*")
    names = list(dict.fromkeys([args.config, *args.against]))
    contestants = [Contestant.of(name, args.set) for name in names]
    for one in contestants:
        if args.warmup:
            one.block(args.warmup)
    blocks: dict[str, list[dict[str, float]]] = {one.name: [] for one in contestants}
    for turn in range(args.repeats):
        # every other turn backwards, so that none always runs in the wake of the same other
        for one in contestants if turn % 2 == 0 else reversed(contestants):
            blocks[one.name].append(one.block(args.steps))
    report = summary(contestants, blocks, args)
    _print(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


@dataclass
class Contestant:
    """One configuration with its endless stream of training batches."""

    name: str
    task: Any
    batches: Iterator[Any]
    steps_in_epoch: int
    data_settings: dict[str, Any]
    trainer_settings: dict[str, Any]

    @classmethod
    def of(cls, config: str, overrides: list[str]) -> "Contestant":
        from fna_lightning.config.instantiate import build

        built = build(config, overrides)
        built.data.prepare_data()
        built.data.setup("fit")
        loader = built.data.train_dataloader()
        return cls(
            Path(config).stem,
            built.task,
            itertools.chain.from_iterable(itertools.repeat(loader)),
            len(loader),
            built.data_settings,
            built.trainer_settings,
        )

    def block(self, steps: int) -> dict[str, float]:
        """Train for some steps as a run would, and return the seconds of one step, by phase."""
        import lightning as L
        from lightning.pytorch.loggers import CSVLogger

        from fna_lightning.bench.step_clock import StepClock

        clock = StepClock()
        settings = self.trainer_settings
        kept = {key: settings[key] for key in ("precision", "gradient_clip_val") if key in settings}
        with tempfile.TemporaryDirectory() as folder:
            trainer = L.Trainer(
                max_epochs=1,
                limit_train_batches=steps,
                limit_val_batches=0,
                devices=1,
                logger=CSVLogger(folder),
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=folder,
                callbacks=[clock],
                profiler=clock.profiler,
                **kept,
            )
            trainer.fit(self.task, Block(clock, self.batches, steps))
        return {"step": clock.total / clock.steps, **clock.profile()}


class Block:
    """The next batches of a stream, as a loader."""

    def __init__(self, clock: Any, batches: Iterator[Any], steps: int) -> None:
        self.clock = clock
        self.batches = batches
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        return self.clock.loading(itertools.islice(self.batches, self.steps))


def summary(
    contestants: list[Contestant], blocks: dict[str, list[dict[str, float]]], args: argparse.Namespace
) -> dict[str, Any]:
    """Return the measurements as plain values: seconds by configuration, and ratios to the first."""
    import lightning as L
    import torch

    import fna_lightning
    from fna_lightning.attention.kernels import chosen_kernels

    first, *others = contestants
    seconds = {name: [block["step"] for block in measured] for name, measured in blocks.items()}
    ratios = {}
    for other in others:
        paired = [a / b for a, b in zip(seconds[first.name], seconds[other.name], strict=True)]
        ratios[f"{first.name} / {other.name}"] = {
            "median": statistics.median(paired),
            "smallest": min(paired),
            "largest": max(paired),
            "same_batches": first.data_settings == other.data_settings,
        }
    return {
        "steps": args.steps,
        "repeats": args.repeats,
        "configs": {
            one.name: {
                "step_seconds": statistics.median(seconds[one.name]),
                "epoch_seconds": statistics.median(seconds[one.name]) * one.steps_in_epoch,
                "blocks": seconds[one.name],
                "profile": {
                    phase: statistics.median(block[phase] for block in blocks[one.name])
                    for phase in blocks[one.name][0]
                    if phase != "step"
                },
            }
            for one in contestants
        },
        "ratios": ratios,
        "kernels": chosen_kernels(),
        "threads": torch.get_num_threads(),
        "machine": platform.processor() or platform.machine(),
        "versions": {
            "fna_lightning": fna_lightning.__version__,
            "lightning": L.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    from fna_lightning.utils.console import wide_console

    console = wide_console()
    table = Table("", "ms a step", "s an epoch", title="training", title_justify="left")
    phases = list(next(iter(report["configs"].values()))["profile"])
    for phase in phases:
        table.add_column(phase)
    for name, one in report["configs"].items():
        whole = sum(one["profile"].values())
        shares = [f"{one['profile'][phase] / whole:.0%}" for phase in phases]
        table.add_row(name, f"{1000 * one['step_seconds']:.1f}", f"{one['epoch_seconds']:.0f}", *shares)
    console.print(table)
    for pair, ratio in report["ratios"].items():
        spread = f"{ratio['smallest']:.2f} to {ratio['largest']:.2f} over {report['repeats']} blocks"
        note = "" if ratio["same_batches"] else "; their data settings differ, so do their batches"
        console.print(f"{pair}: {ratio['median']:.2f} ({spread}{note})", highlight=False)
