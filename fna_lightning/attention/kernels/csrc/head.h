/* What one head looks like to the loops: keys and values packed in blocks, and how distances are taken. */
#ifndef FNA_HEAD_H
#define FNA_HEAD_H

#include <stdlib.h>

#include "fna.h"
#include "gemm.h"
#include "radial.h"

/* Queries and keys of one block: both a multiple of MR, the keys of 2 VL. Two blocks of weights, one of keys and one of
 * values stay near the first-level cache. */
#define BQ 48
#define BK 96

/* |q|^2 + |k|^2 - 2 q.k loses digits where it is small beside the norms; such pairs are taken again, exactly. */
#define CLOSE 0.25f
/* on the sphere, 4 - s loses them near the antipode */
#define ANTIPODE 3.9f
/* widths up to this have the exact form for the same price */
#define NARROW 16
/* in the gradient, q sum G - G k loses the digits of pairs closer than this part of their norms */
#define VERY_CLOSE 1e-3f

INLINE int64_t up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
INLINE int64_t at_most(int64_t x, int64_t bound) { return x < bound ? x : bound; }

typedef struct {
    law law;
    int direct;              /* exact differences rather than norms and products */
    float unit;              /* the squared distances are in units of 1 / this */
    int64_t b, h, keys, blocks; /* keys: m padded to VL */
    int64_t dp, dvp;         /* widths padded to VL */
    const float *q, *k, *v;
    float *center, *norms;   /* (d) mean key; (keys) centred squared norms */
    float *kt, *values;      /* (blocks, d, BK); (m, dvp) */
    /* backward only */
    float *rows, *vt;        /* (keys, dp) centred keys; (blocks, dv, BK) */
} head;

INLINE float squared_gap(const float *a, const float *b, int64_t d, float sign) {
    vf sum = all(0.0f);
    int64_t c = 0;
    for (; c + VL <= d; c += VL) {
        vf gap = load(a + c) - sign * load(b + c);
        sum += gap * gap;
    }
    float total = sum_lanes(sum);
    for (; c < d; c++) {
        float gap = a[c] - sign * b[c];
        total += gap * gap;
    }
    return total;
}

/* Whether so many pairs are close that exact differences are cheaper than repairing them one by one. */
static int crowded(const fna_args *a, const head *it) {
    if (a->d <= NARROW) return 1;
    int64_t pairs = at_most(a->n * a->m / 256, 64), close = 0;
    for (int64_t t = 0; t < pairs; t++) {
        const float *q = it->q + (t * 7919 % a->n) * a->q.row, *k = it->k + (t * 104729 % a->m) * a->k.row;
        float gap = squared_gap(q, k, a->d, 1.0f);
        close += gap < CLOSE * (squared_gap(q, it->center, a->d, 1.0f) + squared_gap(k, it->center, a->d, 1.0f));
    }
    return close * 16 > pairs;
}

/* Blocks of BK keys, column by column; lanes beyond the last key are 0. */
static void transpose_blocks(float *to, const float *from, int64_t row, int64_t m, int64_t width, const float *center) {
    for (int64_t j0 = 0; j0 < m; j0 += BK, to += width * BK) {
        int64_t count = at_most(BK, m - j0), whole = count / 4 * 4, c = 0;
        const float *source = from + j0 * row;
        for (; c + 4 <= width; c += 4) {
            quad shift = {0};
            if (center) shift = *(const quad_loose *)(center + c);
            for (int64_t j = 0; j < whole; j += 4) transpose_4x4(to + c * BK + j, BK, source + j * row + c, row, shift);
            for (int64_t j = whole; j < count; j++)
                for (int64_t l = 0; l < 4; l++) to[(c + l) * BK + j] = source[j * row + c + l] - shift[l];
        }
        for (; c < width; c++)
            for (int64_t j = 0; j < count; j++) to[c * BK + j] = source[j * row + c] - (center ? center[c] : 0.0f);
        for (c = 0; c < width; c++)
            for (int64_t j = count; j < up(count, VL); j++) to[c * BK + j] = 0.0f;
    }
}

/* Squared norms of the keys about their mean, read off the transposed blocks. */
static void block_norms(const head *it, int64_t d) {
    for (int64_t j = 0; j < it->keys; j += VL) {
        const float *column = it->kt + j / BK * d * BK + j % BK;
        vf sum = all(0.0f);
        for (int64_t c = 0; c < d; c++) {
            vf x = load(column + c * BK) - (it->direct ? it->center[c] : 0.0f);
            sum += x * x;
        }
        store(it->norms + j, sum * it->unit);
    }
}

static void pad_rows(float *to, int64_t padded, const float *from, int64_t row, int64_t count, int64_t width,
                     const float *center) {
    for (int64_t j = 0; j < count; j++, to += padded, from += row) {
        if (center)
            for (int64_t c = 0; c < width; c++) to[c] = from[c] - center[c];
        else
            memcpy(to, from, sizeof(float) * (size_t)width);
        for (int64_t c = width; c < padded; c++) to[c] = 0.0f;
    }
}

