"""GELU on the CPU, several times as fast as PyTorch's."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fna_lightning.attention.kernels.cpu import library as c
from fna_lightning.attention.kernels.cpu.elementwise import threads_for, usable

# Number of elements from which the C code is faster than PyTorch, which takes less time to call.
WORTH_C = 4096


def _run(x: Tensor, grad: Tensor | None) -> Tensor:
    x = x.contiguous()
    grad = None if grad is None else grad.contiguous()
    out = torch.empty_like(x)
    address = None if grad is None else grad.data_ptr()
    c.run("fna_gelu", c.GeluArgs(x.data_ptr(), address, out.data_ptr(), x.numel(), threads_for(x)))
    return out


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return _run(x, None)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled() or not usable(grad):
            # PyTorch can differentiate and map its own operator.
            return torch.ops.aten.gelu_backward(grad, x)
        return _run(x, grad)


def gelu(x: Tensor) -> Tensor:
    """Return ``x`` times the share of a normal distribution below it, as ``torch.nn.functional.gelu``."""
    if x.numel() < WORTH_C or not usable(x):
        return F.gelu(x)
    return _Gelu.apply(x) if torch.is_grad_enabled() and x.requires_grad else _run(x, None)
