"""fit, validate, test and predict: Lightning's own command line, with a run folder for each run."""

import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import lightning as L
import torch
import yaml
from jsonargparse import Namespace
from jsonargparse.typing import register_type
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.strategies import Strategy

from fna_lightning.checkpoints.atomic_io import AtomicCheckpointIO
from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.checkpoints.resume import ResumePoint, changes, settings
from fna_lightning.config.instantiate import DATA_FACTS
from fna_lightning.config.messages import one_line
from fna_lightning.config.registry import register_builtins
from fna_lightning.config.run_config import TRUST, TRUST_HELP, as_text, checked_config, is_run_config
from fna_lightning.errors import UsageError
from fna_lightning.task import Task
from fna_lightning.training.csv_logger import MetricsCSVLogger
from fna_lightning.training.dataloading import RunData
from fna_lightning.training.fsdp import FullySharded
from fna_lightning.training.process_tree import end_ranks
from fna_lightning.training.run_folder import lock_run_folder, new_run_folder, run_folder_of
from fna_lightning.training.signals import SIGNAL_STATE
from fna_lightning.utils.files import write_text

DEFAULT_ROOT = "runs"
# what jsonargparse writes instead of an object that it cannot write
UNWRITTEN = "Unable to serialize instance"

log = logging.getLogger(__name__)


class OneLineParser(LightningArgumentParser):
    """Reports a mistake as one sentence instead of the usage of a hundred options."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:
            # a parser inside the parser: its report becomes part of ours
            super().error(message, ex)
        raise UsageError(one_line(message)) from ex

    def parse_path(self, path: Any, *args: Any, **kwargs: Any) -> Namespace:
        """Parse a configuration file; the config.yaml of a run may name listed classes only."""
        if not is_run_config(path):
            return super().parse_path(path, *args, **kwargs)
        # the content that was checked: the file could be another one when it is read again
        return self.parse_string(as_text(checked_config(Path(path))), str(path), *args, **kwargs)


class TrustingParser(OneLineParser):
    """Parses the config.yaml of a run like any other configuration, with a warning."""

    def parse_path(self, path: Any, *args: Any, **kwargs: Any) -> Namespace:
        if is_run_config(path):
            log.warning("%s: %s may run any code it names", TRUST, path)
        return LightningArgumentParser.parse_path(self, path, *args, **kwargs)


# the default of a parameter of a Lightning callback is one, and jsonargparse does not know how to write it
register_type(torch.device)


class SaveConfig(SaveConfigCallback):
    """Saves the resolved configuration when a run starts training, and says what a resumed one does otherwise."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage != "fit" or not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        path = Path(trainer.default_root_dir) / self.config_filename
        now = self.parser.dump(self.config, skip_none=False)
        if lost := unsaved_settings(now):
            log.warning(
                "config.yaml cannot hold the value of %s, so this run cannot be resumed; give it as a class_path with "
                "init_args, or as plain values",
                ", ".join(lost),
            )
        if path.is_file():
            for line in changes(path.read_text(encoding="utf-8"), now):
                log.info("changed: %s", line)
        # whole or not at all: without it the run could not be resumed
        write_text(path, now)


@dataclass(frozen=True)
class RunContext:
    """What callbacks of a run are chosen by.

    Attributes:
        verb: "fit", "validate", "test" or "predict".
        folder: folder of the run.
        seed: seed of the run; None if it has none.
        model: the model that is run.
        checkpointing: whether the run writes checkpoints.
    """

    verb: str
    folder: Path
    seed: int | None
    model: L.LightningModule
    checkpointing: bool


# returns the callbacks of a run, given those that its configuration names
CallbackFactory = Callable[[list[L.Callback], RunContext], list[L.Callback]]


