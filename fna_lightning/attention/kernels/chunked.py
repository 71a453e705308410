"""Exact attention with O(n) memory in pure PyTorch, on any device and for every attention.

The queries are processed in blocks. The weights of a block are in memory only while the block is computed; the backward
pass computes them again, with the same dropout. (``torch.utils.checkpoint`` for each block would be shorter, but it
keeps a gradient of all keys for every block: 1.5 GB at 4096 tokens and 8 heads.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fna_lightning.attention.autocast import autocast_type, with_autocast_type
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.formula import needs_formula, parameters_of, with_parameters
from fna_lightning.attention.masks import slice_rows
from fna_lightning.attention.transforms import map_legacy, warn_quadratic_memory, with_pullback

if TYPE_CHECKING:
    from fna_lightning.attention.base import Attention
    from fna_lightning.attention.masks import AttentionMask

# Weights in memory at once, of which autograd holds a few copies in the backward pass of a block. On a CPU 2 MB in
# float32 stay in the cache. On a GPU, where every block is dozens of kernel launches, 256 MB: four blocks for 64 heads
# of 2048 tokens.
BLOCK_ELEMENTS = 1 << 19
GPU_BLOCK_ELEMENTS = 1 << 26


class Chunked(Kernel):
    """Computes the reference formula for one block of queries at a time."""

    name = "chunked"
    portable = False

    def run(self, call: Call) -> Tensor:
        log_density = None
        if call.attention.density_power:
            log_density = _blocks(_row_log_sums, call, None, None).mT
        return _blocks(_weighted_mean, call, call.v, log_density)


def log_sum_exp(call: Call) -> Tensor:
    """Return the (..., N) log-sum-exp of the logits of each query; -inf where no key is allowed.

    It is differentiable and takes O(n) memory. The logits are the logarithms of the kernel before normalization, with
    the bias. Outputs over disjoint sets of keys can be merged with it.
    """
    if call.attention.density_power:
        raise ValueError(
            f"the log-sum-exp does not normalize the weights with density_power={call.attention.density_power}; "
            "set it to 0"
        )
    return _blocks(_log_sum_exp, call.ungrouped(), None, None).squeeze(-1)


def _row_log_sums(attention: Attention, call: Call, mask: AttentionMask, q: Tensor, k: Tensor, *_: None) -> Tensor:
    return attention.row_log_sums(q, k, mask)


def _log_sum_exp(attention: Attention, call: Call, mask: AttentionMask, q: Tensor, k: Tensor, *_: None) -> Tensor:
    sums = attention.row_log_sums(q, k, mask)
    allowed = mask.matrix(q.size(-2), k.size(-2), q.device)
    return sums if allowed is None else sums.masked_fill(~allowed.any(dim=-1, keepdim=True), -torch.inf)


def _weighted_mean(
    attention: Attention, call: Call, mask: AttentionMask, q: Tensor, k: Tensor, v: Tensor, density: Tensor | None
) -> Tensor:
    return attention.weighted_mean(q, k, v, mask, density, call.dropout)


def _blocks(function: Any, call: Call, v: Tensor | None, density: Tensor | None) -> Tensor:
    """Return ``function`` of all queries, computed block by block."""
    if needs_formula():
        # The tensors of the call, including its mask, may belong to a transform, which follows them only through
        # PyTorch operators.
        warn_quadratic_memory(type(call.attention).__name__)
        return function(call.attention, call, call.mask, call.q, call.k, v, density)
    parameters = parameters_of(call.attention)
    rng_state = _rng_state(call.q.device) if call.dropout else None
    tensors = (call.q, call.k, v, density, call.mask.bias, *parameters.values())
    return _Blocks.apply(function, call, list(parameters), rng_state, *tensors)


class _Blocks(torch.autograd.Function):
    """Applies a function to the queries block by block; the backward pass computes each block again.

    Transforms of ``torch.func`` do not reach it (``needs_formula``), so it has no ``setup_context``, which
    torch.compile does not trace.
    """

    @staticmethod
    def forward(
        ctx: Any, function: Any, call: Call, names: list[str], rng_state: Any, *tensors: Tensor | None
    ) -> Tensor:
        q, k, v, density = tensors[:4]
        assert q is not None
        assert k is not None
        ctx.function, ctx.call, ctx.names, ctx.rng_state = function, call, names, rng_state
        ctx.autocast_type = autocast_type(q.device)
        ctx.save_for_backward(*tensors)
        batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v) if x is not None))
        # One output tensor for all blocks: separate ones would fragment the heap between the weights of the blocks.
        if v is None:
            out = q.new_empty(*batch, q.size(-2), 1, dtype=torch.promote_types(q.dtype, torch.float32))
        else:
            out = v.new_empty(*batch, q.size(-2), v.size(-1))
        for start, stop in query_blocks(q, k):
            mask = call.mask.rows(start, stop)
            out[..., start:stop, :] = function(call.attention, call, mask, q[..., start:stop, :], k, v, density)
        return out

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors  # queries, keys, values, density, bias, learned parameters
        indices = [index for index, needed in enumerate(ctx.needs_input_grad[4:]) if needed]
        device = upstream.device
        # The backward pass usually runs outside the autocast context of the forward pass.
        with _with_rng_state(ctx.rng_state, device), with_autocast_type(ctx.autocast_type, device):
            values = map_legacy(lambda grad: _gradients(ctx, tensors, indices, grad), upstream)
        grads = dict(zip(indices, values, strict=True))
        return None, None, None, None, *(grads.get(index) for index in range(len(tensors)))


def _gradients(ctx: Any, tensors: Sequence[Any], indices: list[int], upstream: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of the tensors at ``indices``, with the weights of one block in memory if possible."""
    if torch.is_grad_enabled() or needs_formula():
        return _differentiable_gradients(ctx, tensors, indices, upstream)
    grads = {index: torch.zeros_like(tensors[index]) for index in indices}
    with torch.enable_grad():
        for start, stop in query_blocks(*tensors[:2]):
            parts = [_block_part(x, index, start, stop) for index, x in enumerate(tensors)]
            parts = [None if x is None else x.detach().requires_grad_(i in indices) for i, x in enumerate(parts)]
            out = _recompute(ctx, start, stop, parts)
            inputs = [parts[index] for index in indices]
            block_grads = torch.autograd.grad(out, inputs, upstream[..., start:stop, :], materialize_grads=True)
            for index, grad in zip(indices, block_grads, strict=True):
                _block_part(grads[index], index, start, stop).add_(grad)
    return tuple(grads.values())


