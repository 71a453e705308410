"""Comparable times: functions take turns in one run, and the machine is reported with the numbers."""

import logging
import os
import platform
import time
from collections.abc import Callable, Mapping

import torch

from fna_lightning.training.malloc import keep_freed_memory
from fna_lightning.utils.versions import package_versions, processor


def take_turns(functions: Mapping[str, Callable[[], object]], seconds: float, rounds: int) -> dict[str, float]:
    """Return the minimum time of each function in seconds, which is least affected by other load on the machine.

    The functions are called in turn, so that a disturbance affects all of them, until each has had ``rounds`` turns or
    the time is up. The first round is a warm-up and is not counted. At least one more round is measured, and three if
    they fit into twice the time.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    began = time.perf_counter()
    for turn in range(rounds + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if turn:
                times[name].append(time.perf_counter() - start)
        elapsed = time.perf_counter() - began
        if turn and elapsed > (seconds if turn >= 3 else 2.0 * seconds):
            break
    return {name: min(measured) for name, measured in times.items()}


def prepare_fits(threads: int | None) -> None:
    """Train as `fit` does from now on, with this number of threads and without Lightning's start-up messages."""
    keep_freed_memory()
    if threads:
        torch.set_num_threads(threads)
    for name in ("lightning.pytorch", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.ERROR)


def machine(*packages: str) -> dict[str, str | int]:
    """Return what the numbers depend on: processor, threads, load and versions, also those of ``packages``."""
    return {
        "processor": processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "load before": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "system": platform.platform(terse=True),
        **package_versions(*packages),
    }
