"""Dropout on the processor in one pass: PyTorch draws its mask number by number, a third of a small training step.

Whether a number is kept is a hash of a seed and its place, so the backward pass needs the seed alone and no mask is
stored. The seed comes from PyTorch's generator: ``torch.manual_seed`` decides it, as for any dropout.
"""

from typing import Any

import torch
from torch import Tensor

from fna_lightning.attention.kernels.cpu import library as c

# numbers a second thread must save before it pays to wake it
WORTH_A_THREAD = 65_536


def _drop(x: Tensor, p: float, seed: int) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    threads = max(1, min(torch.get_num_threads(), x.numel() // WORTH_A_THREAD))
    c.run("fna_dropout", c.DropoutArgs(x.data_ptr(), out.data_ptr(), x.numel(), seed, p, threads))
    return out


class HashedDropout(torch.autograd.Function):
    """``_drop`` and its derivative: itself, with the same seed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p, ctx.seed = p, seed
        return _drop(x, p, seed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # through apply, so that the derivative has a derivative
        return HashedDropout.apply(grad, ctx.p, ctx.seed), None, None


def usable(x: Tensor) -> bool:
    """Return whether the C code can take this tensor: plain float32 on the processor, and nobody tracing."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and c.missing() is None
    )


def dropout(x: Tensor, p: float) -> Tensor:
    """Return ``x`` with each number set to 0 with probability ``p``, 0 < p < 1, and the others divided by 1 - p."""
    return HashedDropout.apply(x, p, int(torch.randint(2**62, ()).item()))