static void pack_head(const fna_args *a, head *it, int64_t index, int backward) {
    it->b = index / a->heads, it->h = index % a->heads;
    it->q = a->q.data + it->b * a->q.batch + it->h * a->q.head;
    it->k = a->k.data + it->b * a->k.batch + it->h * a->k.head;
    it->v = a->v.data + it->b * a->v.batch + it->h * a->v.head;
    float kappa = a->kappa[it->h];
    memset(it->center, 0, sizeof(float) * (size_t)a->d);
    for (int64_t j = 0; j < a->m; j++)
        for (int64_t c = 0; c < a->d; c++) it->center[c] += it->k[j * a->k.row + c];
    for (int64_t c = 0; c < a->d; c++) it->center[c] /= (float)a->m;
    it->direct = crowded(a, it);
    it->unit = a->sphere || it->direct ? 1.0f : 1.0f / (kappa * kappa);
    float scale = a->sphere || !it->direct ? 1.0f : 1.0f / (kappa * kappa);
    it->law = (law){kappa, 1.0f / kappa, a->exponent[it->h], scale, 2.0f * sqrtf(TINY * scale)};
    transpose_blocks(it->kt, it->k, a->k.row, a->m, a->d, it->direct ? NULL : it->center);
    block_norms(it, a->d);
    if (!backward) {
        pad_rows(it->values, it->dvp, it->v, a->v.row, a->m, a->dv, NULL);
        return;
    }
    pad_rows(it->rows, it->dp, it->k, a->k.row, a->m, a->d, it->center);
    transpose_blocks(it->vt, it->v, a->v.row, a->m, a->dv, NULL);
}

/* Squared distances of a packed block of queries to the block of keys at j0, or -2 q.k: the norms are added last, so that
 * the products are summed while they are small. */
static void distances(const fna_args *a, const head *it, const float *queries, int64_t rows, int64_t j0, int64_t cols,
                      float *s) {
    operands o = {queries, a->d, 1, it->kt + j0 * a->d, BK, s, BK};
    if (it->direct)
        squared_distances(o, rows, cols, a->d);
    else
        multiply(o, rows, cols, a->d);
}

/* The queries as `distances` wants them, their centred norms, and zeros in the rows up to `padded`. */
static void pack_queries(const fna_args *a, const head *it, int64_t i0, int64_t count, int64_t padded, float *queries,
                         float *norms) {
    const float factor = it->direct ? 1.0f : -2.0f * it->unit, shift = it->direct ? 0.0f : 1.0f;
    memset(queries + count * a->d, 0, sizeof(float) * (size_t)((padded - count) * a->d));
    for (int64_t i = 0; i < count; i++, queries += a->d) {
        const float *from = it->q + (i0 + i) * a->q.row, *center = it->center;
        vf sum = all(0.0f);
        int64_t c = 0;
        for (; c + VL <= a->d; c += VL) {
            vf x = load(from + c), mean = load(center + c), gap = x - mean;
            sum += gap * gap;
            store(queries + c, (x - shift * mean) * factor);
        }
        float total = sum_lanes(sum);
        for (; c < a->d; c++) {
            float gap = from[c] - center[c];
            total += gap * gap;
            queries[c] = (from[c] - shift * center[c]) * factor;
        }
        norms[i] = it->unit * total;
    }
}

/* Takes the pairs of one row that lost digits again, from the tokens themselves. */
static void repair(const fna_args *a, const head *it, const float *q, float norm, int64_t j0, int64_t cols, float *s) {
    for (int64_t j = 0; j < at_most(cols, a->m - j0); j++) {
        const float *k = it->k + (j0 + j) * a->k.row;
        if (!it->direct && s[j] < CLOSE * (norm + it->norms[j0 + j])) s[j] = it->unit * squared_gap(q, k, a->d, 1.0f) + TINY;
        if (a->sphere && s[j] > ANTIPODE) s[j] = -squared_gap(q, k, a->d, -1.0f) - TINY;
    }
}

/* Finishes one row of `distances`; for the gradient, returns whether some of its pairs may be very close, or antipodal. */
INLINE int finish_row(const fna_args *a, const head *it, const float *q, float norm, int64_t j0, int64_t cols, float *s,
                      const int sphere, const int gradient) {
    const float *norms = it->norms + j0;
    vf closest = all(3e38f), farthest = all(0.0f);
    if (!it->direct) {
        for (int64_t j = 0; j < cols; j += VL) {
            vf other = load(norms + j), x = vmax(load(s + j) + (other + norm), all(TINY));
            store(s + j, x);
            closest = vmin(closest, x - CLOSE * other);
            if (sphere) farthest = vmax(farthest, x);
        }
    } else if (sphere || gradient) {
        for (int64_t j = 0; j < cols; j += VL) {
            vf x = load(s + j);
            closest = vmin(closest, x - VERY_CLOSE * load(norms + j));
            if (sphere) farthest = vmax(farthest, x);
        }
    }
    int close = any_less(closest, all((it->direct ? VERY_CLOSE : CLOSE) * norm));
    int far = sphere && any_less(all(ANTIPODE), farthest);
    if ((close && !it->direct) || far) repair(a, it, q, norm, j0, cols, s);
    return close || far;
}

#endif
