"""``radial_attention``: attention by distance for all fused kernels, with its derivatives.

In plain eager mode it bypasses the dispatcher: an operator with a derivative written in Python has an overhead of
0.4 ms per forward and backward call, the same ``autograd.Function`` 0.2 ms, and a call with small shapes takes little
more than that. Under a tracer, a mode or with subclasses of Tensor the call goes through the operator
``fna_lightning::radial_attention``, and in forward mode through the formula. Where a gradient is differentiated again,
the formula replaces the fused backward pass (``radial_formula.py``).
"""

import inspect
from typing import Any

import torch
from torch import Tensor

from fna_lightning.attention.kernels.radial_formula import formula, gradient_formula, second_derivative
from fna_lightning.attention.kernels.radial_op import LIBRARY, SETTING_COUNT, backward, forward
from fna_lightning.attention.kernels.radial_vmap import map_backward, map_forward
from fna_lightning.attention.transforms import (
    PLAIN_OR_NONE,
    PLAIN_TENSORS,
    differentiates,
    is_legacy_batched,
    is_plain,
    map_legacy,
    under_forward_ad,
    under_functionalize,
    under_functorch,
    warn_quadratic_memory,
)

NAME = "attention by distance"
# Tensors of the operator, and the position of its results among the tensors of its derivative.
INPUTS = 8


def radial_attention(*inputs: Any) -> Tensor:
    """Return the output of the operator, called with its arguments."""
    if torch.compiler.is_compiling() or not (is_plain() and _are_plain(inputs[:INPUTS])):
        return _transformed_attention(*inputs)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs[:7]):
        return RadialAttention.apply(*inputs)[0]
    return forward(*inputs)[0]


def _are_plain(tensors: tuple[Any, ...]) -> bool:
    # Faster than a generator, which would take as long as all other checks together.
    return {*map(type, tensors)} <= PLAIN_OR_NONE


def _transformed_attention(*inputs: Any) -> Tensor:
    if torch.compiler.is_compiling():
        # The operator has a rule for vmap, but torch.compile cannot trace its derivative under torch.func.
        return formula(*inputs) if differentiates() else torch.ops.fna_lightning.radial_attention(*inputs)[0]
    if under_forward_ad():
        warn_quadratic_memory(NAME)
        return formula(*inputs)
    if under_functorch() and not under_functionalize():
        return RadialAttention.apply(*inputs)[0]
    return torch.ops.fna_lightning.radial_attention(*inputs)[0]


class RadialAttention(torch.autograd.Function):
    """The operator with its derivative, in eager mode and under the transforms of ``torch.func``."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, Tensor]:
        if is_plain() and _are_plain(inputs[:INPUTS]):
            return forward(*inputs)
        return torch.ops.fna_lightning.radial_attention(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _save(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        return _derivative(_gradient, ctx, grad)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return map_forward(RadialAttention.apply, info.batch_size, in_dims, inputs)


class RadialGradient(torch.autograd.Function):
    """The derivative of the operator, with a derivative of its own by the formula."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        if is_plain() and _are_plain(inputs[: INPUTS + 3]):
            return backward(*inputs)
        return torch.ops.fna_lightning.radial_attention_backward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _save_gradient(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        return _second_derivative(ctx, *upstream)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return map_backward(RadialGradient.apply, info.batch_size, in_dims, inputs)


# PyTorch asks for the signature of `forward` at every call, and computing it takes as long as a small kernel.
for _function in (RadialAttention, RadialGradient):
    _function.forward.__signature__ = inspect.signature(_function.forward)  # type: ignore[attr-defined]


def _gradient(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Return the results of ``radial_attention_backward``, differentiable where the caller wants that."""
    # Gradients are enabled here only if the caller wants to differentiate them (create_graph=True).
    if not torch.is_grad_enabled() and is_plain() and type(grad) in PLAIN_TENSORS and not is_legacy_batched(grad):
        return backward(grad, *rest)
    return map_legacy(lambda grad: _transformed_gradient(grad, *rest), grad)


def _transformed_gradient(*inputs: Any) -> tuple[Tensor, ...]:
    if under_forward_ad():
        warn_quadratic_memory(NAME)
        return _gradient_by_formula(*inputs)
    if torch.is_grad_enabled() or under_functorch():
        return RadialGradient.apply(*inputs)
    return RadialGradient.forward(*inputs)


def _gradient_by_formula(grad: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    settings = inputs[INPUTS + 2 :][:SETTING_COUNT]
    dq, dk, dv, *dbias, dkappa, dexponent = gradient_formula(grad, *inputs[:INPUTS], *settings)
    return dq, dk, dv, dbias[0] if dbias else grad.new_empty(0), dkappa, dexponent


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.settings = inputs[INPUTS:]
    ctx.save_for_backward(*inputs[:INPUTS], *output)
    ctx.set_materialize_grads(False)


def _derivative(gradient: Any, ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * (INPUTS + SETTING_COUNT)
    _, _, _, _, learn_bias, learn_kappa, learn_exponent, *_ = ctx.needs_input_grad
    learned = (learn_kappa, learn_exponent, learn_bias)
    dq, dk, dv, dbias, dkappa, dexponent = gradient(grad, *ctx.saved_tensors, *ctx.settings, *learned)
    return (
        dq,
        dk,
        dv,
        None,
        dbias if learn_bias else None,
        dkappa if learn_kappa else None,
        dexponent if learn_exponent else None,
        None,
        *(None,) * SETTING_COUNT,
    )


def _save_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    # The formula needs neither output nor statistics of the rows, which are functions of the other tensors.
    ctx.save_for_backward(*inputs[: 1 + INPUTS])
    ctx.settings = inputs[INPUTS + 3 :][:SETTING_COUNT]
    ctx.set_materialize_grads(False)


def _second_derivative(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
    warn_quadratic_memory(NAME)
    dgrad, dq, dk, dv, dbias, dkappa, dexponent = second_derivative(upstream, *ctx.saved_tensors, *ctx.settings)
    # No gradient of mask, seed, output, statistics, settings, and of what is learned.
    return dgrad, dq, dk, dv, None, dbias, dkappa, dexponent, *(None,) * (3 + SETTING_COUNT + 3)


def _op_derivative(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return _derivative(_op_gradient, ctx, grad)


def _op_gradient(grad: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    if torch.compiler.is_compiling():
        return torch.ops.fna_lightning.radial_attention_backward(grad, *rest)
    if under_forward_ad():
        return _gradient_by_formula(grad, *rest)
    operator = torch.ops.fna_lightning.radial_attention_backward
    return map_legacy(lambda grad: operator(grad, *rest), grad)


def _map_op(info: Any, in_dims: Any, *inputs: Any) -> Any:
    return map_forward(torch.ops.fna_lightning.radial_attention, info.batch_size, in_dims, inputs)


def _map_op_backward(info: Any, in_dims: Any, *inputs: Any) -> Any:
    return map_backward(torch.ops.fna_lightning.radial_attention_backward, info.batch_size, in_dims, inputs)


_FORWARD, _BACKWARD = "fna_lightning::radial_attention", "fna_lightning::radial_attention_backward"
torch.library.register_autograd(_FORWARD, _op_derivative, setup_context=_save, lib=LIBRARY)
torch.library.register_autograd(_BACKWARD, _second_derivative, setup_context=_save_gradient, lib=LIBRARY)
torch.library.register_vmap(_FORWARD, _map_op, lib=LIBRARY)
torch.library.register_vmap(_BACKWARD, _map_op_backward, lib=LIBRARY)
