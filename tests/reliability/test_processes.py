"""Several processes train and test like one process: same losses, same scores, every example once."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fna_lightning.checkpoints.load import load_task, read_checkpoint
from fna_lightning.cli import main
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE

pytestmark = pytest.mark.e2e

# the embedded data of every task; the processes get different numbers of examples of the last batch
TASKS = {
    "text": [
        *("--config", "reviews_dp.yaml", "--data.train_size=91", "--data.eval_size=33", "--data.longest=40"),
        *("--model.encoder.dim=16", "--model.encoder.ffn_dim=16"),
    ],
    # plain patches, because the batch norm of the convolutional tokenizer uses the images of its own process only
    "images": [
        *("--config", "digits_dp.yaml", "--model.vit.tokens=Patches", "--model.vit.tokens.patch=2"),
        *("--model.vit.encoder.dim=16", "--model.vit.encoder.ffn_dim=16"),
    ],
    "translation": [
        *("--config", "numbers_dp.yaml", "--data.train_size=91", "--data.eval_size=33"),
        *("--model.network.encoder.dim=16", "--model.network.encoder.ffn_dim=16", "--model.network.encoder.depth=1"),
    ],
}
# setting, batch size of one process, batch size of each of two, steps of two epochs; 1441440 tokens are divisible by
# all pair lengths up to 16
BATCHES = {
    "text": ("batch_size", 12, 6, 16),
    "images": ("batch_size", 322, 161, 10),
    "translation": ("batch_tokens", 1441440, 720720, 2),
}
COMMON = [
    *("--trainer.max_epochs=2", "--trainer.log_every_n_steps=1", "--trainer.accelerator=cpu"),
    *("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"),
]
CLI = [sys.executable, "-m", "fna_lightning.cli"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", RUN_DIR_VARIABLE: "", **more}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def losses(folder: Path) -> list[float]:
    with (folder / "metrics.csv").open() as file:
        return [float(row["train/loss_step"]) for row in csv.DictReader(file) if row["train/loss_step"]]


@pytest.mark.parametrize("task", TASKS)
def test_two_hosts_train_and_test_like_one_process(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = [*TASKS[task], *COMMON]
    setting, whole, share, steps = BATCHES[task]
    port = free_port()
    hosts = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={number}"),
                *("--nproc-per-node=1", "--master-addr=127.0.0.1", f"--master-port={port}"),
                *("-m", "fna_lightning.cli", "fit", *arguments, f"--data.{setting}={share}"),
                "--trainer.strategy=ddp",
                *("--trainer.num_nodes=2", "--trainer.devices=1", f"--trainer.default_root_dir={tmp_path / 'two'}"),
            ],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(2)
    ]
    # The run of one process trains while the hosts start.
    single = tmp_path / "one/version_0"
    single.mkdir(parents=True)
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(single))
    assert main(["fit", *arguments, f"--data.{setting}={whole}"]) == 0
    best = single / "checkpoints/best.ckpt"
    assert main(["test", f"--config={single / 'config.yaml'}", f"--ckpt_path={best}"]) == 0
    tested = json.loads((single / "results.json").read_text())

    outputs = [host.communicate(timeout=500)[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], "\n".join(outputs)
    (two,) = tmp_path.glob("two/*/version_*")
    assert json.loads((two / "results.json").read_text())["fit"]["step_size"] == {
        **tested["fit"]["step_size"],
        "batch_size": share,
        "processes": 2,
    }
    assert len(losses(single)) == steps
    np.testing.assert_allclose(losses(two), losses(single), rtol=0, atol=1e-5)

    # Two processes of one host test the same checkpoint; a repeated or missing example would change the score.
    (two / "checkpoints/best.ckpt").write_bytes(best.read_bytes())
    more = ["--trainer.devices=2", "--trainer.strategy=ddp", f"--ckpt_path={two / 'checkpoints/best.ckpt'}"]
    config = f"--config={two / 'config.yaml'}"
    command = [*CLI, "test", config, "--trainer.num_nodes=1", f"--data.{setting}={share}", *more]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    again = json.loads((two / "results.json").read_text())["test"]["metrics"]
    for name, value in tested["test"]["metrics"].items():
        assert again[name] == (pytest.approx(value, abs=1e-6) if "loss" in name else value)


def run_ranks(count: int, folder: Path, stop_in: str, stop_at: int, arguments: list[str]) -> list[int]:
    """Run a command in ``count`` ranks and return their exit codes; rank 0 sends itself SIGTERM at a call of a step."""
    port, driver = str(free_port()), str(Path(__file__).parents[1] / "helpers/signalled.py")
    ranks = []
    for rank in range(count):
        where = {} if count == 1 else {"LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        stop = [stop_in, str(0 if rank else stop_at), str(int(signal.SIGTERM))]
        ranks.append(
            subprocess.Popen(
                [sys.executable, driver, *stop, *arguments],
                env=environment(**where, **{RUN_DIR_VARIABLE: str(folder)}),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    printed = [rank.communicate(timeout=500)[0] for rank in ranks]
    assert all(rank.returncode in (0, 128 + signal.SIGTERM) for rank in ranks), "\n".join(printed)
    return [rank.returncode for rank in ranks]


def test_resuming_with_another_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 -> 1 -> 2 processes with the same effective batch size: losses and metrics are those of one process."""
    settings = [*TASKS["text"], *COMMON, "--trainer.callbacks=[]", "--trainer.accumulate_grad_batches=2"]
    whole, parts = tmp_path / "whole/version_0", tmp_path / "parts/version_0"
    for folder in (whole, parts):
        folder.mkdir(parents=True)
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(whole))
    assert main(["fit", *settings, "--data.batch_size=12"]) == 0
    two = ["--data.batch_size=6", "--trainer.devices=2", "--trainer.strategy=ddp"]
    stopped = 128 + signal.SIGTERM
    # Stopped in the third batch, while gradients are accumulated, then in a validation; then trained to the end.
    assert run_ranks(2, parts, "training_step", 3, ["fit", *settings, *two]) == [stopped, stopped]
    single = ["--data.batch_size=12", "--trainer.devices=1", "--trainer.strategy=auto"]
    assert run_ranks(1, parts, "validation_step", 1, ["resume", str(parts), *single]) == [stopped]
    assert run_ranks(2, parts, "training_step", 0, ["resume", str(parts), *two]) == [0, 0]
    np.testing.assert_allclose(losses(parts), losses(whole), rtol=0, atol=1e-5)
    expected, measured = (json.loads((folder / "results.json").read_text())["fit"] for folder in (whole, parts))
    assert {name: measured[name] for name in ("steps", "epochs")} == {"steps": 8, "epochs": 2}
    for name, value in expected["metrics"].items():
        assert measured["metrics"][name] == pytest.approx(value, abs=1e-5), name


