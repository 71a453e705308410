"""Exact attention in O(n) memory, in pure PyTorch, on any device and for every attention.

The queries are taken in blocks; the weights of a block live only while it is computed and are recomputed in the
backward pass by ``torch.utils.checkpoint``, which also replays the dropout pattern.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fna_lightning.attention.kernels.base import Call, Kernel

# weights alive at once; 4 MB in float32, of which autograd holds a handful of copies during a block's backward pass
BLOCK_ELEMENTS = 1 << 20


class Chunked(Kernel):
    """Computes the reference formula for one block of queries at a time."""

    name = "chunked"

    def run(self, call: Call) -> Tensor:
        attention, q, k, v = call.attention, call.q, call.k, call.v
        n = q.size(-2)
        blocks = list(query_blocks(call))
        log_density = None
        if attention.density_power:
            sums = [
                recomputed(attention.row_log_sums, q[..., start:stop, :], k, call.seen.rows(start, stop))
                for start, stop in blocks
            ]
            log_density = torch.cat(sums, dim=-2).mT
        if len(blocks) == 1:
            return attention.weighted_mean(q, k, v, call.seen, log_density, call.dropout)
        out = [
            recomputed(
                attention.weighted_mean,
                q[..., start:stop, :],
                k,
                v,
                call.seen.rows(start, stop),
                log_density,
                call.dropout,
            )
            for start, stop in blocks
        ]
        return torch.cat(out, dim=-2) if n else v.new_empty(*q.shape[:-1], v.size(-1))


def query_blocks(call: Call) -> list[tuple[int, int]]:
    """Return the (start, stop) of blocks whose weights fit the budget."""
    n, m = call.q.size(-2), call.k.size(-2)
    stacked = torch.broadcast_shapes(call.q.shape[:-2], call.k.shape[:-2]).numel()
    size = max(1, BLOCK_ELEMENTS // max(1, stacked * m))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def recomputed(function: Callable[..., Tensor], *args: object) -> Tensor:
    """Call ``function``; keep only its arguments for the backward pass."""
    out: Tensor = checkpoint(function, *args, use_reentrant=False)
    return out
