"""The autocast state of a device, and how to change it for a block of code."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def autocast_type(device: torch.device) -> torch.dtype | None:
    """Return the dtype of autocast on this device, or None if autocast is off."""
    # PyTorch raises an error for a device without autocast, such as meta.
    if not torch.amp.is_autocast_available(device.type) or not torch.is_autocast_enabled(device.type):
        return None
    return torch.get_autocast_dtype(device.type)


def with_autocast_type(dtype: torch.dtype | None, device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which ``autocast_type(device)`` is ``dtype``."""
    if dtype == autocast_type(device):
        return nullcontext()
    return torch.autocast(device.type, dtype, enabled=dtype is not None)
