"""``--logger``: names, missing packages, the loggers of each command, run ids and viewers."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from fna_lightning.checkpoints.resume import ResumePoint
from fna_lightning.cli import main
from fna_lightning.errors import UsageError
from fna_lightning.training import loggers
from fna_lightning.training.csv_logger import MetricsCSVLogger
from fna_lightning.training.figure_writers import MlflowFigures, figure_writers
from fna_lightning.training.loggers import finish_loggers, log_config, logger_names, run_loggers, viewers

from helpers.tiny_runs import train_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty run folder."""
    path = tmp_path / "runs" / "reviews_fna" / "version_3"
    path.mkdir(parents=True)
    return path


def types(items: list[Logger]) -> list[type]:
    return [type(item) for item in items]


def test_names_are_separated_by_commas() -> None:
    assert logger_names("csv, tensorboard,csv") == ("csv", "tensorboard")
    # config.yaml of a run without the setting
    assert logger_names(None) == ("tensorboard",)


def test_an_unknown_name_lists_the_accepted_ones() -> None:
    expected = r"one or several of tensorboard, csv, wandb, mlflow, separated by commas, got 'csv,neptune'; --trainer"
    with pytest.raises(UsageError, match=expected):
        logger_names("csv,neptune")


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(name, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loggers, "find_spec", lambda package: None)
    assert main(["fit", "--config", "reviews_fna.yaml", f"--logger={name}"]) == 2
    expected = f"error: --logger {name} needs the package {name}, which is not installed; run `pip install {name}`"
    assert expected in capsys.readouterr().err
    # the run did not begin
    assert not (tmp_path / "runs").exists()


def test_the_default_is_tensorboard_with_metrics_csv(folder: Path) -> None:
    tensorboard, metrics = run_loggers(["tensorboard"], folder, "fit", ResumePoint(None, step=7, rows=5))
    assert isinstance(tensorboard, TensorBoardLogger)
    assert isinstance(metrics, MetricsCSVLogger)
    assert Path(tensorboard.log_dir) == folder
    assert metrics.rows == 5
    assert viewers([tensorboard, metrics]) == [f"tensorboard --logdir {folder}"]


def test_metrics_csv_is_written_by_fit_only(folder: Path) -> None:
    assert types(run_loggers(["csv"], folder, "fit")) == [MetricsCSVLogger]
    assert run_loggers(["csv"], folder, "test") == []
    assert types(run_loggers(["tensorboard", "csv"], folder, "test")) == [TensorBoardLogger]
    assert viewers(run_loggers(["csv"], folder, "fit")) == [f"metrics: {folder / 'metrics.csv'}"]


def test_other_processes_do_not_open_wandb_and_mlflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert types(run_loggers(["wandb", "mlflow"], folder, "fit")) == [MetricsCSVLogger]


def test_a_damaged_file_of_run_ids_is_an_error(folder: Path) -> None:
    (folder / "loggers.json").write_text('{"wandb": "../../elsewhere"}')
    with pytest.raises(UsageError, match=r"loggers\.json must map names of loggers to run ids; delete it"):
        loggers._stored_ids(folder)


def test_metrics_csv_shows_no_figures(folder: Path) -> None:
    tensorboard, metrics = run_loggers(["tensorboard"], folder, "fit")
    assert figure_writers([metrics]) == []
    assert figure_writers([tensorboard, metrics]) == [tensorboard.experiment]


def test_mlflow_gets_figures_as_files_by_step() -> None:
    calls: list[tuple[Any, ...]] = []
    experiment = SimpleNamespace(log_figure=lambda *arguments: calls.append(arguments))
    writer = MlflowFigures(SimpleNamespace(experiment=experiment, run_id="abc"))  # type: ignore[arg-type]
    writer.add_figure("attention/spectrum", "a figure", 29)
    writer.add_histogram("attention/hops", torch.ones(3), 29)
    assert calls == [("abc", "a figure", "attention/spectrum/00000029.png")]


@pytest.mark.e2e
def test_fit_with_csv_writes_no_events_and_remembers_the_choice(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    folder = train_tiny(tmp_path, "--logger=csv").parents[1]
    assert f"metrics: {folder / 'metrics.csv'}" in capsys.readouterr().out.splitlines()
    assert not list(folder.glob("events*"))
    config = folder / "config.yaml"
    assert yaml.safe_load(config.read_text())["logger"] == "csv"
    assert main(["resume", str(folder), "--trainer.max_epochs=2"]) == 0
    checkpoint = folder / "checkpoints" / "best.ckpt"
    assert main(["test", f"--config={config}", f"--ckpt_path={checkpoint}"]) == 0
    assert not list(folder.glob("events*"))
    assert "test" in json.loads((folder / "results.json").read_text())


def test_wandb_continues_its_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    ids = set()
    for step in (1, 2):
        with finish_loggers():
            metrics, logger = run_loggers(["wandb"], folder, "fit")
            logger.log_metrics({"val/loss": 0.5}, step)
            (line,) = viewers([metrics, logger])
            log_config([logger], {"trainer": {"max_epochs": step}}, folder)
            assert logger.experiment.config["trainer"] == {"max_epochs": step}
            ids.add(logger.experiment.id)
        assert line.startswith(f"wandb sync {folder / 'wandb' / 'offline-run'}")
    assert ids == {json.loads((folder / "loggers.json").read_text())["wandb"]}


def test_mlflow_continues_its_run_in_the_store_of_all_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(variable, raising=False)
    (folder / "config.yaml").write_text("seed_everything: 0\n")
    for step in (1, 2):
        metrics, logger = run_loggers(["mlflow"], folder, "fit")
        logger.log_metrics({"val/loss": 1 / step}, step)
        # a resumed run may have other settings, which MLflow refuses to change
        log_config([logger], {"trainer": {"max_epochs": step}}, folder / "config.yaml")
        logger.finalize("success")
    store = f"sqlite:///{folder.parents[1] / 'mlflow.db'}"
    assert viewers([metrics, logger]) == [f"mlflow ui --backend-store-uri {store}"]
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("fna-lightning")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "reviews_fna/version_3"
    assert run.info.status == "FINISHED"
    assert run.data.params == {"trainer.max_epochs": "1"}
    assert [metric.value for metric in client.get_metric_history(run.info.run_id, "val/loss")] == [1.0, 0.5]
    assert [item.path for item in client.list_artifacts(run.info.run_id)] == ["config.yaml"]
