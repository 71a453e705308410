"""Jit function ``bias_grad_kernel``: gradient of a bias of any shape that broadcasts to (B, H, N, M).

One program per tile of the bias. It visits all tiles of weights to which its tile is broadcast and adds their gradients
of log C in a fixed order, so no atomics and no (B, H, N, M) tensor are needed. The arguments are those of
``forward_kernel`` with grad (B, H, N, D_v), delta (B, H, N) and bias_grad (the contiguous shape of the bias) in
addition, and the sizes of the bias; constexprs SUM_ROWS and SUM_COLUMNS: whether it has one row (column) for all.
"""

import triton
import triton.language as tl

from fna_lightning.attention.kernels.triton.dropout import is_kept, row_words
from fna_lightning.attention.kernels.triton.ranges import KEY_MASK, PAIR_MASK, allowed_pairs
from fna_lightning.attention.kernels.triton.scores import GAUSSIAN, LOG2_E, product, rounded, weights_again


@triton.jit(
    do_not_specialize=["heads", "n", "m", "offset", "threshold", "keep_scale", "batches", "bias_batches", "bias_heads"]
)
def bias_grad_kernel(
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
    bias_grad,
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
    heads,
    n,
    m,
    width,
    value_width,
    offset,
    threshold,
    keep_scale,
    batches,
    bias_batches,
    bias_heads,
    SUM_ROWS: tl.constexpr,
    SUM_COLUMNS: tl.constexpr,
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
    """Write the gradient of one tile of the bias."""
    row_blocks = (n + BLOCK_M - 1) // BLOCK_M
    column_blocks = (m + BLOCK_N - 1) // BLOCK_N
    # Blocks of the bias, and blocks of weights that each of them is broadcast to.
    bias_row_blocks, bias_column_blocks = row_blocks, column_blocks
    rows_each, columns_each = 1, 1
    if SUM_ROWS:
        bias_row_blocks, rows_each = 1, row_blocks
    if SUM_COLUMNS:
        bias_column_blocks, columns_each = 1, column_blocks
    program = tl.program_id(0)
    bias_column_block = program % bias_column_blocks
    program = program // bias_column_blocks
    bias_row_block = program % bias_row_blocks
    program = program // bias_row_blocks
    the_head = program % bias_heads
    the_batch = program // bias_heads
    heads_each = heads // bias_heads
    batches_each = batches // bias_batches

    rows = tl.arange(0, BLOCK_M)
    keys = tl.arange(0, BLOCK_N)
    columns = tl.arange(0, BLOCK_D)
    value_columns = tl.arange(0, BLOCK_V)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(batches_each * heads_each * rows_each * columns_each):
        index = the_batch * 0 + step
        j0 = (bias_column_block + index % columns_each) * BLOCK_N
        index = index // columns_each
        i0 = (bias_row_block + index % rows_each) * BLOCK_M
        index = index // rows_each
        head = (the_head + index % heads_each).to(tl.int64)
        batch = (the_batch + index // heads_each).to(tl.int64)
        head_index = batch * heads + head
        group = head // GROUP

        per_kappa = 1.0 / tl.load(kappa + head)
        factor = tl.load(exponent + head)
        if PROFILE == GAUSSIAN:
            factor = factor * 0.0 + LOG2_E
        norm_scale = per_kappa * per_kappa
        if SPHERE:
            norm_scale = per_kappa * 0.0 + 1.0
        row_exists = i0 + rows < n
        visible = j0 + keys < m
        if MASK == KEY_MASK:
            bits = tl.load(
                mask + batch * mask_batch + head * mask_head + (j0 + keys).to(tl.int64) * mask_column,
                mask=visible,
                other=0,
            )
            visible = visible & (bits != 0)
        inside = row_exists[:, None] & visible[None, :]

        query_rows = q + batch * q_batch + head * q_head + i0.to(tl.int64) * q_row + rows[:, None] * q_row
        key_rows = k + batch * k_batch + group * k_head + j0.to(tl.int64) * k_row + keys[:, None] * k_row
        value_rows = v + batch * v_batch + group * v_head + j0.to(tl.int64) * v_row + keys[:, None] * v_row
        grad_rows = grad + batch * grad_batch + head * grad_head + i0.to(tl.int64) * grad_row + rows[:, None] * grad_row
        column_inside = (columns < width)[None, :]
        value_inside = (value_columns < value_width)[None, :]
        queries = tl.load(query_rows + columns[None, :], mask=row_exists[:, None] & column_inside, other=0.0)
        key_tile = tl.load(key_rows + columns[None, :], mask=visible[:, None] & column_inside, other=0.0)
        value_tile = tl.load(value_rows + value_columns[None, :], mask=visible[:, None] & value_inside, other=0.0)
        grads = tl.load(grad_rows + value_columns[None, :], mask=row_exists[:, None] & value_inside, other=0.0)
        row_index = head_index * n + i0 + rows
        query_norm = tl.load(query_norms + row_index, mask=row_exists, other=0.0) * norm_scale
        key_index = (batch * (heads // GROUP) + group) * m + j0 + keys
        key_norm = tl.load(key_norms + key_index, mask=visible, other=0.0) * norm_scale
        log_total = tl.load(stats + row_index * 2, mask=row_exists, other=float("inf"))
        reference = tl.load(stats + row_index * 2 + 1, mask=row_exists, other=0.0)
        row_delta = tl.load(delta + row_index, mask=row_exists, other=0.0)
        bias_start = bias + batch * bias_batch + head * bias_head
        bias_start += i0.to(tl.int64) * bias_row + j0.to(tl.int64) * bias_column
        biases = tl.load(bias_start + rows[:, None] * bias_row + keys[None, :] * bias_column, mask=inside, other=0.0)

        dot = product(queries, tl.trans(key_tile), SCORE_PRECISION, BACKEND)
        p, _, _, _, _, _ = weights_again(
            dot,
            query_norm[:, None],
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
        pairs = mask
        if MASK == PAIR_MASK:
            pairs = mask + batch * mask_batch + head * mask_head
            pairs += i0.to(tl.int64) * mask_row + j0.to(tl.int64) * mask_column
            pairs += rows[:, None] * mask_row + keys[None, :] * mask_column
        allowed = allowed_pairs(
            (i0 + rows)[:, None], (j0 + keys)[None, :], inside, pairs, offset, CAUSAL, EXCLUDE_SELF, MASK
        )
        weight_grad = product(grads, tl.trans(value_tile), VALUE_PRECISION, BACKEND)
        if DROPOUT:
            first_word, second_word = row_words(tl.load(seed), head_index.to(tl.int32), i0 + rows)
            kept = is_kept(first_word[:, None], second_word[:, None], (j0 + keys)[None, :], threshold)
            weight_grad = tl.where(kept, weight_grad * keep_scale, 0.0)
        acc += tl.where(allowed, p * (weight_grad - row_delta[:, None]), 0.0)

    bias_rows, bias_columns = n, m
    if SUM_ROWS:
        bias_rows = 1
    if SUM_COLUMNS:
        bias_columns = 1
    target_rows = bias_row_block * BLOCK_M + rows
    target_columns = bias_column_block * BLOCK_N + keys
    head_start = (the_batch.to(tl.int64) * bias_heads + the_head) * bias_rows
    if SUM_ROWS and SUM_COLUMNS:
        tl.store(bias_grad + head_start, rounded(tl.sum(tl.sum(acc, 1), 0), bias_grad.dtype.element_ty, BACKEND))
    elif SUM_ROWS:
        target = bias_grad + head_start * bias_columns + target_columns
        tl.store(target, rounded(tl.sum(acc, 0), bias_grad.dtype.element_ty, BACKEND), mask=target_columns < m)
    elif SUM_COLUMNS:
        target = bias_grad + head_start + target_rows
        tl.store(target, rounded(tl.sum(acc, 1), bias_grad.dtype.element_ty, BACKEND), mask=target_rows < n)
    else:
        target = bias_grad + (head_start + target_rows)[:, None] * bias_columns + target_columns[None, :]
        tl.store(
            target,
            rounded(acc, bias_grad.dtype.element_ty, BACKEND),
            mask=(target_rows < n)[:, None] & (target_columns < m)[None, :],
        )
