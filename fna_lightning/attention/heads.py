"""Values that may differ between heads: a number for all heads, or a tensor (H,)."""

import torch
from torch import Tensor

from fna_lightning.attention.distance import distance_dtype
from fna_lightning.attention.inputs import count_heads
from fna_lightning.attention.transforms import PLAIN_TENSORS, is_plain


def in_distance_dtype(value: float | Tensor, q: Tensor) -> float | Tensor:
    """Return (H,) values in the dtype of the distances of these queries."""
    if not isinstance(value, Tensor):
        return value
    if value.device != q.device:
        raise ValueError(
            f"the learned values of the attention are on {value.device} and q is on {q.device}; move them to the same "
            "device"
        )
    return value.to(distance_dtype(q))


def per_head(value: float | Tensor, q: Tensor) -> float | Tensor:
    """Return (H,) values in a shape that broadcasts with (..., H, n, m); one value for all heads fits any shape."""
    if not isinstance(value, Tensor):
        return value
    if value.numel() == 1:
        return value.reshape(())
    heads = count_heads(q)
    if value.numel() != heads:
        raise ValueError(
            f"this attention has parameters for {value.numel()} heads, the queries have {heads}; create it with "
            f"for_heads({heads})"
        )
    return value[:, None, None]


def check_head_values(name: str, value: Tensor, q: Tensor) -> Tensor:
    """Return the values of a tensor (), (H,) or (H, 1, 1) as (H,) or (1,).

    Raises:
        TypeError: if they are not floating-point numbers.
        ValueError: if there is not one value for all heads of ``q`` or one for each, or they are on another device.
    """
    if not value.is_floating_point():
        raise TypeError(f"{name} must be a number or a floating-point tensor, got a tensor of {value.dtype}")
    if value.device != q.device:
        raise ValueError(f"{name} is on {value.device} and q is on {q.device}; move them to the same device")
    heads = count_heads(q)
    # All axes but the one of the heads are 1 in a tensor that broadcasts to (..., H, n, m).
    of_heads = value.dim() <= 1 or (value.dim() >= 3 and value.numel() == value.size(-3))
    if not of_heads or value.numel() not in (1, heads):
        raise ValueError(
            f"{name} must have one value for all heads or one for each of the {heads} heads of q, as a tensor "
            f"({heads},) or ({heads}, 1, 1), got {tuple(value.shape)}"
        )
    return value.reshape(-1)


def is_readable(value: Tensor) -> bool:
    """Return whether the numbers can be checked without waiting for a GPU and without breaking a trace or transform."""
    return not torch.compiler.is_compiling() and type(value) in PLAIN_TENSORS and value.is_cpu and is_plain()
