"""The loggers of a run, chosen by ``--logger``: TensorBoard, metrics.csv, Weights & Biases and MLflow."""

import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock
from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from fna_lightning.checkpoints.resume import ResumePoint, settings
from fna_lightning.errors import UsageError, one_line
from fna_lightning.training.csv_logger import MetricsCSVLogger
from fna_lightning.training.run_folder import global_rank
from fna_lightning.utils.files import write_text
from fna_lightning.utils.limits import read_json

# name of a logger -> optional package it needs
LOGGERS: dict[str, str | None] = {"tensorboard": None, "csv": None, "wandb": "wandb", "mlflow": "mlflow"}
DEFAULT = "tensorboard"
HELP = (
    "where metrics go: tensorboard, csv, wandb or mlflow, or several separated by commas; metrics.csv is written "
    "in any case"
)
# project of Weights & Biases and experiment of MLflow, unless WANDB_PROJECT or MLFLOW_EXPERIMENT_NAME is set
PROJECT = "fna-lightning"
# file in the run folder with the run ids of Weights & Biases and MLflow
IDS_FILE = "loggers.json"

log = logging.getLogger(__name__)


def logger_names(text: str | None) -> tuple[str, ...]:
    """Return the names in the value of ``--logger``; raise a UsageError if a name or its package is missing."""
    names = tuple(dict.fromkeys(name.strip() for name in (DEFAULT if text is None else text).split(",")))
    for name in names:
        if name not in LOGGERS:
            raise UsageError(
                f"--logger must be one or several of {', '.join(LOGGERS)}, separated by commas, got {text!r}; "
                "--trainer.logger=false turns all loggers off"
            )
        package = LOGGERS[name]
        if package and find_spec(package) is None:
            raise UsageError(
                f"--logger {name} needs the package {package}, which is not installed; run `pip install {package}`"
            )
    return names


def run_loggers(names: Iterable[str], folder: Path, verb: str, resume: ResumePoint | None = None) -> list[Logger]:
    """Return the loggers of a run and open them.

    Weights & Biases and MLflow are opened by the first process only. A run folder keeps their run ids, so ``resume``,
    ``validate`` and ``test`` continue the runs that ``fit`` began.

    Args:
        names: names of the loggers.
        folder: the run folder.
        verb: "fit", "validate", "test" or "predict"; metrics.csv is written by ``fit``.
        resume: where the run is continued; None for a new run.
    """
    loggers: list[Logger] = []
    if "tensorboard" in names:
        # hides the values logged after the checkpoint, which a resumed run logs again
        purge: dict[str, Any] = {"purge_step": resume.step} if resume else {}
        location: dict[str, Any] = {"name": folder.parent.name, "version": folder.name}
        loggers.append(TensorBoardLogger(folder.parent.parent, **location, **purge))
    if verb == "fit":
        # always, because resuming counts its rows
        loggers.append(MetricsCSVLogger(folder, resume.rows if resume else 0))
    if global_rank() or verb == "predict":
        return loggers
    if "wandb" in names:
        loggers.append(_wandb_logger(folder))
    if "mlflow" in names:
        loggers.append(RunMLFlowLogger(folder))
    return loggers


def _wandb_logger(folder: Path) -> WandbLogger:
    """Return the logger of Weights & Biases; its files are in the run folder."""
    from wandb.errors import Error

    identifier = _stored_ids(folder).get("wandb") or secrets.token_hex(4)
    logger = WandbLogger(
        name=f"{folder.parent.name}/{folder.name}",
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        group=os.environ.get("WANDB_RUN_GROUP", folder.parent.name),
        id=identifier,
        save_dir=folder,
    )
    try:
        _ = logger.experiment
    except Error as error:
        reason = one_line(error).rstrip(".")
        raise UsageError(
            f"Weights & Biases cannot start ({reason}); run `wandb login`, or set WANDB_MODE=offline"
        ) from error
    _store_id(folder, "wandb", identifier)
    return logger


