"""Reads and checks the config.yaml of a run folder, which may come from an untrusted source."""

from pathlib import Path
from typing import Any

import lightning as L
import yaml
from jsonargparse import get_loader
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable

from fna_lightning.config.allowed_classes import model_classes, trainer_classes
from fna_lightning.config.trust import FileCheck
from fna_lightning.errors import UsageError, one_line
from fna_lightning.task import Task
from fna_lightning.utils.limits import check_yaml_file

TRUST = "--trust"
TRUST_HELP = (
    f"{TRUST} lets a file named config.yaml name any class or function of any package, which may run any code.\n"
    "By default it may only name classes of fna-lightning and its plug-ins, and some of PyTorch and Lightning."
)
FILE_NAME = "config.yaml"
WAY_OUT = f"add {TRUST} if you know who wrote the file"

# sections of a saved configuration and their types; any other section is refused
SECTIONS: dict[str, Any] = {
    "seed_everything": int | bool | None,
    "model": Task,
    "data": L.LightningDataModule,
    "logger": str | None,
    "compile": bool,
    "optimizer": OptimizerCallable | None,
    "lr_scheduler": LRSchedulerCallable | None,
    "ckpt_path": str | None,
    "weights_only": bool | None,
    "verbose": bool | None,
    "return_predictions": bool | None,
}


def is_run_config(path: str | Path) -> bool:
    """Whether a file counts as the saved configuration of a run, by its name or by the name of the file it links to."""
    return FILE_NAME in (Path(path).name.lower(), Path(path).resolve().name.lower())


def checked_config(path: Path, way_out: str = WAY_OUT) -> dict[str, Any]:
    """Return the settings of a config.yaml; raise a UsageError that ends with ``way_out`` if it could run code."""
    model = FileCheck(str(path), model_classes(), way_out)
    trainer = FileCheck(str(path), trainer_classes(), way_out)
    settings: dict[str, Any] = {}
    for name, value in read_settings(path).items():
        if name == "trainer":
            settings[name] = trainer.check_arguments(value or {}, L.Trainer, "trainer")
        elif name in SECTIONS:
            settings[name] = model.check(value, SECTIONS[name], name)
        else:
            raise model.refusal(f"the key {str(name)[:40]!r}", f"is not one of {', '.join(['trainer', *SECTIONS])}")
    if settings.get("weights_only") is False:
        raise model.refusal("weights_only", "is false, which would unpickle a checkpoint")
    if "://" in str(settings.get("ckpt_path")) or str(settings.get("ckpt_path")).startswith("registry"):
        raise model.refusal("ckpt_path", f"is the address {settings['ckpt_path']!r}, but a checkpoint must be a file")
    return settings


def read_settings(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file, which must be a mapping."""
    text = check_yaml_file(path)
    try:
        settings = get_loader("yaml")(text)
    except (ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read as YAML: {one_line(error)}; restore the file from a copy") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{path} holds no settings: it must be a mapping with model, data and trainer")
    return settings


def as_text(settings: dict[str, Any]) -> str:
    """Return YAML that every loader reads in the same way: each value is quoted and has a type tag."""
    return yaml.safe_dump(settings, default_style='"', sort_keys=False, width=1 << 20)
