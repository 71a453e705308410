"""Linear layer that uses oneDNN for float32 matrix products where PyTorch's choice, MKL, is slow.

On processors that are not Intel's, MKL uses the instructions of AVX2 only. oneDNN, which is also part of PyTorch, uses
AVX-512 where the processor has it, and a matrix product takes half of the time. PyTorch calls it for convolutions, for
bfloat16 and in the code that ``torch.compile`` generates, but not for float32 in eager mode.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fna_lightning.attention.autocast import autocast_type
from fna_lightning.attention.transforms import PLAIN_OR_NONE, PLAIN_TENSORS, is_legacy_batched, is_plain

SWITCH = "FNA_ONEDNN_LINEAR"
# oneDNN takes about 10 microseconds more per call, in which MKL computes this number of products.
WORTH_ONEDNN = 600_000
# Numbers in a weight up to which MKL computes its gradient faster.
SMALL_WEIGHT = 48 * 48
# Widths from which oneDNN's gradient of a weight is faster than its product of transposed matrices.
WIDE = 64
# The strides of an axis with one element are arbitrary, and oneDNN would read them.
SMALLEST_AXIS = 4


@cache
def mkl_is_slow() -> bool:
    """Return whether MKL does not use the AVX-512 of this processor."""
    info = Path("/proc/cpuinfo")
    return (
        torch.backends.mkl.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and info.is_file()
        and "GenuineIntel" not in info.read_text()
    )


def onednn_enabled() -> bool:
    """Return whether float32 linear layers may use oneDNN: on this processor, or by the environment variable."""
    wanted = os.environ.get(SWITCH, "")
    if wanted not in ("", "0", "1"):
        raise ValueError(f"{SWITCH} must be 0 (off), 1 (on) or empty (where it is faster), got {wanted!r}")
    return _onednn_linear() is not None and (wanted == "1" or (wanted == "" and mkl_is_slow()))


@cache
def _onednn_linear() -> Any:
    """Return PyTorch's operator, or None if this build has none; ``torch.compile`` calls it in generated code."""
    if not torch.backends.mkldnn.is_available():
        return None
    operator = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return getattr(operator, "default", None)


def usable(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether oneDNN can multiply these tensors and is the faster choice."""
    if torch.compiler.is_compiling() or type(x) not in PLAIN_TENSORS or type(weight) not in PLAIN_TENSORS:
        return False
    rows, (size_out, size_in) = x.numel() // max(1, x.size(-1)), weight.shape
    return (
        rows * size_in * size_out >= WORTH_ONEDNN
        and min(rows, size_in, size_out) >= SMALLEST_AXIS
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and x.size(-1) == size_in
        and type(bias) in PLAIN_OR_NONE
        and (bias is None or (bias.dtype == torch.float32 and bias.shape == (size_out,)))
        and is_plain()
        and not is_legacy_batched(x)
        and autocast_type(x.device) is None
        and onednn_enabled()
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight.mT + bias``, as ``torch.nn.functional.linear``."""
    if not usable(x, weight, bias):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.size(-1))
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (x, weight, bias)):
        out = _Linear.apply(rows, weight, bias)
    else:
        out = _product(rows, weight, bias)
    return out.view(*x.shape[:-1], -1)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _onednn_linear()(_dense(x), _dense(weight), bias, "none", [], "")


def _dense(matrix: Tensor) -> Tensor:
    """Return the matrix, copied unless it or its transpose is contiguous: expanded matrices have no rows to read."""
    return matrix if matrix.is_contiguous() or matrix.mT.is_contiguous() else matrix.contiguous()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = linear(grad, weight.mT) if ctx.needs_input_grad[0] else None
        grad_weight = _weight_gradient(grad, x, weight) if ctx.needs_input_grad[1] else None
        return grad_x, grad_weight, grad.sum(0) if ctx.needs_input_grad[2] else None


def _weight_gradient(grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Return ``grad.mT @ x`` by the fastest of three ways, with the strides of the weight if that is as fast."""
    if weight.numel() <= SMALL_WEIGHT:
        return grad.mT @ x
    # Gradients of gradients and batched gradients need operators that have them.
    if min(weight.shape) >= WIDE and not torch.is_grad_enabled() and usable(grad, weight.mT, None):
        row_major = weight.is_contiguous()
        left, right = (grad, x) if row_major else (x, grad)
        shape = weight if row_major else weight.mT
        product = torch.ops.aten.mkldnn_linear_backward_weights(_packed(left), _packed(right), shape, False)[0]
        return product if row_major else product.mT
    # oneDNN is faster if the result is wide.
    return linear(grad.mT, x.mT) if weight.size(0) <= weight.size(1) else linear(x.mT, grad.mT).mT


def _packed(matrix: Tensor) -> Tensor:
    return matrix.contiguous().to_mkldnn()


class Linear(nn.Linear):
    """``nn.Linear``, computed by oneDNN where that is faster."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the parameter name of nn.Linear
        return linear(input, self.weight, self.bias)
