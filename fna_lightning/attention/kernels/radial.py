"""``fna_lightning::radial_attention``: attention by distance as one PyTorch operator for all fused kernels.

It is registered with ``torch.library``, so that ``torch.compile`` and ``torch.export`` treat it as one opaque node with
a shape rule and a derivative. The setting ``kernel`` names the implementation: ``cpu`` (C) or ``triton``. Tensors are
(batch, head, token, width). Keys and values may have fewer heads than the queries (grouped heads): with H query heads
and G key heads, query head h uses key head h // (H // G).

In eager mode ``radial_attention`` bypasses the dispatcher: an operator with a derivative written in Python has an
overhead of 0.4 ms per forward and backward call, the same ``autograd.Function`` 0.2 ms, and a call with small shapes
takes little more than that.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.attention.kernels.radial_checks import (
    check_results,
    check_seed,
    check_settings,
    check_tensors,
    check_width,
)

NO_SECOND_DERIVATIVE = (
    "attention by distance has no second derivative, with this kernel or any other; call backward or autograd.grad "
    "without create_graph=True"
)
# Other subclasses of Tensor may have no memory (fake tensors) and need the dispatcher.
PLAIN_TENSORS = (Tensor, nn.Parameter)
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


def _forward(
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
    check_settings(*settings)
    check_seed(q, seed, settings[5])
    forward, _ = _functions(settings[-1])
    if _is_empty(q, k, v):
        out, stats = empty_out(q, v)
        return out.zero_(), stats.zero_()
    return forward(q, k, v, mask, bias, kappa, exponent, seed, *settings[:-1])


def _backward(
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
    check_settings(*settings[:SETTING_COUNT])
    check_seed(q, seed, settings[5])
    *options, kernel, learn_kappa, learn_exponent, learn_bias = settings
    _, backward = _functions(kernel)
    if _is_empty(q, k, v):
        grads = empty_grads(q, k, v, bias, kappa, learn_bias)
        for empty in grads:
            empty.zero_()
        return grads
    learned = (learn_kappa, learn_exponent, learn_bias and bias is not None)
    return backward(grad, q, k, v, mask, bias, kappa, exponent, seed, out, stats, *options, *learned)


class RadialAttention(torch.autograd.Function):
    """The operator in eager mode, with its derivative."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        return _forward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _save(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        # Gradients are enabled here only if the caller wants to differentiate them (create_graph=True).
        if torch.is_grad_enabled():
            raise NotImplementedError(NO_SECOND_DERIVATIVE)
        return _derivative(_backward, ctx, grad)


# PyTorch asks for the signature of `forward` at every call, and computing it takes as long as a small kernel.
RadialAttention.forward.__signature__ = inspect.signature(RadialAttention.forward)  # type: ignore[attr-defined]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, bias, kappa, exponent, seed, *ctx.settings = inputs
    ctx.learned = (kappa.requires_grad, exponent.requires_grad, bias is not None and bias.requires_grad)
    ctx.save_for_backward(q, k, v, mask, bias, kappa, exponent, seed, *output)
    ctx.set_materialize_grads(False)


def _derivative(
    backward: Callable[..., tuple[Tensor, ...]], ctx: Any, grad: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * (8 + SETTING_COUNT)
    q, k, v, mask, bias, kappa, exponent, seed, out, stats = ctx.saved_tensors
    grads = backward(grad, q, k, v, mask, bias, kappa, exponent, seed, out, stats, *ctx.settings, *ctx.learned)
    dq, dk, dv, dbias, dkappa, dexponent = grads
    learn_kappa, learn_exponent, learn_bias = ctx.learned
    return (
        dq,
        dk,
        dv,
        None,
        dbias if learn_bias else None,
        dkappa if learn_kappa else None,
        dexponent if learn_exponent else None,
        None,
        *(None,) * SETTING_COUNT,
    )


def _op_derivative(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return _derivative(torch.ops.fna_lightning.radial_attention_backward, ctx, grad)


def radial_attention(*inputs: Any) -> Tensor:
    """Return the output of the operator, called with its arguments."""
    if torch.compiler.is_compiling() or not all(type(x) in PLAIN_TENSORS for x in inputs[:3]):
        return torch.ops.fna_lightning.radial_attention(*inputs)[0]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs[:7]):
        return RadialAttention.apply(*inputs)[0]
    return _forward(*inputs)[0]


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


def _no_second_derivative(ctx: Any, *_: Tensor) -> None:
    raise NotImplementedError(NO_SECOND_DERIVATIVE)


# ROCm devices have the dispatch key CUDA, too.
for _key in ("CPU", "CUDA"):
    LIBRARY.impl("radial_attention", _forward, _key)
    LIBRARY.impl("radial_attention_backward", _backward, _key)
torch.library.register_fake("fna_lightning::radial_attention", _fake_forward, lib=LIBRARY)
torch.library.register_fake("fna_lightning::radial_attention_backward", _fake_backward, lib=LIBRARY)
torch.library.register_autograd("fna_lightning::radial_attention", _op_derivative, setup_context=_save, lib=LIBRARY)
torch.library.register_autograd("fna_lightning::radial_attention_backward", _no_second_derivative, lib=LIBRARY)