# orthogonal projections are a parametrization whose parameter is sharded
SHARDED = {
    "text": ["--model.encoder.projection=OrthogonalProjection", "--model.encoder.depth=2"],
    # No schedule, because it depends on the number of epochs.
    "images": ["--model.vit.encoder.projection=OrthogonalProjection", "--model.lr_scheduler=null"],
    "translation": [
        "--model.lr_scheduler=null",
        "--model.network.encoder.projection=OrthogonalProjection",
        "--model.network.decoder.cross_projection=OrthogonalProjection",
    ],
}


@pytest.mark.parametrize("task", TASKS)
def test_sharded_parameters_train_and_resume_like_one_process(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, whole, share, steps = BATCHES[task]
    arguments = [*TASKS[task], *SHARDED[task], *COMMON]
    command = [*CLI, "fit", *arguments, f"--data.{setting}={share}", "--trainer.max_epochs=1"]
    command += ["--trainer.devices=2", "--trainer.strategy=fsdp2", f"--trainer.default_root_dir={tmp_path / 'two'}"]
    first = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    # The run of one process trains at the same time.
    single = tmp_path / "one/version_0"
    single.mkdir(parents=True)
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(single))
    assert main(["fit", *arguments, f"--data.{setting}={whole}"]) == 0
    output = first.communicate(timeout=500)[0]
    assert first.returncode == 0, output

    # Weights and optimizer are saved unsharded in one file, which one process can read as well.
    (two,) = tmp_path.glob("two/*/version_*")
    command = [*CLI, "resume", str(two), "--trainer.max_epochs=2"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert len(losses(two)) == steps
    np.testing.assert_allclose(losses(two), losses(single), rtol=0, atol=1e-5)
    # The optimizer states have the same layout and values.
    sharded, expected = (
        _numbers(read_checkpoint(run / "checkpoints/last.ckpt")["optimizer_states"]) for run in (two, single)
    )
    assert sharded.keys() == expected.keys()
    assert all(torch.allclose(sharded[path], expected[path], rtol=0, atol=1e-4) for path in sharded)
    load_task(two / "checkpoints/last.ckpt")


def _numbers(tree: Any) -> dict[str, torch.Tensor]:
    """Return every number of nested lists and dictionaries by its path."""
    leaves = torch.utils._pytree.tree_leaves_with_path(tree)
    return {
        torch.utils._pytree.keystr(path): torch.as_tensor(leaf, dtype=torch.float64)
        for path, leaf in leaves
        if isinstance(leaf, torch.Tensor | float | int)
    }


def test_a_killed_process_ends_the_others(tmp_path: Path) -> None:
    command = [*CLI, "fit", *TASKS["text"], *COMMON, "--trainer.max_epochs=9999", "--data.batch_size=6"]
    command += ["--trainer.devices=2", "--trainer.strategy=ddp", f"--trainer.default_root_dir={tmp_path}"]
    run = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 400
        while not list(tmp_path.glob("*/*/checkpoints/last.ckpt")):
            assert run.poll() is None, run.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        (other,) = map(int, Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split())
        os.kill(other, signal.SIGKILL)
        output, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode not in (0, None)
    assert "another process of this run has ended or cannot be reached" in output
    assert "Traceback" not in output
