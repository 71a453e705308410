"""Measure what this machine does, as ratios taken in one run.

    fna-lightning bench attention --quick
    fna-lightning bench attention --json attention.json --plot attention.png
    fna-lightning bench analysis --quick
    fna-lightning bench callbacks --config reviews_fna.yaml
    fna-lightning bench train --config imdb_small_fna.yaml --against imdb_small_dp.yaml
    fna-lightning bench translate runs/numbers_fna/version_0/checkpoints/best.ckpt

Each thing that can be measured is a module with ``add_arguments`` and ``run``, named in ``SUBJECTS``.
"""

import argparse
from types import ModuleType

from fna_lightning.bench import analysis, attention, callbacks, train, translate

SUBJECTS: dict[str, ModuleType] = {
    "analysis": analysis,
    "attention": attention,
    "callbacks": callbacks,
    "train": train,
    "translate": translate,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one sub-command for each subject."""
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="{" + ",".join(SUBJECTS) + "}")
    for name, module in SUBJECTS.items():
        text = module.__doc__ or ""
        subject = subjects.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(subject)


def run(args: argparse.Namespace) -> int:
    """Measure the chosen subject."""
    return SUBJECTS[args.subject].run(args)
