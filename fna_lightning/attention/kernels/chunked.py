"""Exact attention in O(n) memory, in pure PyTorch, on any device and for every attention.

The queries are taken in blocks; the weights of a block live only while it is computed, and once more while the backward
pass computes them again, with the same dropout. (``torch.utils.checkpoint`` for each block would be shorter, but keeps
the gradients of all keys for every block alive: 1.5 GB at 4096 tokens and 8 heads.)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fna_lightning.attention.kernels.base import Call, Kernel

# weights alive at once; 2 MB in float32, of which autograd holds a handful of copies during a block's backward pass
BLOCK_ELEMENTS = 1 << 19


class Chunked(Kernel):
    """Computes the reference formula for one block of queries at a time."""

    name = "chunked"

    def run(self, call: Call) -> Tensor:
        log_density = None
        if call.attention.density_power:
            log_density = _Blocks.apply(_log_sums, call, call.q, call.k, None, None).mT
        return _Blocks.apply(_mean, call, call.q, call.k, call.v, log_density)


def _log_sums(call: Call, start: int, stop: int, q: Tensor, k: Tensor, _v: None, _density: None) -> Tensor:
    return call.attention.row_log_sums(q, k, call.seen.rows(start, stop))


def _mean(call: Call, start: int, stop: int, q: Tensor, k: Tensor, v: Tensor, density: Tensor | None) -> Tensor:
    return call.attention.weighted_mean(q, k, v, call.seen.rows(start, stop), density, call.dropout)


class _Blocks(torch.autograd.Function):
    """Applies a function of (queries, the rest) block by block; the backward pass computes each block again."""

    @staticmethod
    def forward(
        ctx: Any, function: Any, call: Call, q: Tensor, k: Tensor, v: Tensor | None, density: Tensor | None
    ) -> Tensor:
        ctx.function, ctx.call = function, call
        ctx.random = _random_state(q.device) if call.dropout else None
        ctx.save_for_backward(q, k, v, density)
        batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        # one place for all blocks: kept one by one they would pin the heap around the memory of each
        if v is None:
            out = q.new_empty(*batch, q.size(-2), 1, dtype=torch.promote_types(q.dtype, torch.float32))
        else:
            out = v.new_empty(*batch, q.size(-2), v.size(-1))
        for start, stop in query_blocks(q, k):
            out[..., start:stop, :] = function(call, start, stop, q[..., start:stop, :], k, v, density)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors  # queries first
        places = [place for place, needed in enumerate(ctx.needs_input_grad[2:]) if needed]
        grads = {place: torch.zeros_like(tensors[place]) for place in places}
        with _same_random(ctx.random, upstream.device), torch.enable_grad():
            for start, stop in query_blocks(*tensors[:2]):
                parts = [tensors[0][..., start:stop, :], *tensors[1:]]
                parts = [None if x is None else x.detach().requires_grad_(i in places) for i, x in enumerate(parts)]
                out = ctx.function(ctx.call, start, stop, *parts)
                found = torch.autograd.grad(out, [parts[i] for i in places], upstream[..., start:stop, :])
                for place, grad in zip(places, found, strict=True):
                    (grads[place] if place else grads[place][..., start:stop, :]).add_(grad)
        return None, None, *(grads.get(place) for place in range(len(tensors)))


def query_blocks(q: Tensor, k: Tensor) -> list[tuple[int, int]]:
    """Return the (start, stop) of blocks whose weights fit the budget."""
    n, m = q.size(-2), k.size(-2)
    stacked = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2]).numel()
    size = max(1, BLOCK_ELEMENTS // max(1, stacked * m))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the state of the random numbers of the processor and, if the tensors are elsewhere, of their device."""
    return torch.get_rng_state(), None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(
        device
    )


@contextmanager
def _same_random(state: tuple[Tensor, Tensor | None] | None, device: torch.device) -> Iterator[None]:
    """Draw the random numbers of the forward pass again, and leave the present ones as they are."""
    if state is None:
        yield
        return
    elsewhere = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(elsewhere, device_type=device.type if elsewhere else "cuda"):
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.get_device_module(device).set_rng_state(state[1], device)
        yield
