"""``fit``, ``validate``, ``test`` and ``predict``: Lightning's verbs."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from fna_lightning.training.signals import GRACE, stop_by_signal
from fna_lightning.utils.output import reader_is_gone

if TYPE_CHECKING:
    from fna_lightning.checkpoints.resume import ResumePoint

VERBS = {
    "fit": "train a model from a configuration",
    "validate": "measure a checkpoint on the validation split",
    "test": "measure a checkpoint on the test split",
    "predict": "write a checkpoint's predictions to a file",
}


def train(argv: list[str], resume: "ResumePoint | None" = None) -> int:
    """Run one of Lightning's verbs."""
    from fna_lightning.config.resolve import config_names, resolve_config_arguments
    from fna_lightning.config.run_config import TRUST

    trust = TRUST in argv
    argv = resolve_config_arguments([word for word in argv if word != TRUST])
    named = config_names(argv)
    import torch
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from fna_lightning.callbacks.defaults import run_callbacks
    from fna_lightning.training.cli import TrainingCLI
    from fna_lightning.training.malloc import keep_freed_memory
    from fna_lightning.training.run_folder import own_run_folder
    from fna_lightning.utils.limits import limit_jsonargparse

    # the gradients of a trained model are so small that their products are denormal, which takes a processor many
    # times as long; threads take this over from the one that makes them, so it comes before any work
    torch.set_flush_denormal(True)
    keep_freed_memory()
    limit_jsonargparse()
    try:
        with stop_by_signal(GRACE), own_run_folder():
            TrainingCLI(argv, run_name(named[0]) if named else "unnamed", run_callbacks, resume, trust=trust)
    except SIGTERMException:
        return 128 + signal.SIGTERM
    except SystemExit as stop:
        if reader_is_gone(stop):
            raise
        # Lightning leaves with 1 after Ctrl-C; --help and --print_config leave with 0
        code = stop.code if isinstance(stop.code, int) else 0
        return 128 + signal.SIGINT if code == 1 else code
    finally:
        torch.set_flush_denormal(False)
    return 0


def run_name(config: str) -> str:
    """Return what a run of this configuration file is called; a run's own config.yaml keeps the run's name."""
    path = Path(config).absolute()
    return path.parent.parent.name if path.name == "config.yaml" else path.stem
