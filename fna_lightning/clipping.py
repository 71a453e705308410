"""Gradient clipping with fused optimisers in mixed precision.

Lightning refuses the two together, because a fused optimiser can undo the scaling of a loss by itself, after the
clipping. But bfloat16 scales no loss, and for float16 the gradients can be unscaled before they are clipped:
``torch.amp.GradScaler`` then tells the optimiser that they are.
"""

from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch.optim import Optimizer


def is_fused(optimizer: Optimizer) -> bool:
    """Return whether the optimiser undoes the scaling of the loss by itself; Lightning does not clip for such a one."""
    return getattr(optimizer, "_step_supports_amp_scaling", False)


def clip_gradients(precision: MixedPrecision, optimizer: Optimizer, value: float, algorithm: str | None) -> None:
    """Clip the gradients of a fused optimiser, unscaled, by "norm" (the default) or by "value"."""
    if value <= 0.0:
        return
    if precision.scaler is not None:
        precision.scaler.unscale_(optimizer)
    Precision.clip_gradients(precision, optimizer, value, GradClipAlgorithmType(algorithm or "norm"))
