"""One-line messages: every pattern matches the real error of the pinned version of its library."""

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from jsonargparse import ArgumentParser
from torch.utils.data import DataLoader

from fna_lightning.attention import Attention
from fna_lightning.config.messages import DEAD_LOADER, EXPLANATIONS, explain
from fna_lightning.config.parser_report import _NOISE, _NONE, parser_message
from fna_lightning.config.registry import register_builtins
from fna_lightning.errors import one_line
from fna_lightning.task import Task


def error_of(call: Callable[[], Any]) -> Exception:
    """Return the error that a call raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the type is the library's choice
        call()
    return caught.value


def report(*arguments: str) -> str:
    """Return jsonargparse's report of wrong arguments."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--number", type=int | None)
    parser.add_argument("--none_first", type=None | int)
    parser.add_argument("--config", action="config")
    parser.add_argument("--optional", type=Attention | None)
    parser.add_subclass_arguments(Attention, "attention", required=False)
    parser.add_argument("--model", type=Task | None)
    parser.add_class_arguments(L.Trainer, "trainer")
    return str(error_of(lambda: parser.parse_args(list(arguments))))


FRACTIONAL = "{class_path: Fractional, init_args: {alhpa: 1}}"
SUGGESTION = "`fna-lightning list` names the classes; write other classes as package.module.Class"
LITERAL = (
    "one of 64, 32, 16, 'transformer-engine', 'transformer-engine-float16', '16-true', '16-mixed', 'bf16-true', "
    "'bf16-mixed', '32-true', '64-true', '64', '32', '16', 'bf16'"
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--number=a"], "number: expected int, got 'a'"),
        (["--none_first=a"], "none_first: expected int, got 'a'"),
        (["--attention=Fractional", "--attention.alpha=a"], "attention.alpha: expected float, got 'a'"),
        (
            ["--attention=Fractoinal"],
            f"attention: there is no class 'Fractoinal'; did you mean 'Fractional'? {SUGGESTION}",
        ),
        (
            ["--optional=Fractoinal"],
            f"optional: there is no class 'Fractoinal'; did you mean 'Fractional'? {SUGGESTION}",
        ),
        (["--optional=3"], f"optional: there is no class '3'; {SUGGESTION}"),
        (
            ["--optional=nosuch.module.Thing"],
            f"optional: 'nosuch.module.Thing' cannot be imported, because there is no module 'nosuch'; {SUGGESTION}",
        ),
        (
            ["--trainer.precision=17"],
            f"trainer.precision: expected {LITERAL}, got '17'",
        ),
    ],
    ids=str,
)
def test_wrong_values(arguments: list[str], message: str) -> None:
    assert parser_message(report(*arguments)) == message


def test_an_unknown_option_of_a_class() -> None:
    message = parser_message(report(f"--optional={FRACTIONAL}"))
    assert message.startswith("optional: Option 'alhpa' is not accepted; did you mean 'alpha'? It takes alpha, kappa")


