"""The command line of ``fit``, ``validate``, ``test`` and ``predict``: LightningCLI with one folder per run."""

import inspect
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml
from jsonargparse.typing import register_type
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.strategies import Strategy

from fna_lightning.checkpoints.atomic_io import AtomicCheckpointIO
from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.checkpoints.locate import TRAINED, UNFINISHED, checkpoint_file
from fna_lightning.checkpoints.resume import ResumePoint, changes, settings
from fna_lightning.config.construction import build
from fna_lightning.config.instantiate import DATA_FACTS
from fna_lightning.config.registry import register_builtins
from fna_lightning.config.run_config import TRUST_HELP
from fna_lightning.errors import UsageError
from fna_lightning.task import Task
from fna_lightning.training import loggers
from fna_lightning.training.dataloading import RunData
from fna_lightning.training.fsdp import FullySharded
from fna_lightning.training.overrides import parse_command_line
from fna_lightning.training.parser import HelpFormatter, OneLineParser, TrustingParser
from fna_lightning.training.process_tree import end_ranks
from fna_lightning.training.run_folder import lock_run_folder, new_run_folder, run_folder_of
from fna_lightning.training.signals import SIGNAL_STATE
from fna_lightning.training.subcommands import help_options, require_checkpoint
from fna_lightning.utils.files import write_text

DEFAULT_ROOT = "runs"
# values of --ckpt_path that are not paths
CHECKPOINT_KEYWORDS = ("best", "last", "hpc")
# jsonargparse writes this text in place of an object that it cannot serialize
NOT_SERIALIZED = "Unable to serialize instance"

COMPILE_HELP = "compile the networks of the model with torch.compile; checkpoints are the same with and without it"

log = logging.getLogger(__name__)


# a Lightning callback has a torch.device as a default, which jsonargparse cannot serialize by itself
register_type(torch.device)


