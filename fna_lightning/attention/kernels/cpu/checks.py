"""Checks of the operator ``fna_lightning::radial_attention``, before the C code reads any memory.

The operator can be called directly and from a compiled graph, so it does not rely on the checks of an attention.
"""

import torch
from torch import Tensor

from fna_lightning.attention.kernels.cpu.library import PROFILES

STUDENT = PROFILES["student"]
# Limits of the C code: tokens, numbers in the keys and values of a head, and position of the first query. Below them
# every size it computes fits in 64 bits. (A key expanded to a billion tokens takes no memory, but its packed copy
# would.)
MAX_TOKENS, MAX_HEAD_NUMBERS, MAX_OFFSET = 1 << 31, 1 << 40, 1 << 62


def check_tensors(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kappa: Tensor, exponent: Tensor
) -> tuple[int, int, int]:
    """Return n, m and the width of a key plus its value; raise if a shape, dtype or device is wrong."""
    if not (q.dim() == k.dim() == v.dim() == 4):
        raise ValueError(f"q, k and v must be (batch, head, token, width), got {shapes(q, k, v)}")
    b, h, n, d = q.shape
    v_batch, v_heads, m, width = v.shape
    if k.shape != (b, h, m, d) or v_batch != b or v_heads != h:
        raise ValueError(
            f"k must be (batch, head, m, d) and v (batch, head, m, d_v) where q is (batch, head, n, d), got "
            f"{shapes(q, k, v)}"
        )
    if not (kappa.shape == exponent.shape == (h,)):
        raise ValueError(
            f"kappa and exponent must have one number for each of {h} heads, got {shapes(kappa, exponent)}"
        )
    # No loops over the tensors here: they would take a tenth of the time of a small call.
    floats = q.dtype is k.dtype is v.dtype is kappa.dtype is exponent.dtype is torch.float32
    if not (floats and q.device == k.device == v.device == kappa.device == exponent.device):
        raise _mismatch(q, k, v, kappa, exponent)
    if mask is not None:
        if mask.dtype is not torch.bool or mask.device != q.device:
            raise TypeError(f"mask must be torch.bool on {q.device}, got {mask.dtype} on {mask.device}")
        sizes = (m, n, h, b)
        if mask.dim() > 4 or any(
            size not in (1, full) for size, full in zip(reversed(mask.shape), sizes, strict=False)
        ):
            raise ValueError(f"mask of shape {tuple(mask.shape)} does not broadcast to {(b, h, n, m)}")
    return n, m, d + width


def check_results(grad: Tensor, q: Tensor, v: Tensor, out: Tensor, stats: Tensor) -> None:
    """Raise unless the gradient and the results of the forward pass match queries and values that were checked."""
    b, h, n, _ = q.shape
    if not (grad.shape == out.shape == (b, h, n, v.size(3))) or stats.shape != (b, h, n, 2):
        raise ValueError(
            f"grad and out must be (batch, head, n, d_v) and stats (batch, head, n, 2) where q and v are "
            f"{shapes(q, v)}, got {shapes(grad, out, stats)}"
        )
    floats = grad.dtype is out.dtype is stats.dtype is torch.float32
    if not (floats and q.device == grad.device == out.device == stats.device):
        raise _mismatch(q, grad, out, stats)


def check_numbers(
    q: Tensor, n: int, m: int, width: int, profile: int, sphere: bool, offset: int, dropout: float
) -> None:
    """Raise unless the tensors are in CPU memory and all sizes and settings are within the limits of the C code."""
    if not q.is_cpu:
        raise ValueError(f"this operator reads CPU memory, the tensors are on {q.device}")
    if n >= MAX_TOKENS or m >= MAX_TOKENS or m * width >= MAX_HEAD_NUMBERS:
        raise ValueError(
            f"{n} queries and {m} keys with {width} numbers per key and value are too many for the C kernel, which "
            f"takes fewer than {MAX_TOKENS} tokens and {MAX_HEAD_NUMBERS} numbers per head; use kernel='chunked'"
        )
    if not 0 <= profile <= STUDENT or (sphere and profile == STUDENT):
        raise ValueError(
            f"profile must be 0 (power law), 1 (Gaussian) or, on R^d only, {STUDENT} (Student), got {profile} with "
            f"sphere={sphere}"
        )
    if not (-MAX_OFFSET <= offset <= MAX_OFFSET and 0.0 <= dropout < 1.0):
        raise ValueError(f"offset must lie in [-2**62, 2**62] and dropout in [0, 1), got {offset} and {dropout}")


def check_width(q: Tensor) -> None:
    """Raise if queries have width 0: their distances are all 0, so the output would not be the zeros of empty input."""
    if not q.size(-1):
        raise ValueError(f"the C kernel needs a head width of at least 1, got q of shape {shapes(q)}")


def shapes(*tensors: Tensor) -> str:
    """Return the shapes of the tensors for an error message."""
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors)


def _mismatch(*tensors: Tensor) -> Exception:
    """Return the error for tensors that are not all float32 on one device."""
    first, *others = tensors
    for other in others:
        if other.device != first.device:
            return ValueError(f"all tensors must be on one device, got {first.device} and {other.device}")
    wrong = next(tensor.dtype for tensor in tensors if tensor.dtype is not torch.float32)
    return TypeError(f"all tensors but the mask must be torch.float32, got {wrong}")
