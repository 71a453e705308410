"""Gradients accumulated over several batches that wait for the next optimizer step."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def gradient_state(module: nn.Module) -> dict[str, Tensor]:
    """Return a CPU copy of the gradients of all parameters that have one."""
    return {
        name: parameter.grad.detach().to("cpu", copy=True)
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def set_gradient_state(module: nn.Module, state: dict[str, Tensor]) -> None:
    """Set the gradients of all parameters; a parameter that ``state`` does not name gets none."""
    for name, parameter in module.named_parameters():
        gradient = state.get(name)
        parameter.grad = None if gradient is None else gradient.to(parameter.device, parameter.dtype, copy=True)


def mean_gradients(ranks: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Return the mean of the gradients of several processes, as the state of each of any number of processes."""
    names = {name for gradients in ranks for name in gradients}
    return {
        name: torch.stack([gradients[name] for gradients in ranks if name in gradients]).sum(dim=0) / len(ranks)
        for name in sorted(names)
    }


def can_be_saved(module: nn.Module) -> bool:
    """Return whether ``gradient_state`` is complete; FSDP keeps the gradients of sharded parameters to itself."""
    return not any(isinstance(parameter, DTensor) for parameter in module.parameters())
