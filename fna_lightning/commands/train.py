"""``fit``, ``validate``, ``test`` and ``predict``: Lightning's subcommands."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from fna_lightning.training.fit_help import short_help
from fna_lightning.training.signals import GRACE, stop_by_signal
from fna_lightning.utils.output import reader_is_gone

if TYPE_CHECKING:
    from fna_lightning.checkpoints.resume import ResumePoint


def train(argv: list[str], resume: "ResumePoint | None" = None) -> int:
    """Run one of Lightning's subcommands and return its exit code."""
    if "--help" in argv or "-h" in argv:
        print(short_help(argv[0]))
        return 0
    # the help of the parser, which lists every setting
    argv = ["--help" if word == "--help-all" else word for word in argv]
    from fna_lightning.config.resolve import config_names, resolve_config_arguments
    from fna_lightning.config.run_config import TRUST

    trust = TRUST in argv
    argv = resolve_config_arguments([word for word in argv if word != TRUST])
    names = config_names(argv)
    import torch
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from fna_lightning.callbacks.defaults import run_callbacks
    from fna_lightning.training.cli import TrainingCLI
    from fna_lightning.training.loggers import finish_loggers
    from fna_lightning.training.malloc import keep_freed_memory
    from fna_lightning.training.run_folder import own_run_folder
    from fna_lightning.utils.limits import limit_jsonargparse

    # products of the small gradients of a trained model are denormal numbers, which are many times slower on a CPU;
    # new threads inherit this setting, so it comes before anything starts threads
    torch.set_flush_denormal(True)
    keep_freed_memory()
    limit_jsonargparse()
    try:
        with stop_by_signal(GRACE), own_run_folder(), finish_loggers():
            TrainingCLI(argv, run_name(names[0]) if names else "unnamed", run_callbacks, resume, trust=trust)
    except SIGTERMException:
        return 128 + signal.SIGTERM
    except SystemExit as stop:
        if reader_is_gone(stop):
            raise
        # Lightning exits with 1 after Ctrl-C; --help and --print_config exit with 0
        code = stop.code if isinstance(stop.code, int) else 0
        return 128 + signal.SIGINT if code == 1 else code
    finally:
        torch.set_flush_denormal(False)
    return 0


def run_name(config: str) -> str:
    """Return the name of a run of a configuration file; the config.yaml of a run folder keeps the name of that run."""
    path = Path(config).absolute()
    return path.parent.parent.name if path.name == "config.yaml" else path.stem
