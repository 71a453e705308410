"""Training step time of configurations, compared in one run.

Blocks of steps alternate between the configurations, so that a slow phase of the machine affects all of them; a ratio
is the median over the blocks. The profile shows where the time of a step is spent: loading, forward, backward,
optimizer, and Lightning's overhead. Configurations with the same data settings use the same batches.

--against also takes torch, transformers and timm: the same training with the encoder replaced by that of
torch.nn.TransformerEncoder or a BERT of transformers, or the network by a vision Transformer of timm. Their numbers of
parameters must be ours, but for the biases of queries, keys and values. `compile` is our own network compiled by
torch.compile, and `bf16` our own in bfloat16.

Examples:
  fna-lightning bench train --config imdb_small_fna.yaml --against imdb_small_dp.yaml
  fna-lightning bench train --config reviews_fna.yaml --against reviews_dp.yaml --steps 20 --repeats 3 --json times.json
  fna-lightning bench train --config imdb_fna.yaml --against torch,transformers --steps 3
  fna-lightning bench train --config cifar10_fna.yaml --against torch,timm,compile,bf16
"""

import argparse
import copy
import itertools
import json
import statistics
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench train``."""
    parser.add_argument("--config", "-c", required=True, metavar="YAML", help="configuration to measure")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="NAME",
        help="a configuration, or torch, transformers, timm, compile or bf16; repeatable, or with commas",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key in all of them")
    parser.add_argument("--steps", type=int, default=50, help="training steps per block (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="blocks per configuration (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=3, help="steps before the first block (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="number of threads; default: PyTorch's choice")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements as JSON")


def run(args: argparse.Namespace) -> int:
    """Measure, and print ratios and profiles."""
    from fna_lightning.bench.peers import PEERS, VARIANTS
    from fna_lightning.bench.timing import prepare_fits

    if min(args.steps, args.repeats) < 1 or args.warmup < 0:
        raise ValueError(
            f"--steps and --repeats must be at least 1 and --warmup at least 0, got {args.steps}, {args.repeats} "
            f"and {args.warmup}"
        )
    prepare_fits(args.threads)
    warnings.filterwarnings("ignore", message=".*have no `val_dataloader`.*")
    warnings.filterwarnings("ignore", message="ReduceLROnPlateau conditioned on metric .* is not available.*")
    names = dict.fromkeys(name for words in args.against for name in words.split(",") if name != args.config)
    first = TimedConfig.build(args.config, args.set)
    others = [first.by(name) if name in (*PEERS, *VARIANTS) else TimedConfig.build(name, args.set) for name in names]
    configs = [first, *others]
    for config in configs:
        if args.warmup:
            config.train_block(args.warmup)
    blocks: dict[str, list[dict[str, float]]] = {config.name: [] for config in configs}
    for turn in range(args.repeats):
        # The order alternates, so that no configuration always runs after the same other one.
        for config in configs if turn % 2 == 0 else reversed(configs):
            blocks[config.name].append(config.train_block(args.steps))
    report = summary(configs, blocks, args)
    _print(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


@dataclass
class TimedConfig:
    """A built configuration with an endless stream of its training batches."""

    name: str
    task: Any
    loader: Any
    batches: Iterator[Any]
    steps_per_epoch: int
    data_settings: dict[str, Any]
    trainer_settings: dict[str, Any]

    @classmethod
    def build(cls, config: str, overrides: list[str]) -> "TimedConfig":
        """Build the task and the data of a configuration."""
        from fna_lightning.config.instantiate import from_config

        built = from_config(config, overrides)
        built.data.prepare_data()
        built.data.setup("fit")
        loader = built.data.train_dataloader()
        return cls(
            Path(config).stem,
            built.task,
            loader,
            _stream(loader),
            len(loader),
            built.data_settings,
            built.trainer_settings,
        )

    def by(self, peer: str) -> "TimedConfig":
        """Return the same training with the network of a peer, or with a variant of ours.

        It has a stream of its own with the same batches.
        """
        from fna_lightning.bench.peers import check_bfloat16, check_same_loss, compiled_variant, with_peer

        if peer == "compile":
            return replace(self, name=peer, task=compiled_variant(self.task), batches=_stream(self.loader))
        if peer == "bf16":
            check_bfloat16()
            settings = {**self.trainer_settings, "precision": "bf16-mixed"}
            task = copy.deepcopy(self.task)
            return replace(self, name=peer, task=task, batches=_stream(self.loader), trainer_settings=settings)
        other = replace(self, name=peer, task=with_peer(peer, self.task), batches=_stream(self.loader))
        check_same_loss(self.task, other.task, next(iter(self.loader)))
        return other

    def train_block(self, steps: int) -> dict[str, float]:
        """Train for ``steps`` steps with Lightning, and return the seconds per step, by phase."""
        import lightning as L
        from lightning.pytorch.loggers import CSVLogger

        from fna_lightning.bench.step_clock import StepClock

        clock = StepClock()
        settings = self.trainer_settings
        trainer_options = {key: settings[key] for key in ("precision", "gradient_clip_val") if key in settings}
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
                **trainer_options,
            )
            trainer.fit(self.task, BlockLoader(clock, self.batches, steps))
        return {"step": clock.total / clock.steps, **clock.profile()}


def _stream(loader: Any) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.repeat(loader))


class BlockLoader:
    """Loader of the next ``steps`` batches of a stream; its time is counted by the clock."""

    def __init__(self, clock: Any, batches: Iterator[Any], steps: int) -> None:
        self.clock = clock
        self.batches = batches
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        return self.clock.loading(itertools.islice(self.batches, self.steps))


def summary(
    configs: list[TimedConfig], blocks: dict[str, list[dict[str, float]]], args: argparse.Namespace
) -> dict[str, Any]:
    """Return the measurements as plain values: seconds by configuration, and ratios of the first to the others."""
    import torch

    from fna_lightning.attention.kernels import chosen_kernels
    from fna_lightning.bench.peers import PEERS
    from fna_lightning.utils.versions import package_versions, processor

    first, *others = configs
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
        "configs": {config.name: _config_summary(config, blocks[config.name]) for config in configs},
        "ratios": ratios,
        "kernels": chosen_kernels(*(config.task for config in configs)),
        "threads": torch.get_num_threads(),
        "machine": processor(),
        "parameters": {config.name: sum(p.numel() for p in config.task.parameters()) for config in configs},
        "versions": package_versions(*(config.name for config in others if config.name in PEERS)),
    }


def _config_summary(config: TimedConfig, blocks: list[dict[str, float]]) -> dict[str, Any]:
    step = statistics.median(block["step"] for block in blocks)
    return {
        "step_seconds": step,
        "epoch_seconds": step * config.steps_per_epoch,
        "blocks": [block["step"] for block in blocks],
        "profile": {
            phase: statistics.median(block[phase] for block in blocks) for phase in blocks[0] if phase != "step"
        },
    }


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    from fna_lightning.utils.console import wide_console

    console = wide_console()
    table = Table("", "ms per step", "s per epoch", title="training", title_justify="left")
    phases = list(next(iter(report["configs"].values()))["profile"])
    for phase in phases:
        table.add_column(phase)
    for name, config in report["configs"].items():
        total = sum(config["profile"].values())
        shares = [f"{config['profile'][phase] / total:.0%}" for phase in phases]
        table.add_row(name, f"{1000 * config['step_seconds']:.1f}", f"{config['epoch_seconds']:.0f}", *shares)
    console.print(table)
    for pair, ratio in report["ratios"].items():
        spread = f"{ratio['smallest']:.2f} to {ratio['largest']:.2f} over {report['repeats']} blocks"
        note = "" if ratio["same_batches"] else "; the data settings differ, so the batches differ too"
        console.print(f"{pair}: {ratio['median']:.2f} ({spread}{note})", highlight=False)
