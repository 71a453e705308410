"""Cases and comparisons for the tests of the Triton kernel.

They run on the GPU, or in Triton's interpreter on the CPU if TRITON_INTERPRET=1 is set before Triton is imported.
"""

import os
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Fractional, Spherical, StudentT
from fna_lightning.attention.distance import euclidean, geodesic
from fna_lightning.attention.kernels import KERNELS
from fna_lightning.attention.kernels.radial import radial_attention
from fna_lightning.attention.kernels.radial_checks import PROFILES

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = torch.device("cpu" if INTERPRETED or not torch.cuda.is_available() else "cuda")
needs_triton = pytest.mark.skipif(
    KERNELS["triton"].unavailable() is not None,
    reason=f"test_triton_interpreter.py runs it in a process of its own; here {KERNELS['triton'].unavailable()}",
)

# Largest error of a tensor against float64, divided by its largest value, of outputs and gradients of tokens and bias.
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
# The same for the gradients of kappa and the exponent, in every dtype.
SCALE_TOLERANCE = 3e-5
# Smaller values are compared with this one: the gradient of a softmax over one key is 0 and has no scale.
MIN_SCALE = 1e-3
NAMES = ("q", "k", "v", "bias", "kappa", "exponent")

# The attentions whose kappa and exponent the cases have, as in the tests of the C kernel.
RULES = {
    "power": Fractional(1.2, "vision"),
    "gaussian": Fractional(2.0),
    "student": StudentT(1.0, 20.0),
    "sphere": Spherical(1.2),
    "gaussian sphere": Spherical(2.0),
}


