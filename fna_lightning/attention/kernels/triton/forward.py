"""Jit function of the forward pass, ``forward_kernel``: one program per block of queries of a head.

Pointers: q (B, H, N, D), k (B, G, M, D), v (B, G, M, D_v), norms of queries (B, H, N) and keys (B, G, M), mask as
uint8 or None, spans of a key mask or None, bias or None, kappa and exponent (H), seed (int64) or None, out
(B, H, N, D_v), stats (B, H, N, 2). Then the strides of all of them but the contiguous ones, the sizes, the offset of
the queries, and the dropout threshold and scale. The constexprs are listed in ``launch.py``.

The statistics of a row are log2 of the sum of its weights and the reference: the weight of a pair is
2^(factor * (reference - cost)), and the reference is the least cost of the row. A row without allowed keys has +inf and
0, so that its weights are 0 in the backward pass.
"""

import triton
import triton.language as tl

from fna_lightning.attention.kernels.triton.dropout import is_kept, row_words
from fna_lightning.attention.kernels.triton.ranges import (
    KEY_MASK,
    PAIR_MASK,
    allowed_pairs,
    key_tiles,
    tile_at,
    tile_count,
)
from fna_lightning.attention.kernels.triton.scores import (
    GAUSSIAN,
    LOG2_E,
    add_bias,
    cost_parts,
    distances,
    log2_1p,
    power_of_2,
    product,
    product_add,
    rounded,
    sum_parts,
    weights,
)


