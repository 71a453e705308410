"""Benchmarks on this machine, reported as ratios measured in one run.

Examples:
  fna-lightning bench attention --quick
  fna-lightning bench attention --json attention.json --plot attention.png
  fna-lightning bench analysis --quick
  fna-lightning bench start
  fna-lightning bench callbacks --config reviews_fna.yaml
  fna-lightning bench train --config imdb_small_fna.yaml --against imdb_small_dp.yaml
  fna-lightning bench translate runs/numbers_fna/version_0/checkpoints/best.ckpt
"""

import argparse
import importlib

# each is a module of fna_lightning.bench with add_arguments(parser) and run(args)
BENCHMARKS = ("analysis", "attention", "callbacks", "start", "train", "translate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one sub-command per benchmark."""
    subparsers = parser.add_subparsers(dest="benchmark", required=True, metavar="{" + ",".join(BENCHMARKS) + "}")
    for name in BENCHMARKS:
        module = importlib.import_module(f"fna_lightning.bench.{name}")
        text = module.__doc__ or ""
        subparser = subparsers.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subparser)


def run(args: argparse.Namespace) -> int:
    """Run the chosen benchmark."""
    return importlib.import_module(f"fna_lightning.bench.{args.benchmark}").run(args)
