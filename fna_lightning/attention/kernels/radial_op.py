"""``fna_lightning::radial_attention`` and its derivative: schemas, implementations, shape rules and FLOP counts.

The operator is registered with ``torch.library``, so that ``torch.compile`` and ``torch.export`` treat it as one opaque
node. The setting ``kernel`` names the implementation: ``cpu`` (C) or ``triton``. Tensors are (batch, head, token,
width). Keys and values may have fewer heads than the queries (grouped heads): with H query heads and G key heads, query
head h uses key head h // (H // G).
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from fna_lightning.attention.kernels.radial_checks import (
    check_results,
    check_seed,
    check_settings,
    check_tensors,
    check_width,
)
from fna_lightning.attention.transforms import under_forward_ad

LIBRARY = torch.library.Library("fna_lightning", "DEF")
INPUTS = "Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor? bias, Tensor kappa, Tensor exponent, Tensor? seed"
SETTINGS = "int profile, bool sphere, bool causal, bool exclude_self, int offset, float dropout, str kernel"
SETTING_COUNT = SETTINGS.count(",") + 1
LIBRARY.define(f"radial_attention({INPUTS}, {SETTINGS}) -> (Tensor, Tensor)")
LIBRARY.define(
    f"radial_attention_backward(Tensor grad, {INPUTS}, Tensor out, Tensor stats, {SETTINGS}, bool learn_kappa, "
    "bool learn_exponent, bool learn_bias) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)

Grads = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Functions = tuple[Callable[..., tuple[Tensor, Tensor]], Callable[..., Grads]]


def _cpu() -> Functions:
    from fna_lightning.attention.kernels.cpu import op

    return op.forward, op.backward


def _triton() -> Functions:
    from fna_lightning.attention.kernels.triton import op

    return op.forward, op.backward


# They are imported at the first call: Triton may be missing.
IMPLEMENTATIONS: dict[str, Callable[[], Functions]] = {"cpu": _cpu, "triton": _triton}


@cache
def _functions(kernel: str) -> Functions:
    """Return the forward and the backward pass of an implementation."""
    if kernel not in IMPLEMENTATIONS:
        raise ValueError(f"unknown kernel {kernel!r}; choose one of {', '.join(IMPLEMENTATIONS)}")
    return IMPLEMENTATIONS[kernel]()


def empty_out(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return uninitialized memory for the output and the statistics of the rows."""
    b, h, n, _ = q.shape
    return _empty_like(q, v.size(-1)), q.new_empty((b, h, n, 2), dtype=torch.float32)


def empty_grads(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, kappa: Tensor, learn_bias: bool) -> Grads:
    """Return memory for the gradients: zeros for bias, kappa and exponent, uninitialized for the others."""
    dq, dk, dv = _empty_like(q), _empty_like(k), _empty_like(v)
    dbias = bias.new_zeros(bias.shape) if bias is not None and learn_bias else q.new_empty(0)
    return dq, dk, dv, dbias, torch.zeros_like(kappa), torch.zeros_like(kappa)


def _empty_like(x: Tensor, width: int | None = None) -> Tensor:
    """Return an empty tensor, of another width or not, token-major if ``x`` is, so that merging the heads is a view."""
    b, h, n, d = x.shape
    width = d if width is None else width
    _, head, token, _ = x.stride()
    if head < token:
        return x.new_empty((b, n, h, width)).transpose(1, 2)
    return x.new_empty((b, h, n, width))


def _is_empty(q: Tensor, k: Tensor, v: Tensor) -> bool:
    if q.numel() and k.size(-2) and v.numel():
        return False
    check_width(q)
    return True


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    *settings: Any,
) -> tuple[Tensor, Tensor]:
    """Return the output and the statistics of the rows."""
    check_tensors(q, k, v, mask, bias, kappa, exponent)
    check_settings(*settings)
    check_seed(q, seed, settings[5])
    implementation, _ = _functions(settings[-1])
    if _is_empty(q, k, v):
        out, stats = empty_out(q, v)
        return out.zero_(), stats.zero_()
    return implementation(q, k, v, mask, bias, kappa, exponent, seed, *settings[:-1])


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    out: Tensor,
    stats: Tensor,
    *settings: Any,
) -> Grads:
    """Return the gradients of q, k, v, bias, kappa and exponent."""
    check_tensors(q, k, v, mask, bias, kappa, exponent)
    check_results(grad, q, v, out, stats)
    check_settings(*settings[:SETTING_COUNT])
    check_seed(q, seed, settings[5])
    *options, kernel, learn_kappa, learn_exponent, learn_bias = settings
    _, implementation = _functions(kernel)
    if _is_empty(q, k, v):
        grads = empty_grads(q, k, v, bias, kappa, learn_bias)
        for empty in grads:
            empty.zero_()
        return grads
    learned = (learn_kappa, learn_exponent, learn_bias and bias is not None)
    return implementation(grad, q, k, v, mask, bias, kappa, exponent, seed, out, stats, *options, *learned)


def _fake_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    *settings: Any,
) -> tuple[Tensor, Tensor]:
    check_tensors(q, k, v, mask, bias, kappa, exponent)
    check_seed(q, seed, settings[5])
    return empty_out(q, v)


def _fake_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    out: Tensor,
    stats: Tensor,
    *settings: Any,
) -> Grads:
    check_tensors(q, k, v, mask, bias, kappa, exponent)
    check_results(grad, q, v, out, stats)
    check_seed(q, seed, settings[5])
    return empty_grads(q, k, v, bias, kappa, settings[-1])


def _checked_forward(*inputs: Any) -> tuple[Tensor, Tensor]:
    _refuse_forward_ad()
    return forward(*inputs)


def _checked_backward(*inputs: Any) -> Grads:
    _refuse_forward_ad()
    return backward(*inputs)


def _refuse_forward_ad() -> None:
    # PyTorch drops the tangents of an operator with a derivative written in Python, without an error.
    if under_forward_ad():
        raise NotImplementedError(
            "the operator fna_lightning::radial_attention has no forward-mode derivative, which a graph that contains "
            "it would need; differentiate the function that was traced instead"
        )


# ROCm devices have the dispatch key CUDA, too.
for _key in ("CPU", "CUDA"):
    LIBRARY.impl("radial_attention", _checked_forward, _key)
    LIBRARY.impl("radial_attention_backward", _checked_backward, _key)
torch.library.register_fake("fna_lightning::radial_attention", _fake_forward, lib=LIBRARY)
torch.library.register_fake("fna_lightning::radial_attention_backward", _fake_backward, lib=LIBRARY)


@register_flop_formula(torch.ops.fna_lightning.radial_attention)
def _forward_flops(q: torch.Size, k: torch.Size, v: torch.Size, *_: Any, **__: Any) -> int:
    """Return the FLOPs of two products of (n, m) matrices, as PyTorch counts its own attention."""
    return _pairs(q, k) * (2 * q[-1] + 2 * v[-1])


@register_flop_formula(torch.ops.fna_lightning.radial_attention_backward)
def _backward_flops(grad: torch.Size, q: torch.Size, k: torch.Size, v: torch.Size, *_: Any, **__: Any) -> int:
    """Return the FLOPs of five products: the weights again, their gradient, and the gradients of q, k and v."""
    return _pairs(q, k) * (3 * 2 * q[-1] + 2 * 2 * v[-1])


def _pairs(q: torch.Size, k: torch.Size) -> int:
    return q[0] * q[1] * q[2] * k[2]