class RunMLFlowLogger(MLFlowLogger):
    """MLflow logger of a run folder.

    All runs share one store, ``mlflow.db`` beside their folders, because MLflow compares the runs of a store. It is an
    SQLite database: MLflow 3 refuses to write its older format, a folder of files. ``MLFLOW_TRACKING_URI`` names
    another store or a server.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: Path) -> None:
        from mlflow.exceptions import MlflowException

        # the creation of a database is reported in a dozen lines
        for name in ("alembic", "mlflow.store.db.utils"):
            logging.getLogger(name).setLevel(logging.WARNING)
        root = folder.parent.parent.absolute()
        self.tracking_uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root / 'mlflow.db'}"
        self._shared = "MLFLOW_TRACKING_URI" in os.environ
        try:
            # runs of a sweep start at the same time, but only one of them may create the database
            with FileLock(root / "mlflow.lock"):
                super().__init__(
                    os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT),
                    run_name=f"{folder.parent.name}/{folder.name}",
                    tracking_uri=self.tracking_uri,
                    artifact_location=None if self._shared else (root / "mlartifacts").as_uri(),
                    run_id=self._stored_run(folder),
                )
                identifier = self.run_id
        except MlflowException as error:
            if "MLFLOW_ALLOW_FILE_STORE" in str(error):
                raise UsageError(
                    f"MLflow does not write to a folder any more, got MLFLOW_TRACKING_URI={self.tracking_uri}; "
                    "unset it, or set MLFLOW_ALLOW_FILE_STORE=true"
                ) from error
            raise UsageError(f"MLflow cannot use {self.tracking_uri}: {one_line(error)}") from error
        _store_id(folder, "mlflow", str(identifier))

    def _stored_run(self, folder: Path) -> str | None:
        """Return the id of the run that ``fit`` began; None if the store does not have it."""
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        identifier = _stored_ids(folder).get("mlflow")
        if identifier is not None:
            try:
                MlflowClient(self.tracking_uri).update_run(identifier, status="RUNNING")
            except MlflowException:
                log.warning("%s has no run %s, so a new one begins", self.tracking_uri, identifier)
                return None
        return identifier

    def log_hyperparams(self, params: Any) -> None:
        """Log parameters that are new; MLflow refuses to change the others, such as the epochs of a resumed run."""
        logged = self.experiment.get_run(str(self.run_id)).data.params
        super().log_hyperparams({name: value for name, value in dict(params).items() if name not in logged})

    @property
    def viewer(self) -> str:
        """Command or address that shows the run."""
        if self.tracking_uri.startswith("http"):
            return f"{self.tracking_uri.rstrip('/')}/#/experiments/{self.experiment_id}/runs/{self.run_id}"
        return f"mlflow ui --backend-store-uri {self.tracking_uri}"


def log_config(loggers: Iterable[Logger], config: dict[str, Any], path: Path) -> None:
    """Log the resolved configuration to Weights & Biases and MLflow.

    Args:
        loggers: the loggers of the run.
        config: the configuration as plain values.
        path: config.yaml of the run, which MLflow also gets as a file.
    """
    for logger in loggers:
        if isinstance(logger, WandbLogger):
            logger.log_hyperparams(config)
        elif isinstance(logger, RunMLFlowLogger):
            logger.log_hyperparams(dict(settings(config)))
            logger.experiment.log_artifact(str(logger.run_id), str(path))


def viewers(loggers: Sequence[Logger]) -> list[str]:
    """Return the commands or addresses that show what was logged; the metrics file if there is nothing else."""
    lines: list[str] = []
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            lines.append(f"tensorboard --logdir {logger.log_dir}")
        elif isinstance(logger, RunMLFlowLogger):
            lines.append(logger.viewer)
        elif isinstance(logger, WandbLogger):
            run = logger.experiment
            if run.url:
                lines.append(run.url)
            elif not getattr(run, "disabled", False):
                lines.append(f"wandb sync {Path(run.dir).parent}")
    files = [f"metrics: {logger.path}" for logger in loggers if isinstance(logger, MetricsCSVLogger)]
    return lines or files


@contextmanager
def finish_loggers() -> Iterator[None]:
    """Context manager around one run: ends its run of Weights & Biases, so that the next run begins another."""
    code = 1
    try:
        yield
        code = 0
    finally:
        wandb = sys.modules.get("wandb")
        if wandb is not None and wandb.run is not None:
            wandb.finish(exit_code=code)


def _stored_ids(folder: Path) -> dict[str, str]:
    """Return the ids in loggers.json of a run folder; empty if there is no such file."""
    path = folder / IDS_FILE
    if not path.is_file():
        return {}
    ids = read_json(path, "delete it, and new runs of Weights & Biases and MLflow begin")
    if not isinstance(ids, dict) or not all(re.fullmatch(r"[\w-]{1,64}", str(value)) for value in ids.values()):
        raise UsageError(f"{path} must map names of loggers to run ids; delete it, and new runs begin")
    return {str(name): str(value) for name, value in ids.items()}


def _store_id(folder: Path, name: str, identifier: str) -> None:
    ids = {**_stored_ids(folder), name: identifier}
    write_text(folder / IDS_FILE, json.dumps(ids, indent=2) + "\n")
