"""``fna_lightning::radial_attention``: the C kernel as an operator of PyTorch.

Registered with ``torch.library``, so that ``torch.compile`` and ``torch.export`` carry it as one opaque node, with a
shape rule and a derivative. Tensors are (batch, head, token, width) and float32.

In eager mode ``radial_attention`` goes past the dispatcher: an operator with a derivative written in Python costs
0.4 ms a call forward and backward, the same ``autograd.Function`` 0.2 ms, and small shapes take little longer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.attention.kernels.cpu import library as c

NO_SECOND_DERIVATIVE = (
    "attention by distance has no second derivative, with this kernel or any other; call backward or autograd.grad "
    "without create_graph=True"
)
# a subclass may have no memory of its own (fake tensors): that is the dispatcher's business
PLAIN = (Tensor, nn.Parameter)
LIBRARY = torch.library.Library("fna_lightning", "DEF")
SETTINGS = "bool gaussian, bool sphere, bool causal, bool exclude_self, int offset, float dropout"
LIBRARY.define(
    "radial_attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor kappa, Tensor exponent, Tensor? seed, "
    f"{SETTINGS}) -> (Tensor, Tensor)"
)
LIBRARY.define(
    "radial_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor kappa, Tensor exponent, "
    f"Tensor? seed, Tensor out, Tensor stats, {SETTINGS}, bool learned) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


# Limits of what the C code is given: tokens, numbers of a head's keys and values, and place of the first query. Below
# them no size it computes leaves 64 bits. (A key expanded over a billion places takes no memory; a packed copy would.)
LARGEST_AXIS, LARGEST_HEAD, LARGEST_OFFSET = 1 << 31, 1 << 40, 1 << 62


def _check_tensors(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kappa: Tensor, exponent: Tensor
) -> tuple[int, int, int]:
    """Return n, m and the width of a key and its value; raise unless shapes, types and devices are the operator's.

    The operator can be called directly and from a compiled graph, so it relies on no check before it.
    """
    if not (q.dim() == k.dim() == v.dim() == 4):
        raise ValueError(f"q, k and v must be (batch, head, token, width), got {_shapes(q, k, v)}")
    b, h, n, d = q.shape
    v_batch, v_heads, m, width = v.shape
    if k.shape != (b, h, m, d) or v_batch != b or v_heads != h:
        raise ValueError(
            f"k must be (batch, head, m, d) and v (batch, head, m, d_v) where q is (batch, head, n, d), got "
            f"{_shapes(q, k, v)}"
        )
    if not (kappa.shape == exponent.shape == (h,)):
        raise ValueError(
            f"kappa and exponent must have one number for each of {h} heads, got {_shapes(kappa, exponent)}"
        )
    # written out: loops over the tensors would take a tenth of a small call
    floats = q.dtype is k.dtype is v.dtype is kappa.dtype is exponent.dtype is torch.float32
    if not (floats and q.device == k.device == v.device == kappa.device == exponent.device):
        raise _not_alike(q, k, v, kappa, exponent)
    if mask is not None:
        if mask.dtype is not torch.bool or mask.device != q.device:
            raise TypeError(f"mask must be torch.bool on {q.device}, got {mask.dtype} on {mask.device}")
        full = (m, n, h, b)
        if mask.dim() > 4 or any(size not in (1, most) for size, most in zip(reversed(mask.shape), full, strict=False)):
            raise ValueError(f"mask of shape {tuple(mask.shape)} does not broadcast to {(b, h, n, m)}")
    return n, m, d + width


def _check_results(grad: Tensor, q: Tensor, v: Tensor, out: Tensor, stats: Tensor) -> None:
    """Raise unless the gradient and what the forward pass returned fit the checked queries and values."""
    b, h, n, _ = q.shape
    if not (grad.shape == out.shape == (b, h, n, v.size(3))) or stats.shape != (b, h, n, 2):
        raise ValueError(
            f"grad and out must be (batch, head, n, d_v) and stats (batch, head, n, 2) where q and v are "
            f"{_shapes(q, v)}, got {_shapes(grad, out, stats)}"
        )
    floats = grad.dtype is out.dtype is stats.dtype is torch.float32
    if not (floats and q.device == grad.device == out.device == stats.device):
        raise _not_alike(q, grad, out, stats)


def _not_alike(*tensors: Tensor) -> Exception:
    """Return the error for tensors that are not all float32 on one device."""
    first, *others = tensors
    for other in others:
        if other.device != first.device:
            return ValueError(f"all tensors must be on one device, got {first.device} and {other.device}")
    wrong = next(tensor.dtype for tensor in tensors if tensor.dtype is not torch.float32)
    return TypeError(f"all tensors but the mask must be torch.float32, got {wrong}")


def _check_numbers(q: Tensor, n: int, m: int, width: int, offset: int, dropout: float) -> None:
    """Raise unless the C code can count in its own integers, in memory it can reach."""
    if not q.is_cpu:
        raise ValueError(f"this operator reads memory of the processor, the tensors are on {q.device}")
    if n >= LARGEST_AXIS or m >= LARGEST_AXIS or m * width >= LARGEST_HEAD:
        raise ValueError(
            f"{n} queries and {m} keys with values of {width} numbers together are too many for the C kernel, which "
            f"takes fewer than {LARGEST_AXIS} tokens and {LARGEST_HEAD} numbers a head; use kernel='chunked'"
        )
    if not (-LARGEST_OFFSET <= offset <= LARGEST_OFFSET and 0.0 <= dropout < 1.0):
        raise ValueError(f"offset must lie in [-2**62, 2**62] and dropout in [0, 1), got {offset} and {dropout}")


def _check_width(q: Tensor) -> None:
    """Raise if tokens have no coordinates: all distances are 0 then, which is not what the zeros returned here mean."""
    if not q.size(-1):
        raise ValueError(f"the C kernel takes tokens of width 1 at least, got q of shape {_shapes(q)}")


def _shapes(*tensors: Tensor) -> str:
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors)


def _row_major(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _empty_out(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return _empty_like(q, v.size(-1)), q.new_empty(*q.shape[:3], 2)


def _empty_like(x: Tensor, width: int) -> Tensor:
    """Return an empty tensor of another width, token-major if ``x`` is: joining the heads again is then a view."""
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
    args = c.Args(b, h, n, m, d, width, c.view(q), c.view(k), c.view(v), c.view(out))
    args.stats, args.kappa, args.exponent = stats.data_ptr(), kappa.data_ptr(), exponent.data_ptr()
    args.threads = c.threads_for(b, h, n, m, d + width)
    return args


def _restrict(
    args: c.Args,
    mask: Tensor | None,
    seed: Tensor | None,
    gaussian: bool,
    sphere: bool,
    causal: bool,
    exclude_self: bool,
    offset: int,
    dropout: float,
) -> None:
    if mask is not None:
        args.mask = c.mask_view(mask, (args.batches, args.heads, args.n, args.m))
    args.gaussian, args.sphere, args.causal, args.exclude_self = gaussian, sphere, causal, exclude_self
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
    n, m, width = _check_tensors(q, k, v, mask, kappa, exponent)
    _check_numbers(q, n, m, width, settings[4], settings[5])
    out, stats = _empty_out(q, k, v)
    if not (q.numel() and k.size(-2) and v.numel()):
        _check_width(q)
        return out.zero_(), stats.zero_()
    q, k, v = _row_major(q), _row_major(k), _row_major(v)
    kappa, exponent = kappa.contiguous(), exponent.contiguous()
    args = _args(q, k, v, out, stats, kappa, exponent)
    _restrict(args, mask, seed, *settings)
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
    *restrictions, learned = settings
    n, m, width = _check_tensors(q, k, v, mask, kappa, exponent)
    _check_results(grad, q, v, out, stats)
    _check_numbers(q, n, m, width, settings[4], settings[5])
    grads = _empty_grads(q, k, v, kappa)
    if not (q.numel() and k.size(-2) and v.numel()):
        _check_width(q)
        for empty in grads:
            empty.zero_()
        return grads
    q, k, v, grad, out = (_row_major(x) for x in (q, k, v, grad, out))
    kappa, exponent, stats = kappa.contiguous(), exponent.contiguous(), stats.contiguous()
    args = _args(q, k, v, out, stats, kappa, exponent)
    _restrict(args, mask, seed, *restrictions)
    args.grad_out, args.grad_q, args.grad_k, args.grad_v = (c.view(x) for x in (grad, *grads[:3]))
    if learned:
        by_kappa, args.grad_kappa = c.doubles((args.batches, args.heads))
        by_exponent, args.grad_exponent = c.doubles((args.batches, args.heads))
    c.run("fna_backward", args)
    if learned:
        grads[3].copy_(by_kappa.sum(dim=0))
        grads[4].copy_(by_exponent.sum(dim=0))
    return grads


class RadialAttention(torch.autograd.Function):
    """The derivative of the operator, and its eager form."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        return _forward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _save(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        # autograd leaves gradients on here only if the caller wants to differentiate them
        if torch.is_grad_enabled():
            raise NotImplementedError(NO_SECOND_DERIVATIVE)
        return _derivative(_backward, ctx, grad)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, kappa, exponent, seed, *ctx.settings = inputs
    ctx.learned = kappa.requires_grad or exponent.requires_grad
    ctx.save_for_backward(q, k, v, mask, kappa, exponent, seed, *output)
    ctx.set_materialize_grads(False)