class SaveConfig(SaveConfigCallback):
    """Saves the resolved configuration when training starts, and logs the settings that a resumed run changes."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage != "fit" or not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        path = Path(trainer.default_root_dir) / self.config_filename
        text = self.parser.dump(self.config, skip_none=False)
        if lost := unsaved_settings(text):
            log.warning(
                "config.yaml cannot hold the value of %s, so this run cannot be resumed; pass it as a class_path with "
                "init_args, or as plain values",
                ", ".join(lost),
            )
        if path.is_file():
            for line in changes(path.read_text(encoding="utf-8"), text):
                log.info("changed: %s", line)
        # atomic, because a run without its configuration cannot be resumed
        write_text(path, text)
        loggers.log_config(trainer.loggers, yaml.safe_load(text), path)


@dataclass(frozen=True)
class RunContext:
    """Properties of a run that determine its callbacks.

    Attributes:
        verb: "fit", "validate", "test" or "predict".
        folder: folder of the run.
        seed: seed of the run, or None.
        model: the model to train or evaluate.
        checkpointing: whether the run writes checkpoints.
        progress_bar: whether progress is shown.
        model_summary: whether the parts of the model are listed.
    """

    verb: str
    folder: Path
    seed: int | None
    model: L.LightningModule
    checkpointing: bool
    progress_bar: bool = True
    model_summary: bool = True


# (callbacks of the configuration, context) -> callbacks of the run
CallbackFactory = Callable[[list[L.Callback], RunContext], list[L.Callback]]


class TrainingCLI(LightningCLI):
    """LightningCLI in subclass mode: a configuration names a Task, a data module and callbacks.

    Args:
        args: command line without the name of the program.
        name: name of the run, used for its folder.
        callbacks: function from the callbacks of the configuration to those of the run.
        resume: where to continue a run; None starts a new one.
        trust: whether the config.yaml of a run may name any class or function.
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
            # --trust is documented but not an argument of the parser: a configuration must not be able to set it
            parser_kwargs={
                "prog": "fna-lightning",
                "formatter_class": HelpFormatter,
                **{name: help_options(name, TRUST_HELP) for name in self.subcommands()},
            },
            save_config_callback=SaveConfig,
            # a resumed run writes its configuration again
            save_config_kwargs={"overwrite": True},
            seed_everything_default=0,
            # RunData shards the loaders of every data module so that each example is used once.
            trainer_defaults={"use_distributed_sampler": False},
            args=args,
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        # Lightning's own method warns whenever arguments are passed in, as they always are here
        assert isinstance(parser, OneLineParser)
        self.config = parse_command_line(parser, args)

    # _parse_ckpt_path, _add_instantiators and _run_subcommand are private hooks of LightningCLI that subclasses
    # override (Lightning 2.6).
    def _parse_ckpt_path(self) -> None:
        """Check the checkpoint before anything is built; unlike Lightning's method, take no settings from it."""
        config = self.config[self.config.subcommand]
        path = config.get("ckpt_path")
        # For a strategy given as a class, a folder may hold shards; instantiate_trainer refuses such strategies.
        sharded = path and Path(path).is_dir() and not isinstance(config.trainer.strategy, str)
        if path and path not in CHECKPOINT_KEYWORDS and not sharded:
            self._use_checkpoint(path)

    def _use_checkpoint(self, path: str) -> None:
        """Set ``ckpt_path`` to a checkpoint that exists and can be loaded; ``path`` may be a run folder."""
        verb = self.config.subcommand
        file = checkpoint_file(path, UNFINISHED if verb == "fit" else TRAINED)
        read_checkpoint(file)
        self.config[verb]["ckpt_path"] = str(file)

    def before_instantiate_classes(self) -> None:
        require_checkpoint(str(self.subcommand), self.config[self.subcommand].get("ckpt_path"))
        self.logger_names = loggers.logger_names(self.config[self.subcommand].logger)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--logger", type=str, default=loggers.DEFAULT, help=loggers.HELP)
        parser.add_argument("--compile", type=bool, default=False, help=COMPILE_HELP)
        for fact in DATA_FACTS:
            parser.link_arguments(f"data.{fact}", f"model.init_args.{fact}", apply_on="instantiate")

    def _add_instantiators(self) -> None:
        super()._add_instantiators()
        # after those of Lightning, because the first one that matches a class builds it
        self.parser.add_instantiator(build, object)

    def instantiate_classes(self) -> None:
        with self._naming_the_setting():
            super().instantiate_classes()
        if isinstance(self.model, Task):
            self.model.model_config = self._model_config()
            if self.config[self.subcommand].compile:
                self.model.compile_networks()
        if self.datamodule is not None:
            self.datamodule = RunData(self.datamodule)

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        trainer = self._trainer(**kwargs)
        if self.config[self.subcommand].get("ckpt_path") or self.resume:
            refuse_unpickling(trainer.strategy)
        return trainer

    def _trainer(self, **kwargs: Any) -> L.Trainer:
        config = self.config[self.subcommand]
        arguments = self.config_init[self.subcommand].trainer
        kwargs["plugins"] = _with_atomic_checkpoints(arguments.plugins)
        if config.trainer.fast_dev_run:
            return super().instantiate_trainer(**kwargs)
        root = Path(config.trainer.default_root_dir or DEFAULT_ROOT)
        existing = run_folder_of(config.get("ckpt_path")) if self.subcommand != "fit" else None
        self.folder = existing or new_run_folder(root, self.run_name)
        if self.subcommand == "fit":
            lock_run_folder(self.folder)
        if not arguments.logger and arguments.logger is not False:
            kwargs["logger"] = loggers.run_loggers(self.logger_names, self.folder, str(self.subcommand), self.resume)
        callbacks = arguments.callbacks or []
        seed = config.get("seed_everything")
        context = RunContext(
            verb=str(self.subcommand),
            folder=self.folder,
            seed=seed if isinstance(seed, int) else None,
            model=self.model,
            checkpointing=config.trainer.enable_checkpointing is not False,
            progress_bar=config.trainer.enable_progress_bar is not False,
            model_summary=config.trainer.enable_model_summary is not False,
        )
        callbacks = self.callbacks(callbacks if isinstance(callbacks, list) else [callbacks], context)
        return super().instantiate_trainer(callbacks=callbacks, default_root_dir=str(self.folder), **kwargs)

    def _run_subcommand(self, subcommand: str) -> None:
        """Run the subcommand; if a signal stops it, end the processes that it launched."""
        try:
            # optimizers and schedules are built when the training starts
            with self._naming_the_setting():
                super()._run_subcommand(subcommand)
        except BaseException:
            if SIGNAL_STATE.number:
                end_ranks(getattr(self.trainer.strategy.launcher, "procs", []), ask=not SIGNAL_STATE.deferred)
            raise

    @contextmanager
    def _naming_the_setting(self) -> Iterator[None]:
        """Context manager in which the error of a constructor names the setting of its object."""
        try:
            yield
        except Exception as error:
            assert isinstance(self.parser, OneLineParser)
            named = self.parser.failures.named(error, self.config[self.subcommand])
            if named is error:
                raise
            raise named from error

    def before_fit(self) -> None:
        """Set the checkpoint to resume from; as a setting in config.yaml it would apply to later runs, too."""
        if self.resume and self.resume.checkpoint:
            self.config_init[self.subcommand]["ckpt_path"] = str(self.resume.checkpoint)

    def _model_config(self) -> dict[str, Any]:
        """Return the configuration of the model as plain values, including the arguments linked from the data."""
        plain = json.loads(self.parser.dump(self.config, format="json", skip_none=False))[self.subcommand]
        model_config: dict[str, Any] = plain["model"]
        parameters = inspect.signature(type(self.model)).parameters
        for fact in DATA_FACTS:
            if fact in parameters and hasattr(self.datamodule, fact):
                model_config["init_args"][fact] = getattr(self.datamodule, fact)
        return model_config


def unsaved_settings(config: str) -> list[str]:
    """Return the names of the settings that jsonargparse could not serialize."""
    return [name for name, value in settings(yaml.safe_load(config)) if NOT_SERIALIZED in str(value)]


def refuse_unpickling(strategy: Strategy) -> None:
    """Raise a UsageError for a strategy that loads checkpoints itself and may execute code stored in them."""
    if type(strategy).load_checkpoint is Strategy.load_checkpoint or isinstance(strategy, FullySharded):
        return
    raise UsageError(
        f"{type(strategy).__name__} loads checkpoints without this program's checks and may run code stored in them; "
        "use --trainer.strategy=ddp or fsdp2"
    )


def _with_atomic_checkpoints(plugins: Any) -> list[Any]:
    """Return the plugins as a list, with an AtomicCheckpointIO unless there is a CheckpointIO already."""
    listed = plugins if isinstance(plugins, list) else [] if plugins is None else [plugins]
    return listed if any(isinstance(plugin, CheckpointIO) for plugin in listed) else [*listed, AtomicCheckpointIO()]
