"""Checks of the tensors of one attention call, before any kernel reads them.

The C kernel works with pointers and strides and cannot detect a wrong length, and some of PyTorch's own kernels do not
check it either. Every call is therefore checked here once, whichever kernel computes it.
"""

import torch
from torch import Tensor

from fna_lightning.attention.autocast import autocast_type

# Positions are computed in 64-bit integers; this limit leaves room for sums.
LARGEST_OFFSET = 1 << 62


def count_heads(q: Tensor) -> int:
    """Return the number of heads of (..., H, n, d) queries; (n, d) queries are one head."""
    return q.size(-3) if q.dim() >= 3 else 1


def heads_per_key_head(q: Tensor, k: Tensor) -> int:
    """Return the number of query heads that share a key head (grouped heads, ``enable_gqa``).

    Raises:
        ValueError: if there is no heads axis, or the number of query heads is not a multiple of that of key heads.
    """
    if q.dim() < 3 or k.dim() < 3:
        raise ValueError(
            f"enable_gqa needs a heads axis, (..., heads, tokens, width), got q of shape {tuple(q.shape)} and k of "
            f"shape {tuple(k.shape)}"
        )
    heads, key_heads = q.size(-3), k.size(-3)
    if heads == key_heads:
        return 1
    if not key_heads or heads % key_heads:
        raise ValueError(
            f"the number of query heads ({heads}) must be a multiple of the number of key heads ({key_heads}) with "
            f"enable_gqa: q is {tuple(q.shape)}, k is {tuple(k.shape)}"
        )
    return heads // key_heads


def repeat_heads(x: Tensor, times: int) -> Tensor:
    """Return (..., G, m, d) keys or values with each head repeated for the ``times`` query heads that share it."""
    if times == 1:
        return x
    return x.unsqueeze(-3).expand(*x.shape[:-2], times, *x.shape[-2:]).flatten(-4, -3)


def check_queries_and_keys(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    offset: int = 0,
    *,
    enable_gqa: bool = False,
) -> None:
    """Raise unless (..., n, d) queries, (..., m, d) keys and their mask, bias and offset match.

    With ``enable_gqa`` the number of query heads may be a multiple of the number of key heads.

    Raises:
        ValueError: if shapes or devices do not match, or the offset is too large.
        TypeError: if a tensor is nested, a dtype is not allowed, or queries and keys have different dtypes without
            autocast.
    """
    if q.is_nested or k.is_nested:
        raise TypeError(
            "a module for projected tokens takes dense tensors, got a nested one; use fractional_attention or "
            "FractionalMultiheadAttention, which pad nested tensors, or pad them with to_padded_tensor"
        )
    q_shape, k_shape = q.shape, k.shape
    if len(q_shape) < 2 or len(k_shape) < 2:
        raise ValueError(f"q and k must be (..., tokens, width), got {tuple(q_shape)} and {tuple(k_shape)}")
    if q.device != k.device:
        raise ValueError(_different_devices("q", q, "k", k))
    if q.dtype is not k.dtype:
        _check_mixed_dtypes("q", q, "k", k)
    if not q.is_floating_point():
        raise TypeError(f"q and k must be floating-point tensors, got {q.dtype}; convert them with .float()")
    if q_shape[-1] != k_shape[-1]:
        raise ValueError(
            f"queries and keys must have the same width, got {q_shape[-1]} and {k_shape[-1]}: q is {tuple(q_shape)}, "
            f"k is {tuple(k_shape)}"
        )
    # Compare whole shapes first, because slicing a shape is slow.
    if q_shape != k_shape and q_shape[:-2] != k_shape[:-2]:
        if enable_gqa and heads_per_key_head(q, k) > 1:
            k_shape = torch.Size((*k_shape[:-3], q_shape[-3], *k_shape[-2:]))
        _broadcast("q", q_shape[:-2], "k", k_shape[:-2])
    if offset and not -LARGEST_OFFSET <= offset <= LARGEST_OFFSET:
        raise ValueError(f"offset must lie between -2**62 and 2**62, got {offset}")
    if mask is None and bias is None:
        return
    batch = q_shape[:-2] if q_shape[:-2] == k_shape[:-2] else torch.broadcast_shapes(q_shape[:-2], k_shape[:-2])
    shape = (*batch, q_shape[-2], k_shape[-2])
    if mask is not None:
        if mask.dtype is not torch.bool and not mask.is_floating_point():
            raise TypeError(
                "attn_mask must be boolean (True = may attend) or floating-point (added to the logits), got "
                f"{mask.dtype}; convert it, e.g. with .bool()"
            )
        _check_matrix("attn_mask", mask, q, shape)
    if bias is not None:
        if not bias.is_floating_point():
            raise TypeError(
                f"bias must be a floating-point tensor to add to the logits, got {bias.dtype}; pass a boolean tensor "
                "as mask"
            )
        _check_matrix("bias", bias, q, shape)


