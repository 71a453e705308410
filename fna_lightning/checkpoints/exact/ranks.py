"""Exchange of plain values between the processes of a run."""

from typing import Any

import lightning as L
import torch


def max_over_ranks(trainer: L.Trainer, number: int) -> int:
    """Return the largest ``number`` of all processes."""
    if trainer.world_size == 1:
        return number
    tensor = torch.tensor(float(number), device=trainer.strategy.root_device)
    largest = trainer.strategy.reduce(tensor, reduce_op="max")
    assert isinstance(largest, torch.Tensor)
    return int(largest)


def gather_over_ranks(state: dict[str, Any], world_size: int) -> list[dict[str, Any]]:
    """Return the state of every process in the order of their ranks."""
    if world_size == 1:
        return [state]
    states: list[Any] = [None] * world_size
    torch.distributed.all_gather_object(states, state)
    return states
