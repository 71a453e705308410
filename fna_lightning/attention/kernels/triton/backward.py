"""Launches of the jit functions of the backward pass. All sums have a fixed order, so it is deterministic."""

import torch
from torch import Tensor

from fna_lightning.attention.kernels.triton.bias_grad import bias_grad_kernel
from fna_lightning.attention.kernels.triton.key_grad import key_grad_kernel
from fna_lightning.attention.kernels.triton.launch import (
    TOKEN_BLOCK,
    Prepared,
    blocks_for,
    grid,
    row_major,
    strides,
    with_blocks,
)
from fna_lightning.attention.kernels.triton.prepare import delta_kernel
from fna_lightning.attention.kernels.triton.query_grad import query_grad_kernel

# The gradient of the output, the statistics of the rows, and the products of `row_products`.
Rows = tuple[Tensor, Tensor, Tensor]


def row_products(grad: Tensor, out: Tensor, call: Prepared) -> Tensor:
    """Return the dot product of each row of the output with its gradient, as (B, H, N) in float32."""
    out = row_major(out)
    b, h, n, d_v = out.shape
    delta = torch.empty(b, h, n, dtype=torch.float32, device=out.device)
    delta_kernel[grid(n, TOKEN_BLOCK, b * h)](
        grad, out, delta, *strides(grad), *strides(out), h, n, d_v, BLOCK_M=TOKEN_BLOCK, BLOCK_V=call.shared["BLOCK_V"]
    )
    return delta


def query_gradient(call: Prepared, rows: Rows, dq: Tensor, learn_kappa: bool, learn_exponent: bool) -> Tensor:
    """Write the gradient of the queries; return its parts of the gradients of kappa and exponent, (B, H, blocks, 2)."""
    b, h, n, _ = dq.shape
    blocks = blocks_for("queries", call.architecture, call.shared)
    sums = torch.empty(b, h, -(-n // blocks.queries), 2, dtype=torch.float32, device=dq.device)
    # The Gaussian has no exponent.
    gaussian = call.shared["PROFILE"] == 1
    if learn_exponent and gaussian:
        sums.zero_()
    query_grad_kernel[grid(n, blocks.queries, b * h)](
        *call.tensors,
        *rows,
        dq,
        sums,
        *call.token_strides,
        *call.matrix_strides,
        *strides(rows[0]),
        *strides(dq),
        *call.sizes,
        LEARN_KAPPA=learn_kappa,
        LEARN_EXPONENT=learn_exponent and not gaussian,
        **with_blocks(call.shared, blocks),
    )
    return sums


def key_gradients(call: Prepared, rows: Rows, dk: Tensor, dv: Tensor) -> None:
    """Write the gradients of the keys and values."""
    b, groups, m, _ = dk.shape
    blocks = blocks_for("keys", call.architecture, call.shared)
    key_grad_kernel[grid(m, blocks.keys, b * groups)](
        *call.tensors,
        *rows,
        dk,
        dv,
        *call.token_strides,
        *call.matrix_strides,
        *strides(rows[0]),
        *strides(dk),
        *strides(dv),
        *call.sizes,
        **with_blocks(call.shared, blocks),
    )


def bias_gradient(call: Prepared, rows: Rows, dbias: Tensor) -> None:
    """Write the gradient of the bias; ``dbias`` is contiguous and has its shape."""
    b, _, n, _ = rows[0].shape
    m = call.k.size(2)
    blocks = blocks_for("bias", call.architecture, call.shared)
    bias_b, bias_h, bias_n, bias_m = (1,) * (4 - dbias.dim()) + tuple(dbias.shape)
    programs = bias_b * bias_h * -(-bias_n // blocks.queries) * -(-bias_m // blocks.keys)
    bias_grad_kernel[(programs,)](
        *call.tensors,
        *rows,
        dbias,
        *call.token_strides,
        *call.matrix_strides,
        *strides(rows[0]),
        *call.sizes,
        b,
        bias_b,
        bias_h,
        SUM_ROWS=bias_n < n,
        SUM_COLUMNS=bias_m < m,
        **with_blocks(call.shared, blocks),
    )
