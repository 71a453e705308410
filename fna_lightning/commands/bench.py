"""Benchmarks on this machine, reported as ratios measured in one run.

Examples:
  fna-lightning bench attention --quick
  fna-lightning bench attention --json attention.json --plot attention.png
  fna-lightning bench attention --device cuda --json gpu.json
  fna-lightning bench analysis --quick
  fna-lightning bench start
  fna-lightning bench gpu-build --quick
  fna-lightning bench long
  fna-lightning bench callbacks --config reviews_fna.yaml
  fna-lightning bench train --config imdb_small_fna.yaml --against imdb_small_dp.yaml
  fna-lightning bench translate runs/numbers_fna/version_0
"""

import argparse
from types import ModuleType


def benchmarks() -> dict[str, ModuleType]:
    """Return the modules of the benchmarks by name; each has ``add_arguments`` and ``run``."""
    # here, because they import PyTorch, which the help of `fna-lightning` does not need
    from fna_lightning.bench import analysis, attention, callbacks, gpu_build, long, start, train, translate

    modules = (analysis, attention, callbacks, gpu_build, long, start, train, translate)
    return {module.__name__.rpartition(".")[2].replace("_", "-"): module for module in modules}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one sub-command per benchmark."""
    modules = benchmarks()
    subparsers = parser.add_subparsers(dest="benchmark", required=True, metavar="{" + ",".join(modules) + "}")
    for name, module in modules.items():
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
    return benchmarks()[args.benchmark].run(args)
