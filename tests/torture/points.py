"""Points at which a process sends itself a signal, and a record of the examples it trains on."""

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
from fna_lightning.tasks.data import cache
from fna_lightning.training import run_folder
from fna_lightning.training.csv_logger import MetricsCSVLogger

# seconds between the two signals of a pair
BETWEEN = 0.03
SIGNALS = {
    "KILL": (signal.SIGKILL,),
    "TERM": (signal.SIGTERM,),
    "INT": (signal.SIGINT,),
    "TERM TERM": (signal.SIGTERM, signal.SIGTERM),
    "INT INT": (signal.SIGINT, signal.SIGINT),
    "INT TERM": (signal.SIGINT, signal.SIGTERM),
}


def send(signals: str, mark: Path, deliver: Callable[[int], None]) -> None:
    """Send the signals of an entry of ``SIGNALS`` and write the time of the last one that was sent to ``mark``."""
    numbers = SIGNALS[signals]
    for position, number in enumerate(numbers):
        if position:
            time.sleep(BETWEEN)
        # Each signal overwrites the time: the first one may end the process before the second is sent.
        mark.write_text(str(time.monotonic()))
        deliver(number)


def arm(point: str, signals: str, call: int, mark: Path) -> None:
    """Make this process send itself signals when it reaches a point for the ``call``-th time."""
    calls: list[None] = []

    def reached() -> None:
        calls.append(None)
        if len(calls) != call:
            return
        # A separate thread sends them: the handler of the first signal may raise here before the second is sent.
        sender = threading.Thread(target=send, args=(signals, mark, lambda number: os.kill(os.getpid(), number)))
        sender.start()
        time.sleep(3 * BETWEEN)

    POINTS[point](reached)


def _before(owner: Any, name: str, reached: Callable[[], None], when: Callable[..., bool] = lambda *args: True) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if when(*args):
            reached()
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def _after(owner: Any, name: str, reached: Callable[[], None], when: Callable[..., bool]) -> None:
    original = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        due = when(*args)
        result = original(*args, **kwargs)
        if due:
            reached()
        return result

    setattr(owner, name, wrapped)


def _while_writing(owner: Any, name: str, reached: Callable[[], None]) -> None:
    """Call ``reached`` when a file is written but not yet renamed to its final name."""
    original, fsync, inside = getattr(owner, name), os.fsync, []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        inside.append(None)
        try:
            return original(*args, **kwargs)
        finally:
            inside.pop()

    def synced(handle: Any) -> None:
        if inside:
            reached()
        fsync(handle)

    setattr(owner, name, wrapped)
    os.fsync = synced


POINTS: dict[str, Callable[[Callable[[], None]], None]] = {
    "validation": lambda reached: _before(
        Task, "validation_step", reached, lambda task, *args: not task.trainer.sanity_checking
    ),
    "checkpoint write": lambda reached: _while_writing(AtomicCheckpointIO, "save_checkpoint", reached),
    # after it, metrics.csv has rows that belong to no checkpoint
    "metrics write": lambda reached: _after(MetricsCSVLogger, "save", reached, lambda metrics: bool(metrics._unsaved)),
    "training end": lambda reached: _before(RunSummary, "_report", reached),
    "results write": lambda reached: _while_writing(RunSummary, "_report", reached),
    "cache": lambda reached: _before(cache, "file_digest", reached),
}


def record_examples(folder: Path) -> None:
    """Write the examples this process trains on to a file in ``folder``, one line per step.

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
    # More threads would compete with the other ranks.
    torch.set_num_threads(1)
