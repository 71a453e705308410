"""Which of PyTorch's transforms and tracers are active.

In plain eager mode a kernel may read the memory of its tensors. Under a transform of ``torch.func``, forward-mode
differentiation, a tracer or a mode, tensors may be wrappers without memory, and every operation must be recorded, so
the call goes through PyTorch operators. All checks together take 0.3 microseconds.
"""

import logging
from functools import cache

import torch
from torch import Tensor, nn
from torch._C import (
    _functorch,
    _get_tracing_state,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch.autograd import forward_ad

log = logging.getLogger("fna_lightning")

# Other subclasses of Tensor may have no memory (fake tensors) and need the dispatcher.
PLAIN_TENSORS = (Tensor, nn.Parameter)


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
    """Return whether a transform of ``torch.func`` is active; ``is_grads_batched=True`` is one, too."""
    return _functorch.peek_interpreter_stack() is not None


def under_forward_ad() -> bool:
    """Return whether forward-mode differentiation is active, by ``torch.func.jvp`` or by a dual level."""
    # torch.func.jvp enters a dual level, too.
    return forward_ad._current_level >= 0


def under_jit_trace() -> bool:
    """Return whether ``torch.jit.trace`` is recording; the ONNX export based on TorchScript uses it."""
    return _get_tracing_state() is not None


def is_exporting() -> bool:
    """Return whether the program is recorded to run without this library: ``torch.export``, ONNX or TorchScript."""
    # torch.compile need not trace the second check.
    return torch.compiler.is_exporting() or (not torch.compiler.is_compiling() and under_jit_trace())


@cache
def warn_quadratic_memory(attention: str) -> None:
    """Log once that a derivative takes the memory of the whole matrix."""
    log.warning(
        "%s: derivatives of gradients and forward-mode derivatives are computed with the whole (n, m) matrix in memory",
        attention,
    )