def check_values(q: Tensor, k: Tensor, v: Tensor, group_size: int = 1) -> None:
    """Raise unless (..., m, d_v) values match queries and keys that have been checked; their width is arbitrary.

    With grouped heads (``group_size`` > 1) they must have as many heads as the keys.
    """
    k_shape, v_shape = k.shape, v.shape
    if k_shape != v_shape:
        if len(v_shape) < 2:
            raise ValueError(f"v must be (..., tokens, width), got {tuple(v_shape)}")
        if k_shape[-2] != v_shape[-2]:
            raise ValueError(
                f"k has {k_shape[-2]} keys and v has {v_shape[-2]} values; they must have the same length: k is "
                f"{tuple(k_shape)}, v is {tuple(v_shape)}"
            )
        if k_shape[:-2] != v_shape[:-2]:
            heads = 3 if group_size > 1 else 2
            if heads == 3 and (len(v_shape) < 3 or v_shape[-3] != k_shape[-3]):
                raise ValueError(
                    f"k and v must have the same number of heads with enable_gqa: k is {tuple(k_shape)}, v is "
                    f"{tuple(v_shape)}"
                )
            batch = torch.broadcast_shapes(q.shape[:-heads], k_shape[:-heads])
            _broadcast("q and k", batch, "v", v_shape[:-heads])
    if v.device != k.device:
        raise ValueError(_different_devices("k", k, "v", v))
    if v.dtype is not k.dtype:
        _check_mixed_dtypes("k", k, "v", v)


def same_dtype(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return checked queries and keys in their common, wider dtype; they can differ under autocast."""
    if q.dtype is k.dtype:
        return q, k
    dtype = torch.promote_types(q.dtype, k.dtype)
    return q.to(dtype), k.to(dtype)


def _different_devices(first: str, a: Tensor, second: str, b: Tensor) -> str:
    return f"{first} is on {a.device} and {second} is on {b.device}; move them to the same device"


def _check_mixed_dtypes(first: str, a: Tensor, second: str, b: Tensor) -> None:
    both_float = a.is_floating_point() and b.is_floating_point()
    # Under autocast the output of a linear layer is rounded, and a tensor that skipped the layer is not.
    if not both_float or autocast_type(a.device) is None:
        raise TypeError(
            f"{first} is {a.dtype} and {second} is {b.dtype}; they must have the same dtype, convert one of them with "
            ".to()"
        )


def _broadcast(first: str, a: torch.Size, second: str, b: torch.Size) -> None:
    try:
        torch.broadcast_shapes(a, b)
    except RuntimeError:
        grouped = a and b and b[-1] and a[-1] % b[-1] == 0 and a[-1] != b[-1]
        hint = "; pass enable_gqa=True if each key head is shared by a group of query heads" if grouped else ""
        raise ValueError(
            f"the batch and head axes of {first} and those of {second} do not broadcast: {tuple(a)} and {tuple(b)}"
            f"{hint}"
        ) from None


def _check_matrix(name: str, matrix: Tensor, q: Tensor, shape: tuple[int, ...]) -> None:
    if matrix.device != q.device:
        raise ValueError(_different_devices("q", q, name, matrix))
    if not _broadcasts_to(matrix, shape):
        padding = "; a padding mask (batch, keys) must be passed as mask[:, None, None, :]" if name != "bias" else ""
        raise ValueError(
            f"{name} of shape {tuple(matrix.shape)} does not broadcast to {shape} (batch, heads, queries, keys)"
            f"{padding}"
        )


def _broadcasts_to(matrix: Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether ``matrix`` broadcasts to exactly ``shape``; PyTorch's own function is slow for small calls."""
    axes = matrix.dim()
    return axes <= len(shape) and all(
        size in (1, full) for size, full in zip(matrix.shape, shape[len(shape) - axes :], strict=True)
    )
