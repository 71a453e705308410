"""Time and peak memory of a function on a device."""

import statistics
import time
from collections.abc import Callable
from typing import Protocol

import torch

Function = Callable[[], object]


class DeviceTimer(Protocol):
    """Measures functions whose work may continue on a device after they return."""

    def first_seconds(self, function: Function) -> float:
        """Return the seconds of one call, which for the first call includes compilation."""

    def milliseconds(self, function: Function, seconds: float) -> float:
        """Return the median time of a call; calls are repeated for about ``seconds`` after a warm-up."""

    def peak_megabytes(self, function: Function) -> float | None:
        """Return by how much memory grows during one call; None if the device cannot tell."""


def repeats(once: float, seconds: float) -> int:
    """Return how often to repeat a call that takes ``once`` milliseconds: between 5 and 200 times."""
    return max(5, min(200, int(1e3 * seconds / max(once, 1e-3))))


class CudaTimer:
    """Measures with CUDA events, which the GPU itself records, after a warm-up."""

    WARMUP = 3

    def first_seconds(self, function: Function) -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        function()
        torch.cuda.synchronize()
        return time.perf_counter() - started

    def milliseconds(self, function: Function, seconds: float) -> float:
        for _ in range(self.WARMUP):
            function()
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(201)]
        count = repeats(self._elapsed(function, events[:1])[0], seconds)
        return statistics.median(self._elapsed(function, events[1 : count + 1]))

    def peak_megabytes(self, function: Function) -> float | None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20

    @staticmethod
    def _elapsed(function: Function, events: list[list[torch.cuda.Event]]) -> list[float]:
        for start, end in events:
            start.record()
            function()
            end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]


class ClockTimer:
    """Measures with the clock of the process, for the CPU."""

    def first_seconds(self, function: Function) -> float:
        started = time.perf_counter()
        function()
        return time.perf_counter() - started

    def milliseconds(self, function: Function, seconds: float) -> float:
        function()
        count = repeats(1e3 * self.first_seconds(function), seconds)
        return 1e3 * statistics.median(self.first_seconds(function) for _ in range(count))

    def peak_megabytes(self, function: Function) -> float | None:
        return None
