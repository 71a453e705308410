"""Building objects from configurations: a task and its data from a file, or one object from plain values."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import lightning as L
import yaml
from jsonargparse import ArgumentParser, Namespace

from fna_lightning.config.construction import ConstructorFailures
from fna_lightning.config.parser_report import parser_message
from fna_lightning.config.registry import register_builtins
from fna_lightning.config.resolve import resolve_config
from fna_lightning.config.run_config import as_text, checked_config, is_run_config
from fna_lightning.errors import UsageError, one_line
from fna_lightning.task import Task
from fna_lightning.utils.limits import limit_jsonargparse

Instance = TypeVar("Instance")

# arguments that a task takes from its data module, where it has them
DATA_FACTS = (
    *("vocab_size", "num_classes", "channels", "image_size", "source_vocab_size", "target_vocab_size"),
    *("coordinate_dim", "value_dim", "eval_sets"),
)


@dataclass(frozen=True)
class Experiment:
    """Task and data module of a configuration, with the settings of its data and its trainer."""

    task: Task
    data: L.LightningDataModule
    data_settings: dict[str, Any]
    trainer_settings: dict[str, Any]


def from_config(config: str, overrides: list[str] | None = None) -> Experiment:
    """Return the task and the data module of a configuration.

    Args:
        config: path of a YAML file, or the name of a shipped one.
        overrides: settings ``key=value`` that replace those of the file.
    """
    register_builtins()
    limit_jsonargparse()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--seed_everything", type=int | bool, default=0)
    parser.add_argument("--logger", type=str | None, default=None)
    parser.add_argument("--compile", type=bool, default=False)
    parser.add_argument("--trainer", type=dict[str, Any], default={})
    parser.add_subclass_arguments(Task, "model", required=True)
    parser.add_subclass_arguments(L.LightningDataModule, "data", required=True)
    for fact in DATA_FACTS:
        parser.link_arguments(f"data.{fact}", f"model.init_args.{fact}", apply_on="instantiate")
    parser.add_argument("--config", action="config")
    source = resolve_config(config)
    if is_run_config(source):
        source = as_text(checked_config(Path(source), "copy it under another name if you know who wrote it"))
    try:
        parsed = parser.parse_args([f"--config={source}", *(f"--{override}" for override in overrides or [])])
    except Exception as error:
        raise UsageError(f"{config}: {parser_message(str(error))}") from error
    seed = parsed.seed_everything
    if seed is not False:
        L.seed_everything(0 if seed is True else seed, verbose=False)
    failures = ConstructorFailures()
    failures.watch(parser)
    try:
        built = parser.instantiate_classes(parsed)
    except Exception as error:
        named = failures.named(error, parsed)
        if named is error:
            raise
        raise type(named)(f"{config}: {one_line(named)}") from error
    settings = yaml.safe_load(parser.dump(parsed))
    return Experiment(built.model, built.data, settings["data"], settings["trainer"])


def instantiate(base: type[Instance], settings: dict[str, Any], section: str, source: str) -> Instance:
    """Return an object of a subclass of ``base``, built from its ``class_path`` and ``init_args``.

    This function builds every class that ``settings`` names. Check settings of unknown origin first, with
    ``config.trust.FileCheck`` or ``config.run_config.checked_config``.

    Args:
        base: class that the object must be an instance of.
        settings: ``class_path`` and ``init_args`` of the object, and the same for each of its parts.
        section: name of the settings in error messages, e.g. "data".
        source: name of the file they come from in error messages.

    Raises:
        UsageError: if the object cannot be built.
    """
    register_builtins()
    limit_jsonargparse()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(base, section)
    failures = ConstructorFailures()
    failures.watch(parser)
    parsed = Namespace()
    try:
        parsed = parser.parse_object({section: settings})
        instance = parser.instantiate_classes(parsed)[section]
    except Exception as error:
        named = failures.named(error, parsed)
        problem = parser_message(str(error)) if named is error else one_line(named)
        raise UsageError(f"{source}: the {section} cannot be built: {problem}") from error
    assert isinstance(instance, base)
    return instance
