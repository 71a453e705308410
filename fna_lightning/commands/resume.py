"""Go on exactly where a run stopped, by a signal, a kill, a full disk or its end.

The configuration is the run's own; settings given here replace its settings and are listed. Weights, optimiser,
schedule, random numbers and the place in the data are those of the last checkpoint, and on a CPU the losses that
follow are bit for bit those of a run that was never stopped.

Examples:
  fna-lightning resume runs/reviews_fna/version_0
  fna-lightning resume runs/reviews_fna/version_0 --trainer.max_epochs 8
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
    parser.add_argument("run", metavar="RUN_DIR", type=Path, help="the folder of a run, with its config.yaml")
    parser.add_argument("settings", nargs=argparse.REMAINDER, metavar="--SETTING VALUE", help="as for fit")


def run(args: argparse.Namespace) -> int:
    """Train on."""
    from fna_lightning.checkpoints.resume import ResumePoint, require_run_folder
    from fna_lightning.commands.train import train
    from fna_lightning.training.run_folder import own_run_folder

    require_run_folder(args.run)
    # the lock comes before anything is read: another process may be writing it
    with own_run_folder(args.run):
        point = ResumePoint.of(args.run)
        where = f"after step {point.step}" if point.checkpoint else "from its beginning, it has no checkpoint yet"
        log.info("resuming %s %s", args.run, where)
        settings = ["--trust", *args.settings] if args.trust else args.settings
        return train(["fit", f"--config={args.run / 'config.yaml'}", *settings], point)
