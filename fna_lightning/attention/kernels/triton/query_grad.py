"""Jit function ``query_grad_kernel``: gradient of the queries, and sums for the gradients of kappa and the exponent.

One program per block of queries of a head. The arguments are those of ``forward_kernel`` with grad (B, H, N, D_v),
delta (B, H, N), query_grad (B, H, N, D) and sums (B * H, blocks, 2) in addition; constexprs LEARN_KAPPA and
LEARN_EXPONENT.

With dS = P (dP - delta), the gradient of log C, kappa and the exponent have the gradient sum dS L, where L is the
derivative of log C. The sum over the keys of a row is taken of dS (L - mean L), with the mean by the weights P: dS sums
to 0 only up to the rounding error of delta, and an error proportional to P has no effect on this sum.
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
    LN_2,
    LOG2_E,
    above,
    kappa_part,
    kappa_scale,
    power_of_2,
    product,
    product_add,
    rounded,
    rounded_pull,
    slope,
    slope_scale,
    token_gradient,
    weights_again,
)


@triton.jit(do_not_specialize=["heads", "n", "m", "offset", "threshold", "keep_scale"])
def query_grad_kernel(
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
    grad,
    stats,
    delta,
    query_grad,
    sums,
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
    grad_batch,
    grad_head,
    grad_row,
    query_grad_batch,
    query_grad_head,
    query_grad_row,
    heads,
    n,
    m,
    width,
    value_width,
    offset,
    threshold,
    keep_scale,
    LEARN_KAPPA: tl.constexpr,
    LEARN_EXPONENT: tl.constexpr,
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
    """Write the gradient of one block of queries and its parts of the gradients of kappa and the exponent."""
    HAS_LOW: tl.constexpr = (PROFILE != GAUSSIAN) and not HALF
    blocks = (n + BLOCK_M - 1) // BLOCK_M
    head_index = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    if CAUSAL:
        block = blocks - 1 - block
    start = block * BLOCK_M
    batch = head_index // heads
    head = head_index % heads
    group = head // GROUP
    group_index = head_index // GROUP

    per_kappa = 1.0 / tl.load(kappa + head)
    power = tl.load(exponent + head)
    factor = power
    if PROFILE == GAUSSIAN:
        factor = power * 0.0 + LOG2_E
    norm_scale = per_kappa * per_kappa
    if SPHERE:
        norm_scale = 1.0

    rows = tl.arange(0, BLOCK_M)
    keys = tl.arange(0, BLOCK_N)
    columns = tl.arange(0, BLOCK_D)
    value_columns = tl.arange(0, BLOCK_V)
    row_exists = start + rows < n
    q += batch * q_batch + head * q_head + start.to(tl.int64) * q_row
    query_inside = row_exists[:, None] & (columns < width)[None, :]
    queries = tl.load(q + rows[:, None] * q_row + columns[None, :], mask=query_inside, other=0.0)
    grad += batch * grad_batch + head * grad_head + start.to(tl.int64) * grad_row
    grads = tl.load(
        grad + rows[:, None] * grad_row + value_columns[None, :],
        mask=row_exists[:, None] & (value_columns < value_width)[None, :],
        other=0.0,
    )
    row_index = head_index * n + start
    query_norm = tl.load(query_norms + row_index + rows, mask=row_exists, other=0.0)
    scaled_norm = query_norm * norm_scale
    # A row that does not exist has weights of 0.
    log_total = tl.load(stats + (row_index + rows) * 2, mask=row_exists, other=float("inf"))
    reference = tl.load(stats + (row_index + rows) * 2 + 1, mask=row_exists, other=0.0)
    row_delta = tl.load(delta + row_index + rows, mask=row_exists, other=0.0)
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
    if DROPOUT:
        first_word, second_word = row_words(tl.load(seed), head_index.to(tl.int32), start + rows)

    # Subtracting the values at the reference, where it is a cost, keeps the terms of the sums small.
    cost_shift = reference
    if BIAS:
        cost_shift = reference * 0.0
    kappa_shift = cost_shift
    if PROFILE != GAUSSIAN:
        kappa_shift = power_of_2(cost_shift * -1.0, BACKEND) * -1.0 + 1.0

    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    pull_sum = tl.zeros((BLOCK_M,), tl.float32)
    score_sum = tl.zeros((BLOCK_M,), tl.float32)
    kappa_sum = tl.zeros((BLOCK_M,), tl.float32)
    kappa_mean = tl.zeros((BLOCK_M,), tl.float32)
    cost_sum = tl.zeros((BLOCK_M,), tl.float32)
    cost_mean = tl.zeros((BLOCK_M,), tl.float32)
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
                biases = 0.0
                if BIAS:
                    biases = tl.load(
                        bias + j0.to(tl.int64) * bias_column + rows[:, None] * bias_row + keys[None, :] * bias_column,
                        mask=row_exists[:, None] & (j0 + keys < m)[None, :],
                        other=0.0,
                    )
                p, z, squared, sine, high_part, low_part = weights_again(
                    dot,
                    scaled_norm[:, None],
                    key_norm[None, :],
                    biases,
                    reference[:, None],
                    log_total[:, None],
                    factor,
                    per_kappa,
                    PROFILE,
                    SPHERE,
                    BIAS,
                    TIE,
                    HALF,
                    BACKEND,
                )
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
                    p = tl.where(allowed, p, 0.0)
                weight_grad = product(grads, tl.trans(value_tile), VALUE_PRECISION, BACKEND)
                if DROPOUT:
                    kept = is_kept(first_word[:, None], second_word[:, None], (j0 + keys)[None, :], threshold)
                    weight_grad = tl.where(kept, weight_grad * keep_scale, 0.0)
                score_grad = p * (weight_grad - row_delta[:, None])
                slopes = slope(z, squared, sine, PROFILE, SPHERE, HALF, BACKEND)
                if LEARN_KAPPA or LEARN_EXPONENT:
                    score_sum += tl.sum(score_grad, 1)
                if LEARN_KAPPA:
                    part = kappa_part(z, squared, slopes, PROFILE, SPHERE, HALF, BACKEND) - kappa_shift[:, None]
                    kappa_sum += tl.sum(score_grad * part, 1)
                    kappa_mean += tl.sum(p * part, 1)
                if LEARN_EXPONENT:
                    excess = above(high_part, low_part, cost_shift[:, None], HAS_LOW)
                    cost_sum += tl.sum(score_grad * excess, 1)
                    cost_mean += tl.sum(p * excess, 1)
                pull = score_grad * slopes
                if SPHERE:
                    pull = pull * key_norm[None, :]
                exact_pull, pull = rounded_pull(pull, key_tile.dtype, BACKEND)
                if not SPHERE:
                    # The rounded numbers, which the product has, too: otherwise the difference of both would be wrong.
                    pull_sum += tl.sum(exact_pull, 1)
                acc = product_add(pull, key_tile, acc, SCORE_PRECISION, BACKEND)

    gradient = token_gradient(
        queries, query_norm, pull_sum, acc, slope_scale(power, per_kappa, PROFILE, SPHERE), SPHERE
    )
    query_grad += batch * query_grad_batch + head * query_grad_head + start.to(tl.int64) * query_grad_row
    tl.store(
        query_grad + rows[:, None] * query_grad_row + columns[None, :],
        rounded(gradient, query_grad.dtype.element_ty, BACKEND),
        mask=query_inside,
    )
    sums += (head_index * blocks + block) * 2
    if LEARN_KAPPA:
        kappa_total = tl.sum(kappa_sum - kappa_mean * score_sum, 0)
        tl.store(sums, kappa_total * kappa_scale(power, per_kappa, PROFILE))
    if LEARN_EXPONENT:
        cost_total = tl.sum(cost_sum - cost_mean * score_sum, 0)
        tl.store(sums + 1, cost_total * (LN_2 * -1.0))
