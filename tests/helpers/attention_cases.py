"""The attentions, kernels and tolerances of the tests."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical, StudentT, Uniform
from fna_lightning.attention.kernels import KERNELS, Call

# attentions that are a function of a distance, by name
RADIAL_ATTENTIONS: dict[str, Callable[..., Attention]] = {
    "power law": lambda **options: Fractional(1.2, **options),
    "power law, vision": lambda **options: Fractional(1.2, "vision", **options),
    "Gaussian": lambda **options: Fractional(2.0, **options),
    "sphere": lambda **options: Spherical(1.2, **options),
    "Gaussian on the sphere": lambda **options: Spherical(2.0, **options),
    "Cauchy": lambda **options: StudentT(1.0, 20.0, **options),
    "Student": lambda **options: StudentT(4.0, 10.0, **options),
}
NAMED_ATTENTIONS: dict[str, Callable[..., Attention]] = {
    **RADIAL_ATTENTIONS,
    "dot product": lambda **options: DotProduct(**options),
    "cosine": lambda **options: DotProduct(2.0, qk_norm=True, ssmax=True, **options),
    "uniform": lambda **options: Uniform(**options),
}

# Largest error of an output or gradient against the formula in float64, relative to the largest entry. A softmax cannot
# be more accurate than its logits, so the float32 tolerance is for logits up to about 30.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}

# Largest change of an output in float32 when all tokens, of size 1, are shifted by 10: the rounding error of the
# shifted tokens themselves, the same for every kernel.
SHIFT_TOLERANCE = 1e-4

ATTENTIONS: list[Attention] = [
    Fractional(1.2),
    Fractional(1.0, kappa=0.5),
    Fractional(1.7, kappa="vision", intrinsic_dim=3.0),
    Fractional(2.0),
    Fractional(2.0, kappa=3.0),
    Fractional(1.2, density_power=0.5),
    Spherical(1.2),
    Spherical(2.0),
    DotProduct(),
    DotProduct(scale=0.2, ssmax=True),
    DotProduct(qk_norm=True),
    StudentT(1.0),
    StudentT(3.0, kappa=0.7, intrinsic_dim=2.0),
    Uniform(),
]


def qkv(
    n: int = 5,
    m: int = 7,
    d: int = 8,
    d_v: int | None = None,
    dtype: torch.dtype = torch.float64,
    *,
    seed: int = 0,
    batch: tuple[int, ...] = (2, 3),
) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries, keys and values that require gradients."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((*batch, n, d), (*batch, m, d), (*batch, m, d_v or d))
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def with_kernel(attention: Attention, kernel: str) -> Attention:
    """Return the same attention with another kernel."""
    names = set(signature(type(attention)).parameters) - {"kernel", "learn"}
    settings: dict[str, Any] = {name: getattr(attention, name) for name in names}
    return type(attention)(**settings, kernel=kernel)


def refusal(attention: Attention, kernel: str, q: Tensor, k: Tensor, v: Tensor) -> str | None:
    """Return why ``kernel`` does not compute this attention, or None."""
    call = Call(attention, q, k, v, attention.mask_for(q, k, None), 0.0)
    return KERNELS[kernel].unavailable() or KERNELS[kernel].refusal(call)


def pairs(dtype: torch.dtype = torch.float64) -> list[tuple[Attention, str]]:
    """Return every (attention, kernel) such that the kernel computes the attention in this dtype."""
    q, k, v = qkv(4, 4, dtype=dtype)
    return [
        (attention, kernel)
        for attention in ATTENTIONS
        for kernel in KERNELS
        if refusal(attention, kernel, q, k, v) is None
    ]
