"""Exchange of plain values between the processes of a run."""

from typing import Any

import lightning as L
import torch

from fna_lightning.utils import ranks


def max_over_ranks(trainer: L.Trainer, number: int) -> int:
    """Return the largest ``number`` of all processes."""
    return number if trainer.world_size == 1 else int(ranks.max_over_ranks(number))


def gather_over_ranks(state: dict[str, Any], world_size: int) -> list[dict[str, Any]]:
    """Return the state of every process in the order of their ranks."""
    if world_size == 1:
        return [state]
    states: list[Any] = [None] * world_size
    torch.distributed.all_gather_object(states, state)
    return states
