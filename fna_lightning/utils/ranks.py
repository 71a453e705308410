"""Numbers over the processes of a run, exchanged between their CPUs, so that no process waits for its GPU."""

from functools import cache
from typing import Any

import torch
from torch import distributed


def max_over_ranks(number: float) -> float:
    """Return the largest ``number`` of all processes."""
    return _all_reduce(number, distributed.ReduceOp.MAX)


def mean_over_ranks(number: float) -> float:
    """Return the mean of ``number`` over all processes."""
    return _all_reduce(number, distributed.ReduceOp.SUM) / distributed.get_world_size()


def _all_reduce(number: float, operation: Any) -> float:
    tensor = torch.tensor(number, dtype=torch.float64)
    distributed.all_reduce(tensor, operation, group=_cpu_group(distributed.group.WORLD))
    return tensor.item()


@cache
def _cpu_group(world: Any) -> Any:
    """Return a group of all processes that exchanges tensors on the CPU; all processes must call this together."""
    return world if distributed.get_backend(world) == "gloo" else distributed.new_group(backend="gloo")
