"""Cases and comparisons for the tests of the C kernel."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Attention
from fna_lightning.attention.kernels.cpu import library as cpu_library

needs_kernel = pytest.mark.skipif(
    cpu_library.unavailable() is not None, reason=f"no C kernel here: {cpu_library.unavailable()}"
)

# largest error divided by the largest value, of an output and of a gradient
OUTPUT_TOLERANCE, GRADIENT_TOLERANCE = 2e-6, 2e-5
# Smaller gradients are compared with this value: the gradient of a softmax over one key is 0 and has no scale.
MIN_SCALE = 1e-3

MASKS = ["none", "padding", "causal", "general", "exclude self", "causal and padding", "same for all heads"]


def random_qkv(n: int, m: int, d: int, d_v: int, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return float32 queries, keys and values of 2 batches and 3 heads."""
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 3, length, d, generator=generator) * scale for length in (n, m))
    return q, k, torch.randn(2, 3, m, d_v, generator=generator)


def mask_named(name: str, n: int, m: int) -> tuple[Tensor | None, bool, bool]:
    """Return mask, is_causal and exclude_self."""
    generator = torch.Generator().manual_seed(7)
    padding = (torch.arange(m) < torch.tensor([m, m // 2])[:, None])[:, None, None, :]
    general = torch.rand(2, 3, n, m, generator=generator) < 0.5
    # a row without any allowed key
    general[0, 0, n // 2] = False
    return {
        "none": (None, False, False),
        "padding": (padding, False, False),
        "causal": (None, True, False),
        "general": (general, False, False),
        "exclude self": (None, False, n == m),
        "causal and padding": (padding, True, False),
        "same for all heads": (general[0, 1], False, False),
    }[name]


def with_float64_reference(
    make: Callable[..., Attention], q: Tensor, k: Tensor, v: Tensor, mask_name: str = "none", *, tied: bool = False
) -> list[tuple[str, Tensor, Tensor]]:
    """Return (name, value of the C kernel, value of the float64 reference) of the output and every gradient."""
    mask, causal, exclude_self = mask_named(mask_name, q.size(-2), k.size(-2))
    results = []
    for kernel, dtype in (("cpu", torch.float32), ("reference", torch.float64)):
        attention = make(kernel=kernel, exclude_self=exclude_self)
        leaves = [x.to(dtype).requires_grad_() for x in ((q, v) if tied else (q, k, v))]
        out = attention(leaves[0], leaves[0] if tied else leaves[1], leaves[-1], mask, is_causal=causal)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
        results.append([out, *torch.autograd.grad(out, leaves, upstream)])
    names = ["output", "dq and dk", "dv"] if tied else ["output", "dq", "dk", "dv"]
    return list(zip(names, *results, strict=True))


def assert_accurate(results: list[tuple[str, Tensor, Tensor]]) -> None:
    """Assert that every result of ``with_float64_reference`` is finite and within the tolerance."""
    for name, got, want in results:
        assert got.isfinite().all(), name
        error = (got.double() - want).abs().max() / want.abs().max().clamp_min(MIN_SCALE)
        tolerance = OUTPUT_TOLERANCE if name == "output" else GRADIENT_TOLERANCE
        assert error <= tolerance, f"{name} has an error of {error:.1e}"
