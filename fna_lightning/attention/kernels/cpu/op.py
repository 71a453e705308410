"""``fna_lightning::radial_attention``: the C kernel as a PyTorch operator.

It is registered with ``torch.library``, so that ``torch.compile`` and ``torch.export`` treat it as one opaque node with
a shape rule and a derivative. Tensors are (batch, head, token, width) and float32.

In eager mode ``radial_attention`` bypasses the dispatcher: an operator with a derivative written in Python has an
overhead of 0.4 ms per forward and backward call, the same ``autograd.Function`` 0.2 ms, and a call with small shapes
takes little more than that.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.attention.kernels.cpu import library as c
from fna_lightning.attention.kernels.cpu.checks import check_numbers, check_results, check_tensors, check_width

NO_SECOND_DERIVATIVE = (
    "attention by distance has no second derivative, with this kernel or any other; call backward or autograd.grad "
    "without create_graph=True"
)
# Other subclasses of Tensor may have no memory (fake tensors) and need the dispatcher.
PLAIN_TENSORS = (Tensor, nn.Parameter)
LIBRARY = torch.library.Library("fna_lightning", "DEF")
SETTINGS = "int profile, bool sphere, bool causal, bool exclude_self, int offset, float dropout"
LIBRARY.define(
    "radial_attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor kappa, Tensor exponent, Tensor? seed, "
    f"{SETTINGS}) -> (Tensor, Tensor)"
)
LIBRARY.define(
    "radial_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor kappa, Tensor exponent, "
    f"Tensor? seed, Tensor out, Tensor stats, {SETTINGS}, bool learn_kappa, bool learn_exponent) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _row_major(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _empty_out(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return _empty_like(q, v.size(-1)), q.new_empty(*q.shape[:3], 2)


def _empty_like(x: Tensor, width: int) -> Tensor:
    """Return an empty tensor of another width, token-major if ``x`` is, so that merging the heads is a view."""
    b, h, n, _ = x.shape
    if x.stride(1) < x.stride(2):
        return x.new_empty(b, n, h, width).transpose(1, 2)
    return x.new_empty(b, h, n, width)


def _empty_grads(q: Tensor, k: Tensor, v: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv = (_empty_like(x, x.size(-1)) for x in (q, k, v))
    return dq, dk, dv, torch.zeros_like(kappa), torch.zeros_like(kappa)


def _args(q: Tensor, k: Tensor, v: Tensor, out: Tensor, stats: Tensor, kappa: Tensor, exponent: Tensor) -> c.Args:
    b, h, n, d = q.shape
    m, width = v.shape[-2:]
    args = c.Args(b, h, n, m, d, width, c.tensor_view(q), c.tensor_view(k), c.tensor_view(v), c.tensor_view(out))
    args.stats, args.kappa, args.exponent = stats.data_ptr(), kappa.data_ptr(), exponent.data_ptr()
    args.threads = c.threads_for(b, h, n, m, d + width)
    return args


def _set_options(
    args: c.Args,
    mask: Tensor | None,
    seed: Tensor | None,
    profile: int,
    sphere: bool,
    causal: bool,
    exclude_self: bool,
    offset: int,
    dropout: float,
) -> None:
    if mask is not None:
        args.mask = c.mask_view(mask, (args.batches, args.heads, args.n, args.m))
    args.profile, args.sphere, args.causal, args.exclude_self = profile, sphere, causal, exclude_self
    args.offset, args.dropout = offset, dropout
    if seed is not None:
        args.seed = seed.item()


def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    *settings: Any,
) -> tuple[Tensor, Tensor]:
    n, m, width = check_tensors(q, k, v, mask, kappa, exponent)
    check_numbers(q, n, m, width, *settings[:2], *settings[4:6])
    out, stats = _empty_out(q, k, v)
    if not (q.numel() and k.size(-2) and v.numel()):
        check_width(q)
        return out.zero_(), stats.zero_()
    q, k, v = _row_major(q), _row_major(k), _row_major(v)
    kappa, exponent = kappa.contiguous(), exponent.contiguous()
    args = _args(q, k, v, out, stats, kappa, exponent)
    _set_options(args, mask, seed, *settings)
    c.run("fna_forward", args)
    return out, stats


def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    out: Tensor,
    stats: Tensor,
    *settings: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    *options, learn_kappa, learn_exponent = settings
    n, m, width = check_tensors(q, k, v, mask, kappa, exponent)
    check_results(grad, q, v, out, stats)
    check_numbers(q, n, m, width, *settings[:2], *settings[4:6])
    grads = _empty_grads(q, k, v, kappa)
    if not (q.numel() and k.size(-2) and v.numel()):
        check_width(q)
        for empty in grads:
            empty.zero_()
        return grads
    q, k, v, grad, out = (_row_major(x) for x in (q, k, v, grad, out))
    kappa, exponent, stats = kappa.contiguous(), exponent.contiguous(), stats.contiguous()
    args = _args(q, k, v, out, stats, kappa, exponent)
    _set_options(args, mask, seed, *options)
    args.grad_out, args.grad_q, args.grad_k, args.grad_v = (c.tensor_view(x) for x in (grad, *grads[:3]))
    by_head = (args.batches, args.heads)
    if learn_kappa:
        by_kappa, args.grad_kappa = c.float64_zeros(by_head)
    if learn_exponent:
        by_exponent, args.grad_exponent = c.float64_zeros(by_head)
    c.run("fna_backward", args)
    if learn_kappa:
        grads[3].copy_(by_kappa.sum(dim=0))
    if learn_exponent:
        grads[4].copy_(by_exponent.sum(dim=0))
    return grads


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
    q, k, v, mask, kappa, exponent, seed, *ctx.settings = inputs
    ctx.learned = (kappa.requires_grad, exponent.requires_grad)
    ctx.save_for_backward(q, k, v, mask, kappa, exponent, seed, *output)
    ctx.set_materialize_grads(False)


def _derivative(
    backward: Callable[..., tuple[Tensor, ...]], ctx: Any, grad: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 13
    q, k, v, mask, kappa, exponent, seed, out, stats = ctx.saved_tensors
    grads = backward(grad, q, k, v, mask, kappa, exponent, seed, out, stats, *ctx.settings, *ctx.learned)
    learned = (grad if needed else None for grad, needed in zip(grads[3:], ctx.learned, strict=True))
    return *grads[:3], None, *learned, None, *(None,) * 6


def _op_derivative(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return _derivative(torch.ops.fna_lightning.radial_attention_backward, ctx, grad)


def radial_attention(*inputs: Any) -> Tensor:
    """Return the output of the operator, called with its arguments."""
    if torch.compiler.is_compiling() or not all(type(x) in PLAIN_TENSORS for x in inputs[:3]):
        return torch.ops.fna_lightning.radial_attention(*inputs)[0]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs[:6]):
        return RadialAttention.apply(*inputs)[0]
    return _forward(*inputs)[0]


def _fake_forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kappa: Tensor, exponent: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    check_tensors(q, k, v, mask, kappa, exponent)
    return _empty_out(q, k, v)


def _fake_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    out: Tensor,
    stats: Tensor,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    check_tensors(q, k, v, mask, kappa, exponent)
    check_results(grad, q, v, out, stats)
    return _empty_grads(q, k, v, kappa)


def _no_second_derivative(ctx: Any, *_: Tensor) -> None:
    raise NotImplementedError(NO_SECOND_DERIVATIVE)


LIBRARY.impl("radial_attention", _forward, "CPU")
LIBRARY.impl("radial_attention_backward", _backward, "CPU")
torch.library.register_fake("fna_lightning::radial_attention", _fake_forward, lib=LIBRARY)
torch.library.register_fake("fna_lightning::radial_attention_backward", _fake_backward, lib=LIBRARY)
torch.library.register_autograd("fna_lightning::radial_attention", _op_derivative, setup_context=_save, lib=LIBRARY)
torch.library.register_autograd("fna_lightning::radial_attention_backward", _no_second_derivative, lib=LIBRARY)
