"""The two passes of ``fna_lightning::radial_attention`` in Triton, on CUDA, ROCm, or Triton's interpreter."""

from typing import Any

import torch
from torch import Tensor

from fna_lightning.attention.kernels.radial_op import Grads, empty_grads, empty_out
from fna_lightning.attention.kernels.triton.backward import (
    bias_gradient,
    key_gradients,
    query_gradient,
    row_products,
)
from fna_lightning.attention.kernels.triton.forward import forward_kernel
from fna_lightning.attention.kernels.triton.launch import blocks_for, grid, prepare, row_major, strides, with_blocks


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
    """Return the output and the statistics of the rows; the tensors are checked and not empty."""
    out, stats = empty_out(q, v)
    call = prepare(q, k, v, mask, bias, kappa, exponent, seed, *settings)
    b, h, n, _ = q.shape
    blocks = blocks_for("forward", call.architecture, call.shared)
    forward_kernel[grid(n, blocks.queries, b * h)](
        *call.tensors,
        out,
        stats,
        *call.token_strides,
        *call.matrix_strides,
        *strides(out),
        *call.sizes,
        **with_blocks(call.shared, blocks),
    )
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
    """Return the gradients of q, k, v, bias, kappa and exponent; the tensors are checked and not empty."""
    *options, learn_kappa, learn_exponent, learn_bias = settings
    grads = empty_grads(q, k, v, bias, kappa, learn_bias)
    call = prepare(q, k, v, mask, bias, kappa, exponent, seed, *options)
    grad, stats = row_major(grad), stats.contiguous()
    delta = row_products(grad, out, call)
    rows = (grad, stats, delta)
    sums = query_gradient(call, rows, grads[0], learn_kappa, learn_exponent)
    key_gradients(call, rows, grads[1], grads[2])
    if learn_bias:
        bias_gradient(call, rows, grads[3])
    if learn_kappa:
        grads[4].copy_(sums[..., 0].sum(dim=(0, 2), dtype=torch.float64))
    if learn_exponent:
        grads[5].copy_(sums[..., 1].sum(dim=(0, 2), dtype=torch.float64))
    return grads
