"""Stop training when the loss is infinite or NaN, and report where the first such value appears."""

from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from fna_lightning.attention import MultiheadAttention
from fna_lightning.errors import UsageError
from fna_lightning.introspection.eager import eager
from fna_lightning.nn.fsdp import nonfinite_parameter, sharded
from fna_lightning.task import Task
from fna_lightning.utils.trees import leaves

# no step: larger than any
NONE = 2**62
ADVICE = (
    "the checkpoints are from before, try a lower learning rate, --trainer.gradient_clip_val=1 or "
    "--trainer.precision=32"
)


class FiniteLoss(L.Callback):
    """Stops training before the optimizer step if the loss is infinite or NaN.

    The error names the step and the first layer whose output is not finite; in an attention layer, also the heads.

    Reading the loss of a GPU waits for it, so there the losses of several steps are read together: at every step that
    is logged, at each validation and at the end. The weights may have changed by then, and the error then names the
    step only. Checkpoints with weights that are not finite are never written. ``log_every_n_steps=1`` reads every loss.
    """

    def __init__(self) -> None:
        self._batch: Any = None
        # on the device: the first step whose loss was not finite, or NONE
        self._first_bad: Tensor | None = None

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._first_bad = None

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch = batch

    def on_before_backward(self, trainer: L.Trainer, pl_module: L.LightningModule, loss: Tensor) -> None:
        step = trainer.global_step
        if waits_for_device(loss):
            finite = torch.isfinite(loss.detach()).all()
            earlier = torch.full_like(finite, NONE, dtype=torch.int64) if self._first_bad is None else self._first_bad
            self._first_bad = torch.where(finite, earlier, earlier.clamp(max=step))
            # the step that ends now is number step + 1, and Lightning reads the loss of every n-th
            if (step + 1) % int(trainer.log_every_n_steps or 1):  # type: ignore[attr-defined]
                return
            self._check_earlier(step)
        if torch.isfinite(loss.detach()).all():
            return
        origin = find_origin(pl_module, self._batch)
        raise UsageError(
            f"the loss is {loss.detach().float().mean().item():g} at step {step} (epoch "
            f"{trainer.current_epoch}), so training stops before the weights change: {origin}; {ADVICE}"
        )

    def on_train_batch_end(self, *args: Any) -> None:
        self._batch = None

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check_earlier(trainer.global_step)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check_earlier(trainer.global_step)

    def _check_earlier(self, step: int) -> None:
        """Raise if the loss of a step before ``step`` was not finite; this waits for the device."""
        first_bad = NONE if self._first_bad is None else int(self._first_bad)
        if first_bad < step:
            raise UsageError(
                f"the loss was not finite at step {first_bad}, and training stops at step {step}; "
                f"--trainer.log_every_n_steps=1 stops at once and names the layer; {ADVICE}"
            )


def waits_for_device(tensor: Tensor) -> bool:
    """Return whether reading the value of a tensor waits for another device, such as a GPU."""
    return tensor.device.type != "cpu"


def find_origin(module: L.LightningModule, batch: Any) -> str:
    """Return a clause that says where the first infinite or NaN value appears in a forward pass of ``batch``."""
    if sharded(module):
        # The other processes may have finite losses, and no process can run the model alone.
        return "the parameters are sharded, so the layer cannot be found; train on one device to find it"
    if (name := nonfinite_parameter(module)) is not None:
        return f"the weights {name} are not finite"
    for leaf in leaves(batch):
        if not _finite(leaf):
            return "the batch itself holds numbers that are not finite"
    origins: list[str] = []
    hooks = [layer.register_forward_hook(_origin_hook(name, origins)) for name, layer in _layers(module)]
    try:
        with torch.no_grad(), eager():
            if isinstance(module, Task):
                module.loss(batch, "train")
    finally:
        for hook in hooks:
            hook.remove()
    return origins[0] if origins else "the outputs of all layers are finite, so the loss itself overflows"


def _layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield attention layers as a whole, and outside of them all modules without children."""
    attention = [name for name, part in module.named_modules() if isinstance(part, MultiheadAttention)]
    for name, part in module.named_modules():
        inside = any(name.startswith(f"{layer}.") for layer in attention)
        if isinstance(part, MultiheadAttention) or (not inside and not any(part.children())):
            yield name, part


def _origin_hook(name: str, origins: list[str]) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    """Return a forward hook that adds the layer to ``origins`` if its output is the first that is not finite."""

    def hook(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if origins or all(_finite(leaf) for leaf in leaves(output)):
            return
        if isinstance(layer, MultiheadAttention):
            origins.append(f"it begins in the attention layer {name}{_heads(layer, inputs)}")
        else:
            origins.append(f"it begins in the layer {name} ({type(layer).__name__})")

    return hook


def _heads(layer: MultiheadAttention, inputs: tuple[Any, ...]) -> str:
    """Return a clause that names the heads with outputs that are not finite."""
    tokens = [value for value in inputs[:2] if isinstance(value, Tensor)]
    q, k, v = layer.heads(*tokens)
    mask = inputs[2] if len(inputs) > 2 else None
    outputs = layer.attention(q, k, v, mask)
    heads = [head for head in range(layer.num_heads) if not _finite(outputs[:, head])]
    if not heads:
        return ", in its output projection"
    return f", head{'s' if len(heads) > 1 else ''} {', '.join(map(str, heads))}"


def _finite(value: Any) -> bool:
    return not isinstance(value, Tensor) or not value.is_floating_point() or bool(value.isfinite().all())
