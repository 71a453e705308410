"""fit, validate, test and predict: Lightning's own command line, with a run folder for each run."""

import inspect
import json
from pathlib import Path
from typing import Any, NoReturn

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from fna_lightning import tasks  # noqa: F401 - importing is registering: a configuration may say `TextClassification`
from fna_lightning.callbacks import HParams, PredictionsFile, RunSummary
from fna_lightning.errors import UsageError, one_sentence
from fna_lightning.run_folder import new_run_folder, run_folder_of
from fna_lightning.task import Task

# what a model must know of its data; linked where a task takes it and the data module says it
DATA_FACTS = ("vocab_size", "num_classes")

DEFAULT_ROOT = "runs"


class OneSentenceParser(LightningArgumentParser):
    """Reports a mistake as one sentence instead of the usage of a hundred options."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:
            # a parser inside the parser: its report becomes part of ours
            super().error(message, ex)
        raise UsageError(one_sentence(message)) from ex


class SaveConfig(SaveConfigCallback):
    """Saves the resolved configuration when a run starts training, not when a finished one is tested."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage == "fit":
            super().setup(trainer, pl_module, stage)


class TrainingCLI(LightningCLI):
    """LightningCLI in subclass mode: a configuration names a Task, a data module and callbacks.

    Args:
        args: the arguments after the program's name.
        name: what the run is called in the folder of runs.
    """

    def __init__(self, args: list[str], name: str) -> None:
        self.run_name = name
        self.folder = Path()
        super().__init__(
            Task,
            L.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            parser_class=OneSentenceParser,
            parser_kwargs={"prog": "fna-lightning"},
            save_config_callback=SaveConfig,
            # a resumed run writes the same configuration again
            save_config_kwargs={"overwrite": True},
            seed_everything_default=0,
            # our data modules share out their batches themselves, each sample once
            trainer_defaults={"use_distributed_sampler": False},
            args=args,
        )

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        # not Lightning's own: it warns whenever arguments are passed in, and ours always are
        self.config = parser.parse_args(args)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        for fact in DATA_FACTS:
            parser.link_arguments(f"data.{fact}", f"model.init_args.{fact}", apply_on="instantiate")

    def instantiate_classes(self) -> None:
        super().instantiate_classes()
        if isinstance(self.model, Task):
            self.model.recipe = self._recipe()

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        config = self.config[self.subcommand]
        given = self.config_init[self.subcommand].trainer
        if config.trainer.fast_dev_run:
            return super().instantiate_trainer(**kwargs)
        root = Path(config.trainer.default_root_dir or DEFAULT_ROOT)
        existing = run_folder_of(config.get("ckpt_path")) if self.subcommand != "fit" else None
        self.folder = existing or new_run_folder(root, self.run_name)
        if not given.logger and given.logger is not False:
            kwargs["logger"] = self._loggers()
        callbacks = given.callbacks or []
        callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
        seed = config.get("seed_everything")
        seed = seed if isinstance(seed, int) else None
        callbacks = [*callbacks, RunSummary(str(self.folder), seed)]
        if self.subcommand == "fit":
            callbacks.append(HParams(seed))
        if self.subcommand == "predict":
            callbacks.append(PredictionsFile(str(self.folder)))
        if self.subcommand == "fit" and config.trainer.enable_checkpointing is not False:
            callbacks += self._checkpoints(callbacks)
        return super().instantiate_trainer(callbacks=callbacks, default_root_dir=str(self.folder), **kwargs)

    def _loggers(self) -> list[Logger]:
        where: dict[str, Any] = {
            "save_dir": self.folder.parent.parent,
            "name": self.folder.parent.name,
            "version": self.folder.name,
        }
        loggers: list[Logger] = [TensorBoardLogger(**where)]
        if self.subcommand == "fit":
            loggers.append(CSVLogger(**where))
        return loggers

    def _checkpoints(self, callbacks: list[L.Callback]) -> list[L.Callback]:
        """Keep the best and the last checkpoint, unless the configuration says what to keep."""
        if any(isinstance(callback, ModelCheckpoint) for callback in callbacks) or not isinstance(self.model, Task):
            return []
        metric, mode = self.model.monitor
        return [
            ModelCheckpoint(
                dirpath=self.folder / "checkpoints",
                filename="best",
                monitor=metric,
                mode=mode,
                save_last=True,
                enable_version_counter=False,
            )
        ]

    def _recipe(self) -> dict[str, Any]:
        """Return the model's configuration as plain values, with what it took from the data."""
        plain = json.loads(self.parser.dump(self.config, format="json", skip_none=False))[self.subcommand]
        recipe: dict[str, Any] = plain["model"]
        takes = inspect.signature(type(self.model)).parameters
        for fact in DATA_FACTS:
            if fact in takes and hasattr(self.datamodule, fact):
                recipe["init_args"][fact] = getattr(self.datamodule, fact)
        return recipe
