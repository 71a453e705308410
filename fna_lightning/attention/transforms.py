"""Which of PyTorch's transforms and tracers are active.

In plain eager mode a kernel may read the memory of its tensors. Under a transform of ``torch.func``, forward-mode
differentiation, a tracer or a mode, tensors may be wrappers without memory, and every operation must be recorded, so
the call goes through PyTorch operators. All checks together take 0.3 microseconds.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import (
    _functorch,
    _get_tracing_state,
    _is_fwd_grad_enabled,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
    _vmapmode_decrement_nesting,
    _vmapmode_increment_nesting,
)
from torch._C._functorch import TransformType
from torch.autograd import forward_ad

log = logging.getLogger("fna_lightning")

# Other subclasses of Tensor may have no memory (fake tensors) and need the dispatcher.
PLAIN_TENSORS = (Tensor, nn.Parameter)
PLAIN_OR_NONE = frozenset({*PLAIN_TENSORS, type(None)})


def is_plain() -> bool:
    """Return whether no transform, tracer or mode is active, so that memory can be read directly."""
    return not (
        _len_torch_dispatch_stack()
        or _len_torch_function_stack()
        or _functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or _get_tracing_state() is not None
    )


def under_functorch() -> bool:
    """Return whether a transform of ``torch.func`` is active."""
    return _functorch.peek_interpreter_stack() is not None


def under_functionalize() -> bool:
    """Return whether ``torch.func.functionalize`` is active, which supports no ``autograd.Function``."""
    return under_functorch() and TransformType.Functionalize in _transforms()


def under_forward_ad() -> bool:
    """Return whether forward-mode differentiation is active, by ``torch.func.jvp`` or by a dual level."""
    # torch.func.jvp enters a dual level, too.
    return forward_ad._current_level >= 0 and _is_fwd_grad_enabled()


def differentiates() -> bool:
    """Return whether ``torch.func`` or forward mode is differentiating, also while torch.compile traces it."""
    return under_forward_ad() or (
        under_functorch() and not {TransformType.Grad, TransformType.Jvp}.isdisjoint(_transforms())
    )


# torch.compile enters the transforms while it traces them and must treat the result as a constant. (The public
# torch.compiler.assume_constant_result sets this attribute and imports the whole compiler.)
differentiates._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _transforms() -> set[TransformType]:
    return {interpreter.key() for interpreter in _functorch.get_interpreter_stack() or ()}


def under_jit_trace() -> bool:
    """Return whether ``torch.jit.trace`` is recording; the ONNX export based on TorchScript uses it."""
    return _get_tracing_state() is not None


def is_exporting() -> bool:
    """Return whether the program is recorded to run without this library: ``torch.export``, ONNX or TorchScript."""
    # torch.compile need not trace the second check.
    return torch.compiler.is_exporting() or (not torch.compiler.is_compiling() and under_jit_trace())


is_legacy_batched: Callable[[Tensor], bool] = _functorch.is_legacy_batchedtensor


def map_legacy(function: Callable[[Tensor], tuple[Tensor, ...]], grad: Tensor) -> tuple[Tensor, ...]:
    """Return ``function(grad)`` where ``grad`` may come from ``torch.autograd.grad(..., is_grads_batched=True)``.

    That function has a vmap of its own, without the rules of ``torch.func.vmap``, to which the call is passed on.
    """
    if not is_legacy_batched(grad):
        return function(grad)
    level = _vmapmode_increment_nesting() - 1
    _vmapmode_decrement_nesting()
    results = torch.func.vmap(function)(torch._remove_batch_dim(grad, level, 1, 0))
    return tuple(torch._add_batch_dim(result, 0, level) for result in results)


def with_pullback(function: Callable[..., Any], *inputs: Tensor) -> tuple[Any, Callable[..., Any]]:
    """Return the output of a function and its pullback; both can be differentiated and transformed."""
    results: Any = torch.func.vjp(function, *inputs)
    return results[0], results[1]


@cache
def warn_quadratic_memory(attention: str) -> None:
    """Log once that a derivative takes the memory of the whole matrix."""
    log.warning(
        "%s: derivatives of gradients and forward-mode derivatives are computed with the whole (n, m) matrix in memory",
        attention,
    )
