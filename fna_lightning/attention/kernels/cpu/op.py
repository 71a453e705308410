"""The C kernel as an implementation of the operator ``fna_lightning::radial_attention``, in float32."""

from typing import Any

import torch
from torch import Tensor

from fna_lightning.attention.kernels.cpu import library as c
from fna_lightning.attention.kernels.radial_op import Grads, empty_grads, empty_out

# Limits of the C code: tokens, and numbers in the keys and values of a head. Below them every size it computes fits in
# 64 bits. (A key expanded to a billion tokens takes no memory, but its packed copy would.)
MAX_TOKENS, MAX_HEAD_NUMBERS = 1 << 31, 1 << 40


def check_memory(q: Tensor, v: Tensor, bias: Tensor | None) -> None:
    """Raise unless the tensors are float32 in CPU memory and all sizes are within the limits of the C code."""
    if not q.is_cpu:
        raise ValueError(f"kernel 'cpu' reads CPU memory, the tensors are on {q.device}")
    if q.dtype is not torch.float32 or (bias is not None and bias.dtype is not torch.float32):
        raise TypeError(f"kernel 'cpu' needs torch.float32, got {(q if bias is None else bias).dtype}; use .float()")
    _, _, n, d = q.shape
    _, _, m, d_v = v.shape
    width = d + d_v
    if n >= MAX_TOKENS or m >= MAX_TOKENS or m * width >= MAX_HEAD_NUMBERS:
        raise ValueError(
            f"{n} queries and {m} keys with {width} numbers per key and value are too many for the C kernel, which "
            f"takes fewer than {MAX_TOKENS} tokens and {MAX_HEAD_NUMBERS} numbers per head; use kernel='chunked'"
        )


def _row_major(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _args(q: Tensor, k: Tensor, v: Tensor, out: Tensor, stats: Tensor, kappa: Tensor, exponent: Tensor) -> c.Args:
    b, h, n, d = q.shape
    m, width = v.shape[-2:]
    args = c.Args(
        b, h, k.size(1), n, m, d, width, c.tensor_view(q), c.tensor_view(k), c.tensor_view(v), c.tensor_view(out)
    )
    args.stats, args.kappa, args.exponent = stats.data_ptr(), kappa.data_ptr(), exponent.data_ptr()
    args.threads = c.threads_for(b, h, n, m, d + width)
    return args


def _set_options(
    args: c.Args,
    mask: Tensor | None,
    bias: Tensor | None,
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
    if bias is not None:
        args.bias = c.bias_view(bias, (args.batches, args.heads, args.n, args.m))
    args.profile, args.sphere, args.causal, args.exclude_self = profile, sphere, causal, exclude_self
    args.offset, args.dropout = offset, dropout
    if seed is not None:
        args.seed = seed.item()


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    *options: Any,
) -> tuple[Tensor, Tensor]:
    """Return the output and the statistics of the rows, for tensors that the operator has checked."""
    check_memory(q, v, bias)
    out, stats = empty_out(q, v)
    q, k, v = _row_major(q), _row_major(k), _row_major(v)
    kappa, exponent = kappa.contiguous(), exponent.contiguous()
    args = _args(q, k, v, out, stats, kappa, exponent)
    _set_options(args, mask, bias, seed, *options)
    c.run("fna_forward", args)
    return out, stats


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
    """Return the gradients of q, k, v, bias, kappa and exponent, for tensors that the operator has checked."""
    *options, learn_kappa, learn_exponent, learn_bias = settings
    check_memory(q, v, bias)
    grads = empty_grads(q, k, v, bias, kappa, learn_bias)
    q, k, v, grad, out = (_row_major(x) for x in (q, k, v, grad, out))
    kappa, exponent, stats = kappa.contiguous(), exponent.contiguous(), stats.contiguous()
    args = _args(q, k, v, out, stats, kappa, exponent)
    _set_options(args, mask, bias, seed, *options)
    args.grad_out, args.grad_q, args.grad_k, args.grad_v = (c.tensor_view(x) for x in (grad, *grads[:3]))
    by_head = (args.batches, args.heads)
    if learn_kappa:
        by_kappa, args.grad_kappa = c.float64_zeros(by_head)
    if learn_exponent:
        by_exponent, args.grad_exponent = c.float64_zeros(by_head)
    # The weights do not depend on a number that is added to a whole row, so the gradient of a bias without keys is 0.
    if learn_bias and grads[3].dim() and grads[3].size(-1) > 1:
        args.grad_bias = c.tensor_view(grads[3].expand(args.batches, args.heads, args.n, args.m))
    c.run("fna_backward", args)
    if learn_kappa:
        grads[4].copy_(by_kappa.sum(dim=0))
    if learn_exponent:
        grads[5].copy_(by_exponent.sum(dim=0))
    return grads