class TrainingCLI(LightningCLI):
    """LightningCLI in subclass mode: a configuration names a Task, a data module and callbacks.

    Args:
        args: the arguments after the program's name.
        name: name of the run, which is the name of its folder.
        callbacks: returns the callbacks of the run, given those of the configuration.
        resume: where to take up a run; None starts a new one.
        trust: whether the config.yaml of a run may name any function or class.
    """

    def __init__(
        self,
        args: list[str],
        name: str,
        callbacks: CallbackFactory,
        resume: ResumePoint | None = None,
        *,
        trust: bool = False,
    ) -> None:
        register_builtins()
        self.run_name = name
        self.callbacks = callbacks
        self.resume = resume
        self.folder = Path()
        super().__init__(
            Task,
            L.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            parser_class=TrustingParser if trust else OneLineParser,
            # not an argument of the parser: a configuration must not be able to set it
            parser_kwargs={"prog": "fna-lightning", **{verb: {"epilog": TRUST_HELP} for verb in self.subcommands()}},
            save_config_callback=SaveConfig,
            # a resumed run writes the same configuration again
            save_config_kwargs={"overwrite": True},
            seed_everything_default=0,
            # RunData shards the loaders of every data module so that each example is used once.
            trainer_defaults={"use_distributed_sampler": False},
            args=args,
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        # not Lightning's own: it warns whenever arguments are passed in, and ours always are
        self.config = parser.parse_args(args)

    # _parse_ckpt_path and _run_subcommand are private hooks of LightningCLI that subclasses override (Lightning 2.6).
    def _parse_ckpt_path(self) -> None:
        """Look at the checkpoint before anything is built; unlike Lightning's own, take no settings from it."""
        path = self.config[self.config.subcommand].get("ckpt_path")
        if path and Path(path).is_file():
            read_checkpoint(path)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        for fact in DATA_FACTS:
            parser.link_arguments(f"data.{fact}", f"model.init_args.{fact}", apply_on="instantiate")

    def instantiate_classes(self) -> None:
        super().instantiate_classes()
        if isinstance(self.model, Task):
            self.model.model_config = self._model_config()
        if self.datamodule is not None:
            self.datamodule = RunData(self.datamodule)

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        trainer = self._trainer(**kwargs)
        if self.config[self.subcommand].get("ckpt_path") or self.resume:
            refuse_unpickling(trainer.strategy)
        return trainer

    def _trainer(self, **kwargs: Any) -> L.Trainer:
        config = self.config[self.subcommand]
        given = self.config_init[self.subcommand].trainer
        kwargs["plugins"] = _with_atomic_checkpoints(given.plugins)
        if config.trainer.fast_dev_run:
            return super().instantiate_trainer(**kwargs)
        root = Path(config.trainer.default_root_dir or DEFAULT_ROOT)
        existing = run_folder_of(config.get("ckpt_path")) if self.subcommand != "fit" else None
        self.folder = existing or new_run_folder(root, self.run_name)
        if self.subcommand == "fit":
            lock_run_folder(self.folder)
        if not given.logger and given.logger is not False:
            kwargs["logger"] = self._loggers()
        callbacks = given.callbacks or []
        seed = config.get("seed_everything")
        context = RunContext(
            verb=str(self.subcommand),
            folder=self.folder,
            seed=seed if isinstance(seed, int) else None,
            model=self.model,
            checkpointing=config.trainer.enable_checkpointing is not False,
        )
        callbacks = self.callbacks(callbacks if isinstance(callbacks, list) else [callbacks], context)
        return super().instantiate_trainer(callbacks=callbacks, default_root_dir=str(self.folder), **kwargs)

    def _loggers(self) -> list[Logger]:
        where: dict[str, Any] = {
            "save_dir": self.folder.parent.parent,
            "name": self.folder.parent.name,
            "version": self.folder.name,
        }
        # what is measured again after a resume hides what was measured before
        again: dict[str, Any] = {"purge_step": self.resume.step} if self.resume else {}
        loggers: list[Logger] = [TensorBoardLogger(**where, **again)]
        if self.subcommand == "fit":
            loggers.append(MetricsCSVLogger(self.folder, self.resume.rows if self.resume else 0))
        return loggers

    def _run_subcommand(self, subcommand: str) -> None:
        """Run the verb; if a signal stops it, leave none of the processes that it has launched behind."""
        try:
            super()._run_subcommand(subcommand)
        except BaseException:
            if SIGNAL_STATE.number:
                end_ranks(getattr(self.trainer.strategy.launcher, "procs", []), ask=not SIGNAL_STATE.deferred)
            raise

    def before_fit(self) -> None:
        """Take up the run; not by a setting, which would be saved and make a later run begin there too."""
        if self.resume and self.resume.checkpoint:
            self.config_init[self.subcommand]["ckpt_path"] = str(self.resume.checkpoint)

    def _model_config(self) -> dict[str, Any]:
        """Return the model's configuration as plain values, with what it took from the data."""
        plain = json.loads(self.parser.dump(self.config, format="json", skip_none=False))[self.subcommand]
        model_config: dict[str, Any] = plain["model"]
        takes = inspect.signature(type(self.model)).parameters
        for fact in DATA_FACTS:
            if fact in takes and hasattr(self.datamodule, fact):
                model_config["init_args"][fact] = getattr(self.datamodule, fact)
        return model_config


def unsaved_settings(config: str) -> list[str]:
    """Return the names of settings that the parser could not write down in YAML."""
    return [name for name, value in settings(yaml.safe_load(config)) if UNWRITTEN in str(value)]


def refuse_unpickling(strategy: Strategy) -> None:
    """Refuse a strategy that reads checkpoints past our CheckpointIO, and so may run what is stored in them."""
    if type(strategy).load_checkpoint is Strategy.load_checkpoint or isinstance(strategy, FullySharded):
        return
    raise UsageError(
        f"{type(strategy).__name__} reads checkpoints in a way of its own that may run code stored in them; use "
        "--trainer.strategy=ddp or fsdp2"
    )


def _with_atomic_checkpoints(plugins: Any) -> list[Any]:
    """Return the plugins with our way of writing and reading checkpoints, unless another one is among them."""
    found = plugins if isinstance(plugins, list) else [] if plugins is None else [plugins]
    return found if any(isinstance(one, CheckpointIO) for one in found) else [*found, AtomicCheckpointIO()]
