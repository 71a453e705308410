"""fit, test, predict, list and --help on the command line."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from fna_lightning.cli import main
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE

pytestmark = pytest.mark.e2e

SMALL = ["--data.train_size=64", "--data.eval_size=40", "--data.longest=60", "--trainer.max_epochs=1"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder, without an inherited run folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUN_DIR_VARIABLE, "")
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return tmp_path


def test_fit_test_and_predict_in_one_run_folder(
    empty_folder: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    assert main(["fit", "-c", "reviews_fna.yaml", *SMALL]) == 0
    run = empty_folder / "runs/reviews_fna/version_0"
    assert {"config.yaml", "checkpoints", "metrics.csv", "results.json"} <= {path.name for path in run.iterdir()}
    assert list(run.glob("events.out.tfevents.*"))
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["init_args"]["attention"]["init_args"]["alpha"] == 1.2
    results = json.loads((run / "results.json").read_text())
    assert results["fit"]["best_checkpoint"] == "checkpoints/best.ckpt"
    assert results["fit"]["metrics"].keys() >= {"train/loss", "val/loss", "val/accuracy", "train/accuracy"}
    assert results["run"]["seed"] == 0
    assert results["run"]["versions"]["torch"]
    (kernel,) = results["run"]["kernel"].values()
    printed = capsys.readouterr().out
    assert "val/accuracy" in printed
    assert f"{kernel} for Fractional(alpha=1.2" in printed
    assert "tensorboard --logdir runs/reviews_fna/version_0" in printed.splitlines()

    checkpoint = str(run / "checkpoints/best.ckpt")
    assert main(["test", f"--config={run / 'config.yaml'}", f"--ckpt_path={checkpoint}"]) == 0
    tested = json.loads((run / "results.json").read_text())
    assert tested["fit"] == results["fit"]
    assert 0 <= tested["test"]["metrics"]["test/accuracy"] <= 1

    assert main(["predict", f"--config={run / 'config.yaml'}", f"--ckpt_path={checkpoint}"]) == 0
    rows = list(csv.DictReader((run / "predictions.csv").open()))
    assert [int(row["index"]) for row in rows] == list(range(40))
    assert all(row["class"] in ("negative", "positive") and 0.5 <= float(row["probability"]) <= 1 for row in rows)
    assert not (empty_folder / "runs/reviews_fna/version_1").exists()
    # Lightning warns about our batch samplers, which return every example; commands.guard hides the warning by name
    assert not [warning for warning in recwarn if "custom batch sampler" in str(warning.message)]


def test_each_run_gets_a_new_folder(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        monkeypatch.setenv(RUN_DIR_VARIABLE, "")
        assert main(["fit", "--config=reviews_dp", *SMALL, "--trainer.enable_progress_bar=false"]) == 0
    assert {path.name for path in (empty_folder / "runs/reviews_dp").iterdir()} == {"version_0", "version_1"}


def test_the_same_seed_gives_the_same_weights(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    states = []
    for seed in (1, 1, 2):
        monkeypatch.setenv(RUN_DIR_VARIABLE, "")
        assert main(["fit", "--config=reviews_fna", *SMALL, f"--seed_everything={seed}"]) == 0
    for number in range(3):
        path = empty_folder / f"runs/reviews_fna/version_{number}/checkpoints/last.ckpt"
        states.append(torch.load(path, weights_only=True)["state_dict"])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["head.weight"], states[2]["head.weight"])


def test_print_config_shows_the_resolved_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config", "reviews_fna.yaml", "--model.attention.alpha=1.6", "--print_config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["model"]["init_args"]["attention"]["init_args"]["alpha"] == 1.6
    assert config["model"]["init_args"]["encoder"]["depth"] == 1


@pytest.mark.parametrize("command", [[], ["analyze"], ["fit"], ["list"], ["sweep"], ["test"]], ids=str)
def test_help_has_usage_and_an_example(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "usage: fna-lightning" in printed
    assert "example" in printed.lower()


def test_list_contains_the_built_in_classes(empty_folder: Path) -> None:
    # in a separate process, because other tests define attentions
    command = [sys.executable, "-P", "-m", "fna_lightning.cli", "list", "--json", "all.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=empty_folder)
    lists = json.loads((empty_folder / "all.json").read_text())
    assert lists["attentions"].keys() == {"DotProduct", "Fractional", "Spherical", "StudentT", "Uniform"}
    assert lists["kernels"]["chunked"] == "ok"
    assert "TextClassification" in lists["tasks"]
    assert "ReviewData" in lists["data"]
    assert "reviews_fna.yaml" in done.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=str)
def test_a_signal_ends_the_run_with_its_exit_code(empty_folder: Path, number: signal.Signals, code: int) -> None:
    command = [
        sys.executable,
        "-m",
        "fna_lightning.cli",
        "fit",
        "--config=reviews_dp",
        *SMALL,
        "--trainer.max_epochs=9999",
    ]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", RUN_DIR_VARIABLE: ""}
    run = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=empty_folder,
        # a shell without a terminal starts background jobs with SIGINT ignored, and this process would inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 120
        while not list(empty_folder.glob("runs/*/*/checkpoints/last.ckpt")):
            assert run.poll() is None, run.stdout.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        run.send_signal(number)
        output = run.communicate(timeout=60)[0].decode()
    finally:
        run.kill()
    assert run.returncode == code, output
    assert "Traceback" not in output