@pytest.mark.parametrize(
    ("task", "option", "message"),
    [
        ("TextClassification", "encoder.hidden", "it takes dim, num_heads, ffn_dim, "),
        ("TextClassification", "encoder.depht", "did you mean 'depth'? It takes dim, "),
        ("ImageClassification", "vit.encoder.depht", "did you mean 'depth'? It takes dim, "),
    ],
)
def test_an_unknown_option_of_a_dataclass(task: str, option: str, message: str, tmp_path: Path) -> None:
    register_builtins()
    line = parser_message(report(f"--model={task}", f"--model.{option}=3"))
    assert line.startswith(f"model: Option '{option}' is not accepted; {message}")
    *groups, key = option.split(".")
    path = tmp_path / "wrong.yaml"
    settings = f"{key}: 3"
    for group in reversed(groups):
        settings = f"{group}: {{{settings}}}"
    path.write_text(f"model: {{class_path: {task}, init_args: {{{settings}}}}}")
    line = parser_message(report(f"--config={path}"))
    assert line.startswith("model: ")
    assert f"{key}'; {message}" in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trainr: 3", r"Option 'trainr' is not accepted; did you mean 'trainer'\? It takes seed_everything, trainer"),
        ("zzz: 3", "Option 'zzz' is not accepted; it takes seed_everything, trainer, model"),
        (
            "trainer: {max_epoch: 3}",
            r"Group 'trainer' does not accept option 'max_epoch'; did you mean 'max_epochs'\?$",
        ),
        ("number: [0", r"Problems parsing config: .* line 1, column 9 .*"),
    ],
)
def test_wrong_configuration_files(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    line = parser_message(report(f"--config={path}"))
    assert re.match(message, line), line
    assert "\n" not in line


def test_every_kind_of_noise_occurs_in_a_report() -> None:
    lines = [
        line.strip().removeprefix("- ")
        for argument in ("--number=a", "--optional=Fractoinal", "--attention=Fractoinal")
        for line in report(argument).splitlines()
    ]
    for noise in (*_NOISE, *_NONE):
        assert any(line.startswith(noise) for line in lines), noise


def test_a_report_without_a_known_line_is_kept() -> None:
    assert parser_message("Subtypes: [int]\nErrors:") == "Subtypes: [int] Errors:"


class KilledWorker(torch.utils.data.Dataset[int]):
    """Kills the worker process that reads it."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        os.kill(os.getpid(), 9)
        return index


def connect_to_a_closed_port() -> None:
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        client.connect(server.getsockname())


def request_a_missing_gpu() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: 1)
        L.Trainer(accelerator="cuda", devices=[7])


def write_to_a_full_disk() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    Path("/dev/full").write_text("text")


# one call per pattern, in the order of EXPLANATIONS
CALLS: dict[str, Callable[[], Any]] = {
    "another process of this run has ended": connect_to_a_closed_port,
    "a process that loads data has died (": lambda: list(
        DataLoader(KilledWorker(), num_workers=1, multiprocessing_context="fork")
    ),
    "there is no GPU that PyTorch can use here": lambda: L.Trainer(accelerator="gpu"),
    "fsdp is Lightning's and needs a GPU": lambda: L.Trainer(strategy="fsdp", accelerator="cpu"),
    "fewer GPUs than requested (You requested gpu: [7] But your machine only has: [0])": request_a_missing_gpu,
    "there is not enough memory": lambda: torch.empty(1 << 60),
    "the disk is full": write_to_a_full_disk,
    "belong to another model (Missing key(s) in state_dict": lambda: torch.nn.Linear(2, 2).load_state_dict({}),
}


@pytest.mark.parametrize(("index", "words"), list(enumerate(CALLS)), ids=str)
def test_an_error_of_a_library_is_explained(index: int, words: str) -> None:
    if "GPU" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    error = error_of(CALLS[words])
    pattern, _ = EXPLANATIONS[index]
    assert re.search(pattern, one_line(error))
    assert words in explain(error)


def test_every_explanation_has_a_call() -> None:
    assert len(CALLS) == len(EXPLANATIONS)


def test_a_broken_connection_to_a_data_loader_worker() -> None:
    code = compile("raise ConnectionResetError('reset')", "/x/torch/utils/data/dataloader.py", "exec")
    assert explain(error_of(lambda: exec(code))) == DEAD_LOADER.format("reset")


def test_a_file_name_that_is_not_utf8() -> None:
    error = error_of(lambda: os.fsdecode(b"caf\xe9.png").encode())
    assert explain(error) == (
        "'caf\\udce9.png' holds bytes that are not UTF-8, most often a file name in another encoding; rename the file "
        "or folder"
    )


def test_an_unknown_error_keeps_its_message() -> None:
    assert explain(ValueError("several\n  lines")) == "several lines"
    assert explain(ValueError()) == "ValueError"