def _differentiable_gradients(
    ctx: Any, tensors: Sequence[Any], indices: list[int], upstream: Tensor
) -> tuple[Tensor, ...]:
    """Return the same gradients as differentiable functions; autograd keeps all blocks in memory."""
    warn_quadratic_memory(type(ctx.call.attention).__name__)

    def formula(*inputs: Tensor) -> Tensor:
        values = list(tensors)
        for index, value in zip(indices, inputs, strict=True):
            values[index] = value
        blocks = [
            _recompute(ctx, start, stop, [_block_part(x, index, start, stop) for index, x in enumerate(values)])
            for start, stop in query_blocks(*values[:2])
        ]
        return torch.cat(blocks, dim=-2)

    _, pullback = with_pullback(formula, *(tensors[index] for index in indices))
    return pullback(upstream)


def _block_part(tensor: Any, index: int, start: int, stop: int) -> Any:
    """Return the part of a saved tensor that a block needs: its rows of queries and bias, all of the others."""
    return slice_rows(tensor, start, stop) if index in (0, 4) else tensor


def _recompute(ctx: Any, start: int, stop: int, parts: list[Any]) -> Tensor:
    """Return the output of the block as a differentiable function of ``parts``."""
    q, k, v, density, bias, *parameters = parts
    named = dict(zip(ctx.names, parameters, strict=True))
    mask = replace(ctx.call.mask.rows(start, stop), bias=bias)
    return with_parameters(ctx.call.attention, named, ctx.function, ctx.call, mask, q, k, v, density)


def query_blocks(q: Tensor, k: Tensor) -> list[tuple[int, int]]:
    """Return (start, stop) of blocks of queries with as many weights as suit the device of the queries."""
    n, m = q.size(-2), k.size(-2)
    elements = GPU_BLOCK_ELEMENTS if q.device.type == "cuda" else BLOCK_ELEMENTS
    matrices = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2]).numel()
    size = max(1, elements // max(1, matrices * m))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def _rng_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the random state of the CPU and, if the tensors are on another device, of that device."""
    return torch.get_rng_state(), None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(
        device
    )


@contextmanager
def _with_rng_state(state: tuple[Tensor, Tensor | None] | None, device: torch.device) -> Iterator[None]:
    """Set the random state of the forward pass, and restore the current one afterwards."""
    if state is None:
        yield
        return
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type=device.type if devices else "cuda"):
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.get_device_module(device).set_rng_state(state[1], device)
        yield