@triton.jit(do_not_specialize=["heads", "n", "m", "offset", "threshold", "keep_scale"])
def forward_kernel(
    q,
    k,
    v,
    query_norms,
    key_norms,
    mask,
    spans,
    bias,
    kappa,
    exponent,
    seed,
    out,
    stats,
    q_batch,
    q_head,
    q_row,
    k_batch,
    k_head,
    k_row,
    v_batch,
    v_head,
    v_row,
    mask_batch,
    mask_head,
    mask_row,
    mask_column,
    span_batch,
    span_head,
    bias_batch,
    bias_head,
    bias_row,
    bias_column,
    out_batch,
    out_head,
    out_row,
    heads,
    n,
    m,
    width,
    value_width,
    offset,
    threshold,
    keep_scale,
    PROFILE: tl.constexpr,
    SPHERE: tl.constexpr,
    CAUSAL: tl.constexpr,
    EXCLUDE_SELF: tl.constexpr,
    MASK: tl.constexpr,
    BIAS: tl.constexpr,
    DROPOUT: tl.constexpr,
    GROUP: tl.constexpr,
    TIE: tl.constexpr,
    HALF: tl.constexpr,
    BACKEND: tl.constexpr,
    SCORE_PRECISION: tl.constexpr,
    VALUE_PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_V: tl.constexpr,
    WHOLE_D: tl.constexpr,
    WHOLE_V: tl.constexpr,
):
    """Write the output and the statistics of one block of queries."""
    HAS_LOW: tl.constexpr = (PROFILE != GAUSSIAN) and not HALF
    blocks = (n + BLOCK_M - 1) // BLOCK_M
    head_index = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    if CAUSAL:
        # The last queries have the most keys, so they start first.
        block = blocks - 1 - block
    start = block * BLOCK_M
    batch = head_index // heads
    head = head_index % heads
    group = head // GROUP
    group_index = head_index // GROUP

    per_kappa = 1.0 / tl.load(kappa + head)
    factor = tl.load(exponent + head)
    if PROFILE == GAUSSIAN:
        factor = factor * 0.0 + LOG2_E
    norm_scale = per_kappa * per_kappa
    if SPHERE:
        norm_scale = 1.0

    rows = tl.arange(0, BLOCK_M)
    keys = tl.arange(0, BLOCK_N)
    columns = tl.arange(0, BLOCK_D)
    value_columns = tl.arange(0, BLOCK_V)
    row_exists = start + rows < n
    q += batch * q_batch + head * q_head + start.to(tl.int64) * q_row
    queries = tl.load(
        q + rows[:, None] * q_row + columns[None, :],
        mask=row_exists[:, None] & (columns < width)[None, :],
        other=0.0,
    )
    query_norm = tl.load(query_norms + head_index * n + start + rows, mask=row_exists, other=0.0) * norm_scale
    k += batch * k_batch + group * k_head
    v += batch * v_batch + group * v_head
    key_norms += group_index * m
    full = m
    end = m
    if MASK == KEY_MASK:
        full = tl.load(spans + batch * span_batch + head * span_head)
        end = tl.load(spans + batch * span_batch + head * span_head + 1)
    if MASK != 0:
        mask += batch * mask_batch + head * mask_head + start.to(tl.int64) * mask_row
    if BIAS:
        bias += batch * bias_batch + head * bias_head + start.to(tl.int64) * bias_row
        bias_factor = factor
        factor = factor * 0.0 + 1.0
    if DROPOUT:
        first_word, second_word = row_words(tl.load(seed), head_index.to(tl.int32), start + rows)

    acc = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    least = tl.full((BLOCK_M,), float("inf"), tl.float32)
    low, a, b, c, high = key_tiles(start, full, end, offset, CAUSAL, EXCLUDE_SELF, MASK, BLOCK_M, BLOCK_N)
    for EDGE in tl.static_range(2):
        if (EDGE == 1) or (MASK != PAIR_MASK):
            for step in range(tile_count(low, a, b, c, high, EDGE)):
                j0 = tile_at(step, low, a, b, c, EDGE) * BLOCK_N
                key_rows = k + j0.to(tl.int64) * k_row + keys[:, None] * k_row + columns[None, :]
                value_rows = v + j0.to(tl.int64) * v_row + keys[:, None] * v_row + value_columns[None, :]
                if EDGE:
                    visible = j0 + keys < m
                    if MASK == KEY_MASK:
                        bits = tl.load(mask + (j0 + keys).to(tl.int64) * mask_column, mask=visible, other=0)
                        visible = visible & (bits != 0)
                    key_tile = tl.load(key_rows, mask=visible[:, None] & (columns < width)[None, :], other=0.0)
                    value_tile = tl.load(
                        value_rows, mask=visible[:, None] & (value_columns < value_width)[None, :], other=0.0
                    )
                    key_norm = tl.load(key_norms + j0 + keys, mask=visible, other=0.0) * norm_scale
                else:
                    if WHOLE_D:
                        key_tile = tl.load(key_rows)
                    else:
                        key_tile = tl.load(key_rows, mask=(columns < width)[None, :], other=0.0)
                    if WHOLE_V:
                        value_tile = tl.load(value_rows)
                    else:
                        value_tile = tl.load(value_rows, mask=(value_columns < value_width)[None, :], other=0.0)
                    key_norm = tl.load(key_norms + j0 + keys) * norm_scale

                dot = product(queries, tl.trans(key_tile), SCORE_PRECISION, BACKEND)
                z, squared, _ = distances(
                    dot, query_norm[:, None], key_norm[None, :], per_kappa, TIE, SPHERE, HALF, BACKEND
                )
                high_part, low_part = cost_parts(z, squared, PROFILE, HALF, BACKEND)
                if BIAS:
                    biases = tl.load(
                        bias + j0.to(tl.int64) * bias_column + rows[:, None] * bias_row + keys[None, :] * bias_column,
                        mask=row_exists[:, None] & (j0 + keys < m)[None, :],
                        other=0.0,
                    )
                    high_part, low_part = add_bias(high_part, low_part, bias_factor, biases, HAS_LOW)
                cost = sum_parts(high_part, low_part, HAS_LOW)
                if EDGE:
                    pairs = mask
                    if MASK == PAIR_MASK:
                        pairs = (
                            mask
                            + j0.to(tl.int64) * mask_column
                            + rows[:, None] * mask_row
                            + keys[None, :] * mask_column
                        )
                    allowed = allowed_pairs(
                        (start + rows)[:, None],
                        (j0 + keys)[None, :],
                        row_exists[:, None] & visible[None, :],
                        pairs,
                        offset,
                        CAUSAL,
                        EXCLUDE_SELF,
                        MASK,
                    )
                    cost = tl.where(allowed, cost, float("inf"))
                nearest = tl.minimum(least, tl.min(cost, 1))
                reference = tl.where(nearest == float("inf"), 0.0, nearest)
                p = weights(high_part, low_part, reference[:, None], 0.0, factor, HAS_LOW, HALF, BACKEND)
                if EDGE:
                    p = tl.where(allowed, p, 0.0)
                decay = power_of_2((reference - least) * factor, BACKEND)
                least = nearest
                total = total * decay + tl.sum(p, 1)
                if DROPOUT:
                    kept = is_kept(first_word[:, None], second_word[:, None], (j0 + keys)[None, :], threshold)
                    p = tl.where(kept, p, 0.0)
                acc = acc * decay[:, None]
                acc = product_add(rounded(p, value_tile.dtype, BACKEND), value_tile, acc, VALUE_PRECISION, BACKEND)

    # NaN stays NaN.
    empty = total == 0.0
    scale = keep_scale / tl.where(empty, 1.0, total)
    out += batch * out_batch + head * out_head + start.to(tl.int64) * out_row
    tl.store(
        out + rows[:, None] * out_row + value_columns[None, :],
        rounded(acc * scale[:, None], out.dtype.element_ty, BACKEND),
        mask=row_exists[:, None] & (value_columns < value_width)[None, :],
    )
    log_high, log_low = log2_1p(total - 1.0, HALF, BACKEND)
    log_total = sum_parts(log_high, log_low, not HALF)
    stats += (head_index * n + start) * 2
    tl.store(stats + rows * 2, tl.where(empty, float("inf"), log_total), mask=row_exists)
    tl.store(stats + rows * 2 + 1, tl.where(empty, 0.0, least), mask=row_exists)