def _derivative(
    backward: Callable[..., tuple[Tensor, ...]], ctx: Any, grad: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 13
    q, k, v, mask, kappa, exponent, seed, out, stats = ctx.saved_tensors
    grads = backward(grad, q, k, v, mask, kappa, exponent, seed, out, stats, *ctx.settings, ctx.learned)
    learned = grads[3:] if ctx.learned else (None, None)
    return *grads[:3], None, *learned, None, *(None,) * 6


def _op_derivative(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return _derivative(torch.ops.fna_lightning.radial_attention_backward, ctx, grad)


def radial_attention(*inputs: Any) -> Tensor:
    """Return the output of the operator for its arguments."""
    if torch.compiler.is_compiling() or not all(type(x) in PLAIN for x in inputs[:3]):
        return torch.ops.fna_lightning.radial_attention(*inputs)[0]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs[:6]):
        return RadialAttention.apply(*inputs)[0]
    return _forward(*inputs)[0]


def _fake_forward(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, kappa: Tensor, exponent: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    _check_tensors(q, k, v, mask, kappa, exponent)
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
    _check_tensors(q, k, v, mask, kappa, exponent)
    _check_results(grad, q, v, out, stats)
    return _empty_grads(q, k, v, kappa)


def _no_second_derivative(ctx: Any, *_: Tensor) -> None:
    raise NotImplementedError(NO_SECOND_DERIVATIVE)


LIBRARY.impl("radial_attention", _forward, "CPU")
LIBRARY.impl("radial_attention_backward", _backward, "CPU")
torch.library.register_fake("fna_lightning::radial_attention", _fake_forward, lib=LIBRARY)
torch.library.register_fake("fna_lightning::radial_attention_backward", _fake_backward, lib=LIBRARY)
torch.library.register_autograd("fna_lightning::radial_attention", _op_derivative, setup_context=_save, lib=LIBRARY)
torch.library.register_autograd("fna_lightning::radial_attention_backward", _no_second_derivative, lib=LIBRARY)
