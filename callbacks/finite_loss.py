"""A loss that is not a number ends the run before it reaches the weights, and says where it came from."""

from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from fna_lightning.attention import MultiheadAttention
from fna_lightning.errors import UsageError
from fna_lightning.nn.fsdp import sharded
from fna_lightning.task import Task
from fna_lightning.utils.trees import leaves


class FiniteLoss(L.Callback):
    """Stops a run whose loss is infinite or not a number, before the optimiser step.

    The message names the step and the first layer, and in an attention layer the heads, where such numbers appear.
    """

    def __init__(self) -> None:
        self._batch: Any = None

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch = batch

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: Tensor) -> None:
        if torch.isfinite(loss.detach()).all():
            return
        origin = find_origin(pl_module, self._batch)
        raise UsageError(
            f"the loss is {loss.detach().float().mean().item():g} at step {trainer.global_step} (epoch "
            f"{trainer.current_epoch}), so training stops before the weights change: {origin}; the checkpoints are "
            "from before, try a lower learning rate, --trainer.gradient_clip_val=1 or --trainer.precision=32"
        )

    def on_train_batch_end(self, *args: Any) -> None:
        self._batch = None


def find_origin(module: L.LightningModule, batch: Any) -> str:
    """Return in words where the first number that is not finite appears when the model reads ``batch``."""
    if sharded(module):
        # the other processes may have finite losses, and none can run the model alone
        return "the parameters are in shards, so where it begins cannot be said; a run on one device would tell"
    for name, parameter in module.named_parameters():
        if not parameter.isfinite().all():
            return f"the weights {name} are not finite"
    for leaf in leaves(batch):
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and not leaf.isfinite().all():
            return "the batch itself holds numbers that are not finite"
    found: list[str] = []
    hooks = [part.register_forward_hook(_look(name, found)) for name, part in _layers(module)]
    try:
        with torch.no_grad():
            if isinstance(module, Task):
                module.loss(batch, "train")
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else "every layer's result is finite, so it is the loss itself that overflows"


def _layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules without parts, and attention layers as a whole: what is inside them is told by heads."""
    inside = [name for name, part in module.named_modules() if isinstance(part, MultiheadAttention)]
    for name, part in module.named_modules():
        whole = isinstance(part, MultiheadAttention)
        within = any(name.startswith(f"{outer}.") for outer in inside)
        if whole or (not within and not any(part.children())):
            yield name, part


def _look(name: str, found: list[str]) -> Any:
    def hook(part: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if found or all(_finite(leaf) for leaf in leaves(output)):
            return
        if isinstance(part, MultiheadAttention):
            found.append(f"it begins in the attention layer {name}{_heads(part, inputs)}")
        else:
            found.append(f"it begins in the layer {name} ({type(part).__name__})")

    return hook


def _heads(layer: MultiheadAttention, inputs: tuple[Any, ...]) -> str:
    """Return which heads make numbers that are not finite, for a sentence."""
    tokens = [one for one in inputs[:2] if isinstance(one, Tensor)]
    q, k, v = layer.heads(*tokens)
    mask = inputs[2] if len(inputs) > 2 else None
    mixed = layer.attention(q, k, v, mask)
    bad = [head for head in range(layer.num_heads) if not _finite(mixed[:, head])]
    if not bad:
        return ", in its output map"
    return f", head{'s' if len(bad) > 1 else ''} {', '.join(map(str, bad))}"


def _finite(value: Any) -> bool:
    return not isinstance(value, Tensor) or not value.is_floating_point() or bool(value.isfinite().all())
