"""Jit function ``key_grad_kernel``: gradients of the keys and values.

One program per block of keys of a key head; it visits the queries of all heads that use these keys. The tiles are
transposed, (keys, queries), so that no tile has to be transposed for the products. The arguments are those of
``forward_kernel`` with grad (B, H, N, D_v), delta (B, H, N), key_grad (B, G, M, D) and value_grad (B, G, M, D_v) in
addition; ``heads`` is the number of query heads.
"""

import triton
import triton.language as tl

from fna_lightning.attention.kernels.triton.dropout import is_kept, row_words
from fna_lightning.attention.kernels.triton.ranges import (
    KEY_MASK,
    PAIR_MASK,
    allowed_pairs,
    query_tiles,
    tile_at,
    tile_count,
)
from fna_lightning.attention.kernels.triton.scores import (
    GAUSSIAN,
    LOG2_E,
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
def key_grad_kernel(
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
    key_grad,
    value_grad,
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
    key_grad_batch,
    key_grad_head,
    key_grad_row,
    value_grad_batch,
    value_grad_head,
    value_grad_row,
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
    """Write the gradients of one block of keys and values."""
    blocks = (m + BLOCK_N - 1) // BLOCK_N
    group_index = (tl.program_id(0) // blocks).to(tl.int64)
    start = tl.program_id(0) % blocks * BLOCK_N
    groups = heads // GROUP
    batch = group_index // groups
    group = group_index % groups

    keys = tl.arange(0, BLOCK_N)
    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    value_columns = tl.arange(0, BLOCK_V)
    key_exists = start + keys < m
    key_inside = key_exists[:, None] & (columns < width)[None, :]
    value_inside = key_exists[:, None] & (value_columns < value_width)[None, :]
    k += batch * k_batch + group * k_head + start.to(tl.int64) * k_row
    v += batch * v_batch + group * v_head + start.to(tl.int64) * v_row
    key_block = tl.load(k + keys[:, None] * k_row + columns[None, :], mask=key_inside, other=0.0)
    value_block = tl.load(v + keys[:, None] * v_row + value_columns[None, :], mask=value_inside, other=0.0)
    key_norm = tl.load(key_norms + group_index * m + start + keys, mask=key_exists, other=0.0)

    key_acc = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    value_acc = tl.zeros((BLOCK_N, BLOCK_V), tl.float32)
    pull_sum = tl.zeros((BLOCK_N,), tl.float32)
    visible = key_exists
    for member in range(GROUP):
        head = group * GROUP + member
        head_index = batch * heads + head
        per_kappa = 1.0 / tl.load(kappa + head)
        power = tl.load(exponent + head)
        factor = power
        if PROFILE == GAUSSIAN:
            factor = power * 0.0 + LOG2_E
        norm_scale = per_kappa * per_kappa
        if SPHERE:
            norm_scale = per_kappa * 0.0 + 1.0
        scaled_norm = key_norm * norm_scale
        q_start = q + batch * q_batch + head * q_head
        grad_start = grad + batch * grad_batch + head * grad_head
        query_index = head_index * n
        low, a, b, c, high = query_tiles(start, n, offset, CAUSAL, EXCLUDE_SELF, MASK, BLOCK_M, BLOCK_N)
        if MASK == KEY_MASK:
            bits = tl.load(
                mask + batch * mask_batch + head * mask_head + (start + keys).to(tl.int64) * mask_column,
                mask=key_exists,
                other=0,
            )
            visible = key_exists & (bits != 0)
            end = tl.load(spans + batch * span_batch + head * span_head + 1)
            # All keys of the block are masked out: no tiles.
            some = (start < end).to(tl.int32)
            low, a, b, c, high = low * some, a * some, b * some, c * some, high * some
        for EDGE in tl.static_range(2):
            if (EDGE == 1) or (MASK != PAIR_MASK):
                for step in range(tile_count(low, a, b, c, high, EDGE)):
                    i0 = tile_at(step, low, a, b, c, EDGE) * BLOCK_M
                    query_rows = q_start + i0.to(tl.int64) * q_row + rows[:, None] * q_row + columns[None, :]
                    grad_rows = grad_start + i0.to(tl.int64) * grad_row + rows[:, None] * grad_row
                    grad_rows += value_columns[None, :]
                    index = query_index + i0 + rows
                    if EDGE:
                        exists = i0 + rows < n
                        query_tile = tl.load(query_rows, mask=exists[:, None] & (columns < width)[None, :], other=0.0)
                        grad_tile = tl.load(
                            grad_rows, mask=exists[:, None] & (value_columns < value_width)[None, :], other=0.0
                        )
                        query_norm = tl.load(query_norms + index, mask=exists, other=0.0) * norm_scale
                        # A row that does not exist has weights of 0.
                        log_total = tl.load(stats + index * 2, mask=exists, other=float("inf"))
                        reference = tl.load(stats + index * 2 + 1, mask=exists, other=0.0)
                        row_delta = tl.load(delta + index, mask=exists, other=0.0)
                    else:
                        if WHOLE_D:
                            query_tile = tl.load(query_rows)
                        else:
                            query_tile = tl.load(query_rows, mask=(columns < width)[None, :], other=0.0)
                        if WHOLE_V:
                            grad_tile = tl.load(grad_rows)
                        else:
                            grad_tile = tl.load(grad_rows, mask=(value_columns < value_width)[None, :], other=0.0)
                        query_norm = tl.load(query_norms + index) * norm_scale
                        log_total = tl.load(stats + index * 2)
                        reference = tl.load(stats + index * 2 + 1)
                        row_delta = tl.load(delta + index)

                    dot = product(key_block, tl.trans(query_tile), SCORE_PRECISION, BACKEND)
                    biases = 0.0
                    if BIAS:
                        bias_start = bias + batch * bias_batch + head * bias_head
                        bias_start += i0.to(tl.int64) * bias_row + start.to(tl.int64) * bias_column
                        biases = tl.load(
                            bias_start + rows[None, :] * bias_row + keys[:, None] * bias_column,
                            mask=key_exists[:, None] & (i0 + rows < n)[None, :],
                            other=0.0,
                        )
                    p, z, squared, sine, _, _ = weights_again(
                        dot,
                        query_norm[None, :],
                        scaled_norm[:, None],
                        biases,
                        reference[None, :],
                        log_total[None, :],
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
                            pairs = mask + batch * mask_batch + head * mask_head
                            pairs += i0.to(tl.int64) * mask_row + start.to(tl.int64) * mask_column
                            pairs += rows[None, :] * mask_row + keys[:, None] * mask_column
                        allowed = allowed_pairs(
                            (i0 + rows)[None, :],
                            (start + keys)[:, None],
                            key_exists[:, None] & exists[None, :],
                            pairs,
                            offset,
                            CAUSAL,
                            EXCLUDE_SELF,
                            MASK,
                        )
                        p = tl.where(allowed, p, 0.0)
                    if MASK == KEY_MASK and GROUP > 1:
                        # The heads of a group may have different masks.
                        p = tl.where(visible[:, None], p, 0.0)
                    weight_grad = product(value_block, tl.trans(grad_tile), VALUE_PRECISION, BACKEND)
                    dropped = p
                    if DROPOUT:
                        first_word, second_word = row_words(tl.load(seed), head_index.to(tl.int32), i0 + rows)
                        kept = is_kept(first_word[None, :], second_word[None, :], (start + keys)[:, None], threshold)
                        weight_grad = tl.where(kept, weight_grad * keep_scale, 0.0)
                        dropped = tl.where(kept, p, 0.0)
                    value_acc = product_add(
                        rounded(dropped, grad_tile.dtype, BACKEND), grad_tile, value_acc, VALUE_PRECISION, BACKEND
                    )
                    pull = p * (weight_grad - row_delta[None, :])
                    pull = pull * slope(z, squared, sine, PROFILE, SPHERE, HALF, BACKEND)
                    if SPHERE:
                        pull = pull * query_norm[None, :]
                    if GROUP > 1:
                        pull = pull * slope_scale(power, per_kappa, PROFILE, SPHERE)
                    exact_pull, pull = rounded_pull(pull, query_tile.dtype, BACKEND)
                    if not SPHERE:
                        pull_sum += tl.sum(exact_pull, 1)
                    key_acc = product_add(pull, query_tile, key_acc, SCORE_PRECISION, BACKEND)

    scale = 1.0
    if GROUP == 1:
        scale = slope_scale(tl.load(exponent + group), 1.0 / tl.load(kappa + group), PROFILE, SPHERE)
    gradient = token_gradient(key_block, key_norm, pull_sum, key_acc, scale, SPHERE)
    value_gradient = value_acc * keep_scale
    if MASK == KEY_MASK and GROUP == 1:
        # The weights of keys that are masked out were not set to 0; a key has no effect on the gradients of others.
        gradient = tl.where(visible[:, None], gradient, 0.0)
        value_gradient = tl.where(visible[:, None], value_gradient, 0.0)
    key_grad += batch * key_grad_batch + group * key_grad_head + start.to(tl.int64) * key_grad_row
    tl.store(
        key_grad + keys[:, None] * key_grad_row + columns[None, :],
        rounded(gradient, key_grad.dtype.element_ty, BACKEND),
        mask=key_inside,
    )
    value_grad += batch * value_grad_batch + group * value_grad_head + start.to(tl.int64) * value_grad_row
    tl.store(
        value_grad + keys[:, None] * value_grad_row + value_columns[None, :],
        rounded(value_gradient, value_grad.dtype.element_ty, BACKEND),
        mask=value_inside,
    )
