"""Times that can be compared: everything takes turns in one run, and the machine is named beside the numbers."""

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from fna_lightning.training.malloc import keep_freed_memory
from fna_lightning.version import VERSION


def take_turns(functions: Mapping[str, Callable[[], object]], seconds: float, rounds: int) -> dict[str, float]:
    """Return the least seconds of each function: what is left when nothing else disturbs the machine.

    They are called in turn, so that a disturbance hits all of them alike, until every one has had ``rounds`` turns or
    the time is up. The first round is not counted, one more always is, and three if they fit into twice the time.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    began = time.perf_counter()
    for turn in range(rounds + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if turn:
                times[name].append(time.perf_counter() - start)
        spent = time.perf_counter() - began
        if turn and spent > (seconds if turn >= 3 else 2.0 * seconds):
            break
    return {name: min(taken) for name, taken in times.items()}


def prepare_fits(threads: int | None) -> None:
    """Let what follows train as `fit` does, on so many threads, and without announcing every one of many fits."""
    keep_freed_memory()
    if threads:
        torch.set_num_threads(threads)
    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)


def machine() -> dict[str, str | int]:
    """Return what the numbers depend on: processor, threads, versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "load before": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fna-lightning": VERSION,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
