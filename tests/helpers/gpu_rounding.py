"""Matrix products of a GPU, simulated with the rounding of its multipliers and accumulators.

The inputs are rounded to the type of the multiplier, their products are exact, and the sum is rounded to float32 after
every instruction.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor, Tensor], Tensor]


def tf32_truncated(x: Tensor) -> Tensor:
    """Return float32 numbers with 10 bits of mantissa, the others cut off: tensor cores ignore them."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def tf32_nearest(x: Tensor) -> Tensor:
    """Return the nearest numbers with 10 bits of mantissa, ties away from 0 (the instruction cvt.rna.tf32)."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def bfloat16(x: Tensor) -> Tensor:
    """Return the nearest bfloat16 numbers, in float32."""
    return x.bfloat16().float()


def _toward_zero(x: Tensor) -> Tensor:
    """Return float64 numbers rounded to float32 toward 0, as the accumulators of tensor cores are."""
    nearest = x.float()
    too_large = nearest.double().abs() > x.abs()
    return torch.where(too_large, torch.nextafter(nearest, torch.zeros_like(nearest)), nearest)


def _sum_of_products(
    a: Tensor, b: Tensor, start: Tensor | None, step: int, rounding: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return start + a @ b with exact products, rounded to float32 after every ``step`` of them."""
    out = torch.zeros(*a.shape[:-1], b.size(-1)) if start is None else start
    for first in range(0, a.size(-1), step):
        part = a[..., first : first + step].double() @ b[..., first : first + step, :].double()
        out = rounding(out.double() + part)
    return out


def ieee(a: Tensor, b: Tensor) -> Tensor:
    """Return the product with one fused multiply-add after the other."""
    return _sum_of_products(a, b, None, 1, Tensor.float)


def tf32(a: Tensor, b: Tensor) -> Tensor:
    """Return the product in Triton with input_precision "tf32", which truncates."""
    return _sum_of_products(tf32_truncated(a.contiguous()), tf32_truncated(b.contiguous()), None, 8, _toward_zero)


def tf32_cublas(a: Tensor, b: Tensor) -> Tensor:
    """Return the product in TF32 with inputs rounded to nearest."""
    return _sum_of_products(tf32_nearest(a), tf32_nearest(b), None, 8, _toward_zero)


def tf32x3(a: Tensor, b: Tensor) -> Tensor:
    """Return the product in Triton with input_precision "tf32x3": small parts first, each truncated."""
    a_big, b_big = tf32_nearest(a), tf32_nearest(b)
    a_small, b_small = tf32_truncated(a - a_big), tf32_truncated(b - b_big)
    out = _sum_of_products(a_small, b_big, None, 8, _toward_zero)
    out = _sum_of_products(a_big, b_small, out, 8, _toward_zero)
    return _sum_of_products(a_big, b_big, out, 8, _toward_zero)


def bf16(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of the nearest bfloat16 numbers, summed in float32."""
    return _sum_of_products(bfloat16(a), bfloat16(b), None, 16, _toward_zero)
