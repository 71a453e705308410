"""Checks of the operator ``fna_lightning::radial_attention``, before any implementation reads memory.

The operator can be called directly and from a compiled graph, so it does not rely on the checks of an attention. The
limits of one implementation are checked by that implementation.
"""

import torch
from torch import Tensor

# The profiles of the operator; csrc/fna.h of the C kernel has the same order.
PROFILES = {"power": 0, "gaussian": 1, "student": 2}
STUDENT = PROFILES["student"]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Positions are computed in 64-bit integers; this limit leaves room for sums.
MAX_OFFSET = 1 << 62


def check_tensors(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, kappa: Tensor, exponent: Tensor
) -> None:
    """Raise if a shape, dtype or device is wrong."""
    if not (q.dim() == k.dim() == v.dim() == 4):
        raise ValueError(f"q, k and v must be (batch, head, token, width), got {shapes(q, k, v)}")
    b, h, n, d = q.shape
    v_batch, groups, m, _ = v.shape
    if k.shape != (b, groups, m, d) or v_batch != b:
        raise ValueError(
            f"k must be (batch, group, m, d) and v (batch, group, m, d_v) where q is (batch, head, n, d), got "
            f"{shapes(q, k, v)}"
        )
    if groups != h and (groups == 0 or h % groups):
        raise ValueError(f"the number of query heads ({h}) must be a multiple of the number of key heads ({groups})")
    if not (kappa.shape == exponent.shape == (h,)):
        raise ValueError(
            f"kappa and exponent must have one number for each of {h} heads, got {shapes(kappa, exponent)}"
        )
    # No loops over the tensors here: they would take a tenth of the time of a small call.
    floats = q.dtype is k.dtype is v.dtype and q.dtype in DTYPES
    floats = floats and kappa.dtype is exponent.dtype is torch.float32
    if not (floats and q.device == k.device == v.device == kappa.device == exponent.device):
        raise _mismatch(q, {"k": k, "v": v}, {"kappa": kappa, "exponent": exponent})
    if mask is not None:
        if mask.dtype is not torch.bool or mask.device != q.device:
            raise TypeError(f"mask must be torch.bool on {q.device}, got {mask.dtype} on {mask.device}")
        _check_matrix("mask", mask, (b, h, n, m))
    if bias is not None:
        if (bias.dtype is not torch.float32 and bias.dtype is not q.dtype) or bias.device != q.device:
            raise TypeError(
                f"bias must be torch.float32 or the dtype of q ({q.dtype}) on {q.device}, got {bias.dtype} on "
                f"{bias.device}"
            )
        _check_matrix("bias", bias, (b, h, n, m))


def check_results(grad: Tensor, q: Tensor, v: Tensor, out: Tensor, stats: Tensor) -> None:
    """Raise unless the gradient and the results of the forward pass match queries and values that were checked."""
    b, h, n, _ = q.shape
    if not (grad.shape == out.shape == (b, h, n, v.size(3))) or stats.shape != (b, h, n, 2):
        raise ValueError(
            f"grad and out must be (batch, head, n, d_v) and stats (batch, head, n, 2) where q and v are "
            f"{shapes(q, v)}, got {shapes(grad, out, stats)}"
        )
    floats = grad.dtype is out.dtype is q.dtype and stats.dtype is torch.float32
    if not (floats and q.device == grad.device == out.device == stats.device):
        raise _mismatch(q, {"grad": grad, "out": out}, {"stats": stats})


def check_settings(
    profile: int, sphere: bool, causal: bool, exclude_self: bool, offset: int, dropout: float, kernel: str
) -> None:
    """Raise unless the settings are within their limits; ``kernel`` is checked where it is looked up."""
    if not 0 <= profile <= STUDENT or (sphere and profile == STUDENT):
        raise ValueError(
            f"profile must be 0 (power law), 1 (Gaussian) or, on R^d only, {STUDENT} (Student), got {profile} with "
            f"sphere={sphere}"
        )
    if not (-MAX_OFFSET <= offset <= MAX_OFFSET and 0.0 <= dropout < 1.0):
        raise ValueError(f"offset must lie in [-2**62, 2**62] and dropout in [0, 1), got {offset} and {dropout}")


def check_seed(q: Tensor, seed: Tensor | None, dropout: float) -> None:
    """Raise unless the seed of the dropout is one number on the device of the queries."""
    if seed is None:
        if dropout:
            raise ValueError(f"dropout of {dropout} needs a seed, got None")
    elif seed.dtype is not torch.int64 or seed.dim() or seed.device != q.device:
        raise ValueError(
            f"seed must be one torch.int64 number without axes on {q.device}, got {seed.dtype} of shape "
            f"{shapes(seed)} on {seed.device}"
        )


def check_width(q: Tensor) -> None:
    """Raise if queries have width 0: their distances are all 0, so the output would not be the zeros of empty input."""
    if not q.size(-1):
        raise ValueError(f"the operator needs a head width of at least 1, got q of shape {shapes(q)}")


def shapes(*tensors: Tensor) -> str:
    """Return the shapes of the tensors for an error message."""
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors)


def _check_matrix(name: str, matrix: Tensor, shape: tuple[int, int, int, int]) -> None:
    """Raise unless a mask or bias broadcasts to this shape."""
    if matrix.dim() > 4 or any(
        size not in (1, full) for size, full in zip(reversed(matrix.shape), reversed(shape), strict=False)
    ):
        raise ValueError(f"{name} of shape {tuple(matrix.shape)} does not broadcast to {shape}")


def _mismatch(q: Tensor, like_q: dict[str, Tensor], float32: dict[str, Tensor]) -> Exception:
    """Return the error for tensors that are on several devices or have a wrong dtype."""
    for name, tensor in (like_q | float32).items():
        if tensor.device != q.device:
            return ValueError(f"all tensors must be on one device, q is on {q.device} and {name} on {tensor.device}")
    for name, tensor in float32.items():
        if tensor.dtype is not torch.float32:
            return TypeError(f"{name} must be torch.float32, got {tensor.dtype}")
    for name, tensor in like_q.items():
        if tensor.dtype is not q.dtype:
            return TypeError(f"{name} must have the dtype of q ({q.dtype}), got {tensor.dtype}")
    return TypeError(f"q must be torch.float32, torch.bfloat16 or torch.float16, got {q.dtype}")
