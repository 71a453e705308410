"""Jit functions that run before the passes: norms and centered copies of the tokens, and the spans of key masks.

``prepare_kernel``, one program per block of tokens, for the queries and again for the keys:
    pointers x (B, H, N, D), center (B, G, D) float32 or None, centered (B, H, N, D) float32 or None, norms (B, H, N)
    float32; strides of x; heads, n, width; constexprs KEYS, CENTER, SPHERE, HALF, TIE, GROUP, BLOCK_M, BLOCK_D.
``span_kernel``, one program per row of a key mask:
    pointers mask (B, H, 1, M) uint8, spans (B, H, 2) int32; strides of the mask; heads, m; constexpr BLOCK.
``delta_kernel``, one program per block of queries:
    pointers grad and out (B, H, N, D_v), delta (B, H, N) float32; their strides; heads, n, width; constexprs BLOCK_M,
    BLOCK_V.
"""

import triton
import triton.language as tl

# The squared norm of an infinite key: its weight is negligible, and it does not overflow in units of a small kappa.
FAR = tl.constexpr(1e20)


@triton.jit(do_not_specialize=["heads", "n"])
def prepare_kernel(
    x,
    center,
    centered,
    norms,
    x_batch,
    x_head,
    x_row,
    heads,
    n,
    width,
    KEYS: tl.constexpr,
    CENTER: tl.constexpr,
    SPHERE: tl.constexpr,
    HALF: tl.constexpr,
    TIE: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Write the norms of the tokens, and with CENTER the tokens minus the center of their head."""
    blocks = (n + BLOCK_M - 1) // BLOCK_M
    head_index = (tl.program_id(0) // blocks).to(tl.int64)
    start = tl.program_id(0) % blocks * BLOCK_M
    batch = head_index // heads
    head = head_index % heads
    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    inside = (start + rows < n)[:, None] & (columns < width)[None, :]
    first = x + batch * x_batch + head * x_head + start.to(tl.int64) * x_row
    tokens = tl.load(first + rows[:, None] * x_row + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    if CENTER:
        group = head_index // GROUP
        middle = tl.load(center + group * width + columns, mask=columns < width, other=0.0)
        tokens = tl.where(inside, tokens - middle[None, :], 0.0)
    norm = tl.sum(tokens * tokens, 1)
    infinite = norm == float("inf")
    if CENTER:
        if KEYS:
            # The dot product of an infinite key would be infinite or NaN.
            tokens = tl.where(infinite[:, None], 0.0, tokens)
        copy = centered + (head_index * n + start) * width
        tl.store(copy + rows[:, None] * width + columns[None, :], tokens, mask=inside)
    if SPHERE:
        # A zero vector stays 0, as in fna_lightning.attention.distance.unit.
        norm = 1.0 / tl.sqrt(tl.where(norm == 0.0, 1.0, norm))
    elif HALF:
        norm = norm * (1.0 - TIE)
    if not KEYS:
        # All keys are infinitely far from an infinite query, so its weights are not defined.
        norm = tl.where(infinite, float("nan"), norm)
    elif CENTER:
        norm = tl.where(infinite, FAR, norm)
    tl.store(norms + head_index * n + start + rows, norm, mask=start + rows < n)


@triton.jit(do_not_specialize=["heads", "m"])
def span_kernel(mask, spans, mask_batch, mask_head, mask_column, heads, m, BLOCK: tl.constexpr):
    """Write the position of the first key that is masked out, and one more than that of the last allowed key."""
    row = tl.program_id(0)
    source = mask + (row // heads).to(tl.int64) * mask_batch + (row % heads).to(tl.int64) * mask_head
    full = tl.full((BLOCK,), 0, tl.int32) + m
    end = tl.full((BLOCK,), 0, tl.int32)
    for start in range(0, m, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        allowed = tl.load(source + keys.to(tl.int64) * mask_column, mask=keys < m, other=0) != 0
        full = tl.where(allowed, full, tl.minimum(full, keys))
        end = tl.where(allowed, keys + 1, end)
    tl.store(spans + row * 2, tl.min(full, 0))
    tl.store(spans + row * 2 + 1, tl.max(end, 0))


@triton.jit(do_not_specialize=["heads", "n"])
def delta_kernel(
    grad,
    out,
    delta,
    grad_batch,
    grad_head,
    grad_row,
    out_batch,
    out_head,
    out_row,
    heads,
    n,
    width,
    BLOCK_M: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Write the dot product of each row of the output with its gradient."""
    blocks = (n + BLOCK_M - 1) // BLOCK_M
    head_index = (tl.program_id(0) // blocks).to(tl.int64)
    start = tl.program_id(0) % blocks * BLOCK_M
    batch = head_index // heads
    head = head_index % heads
    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_V)
    inside = (start + rows < n)[:, None] & (columns < width)[None, :]
    grad += batch * grad_batch + head * grad_head + start.to(tl.int64) * grad_row
    out += batch * out_batch + head * out_head + start.to(tl.int64) * out_row
    grads = tl.load(grad + rows[:, None] * grad_row + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    outs = tl.load(out + rows[:, None] * out_row + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(delta + head_index * n + start + rows, tl.sum(grads * outs, 1), mask=start + rows < n)
