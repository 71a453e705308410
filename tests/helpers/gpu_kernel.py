"""A small Triton kernel with known costs, for the tests of the ahead-of-time counter. Importing it needs triton."""

import triton
import triton.language as tl


@triton.jit
def weigh(
    q,
    k,
    out,
    tokens,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    LIBDEVICE: tl.constexpr,
):
    """Store sum_j log2(exp2(q_i . k_j) + 1) of each row: one exponential and one logarithm for a pair."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    width = tl.arange(0, WIDTH)
    query = tl.load(q + rows[:, None] * WIDTH + width[None, :])
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, tokens, COLS):
        key = tl.load(k + (start + cols)[:, None] * WIDTH + width[None, :])
        weight = tl.exp2(tl.dot(query, tl.trans(key))) + 1.0
        if LIBDEVICE:
            weight = tl.log2(weight)
        else:
            weight = tl.inline_asm_elementwise(
                "lg2.approx.ftz.f32 $0, $1;", "=f,f", [weight], dtype=tl.float32, is_pure=True, pack=1
            )
        total += tl.sum(weight, 1)
    tl.store(out + rows, total)
