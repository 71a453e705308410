"""Which tiles a program visits, and which pairs of a tile are allowed, for the jit functions of this package.

The tiles of a row or column of tiles form four ranges: [low, a) without mask, [a, b) with mask (the diagonal), [b, c)
without mask, and [c, high) with mask. Two loops visit them: one over both ranges without mask, which does no mask work,
and one over both ranges with mask.
"""

import triton
import triton.language as tl

# The kinds of mask: none, one row of keys for all queries, any matrix.
NO_MASK, KEY_MASK, PAIR_MASK = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def key_tiles(
    start,
    full,
    end,
    offset,
    CAUSAL: tl.constexpr,
    EXCLUDE_SELF: tl.constexpr,
    MASK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return low, a, b, c, high of the key tiles for the queries from ``start``.

    No key from ``end`` is allowed, and all keys before ``full`` are, but for causality and self-exclusion.
    """
    if CAUSAL:
        end = tl.minimum(end, tl.maximum(start + BLOCK_M + offset, 0))
        # The first query sees the keys up to its own position, or before it.
        first = start + offset
        if not EXCLUDE_SELF:
            first = first + 1
        full = tl.minimum(full, tl.maximum(first, 0))
    high = (end + BLOCK_N - 1) // BLOCK_N
    c = tl.minimum(full // BLOCK_N, high)
    if MASK == PAIR_MASK:
        c = high * 0
    a = c
    b = c
    if EXCLUDE_SELF and not CAUSAL:
        a = tl.minimum(tl.maximum(start + offset, 0) // BLOCK_N, c)
        b = tl.minimum((tl.maximum(start + offset + BLOCK_M, 0) + BLOCK_N - 1) // BLOCK_N, c)
    return high * 0, a, b, c, high


@triton.jit
def query_tiles(
    start,
    n,
    offset,
    CAUSAL: tl.constexpr,
    EXCLUDE_SELF: tl.constexpr,
    MASK: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return low, a, b, c, high of the query tiles for the keys from ``start``."""
    high = (n + BLOCK_M - 1) // BLOCK_M
    whole = n // BLOCK_M
    low = high * 0
    a = whole
    b = whole
    if CAUSAL:
        low = tl.minimum(tl.maximum(start - offset, 0) // BLOCK_M, high)
        # All keys of the block are allowed for the queries from this position.
        last = start - offset + BLOCK_N - 1
        if EXCLUDE_SELF:
            last = last + 1
        a = low
        b = tl.minimum(tl.maximum((tl.maximum(last, 0) + BLOCK_M - 1) // BLOCK_M, low), high)
    elif EXCLUDE_SELF:
        a = tl.minimum(tl.maximum(start - offset, 0) // BLOCK_M, whole)
        b = tl.minimum((tl.maximum(start - offset + BLOCK_N, 0) + BLOCK_M - 1) // BLOCK_M, whole)
    c = tl.maximum(b, whole)
    if MASK == PAIR_MASK:
        a, b, c = low, low, low
    return low, a, b, c, high


@triton.jit
def tile_count(low, a, b, c, high, EDGE: tl.constexpr):
    """Return the number of tiles with mask (EDGE) or without."""
    if EDGE:
        return (b - a) + (high - c)
    return (a - low) + (c - b)


@triton.jit
def tile_at(step, low, a, b, c, EDGE: tl.constexpr):
    """Return the tile of this step of the loop over the tiles with mask (EDGE) or without."""
    if EDGE:
        return a + step + tl.where(step >= b - a, c - b, 0)
    return low + step + tl.where(step >= a - low, b - a, 0)


@triton.jit
def allowed_pairs(
    rows,
    columns,
    inside,
    mask,
    offset,
    CAUSAL: tl.constexpr,
    EXCLUDE_SELF: tl.constexpr,
    MASK: tl.constexpr,
):
    """Return which pairs are allowed; ``mask`` points to the pairs, ``inside`` says which of them exist."""
    allowed = inside
    if CAUSAL:
        allowed = allowed & (columns <= rows + offset)
    if EXCLUDE_SELF:
        allowed = allowed & (columns != rows + offset)
    if MASK == PAIR_MASK:
        allowed = allowed & (tl.load(mask, mask=inside, other=0) != 0)
    return allowed
