"""Exact attention in O(n) memory, in pure PyTorch, on any device and for every attention.

The queries are taken in blocks; the weights of a block live only while it is computed, and once more while the backward
pass computes them again, with the same dropout. (``torch.utils.checkpoint`` for each block would be shorter, but keeps
the gradients of all keys for every block alive: 1.5 GB at 4096 tokens and 8 heads.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from fna_lightning.attention.autocast import autocast_type, with_autocast_type
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.masks import rows_of

if TYPE_CHECKING:
    from fna_lightning.attention.base import Attention
    from fna_lightning.attention.masks import AttentionMask

# weights alive at once; 2 MB in float32, of which autograd holds a handful of copies during a block's backward pass
BLOCK_ELEMENTS = 1 << 19


class Chunked(Kernel):
    """Computes the reference formula for one block of queries at a time."""

    name = "chunked"
    portable = False

    def run(self, call: Call) -> Tensor:
        learned = dict(call.attention.named_parameters())
        log_density = None
        if call.attention.density_power:
            log_density = _blocks(_log_sums, call, None, None, learned).mT
        return _blocks(_mean, call, call.v, log_density, learned)


def _log_sums(attention: Attention, call: Call, seen: AttentionMask, q: Tensor, k: Tensor, *_: None) -> Tensor:
    return attention.row_log_sums(q, k, seen)


def _mean(
    attention: Attention, call: Call, seen: AttentionMask, q: Tensor, k: Tensor, v: Tensor, density: Tensor | None
) -> Tensor:
    return attention.weighted_mean(q, k, v, seen, density, call.dropout)


def _blocks(
    function: Any, call: Call, v: Tensor | None, density: Tensor | None, learned: Mapping[str, Tensor]
) -> Tensor:
    return _Blocks.apply(function, call, list(learned), call.q, call.k, v, density, call.seen.bias, *learned.values())


class _Given(nn.Module):
    """Calls a function with an attention whose parameters are those of the forward pass, whoever holds them now."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, function: Any, *args: Any) -> Tensor:
        return function(self.attention, *args)


class _Blocks(torch.autograd.Function):
    """Applies a function of (queries, the rest) block by block; the backward pass computes each block again."""

    @staticmethod
    def forward(ctx: Any, function: Any, call: Call, names: list[str], *tensors: Tensor | None) -> Tensor:
        q, k, v, density = tensors[:4]
        assert q is not None
        assert k is not None
        ctx.function, ctx.call, ctx.names = function, call, names
        ctx.random = _random_state(q.device) if call.dropout else None
        ctx.rounded = autocast_type(q.device)
        ctx.save_for_backward(*tensors)
        batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v) if x is not None))
        # one place for all blocks: kept one by one they would pin the heap around the memory of each
        if v is None:
            out = q.new_empty(*batch, q.size(-2), 1, dtype=torch.promote_types(q.dtype, torch.float32))
        else:
            out = v.new_empty(*batch, q.size(-2), v.size(-1))
        for start, stop in query_blocks(q, k):
            seen = call.seen.rows(start, stop)
            out[..., start:stop, :] = function(call.attention, call, seen, q[..., start:stop, :], k, v, density)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors  # queries, keys, values, density, bias, learned ones
        places = [place for place, needed in enumerate(ctx.needs_input_grad[3:]) if needed]
        grads = {place: torch.zeros_like(tensors[place]) for place in places}
        device = upstream.device
        # the backward pass usually runs outside the autocast of the forward pass
        with _same_random(ctx.random, device), with_autocast_type(ctx.rounded, device), torch.enable_grad():
            for start, stop in query_blocks(*tensors[:2]):
                parts = [_part(x, place, start, stop) for place, x in enumerate(tensors)]
                parts = [None if x is None else x.detach().requires_grad_(i in places) for i, x in enumerate(parts)]
                out = _again(ctx, start, stop, parts)
                wanted = [parts[place] for place in places]
                found = torch.autograd.grad(out, wanted, upstream[..., start:stop, :], materialize_grads=True)
                for place, grad in zip(places, found, strict=True):
                    _part(grads[place], place, start, stop).add_(grad)
        return None, None, None, *(grads.get(place) for place in range(len(tensors)))


def _part(tensor: Any, place: int, start: int, stop: int) -> Any:
    """Return what a block of queries needs of a saved tensor: rows of the queries and of the bias, all of the rest."""
    return rows_of(tensor, start, stop) if place in (0, 4) else tensor


def _again(ctx: Any, start: int, stop: int, parts: list[Any]) -> Tensor:
    """Return the block again, as a function of ``parts``."""
    q, k, v, density, bias, *learned = parts
    args = (ctx.call, replace(ctx.call.seen.rows(start, stop), bias=bias), q, k, v, density)
    if not learned:
        return ctx.function(ctx.call.attention, *args)
    swapped = {f"attention.{name}": one for name, one in zip(ctx.names, learned, strict=True)}
    return functional_call(_Given(ctx.call.attention), swapped, (ctx.function, *args))


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
