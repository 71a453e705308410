"""Which weights are dropped: a hash of the seed and the position, for the jit functions of this package.

Each row of weights (batch, head, query) gets two words of Philox, and each key mixes its position with them. Philox for
every weight would take twice the instructions. Nothing depends on the block sizes, so the backward pass derives the
same bits; ``threshold`` is the dropout probability times 2^32, minus 2^31.
"""

import triton
import triton.language as tl


@triton.jit
def row_words(seed, head, rows):
    """Return two random words for each row; ``head`` is the index batch * heads + head."""
    zeros = rows * 0
    first, second, _, _ = tl.philox(seed, rows, zeros + head, zeros, zeros)
    return first, second


@triton.jit
def is_kept(first, second, columns, threshold):
    """Return which weights are kept; the arguments have shapes that broadcast to the tile."""
    x = (columns.to(tl.uint32, bitcast=True) * 0x9E3779B9) ^ first
    x = x ^ (x >> 16)
    x = (x * 0x85EBCA6B) ^ second
    x = x ^ (x >> 13)
    x = x * 0xC2B2AE35
    x = x ^ (x >> 16)
    return x.to(tl.int32, bitcast=True) >= threshold
