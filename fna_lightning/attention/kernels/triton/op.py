"""The two passes of ``fna_lightning::radial_attention`` in Triton, on CUDA, ROCm, or Triton's interpreter."""

from typing import Any

from torch import Tensor

from fna_lightning.attention.kernels.radial import empty_out
from fna_lightning.attention.kernels.triton.forward import forward_kernel
from fna_lightning.attention.kernels.triton.launch import blocks_for, grid, prepare, strides, with_blocks


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
