"""Values that may differ between heads: a number for all heads, or a tensor (H,)."""

from torch import Tensor

from fna_lightning.attention.distance import distance_dtype
from fna_lightning.attention.inputs import count_heads


def in_distance_dtype(value: float | Tensor, q: Tensor) -> float | Tensor:
    """Return learned (H,) values in the dtype of the distances of these queries."""
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