@dataclass(frozen=True)
class Case:
    """One call; the defaults have two blocks of queries and of keys, the second of them not full."""

    profile: str = "power"
    n: int = 70
    m: int = 70
    d: int = 16
    d_v: int = 16
    batches: int = 2
    heads: int = 2
    groups: int = 2
    mask: str = "none"
    causal: bool = False
    exclude_self: bool = False
    offset: int = 0
    bias: tuple[int, ...] | None = None
    dropout: float = 0.0
    tied: bool = False
    dtype: torch.dtype = torch.float32

    def mask_tensor(self) -> Tensor | None:
        """Return the boolean mask of this name."""
        b, h, n, m = self.batches, self.heads, self.n, self.m
        generator = torch.Generator().manual_seed(7)
        general = torch.rand(b, h, n, m, generator=generator) < 0.5
        # a row without any allowed key
        general[0, 0, n // 2] = False
        lengths = torch.tensor([m - 3, m // 3, 0])[:b]
        return {
            "none": None,
            "padding": (torch.arange(m) < lengths[:, None])[:, None, None],
            "length 0": (torch.arange(m) < torch.tensor([m, 0])[:, None])[:, None, None],
            "holes": torch.rand(b, 1, 1, m, generator=generator) < 0.6,
            "holes by head": torch.rand(b, h, 1, m, generator=generator) < 0.6,
            "general": general,
            "same for all heads": general[0, -1],
            "by query": torch.rand(n, 1, generator=generator) < 0.8,
        }[self.mask]

    def tensors(self) -> list[Tensor | None]:
        """Return q, k, v, bias, kappa and exponent on the CPU."""
        generator = torch.Generator().manual_seed(0)
        q = torch.randn(self.batches, self.heads, self.n, self.d, generator=generator)
        k = torch.randn(self.batches, self.groups, self.m, self.d, generator=generator)
        v = torch.randn(self.batches, self.groups, self.m, self.d_v, generator=generator)
        if self.tied:
            k = q[:, : self.groups]
        bias = None if self.bias is None else torch.randn(self.bias, generator=generator)
        form = RULES[self.profile].radial(q)
        per_head = torch.linspace(0.8, 1.2, self.heads)
        tokens = [x.to(self.dtype) for x in (q, k, v)]
        return [*tokens, bias, form.kappa * per_head, form.exponent * per_head.flip(0)]

    @property
    def sphere(self) -> bool:
        """Whether the distance is an angle."""
        return "sphere" in self.profile

    @property
    def formula(self) -> str:
        """The profile of the operator."""
        return {"sphere": "power", "gaussian sphere": "gaussian"}.get(self.profile, self.profile)


def results(case: Case) -> dict[str, Tensor]:
    """Return the output and all gradients of the Triton kernel, on the CPU."""
    leaves = [None if x is None else x.to(DEVICE).requires_grad_() for x in case.tensors()]
    mask = case.mask_tensor()
    seed = torch.tensor(0x123456789ABCDEF, device=DEVICE) if case.dropout else None
    out = radial_attention(
        *leaves[:3],
        None if mask is None else mask.to(DEVICE),
        *leaves[3:],
        seed,
        PROFILES[case.formula],
        case.sphere,
        case.causal,
        case.exclude_self,
        case.offset,
        case.dropout,
        "triton",
    )
    assert out.dtype is case.dtype
    return _with_gradients(case, out, leaves)


def exact_results(case: Case) -> dict[str, Tensor]:
    """Return the same by the formula in float64."""
    leaves = [None if x is None else x.double().requires_grad_() for x in case.tensors()]
    q, k, v, bias, kappa, exponent = leaves
    size = case.heads // case.groups
    keys, values = k.repeat_interleave(size, 1), v.repeat_interleave(size, 1)
    z = (geodesic if case.sphere else euclidean)(q, keys) / kappa[:, None, None]
    rate = exponent[:, None, None]
    logits = {
        "power": lambda: -rate * z.log1p(),
        "gaussian": lambda: -z.square(),
        "student": lambda: -rate * z.square().log1p(),
    }[case.formula]()
    if bias is not None:
        logits = logits + bias
    rows, columns = torch.arange(case.n)[:, None] + case.offset, torch.arange(case.m)
    allowed = torch.ones(case.n, case.m, dtype=torch.bool)
    if case.causal:
        allowed = allowed & (columns <= rows)
    if case.exclude_self:
        allowed = allowed & (columns != rows)
    mask = case.mask_tensor()
    allowed = (allowed if mask is None else allowed & mask).expand(logits.shape)
    empty = ~allowed.any(dim=-1, keepdim=True)
    weights = logits.masked_fill(~(allowed | empty), -torch.inf).softmax(dim=-1).masked_fill(empty, 0.0)
    if case.dropout:
        weights = weights * kept(0x123456789ABCDEF, weights.shape, case.dropout) / (1.0 - case.dropout)
    return _with_gradients(case, weights @ values, leaves)


def _with_gradients(case: Case, out: Tensor, leaves: list[Tensor | None]) -> dict[str, Tensor]:
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(case.dtype)
    present = {name: leaf for name, leaf in zip(NAMES, leaves, strict=True) if leaf is not None}
    grads = torch.autograd.grad(out, list(present.values()), upstream.to(out), allow_unused=True)
    gradients = {
        f"gradient of {name}": torch.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(present.items(), grads, strict=True)
    }
    return {name: x.detach().cpu() for name, x in ({"output": out} | gradients).items()}


def errors(case: Case) -> dict[str, float]:
    """Return the largest error of each result, divided by the largest value of the exact one."""
    got, want = results(case), exact_results(case)
    assert all(x.isfinite().all() for x in got.values())
    return {
        name: ((got[name].double() - want[name]).abs().max() / want[name].abs().max().clamp_min(MIN_SCALE)).item()
        for name in want
    }


def assert_accurate(case: Case) -> None:
    """Assert that the output and all gradients are within the tolerance."""
    for name, error in errors(case).items():
        scale = name.endswith(("kappa", "exponent"))
        assert error <= (SCALE_TOLERANCE if scale else TOLERANCE[case.dtype]), f"{name} has an error of {error:.1e}"


def philox(key: int, counter: np.ndarray) -> np.ndarray:
    """Return ten rounds of Philox 4x32 of the (4, ...) counters, written again from its definition."""
    c = counter.astype(np.uint64)
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        low = np.uint64(0xFFFFFFFF)
        c = np.stack(
            [
                (second >> np.uint64(32)) ^ c[1] ^ np.uint64(keys[0]),
                second & low,
                (first >> np.uint64(32)) ^ c[3] ^ np.uint64(keys[1]),
                first & low,
            ]
        )
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c.astype(np.uint32)


def kept(seed: int, shape: tuple[int, ...], p: float) -> Tensor:
    """Return which of the (B, H, N, M) weights dropout keeps, derived in NumPy."""
    b, h, n, m = shape
    head, row = np.meshgrid(np.arange(b * h), np.arange(n), indexing="ij")
    words = philox(seed, np.stack([row, head, np.zeros_like(row), np.zeros_like(row)]))
    x = np.arange(m, dtype=np.uint32) * np.uint32(0x9E3779B9) ^ words[0][..., None]
    x ^= x >> np.uint32(16)
    x = x * np.uint32(0x85EBCA6B) ^ words[1][..., None]
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    x ^= x >> np.uint32(16)
    # the kernel compares signed numbers
    return torch.from_numpy(x.view(np.int32) >= round(p * 2**32) - 2**31).view(shape)
