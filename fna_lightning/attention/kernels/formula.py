"""The formula of an attention as a function of its tensors, for derivatives that a kernel does not have.

Fused kernels have a forward pass and one derivative. Under the transforms of ``torch.func``, in forward mode, and where
a gradient is differentiated again (``create_graph=True``), the formula of the ``reference`` kernel replaces them. It
takes the memory of the whole (n, m) matrix, which is logged once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fna_lightning.attention.inputs import repeat_heads
from fna_lightning.attention.transforms import (
    differentiates,
    is_exporting,
    under_forward_ad,
    under_functorch,
    warn_quadratic_memory,
    with_pullback,
)

if TYPE_CHECKING:
    from fna_lightning.attention.base import Attention
    from fna_lightning.attention.kernels.base import Call
    from fna_lightning.attention.masks import AttentionMask


def needs_formula() -> bool:
    """Return whether a transform is active that only the formula supports."""
    if torch.compiler.is_compiling():
        return differentiates()
    return under_functorch() or under_forward_ad()


def run_formula(call: Call) -> Tensor:
    """Return the output of a call by the formula of the ``reference`` kernel."""
    warn_quadratic_memory(type(call.attention).__name__)
    return whole_output(call.ungrouped())


def whole_output(call: Call) -> Tensor:
    """Return the output of a call without grouped heads, with the whole matrix in memory."""
    attention, q, k = call.attention, call.q, call.k
    return attention.weighted_mean(q, k, call.v, call.mask, attention.log_density(q, k, call.mask), call.dropout)


class _CallWith(nn.Module):
    """Calls a function with an attention, so that ``functional_call`` can replace the parameters of the attention."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, function: Any, *args: Any) -> Tensor:
        return function(self.attention, *args)


def with_parameters(
    attention: Attention, parameters: Mapping[str, Tensor], function: Callable[..., Tensor], *args: Any
) -> Tensor:
    """Return ``function(attention, *args)`` with other parameters and buffers of the attention."""
    if not parameters:
        return function(attention, *args)
    replacements = {f"attention.{name}": value for name, value in parameters.items()}
    return functional_call(_CallWith(attention), replacements, (function, *args))


def parameters_of(attention: Attention) -> dict[str, Tensor]:
    """Return parameters and buffers by name.

    The buffers are copies, because a running estimate may change before the backward pass.
    """
    if not (attention._modules or attention._parameters or attention._buffers):
        # The common case; the iterators below take a tenth of the time of a small call.
        return {}
    parameters: dict[str, Tensor] = dict(attention.named_parameters())
    return parameters | {name: buffer.clone() for name, buffer in attention.named_buffers()}


def with_all_derivatives(out: Tensor, call: Call, kernel: str) -> Tensor:
    """Return the output of a kernel that PyTorch differentiates once, so that its gradient can be differentiated."""
    if not out.requires_grad or torch.compiler.is_compiling() or is_exporting():
        return out
    parameters = parameters_of(call.attention)
    return _WithFormula.apply(
        out, call, kernel, list(parameters), call.q, call.k, call.v, call.mask.bias, *parameters.values()
    )


class _WithFormula(torch.autograd.Function):
    """The identity on ``out``; its gradient goes to the formula instead if it will be differentiated."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, call: Call, kernel: str, names: list[str], *tensors: Tensor | None) -> Tensor:
        # The context must not keep the queries, keys and values of the call alive after the backward pass.
        ctx.attention, ctx.mask, ctx.dropout, ctx.group_size = call.attention, call.mask, call.dropout, call.group_size
        ctx.kernel, ctx.names = kernel, names
        ctx.save_for_backward(*tensors)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        nothing = (None, None, None)
        if not torch.is_grad_enabled() and not needs_formula():
            return grad, *nothing, *(None,) * (4 + len(ctx.names))
        if ctx.dropout:
            raise NotImplementedError(
                f"kernel {ctx.kernel!r} has no second derivative with dropout, got dropout={ctx.dropout}; use "
                "kernel='chunked' or a dropout of 0"
            )
        warn_quadratic_memory(type(ctx.attention).__name__)
        tensors = ctx.saved_tensors
        indices = [index for index, needed in enumerate(ctx.needs_input_grad[4:]) if needed]

        def formula(*inputs: Tensor) -> Tensor:
            values = list(tensors)
            for index, value in zip(indices, inputs, strict=True):
                values[index] = value
            q, k, v, bias, *parameters = values
            named = dict(zip(ctx.names, parameters, strict=True))
            mask = replace(ctx.mask, bias=bias)
            return with_parameters(ctx.attention, named, _output_with, q, k, v, mask, ctx.group_size)

        _, pullback = with_pullback(formula, *(tensors[index] for index in indices))
        grads = dict(zip(indices, pullback(grad), strict=True))
        return None, *nothing, *(grads.get(index) for index in range(len(tensors)))


def _output_with(attention: Attention, q: Tensor, k: Tensor, v: Tensor, mask: AttentionMask, group_size: int) -> Tensor:
    k, v = repeat_heads(k, group_size), repeat_heads(v, group_size)
    return attention.weighted_mean(q, k, v, mask, attention.log_density(q, k, mask), 0.0)
