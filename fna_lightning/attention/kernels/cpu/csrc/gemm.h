/* Matrix products with register blocks: MR rows by two vectors of accumulators.
 *
 * C (rows x cols) = or += A (rows x depth, any strides) * B (depth x cols, packed rows).
 * Rows are multiples of ROWS, columns multiples of VL: the buffers are padded, so there are no edge cases. */
#ifndef FNA_GEMM_H
#define FNA_GEMM_H

#include "vec.h"

#if defined(__AVX512F__)
#define MR 12
#else
#define MR 6
#endif
#define ROWS 4

/* A sum starts at 0, starts at C, or is added to C at the end. Adding many short sums is more precise than one long sum. */
enum { FROM_NOTHING, FROM_C, ONTO_C };
/* The terms of a sum: a * b, or (a - b)^2, which is exact where a and b are close; sums of squares are at least TINY. */
enum { PRODUCT, SQUARED_DIFFERENCE };

/* Less than the squared distance of any two different floats of ordinary size; its square root is not 0. */
#define TINY 1e-30f

typedef struct {
    const float *a;
    int64_t row, depth; /* strides of a */
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
} operands;

INLINE void tile(operands o, int64_t depth, const int mr, const int nv, const int from, const int term) {
    vf acc[MR][2];
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            acc[r][v] = from == FROM_C ? load(o.c + r * o.ldc + v * VL) : all(term == PRODUCT ? 0.0f : TINY);
    for (int64_t l = 0; l < depth; l++) {
        vf b[2];
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) b[v] = load(o.b + l * o.ldb + v * VL);
#pragma GCC unroll 16
        for (int r = 0; r < mr; r++) {
            vf a = all(o.a[r * o.row + l * o.depth]);
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) {
                if (term == PRODUCT) {
                    acc[r][v] += a * b[v];
                } else {
                    vf gap = a - b[v];
                    acc[r][v] += gap * gap;
                }
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) {
            float *c = o.c + r * o.ldc + v * VL;
            store(c, from == ONTO_C ? load(c) + acc[r][v] : acc[r][v]);
        }
}

INLINE void strip(operands o, int64_t rows, int64_t depth, const int nv, const int from, const int term) {
    int64_t r = 0;
    for (; r + MR <= rows; r += MR, o.a += MR * o.row, o.c += MR * o.ldc) tile(o, depth, MR, nv, from, term);
#if MR > 8
    if (r + 8 <= rows) {
        tile(o, depth, 8, nv, from, term);
        r += 8, o.a += 8 * o.row, o.c += 8 * o.ldc;
    }
#endif
    if (r + 4 <= rows) {
        tile(o, depth, 4, nv, from, term);
        r += 4, o.a += 4 * o.row, o.c += 4 * o.ldc;
    }
#if MR == 6
    if (r < rows) tile(o, depth, 2, nv, from, term);
#endif
}

INLINE void gemm(operands o, int64_t rows, int64_t cols, int64_t depth, const int from, const int term) {
    int64_t c = 0;
    for (; c + 2 * VL <= cols; c += 2 * VL) {
        strip(o, rows, depth, 2, from, term);
        o.b += 2 * VL, o.c += 2 * VL;
    }
    if (c < cols) strip(o, rows, depth, 1, from, term);
}

/* Number of terms of a short sum. */
#define SHORT 16

INLINE void gemm_by_parts(operands o, int64_t rows, int64_t cols, int64_t depth, const int term) {
    for (int64_t l = 0; l < depth; l += SHORT, o.a += SHORT * o.depth, o.b += SHORT * o.ldb) {
        int64_t terms = depth - l < SHORT ? depth - l : SHORT;
        if (l == 0)
            gemm(o, rows, cols, terms, FROM_NOTHING, term);
        else
            gemm(o, rows, cols, terms, ONTO_C, term);
    }
}

static void multiply(operands o, int64_t rows, int64_t cols, int64_t depth) {
    gemm(o, rows, cols, depth, FROM_NOTHING, PRODUCT);
}
static void multiply_by_parts(operands o, int64_t rows, int64_t cols, int64_t depth) {
    gemm_by_parts(o, rows, cols, depth, PRODUCT);
}
static void multiply_add(operands o, int64_t rows, int64_t cols, int64_t depth) {
    gemm(o, rows, cols, depth, FROM_C, PRODUCT);
}
static void squared_distances(operands o, int64_t rows, int64_t cols, int64_t depth) {
    gemm_by_parts(o, rows, cols, depth, SQUARED_DIFFERENCE);
}

#endif
