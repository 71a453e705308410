"""Resume a run from its last checkpoint, after a signal, a crash, a full disk or its end.

The run keeps its configuration; settings given here replace its own and are listed. Weights, optimizer, schedule,
random numbers and the position in the data are restored from the last checkpoint. Resuming is bit-exact on CPU.

Examples:
  fna-lightning resume runs/reviews_fna/version_0
  fna-lightning resume runs/reviews_fna/version_0 --epochs 8
"""

import argparse
import logging
from pathlib import Path

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="build any function or class that config.yaml names; without it, only classes of fna-lightning, of "
        "installed plug-ins and some of PyTorch and Lightning",
    )
    parser.add_argument("run", metavar="RUN_DIR", type=Path, help="folder of a run, with its config.yaml")
    parser.add_argument("settings", nargs=argparse.REMAINDER, metavar="--SETTING VALUE", help="as for fit")


def run(args: argparse.Namespace) -> int:
    """Continue the training."""
    from fna_lightning.checkpoints.resume import ResumePoint, require_run_folder
    from fna_lightning.commands.train import train
    from fna_lightning.training.run_folder import own_run_folder

    require_run_folder(args.run)
    # Lock the folder before reading it: another process may be writing to it.
    with own_run_folder(args.run):
        point = ResumePoint.of(args.run)
        where = f"after step {point.step}" if point.checkpoint else "from its beginning, it has no checkpoint yet"
        log.info("resuming %s %s", args.run, where)
        settings = ["--trust", *args.settings] if args.trust else args.settings
        return train(["fit", f"--config={args.run / 'config.yaml'}", *settings], point)
