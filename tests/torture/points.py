"""The places in a process at which it sends itself a signal, and a record of the examples it trains on."""

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fna_lightning  # noqa: F401 - before anything imports torchvision

# isort: split

import torch

from fna_lightning.callbacks import RunSummary
from fna_lightning.checkpoints.atomic_io import AtomicCheckpointIO
from fna_lightning.task import Task
from fna_lightning.tasks.data import cache as token_cache
from fna_lightning.training import run_folder
from fna_lightning.training.csv_logger import MetricsCSVLogger

# seconds between the two signals of a pair
BETWEEN = 0.03
KINDS = {
    "KILL": (signal.SIGKILL,),
    "TERM": (signal.SIGTERM,),
    "INT": (signal.SIGINT,),
    "TERM TERM": (signal.SIGTERM, signal.SIGTERM),
    "INT INT": (signal.SIGINT, signal.SIGINT),
    "INT TERM": (signal.SIGINT, signal.SIGTERM),
}


def send(kind: str, mark: Path, deliver: Callable[[int], None]) -> None:
    """Send the signals of a kind and write the time of the last one to ``mark``."""
    numbers = KINDS[kind]
    for position, number in enumerate(numbers):
        if position:
            time.sleep(BETWEEN)
        if number == signal.SIGKILL or position == len(numbers) - 1:
            mark.write_text(str(time.monotonic()))
        deliver(number)


def aim(point: str, kind: str, call: int, mark: Path) -> None:
    """Let the ``call``-th passage of a place in this process send it the signals, once."""
    passages: list[None] = []

    def passed() -> None:
        passages.append(None)
        if len(passages) != call:
            return
        # from another thread: the handler of the first signal may raise in this one before the second is sent
        sender = threading.Thread(target=send, args=(kind, mark, lambda number: os.kill(os.getpid(), number)))
        sender.start()
        time.sleep(3 * BETWEEN)

    PLACES[point](passed)


def _before(owner: Any, name: str, passed: Callable[[], None], when: Callable[..., bool] = lambda *args: True) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if when(*args):
            passed()
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def _after(owner: Any, name: str, passed: Callable[[], None], when: Callable[..., bool]) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        wanted = when(*args)
        result = original(*args, **kwargs)
        if wanted:
            passed()
        return result

    setattr(owner, name, wrapped)


def _while_writing(owner: Any, name: str, passed: Callable[[], None]) -> None:
    """Aim at the moment in which a file is written but does not have its name yet."""
    original, fsync, inside = getattr(owner, name), os.fsync, []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        inside.append(None)
        try:
            return original(*args, **kwargs)
        finally:
            inside.pop()

    def synced(handle: Any) -> None:
        if inside:
            passed()
        fsync(handle)

    setattr(owner, name, wrapped)
    os.fsync = synced


PLACES: dict[str, Callable[[Callable[[], None]], None]] = {
    "validation": lambda passed: _before(
        Task, "validation_step", passed, lambda task, *args: not task.trainer.sanity_checking
    ),
    "checkpoint write": lambda passed: _while_writing(AtomicCheckpointIO, "save_checkpoint", passed),
    # rows are on disk that no checkpoint knows of
    "metrics write": lambda passed: _after(MetricsCSVLogger, "save", passed, lambda metrics: bool(metrics._new)),
    "training end": lambda passed: _before(RunSummary, "_close", passed),
    "results write": lambda passed: _while_writing(RunSummary, "_close", passed),
    "cache": lambda passed: _before(token_cache, "file_digest", passed),
}


def record_examples(folder: Path) -> None:
    """Write what this process trains on to a file of its own in ``folder``: a line for each step.

    A line holds the step, the epoch and the digests of the examples.
    """
    original = Task.training_step
    path = folder / f"{run_folder.global_rank()}.jsonl"

    def step(self: Task, batch: Any, *args: Any) -> Any:
        examples = [
            hashlib.sha256(repr((tokens[:length].tolist(), int(label))).encode()).hexdigest()[:16]
            for tokens, length, label in zip(batch.tokens, batch.lengths, batch.labels, strict=True)
        ]
        with path.open("a") as file:
            file.write(json.dumps([self.trainer.global_step, self.current_epoch, examples]) + "\n")
        return original(self, batch, *args)

    Task.training_step = step
    # more threads would only wait for each other
    torch.set_num_threads(1)
