/* One head, prepared for the loops: keys and values packed in blocks, and the way distances are computed. */
#ifndef FNA_HEAD_H
#define FNA_HEAD_H

#include <float.h>
#include <stdlib.h>

#include "fna.h"
#include "gemm.h"
#include "radial.h"

/* Queries and keys of a block: both multiples of MR, the keys also of 2 VL. Two blocks of weights, one of keys and one of
 * values together are about as large as the first-level cache. */
#define BQ 48
#define BK 96

/* |q|^2 + |k|^2 - 2 q.k loses digits where it is less than this part of the norms; such pairs are computed again, exactly. */
#define CLOSE 0.25f
/* On the sphere, 4 - s loses digits near the antipode, above this s. */
#define ANTIPODE 3.9f
/* Up to this width the exact differences cost no more time. */
#define NARROW 16
/* A relative error of s causes a relative error of the weight that is half of m z / (1 + z) times as large. Where
 * m z / (1 + z) is more than this, as for tokens many kappa apart in a wide head, s is stored in two floats. For Student the
 * factor is m z^2 / (1 + z^2). */
#define SENSITIVE 24.0f
/* In the gradient, q sum G - G k loses the digits of pairs closer than this part of their norms. */
#define VERY_CLOSE 1e-3f

INLINE int64_t up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
INLINE int64_t at_most(int64_t x, int64_t bound) { return x < bound ? x : bound; }

/* Finiteness of a key. A NaN key makes the rows that attend to it NaN; an infinite key is infinitely far away, so its weight
 * is 0. Both are masked out before the loops, which would round them to finite values. */
enum { FINITE = 1, INFINITE = 2, NOT_A_NUMBER = 4 };

/* Numbers in two parts: the sum of two first parts is exact, so no digit is lost before the products are added. */
typedef struct {
    float *first, *second;
} parts;

typedef struct {
    law law;
    int direct;              /* exact differences rather than norms and products */
    int fine;                /* squared distances in two floats; forward only */
    float unit;              /* the squared distances are in units of 1 / this */
    int64_t b, h, keys, blocks; /* keys: m padded to VL */
    int64_t index;           /* of the query head */
    int64_t packed;          /* index of the key head whose keys and values are packed, or -1 */
    int packed_directly;     /* how its keys are packed */
    int64_t dp, dvp;         /* widths padded to VL */
    const float *q, *k, *v;
    int32_t *finiteness;     /* (keys) FINITE, INFINITE or NOT_A_NUMBER; written only if a key is not finite */
    int all_finite;          /* whether every key is finite */
    float *center, *norms;   /* (d) mean of the finite keys; (keys) squared norms of the centered keys */
    parts key_norms;         /* (keys) the same norms in two parts, if fine */
    float grid;              /* x + grid - grid is the first part of x */
    float *kt, *padded;      /* (blocks, d, BK); (m, dvp): see `values_as_they_are` */
    const float *values;
    int64_t value_row;
    /* backward only */
    float *rows, *vt;        /* (keys, dp) centered keys; (blocks, dv, BK) */
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

INLINE int finiteness_of(const float *x, int64_t d) {
    int finiteness = FINITE;
    for (int64_t c = 0; c < d; c++) {
        if (x[c] != x[c]) return NOT_A_NUMBER;
        if (!(fabsf(x[c]) <= FLT_MAX)) finiteness = INFINITE;
    }
    return finiteness;
}

/* Called if the mean key is not finite: finds the keys that are not finite, and takes the mean of the others. */
static void sort_keys(const fna_args *a, head *it) {
    int64_t count = 0;
    for (int64_t j = 0; j < it->keys; j++) {
        it->finiteness[j] = j < a->m ? finiteness_of(it->k + j * a->k.row, a->d) : FINITE;
        count += j < a->m && it->finiteness[j] == FINITE;
    }
    it->all_finite = count == a->m;
    memset(it->center, 0, sizeof(float) * (size_t)a->d);
    for (int64_t j = 0; j < a->m; j++)
        if (it->finiteness[j] == FINITE)
            /* divide before adding: the sum of large finite keys may have overflowed */
            for (int64_t c = 0; c < a->d; c++) it->center[c] += it->k[j * a->k.row + c] / (float)count;
}

/* Replaces the keys of a packed head that are not finite, which are masked out, by the mean key. */
static void replace_keys(const fna_args *a, const head *it, int backward) {
    for (int64_t j = 0; j < a->m; j++) {
        if (it->finiteness[j] == FINITE) continue;
        float *column = it->kt + j / BK * a->d * BK + j % BK;
        for (int64_t c = 0; c < a->d; c++) column[c * BK] = it->direct ? it->center[c] : 0.0f;
        if (backward) memset(it->rows + j * it->dp, 0, sizeof(float) * (size_t)it->dp);
    }
}

/* Samples a few pairs and decides how the distances of a head are computed: directly, if so many pairs are close that exact
 * differences cost less time than `repair` of each pair. */
static void survey(const fna_args *a, head *it, int backward) {
    int64_t pairs = 0, close = 0;
    float total = 0.0f, kappa = a->kappa[it->h];
    it->direct = a->d <= NARROW;
    it->fine = 0;
    if (it->direct) return;
    for (int64_t t = 0; t < at_most(a->n * a->m / 256, 64); t++) {
        const float *q = it->q + (t * 7919 % a->n) * a->q.row, *k = it->k + (t * 104729 % a->m) * a->k.row;
        float gap = squared_gap(q, k, a->d, 1.0f);
        /* skip the pair of a token with itself and tokens that are not finite */
        if (!(gap > 0.0f && gap <= FLT_MAX)) continue;
        pairs++;
        total += gap;
        close += gap < CLOSE * (squared_gap(q, it->center, a->d, 1.0f) + squared_gap(k, it->center, a->d, 1.0f));
    }
    it->direct = close * 16 > pairs;
    if (backward || it->direct || a->sphere || a->profile == FNA_GAUSSIAN || !pairs) return;
    float squared = total / (float)pairs / (kappa * kappa), z = sqrtf(squared);
    if (a->profile == FNA_STUDENT)
        it->fine = 2.0f * a->exponent[it->h] * squared > SENSITIVE * (1.0f + squared);
    else
        it->fine = a->exponent[it->h] * z > SENSITIVE * (1.0f + z);
}

/* Transposes keys or values into blocks of BK columns; lanes after the last key are 0. */
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

/* Computes the squared norms of the centered keys from the transposed blocks. */
static void block_norms(const head *it, int64_t d) {
    for (int64_t j = 0; j < it->keys; j += VL) {
        const float *column = it->kt + j / BK * d * BK + j % BK;
        if (!it->fine) {
            vf sum = all(0.0f);
            for (int64_t c = 0; c < d; c++) {
                vf x = load(column + c * BK) - (it->direct ? it->center[c] : 0.0f);
                sum += x * x;
            }
            store(it->norms + j, sum * it->unit);
            continue;
        }
        vd sum = {0};
        for (int64_t c = 0; c < d; c++) {
            vd x = widen(load(column + c * BK));
            sum += x * x;
        }
        sum *= it->unit;
        vf norm = narrow(sum);
        store(it->norms + j, norm);
        store(it->key_norms.second + j, narrow(sum - widen(norm)));
    }
}

/* Rounds the first parts of the norms so that the sum of two is exact, unless a query is much larger than the keys. */
static void split_norms(head *it) {
    float largest = TINY;
    for (int64_t j = 0; j < it->keys; j++) largest = it->norms[j] > largest ? it->norms[j] : largest;
    int exponent;
    frexpf(largest, &exponent);
    it->grid = ldexpf(1.5f, (int)at_most(exponent, 120) + 2); /* 120: never infinite */
    for (int64_t j = 0; j < it->keys; j += VL) {
        vf norm = load(it->norms + j), first = norm + it->grid - it->grid;
        store(it->key_norms.first + j, first);
        store(it->key_norms.second + j, load(it->key_norms.second + j) + (norm - first));
    }
}

static void pad_rows(float *to, int64_t padded, const float *from, int64_t row, int64_t count, int64_t width,
                     const float *center) {
    for (int64_t j = 0; j < count; j++, to += padded, from += row) {
        if (center)
            shift_row(to, from, center, width);
        else
            copy_row(to, from, width);
        for (int64_t c = width; c < padded; c++) to[c] = 0.0f;
    }
}

/* Values are copied if their width is not a multiple of the vector length, or if the distance of their rows in memory would
 * cause cache conflicts when they are read repeatedly. */
INLINE int values_as_they_are(const fna_args *a) { return a->dv % VL == 0 && (a->v.row == a->dv || a->n <= BQ); }

/* Finds the keys and values of the head and the mean of its keys. */
static void find_keys(const fna_args *a, head *it, int64_t key_head) {
    it->k = a->k.data + it->b * a->k.batch + key_head * a->k.head;
    it->v = a->v.data + it->b * a->v.batch + key_head * a->v.head;
    memset(it->center, 0, sizeof(float) * (size_t)a->d);
    for (int64_t j = 0; j < a->m; j++) add_row(it->center, it->k + j * a->k.row, a->d);
    scale_row(it->center, it->center, 1.0f / (float)a->m, a->d);
    it->all_finite = 1;
    /* if a key is not finite, neither is the mean */
    if (finiteness_of(it->center, a->d) != FINITE) sort_keys(a, it);
}

/* Prepares a query head. The keys and values stay packed for the next head of the same group. */
static void pack_head(const fna_args *a, head *it, int64_t index, int backward) {
    it->index = index, it->b = index / a->heads, it->h = index % a->heads;
    it->q = a->q.data + it->b * a->q.batch + it->h * a->q.head;
    int64_t key_head = it->h / (a->heads / a->key_heads), key_index = it->b * a->key_heads + key_head;
    int other_keys = key_index != it->packed;
    if (other_keys) find_keys(a, it, key_head);
    it->packed = key_index;
    float kappa = a->kappa[it->h];
    survey(a, it, backward);
    it->unit = a->sphere || it->direct ? 1.0f : 1.0f / (kappa * kappa);
    float scale = a->sphere || !it->direct ? 1.0f : fmaxf(1.0f / (kappa * kappa), 10.0f * SMALLEST);
    it->law = (law){kappa, 1.0f / kappa, a->exponent[it->h], scale, 2.0f * sqrtf(TINY * scale),
                    SMALLEST / scale};
    if (other_keys || it->direct != it->packed_directly) {
        transpose_blocks(it->kt, it->k, a->k.row, a->m, a->d, it->direct ? NULL : it->center);
        if (backward && other_keys) pad_rows(it->rows, it->dp, it->k, a->k.row, a->m, a->d, it->center);
        if (!it->all_finite) replace_keys(a, it, backward);
        it->packed_directly = it->direct;
    }
    block_norms(it, a->d);
    if (it->fine) split_norms(it);
    if (!other_keys) return;
    if (!backward) {
        it->values = it->v, it->value_row = a->v.row;
        if (values_as_they_are(a)) return;
        pad_rows(it->padded, it->dvp, it->v, a->v.row, a->m, a->dv, NULL);
        it->values = it->padded, it->value_row = it->dvp;
        return;
    }
    transpose_blocks(it->vt, it->v, a->v.row, a->m, a->dv, NULL);
}

/* Computes the squared distances of a packed block of queries to the block of keys at j0, or -2 q.k, to which the norms are
 * added last, so that the products are summed while they are small. */
static void distances(const fna_args *a, const head *it, const float *queries, int64_t rows, int64_t j0, int64_t cols,
                      float *s) {
    operands o = {queries, a->d, 1, it->kt + j0 * a->d, BK, s, BK};
    if (it->direct)
        squared_distances(o, rows, cols, a->d);
    else if (it->fine)
        multiply_by_parts(o, rows, cols, a->d);
    else
        multiply(o, rows, cols, a->d);
}

INLINE double exact_norm(const float *x, const float *center, int64_t d) {
    vd sum = {0};
    double total = 0.0;
    int64_t c = 0;
    for (; c + VL <= d; c += VL) {
        vd gap = widen(load(x + c) - load(center + c));
        sum += gap * gap;
    }
    for (int l = 0; l < VL; l++) total += sum[l];
    for (; c < d; c++) {
        float gap = x[c] - center[c];
        total += (double)gap * gap;
    }
    return total;
}

/* Packs the queries for `distances`, computes their centered norms (also in two parts if fine), and sets the rows up to
 * `padded` to 0. */
static void pack_queries(const fna_args *a, const head *it, int64_t i0, int64_t count, int64_t padded, float *queries,
                         float *norms, const parts *split) {
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
        if (it->fine) {
            double norm = it->unit * exact_norm(from, center, a->d);
            split->first[i] = (float)norm + it->grid - it->grid;
            split->second[i] = (float)(norm - split->first[i]);
        }
    }
}

/* Computes the pairs of a row that lost digits again, from the tokens themselves; `low` may be NULL. */
static void repair(const fna_args *a, const head *it, const float *q, float norm, int64_t j0, int64_t cols, float *s,
                   float *low) {
    const float *norms = it->norms + j0;
    int64_t real = at_most(cols, a->m - j0);
    for (int64_t start = 0; start < real; start += VL) {
        vf x = load(s + start);
        int near = !it->direct && any_less(x - CLOSE * load(norms + start), all(CLOSE * norm));
        if (!near && !(a->sphere && any_less(all(ANTIPODE), x))) continue;
        for (int64_t j = start; j < at_most(start + VL, real); j++) {
            const float *k = it->k + (j0 + j) * a->k.row;
            if (!it->all_finite && it->finiteness[j0 + j] != FINITE) continue;
            if (!it->direct && s[j] < CLOSE * (norm + norms[j])) {
                s[j] = it->unit * squared_gap(q, k, a->d, 1.0f) + TINY;
                if (low) low[j] = 0.0f;
            }
            if (a->sphere && s[j] > ANTIPODE) s[j] = -squared_gap(q, k, a->d, -1.0f) - TINY;
        }
    }
}

/* Finishes one row of `distances`; for the gradient, returns whether pairs of the row may be very close or antipodal. */
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
    if ((close && !it->direct) || far) repair(a, it, q, norm, j0, cols, s, NULL);
    return close || far;
}

/* The same with the result in two floats: s + low. */
INLINE void finish_row_finely(const fna_args *a, const head *it, const float *q, float norm, float first, float second,
                              int64_t j0, int64_t cols, float *s, float *low) {
    const float *firsts = it->key_norms.first + j0, *seconds = it->key_norms.second + j0;
    vf closest = all(3e38f);
    for (int64_t j = 0; j < cols; j += VL) {
        /* |q|^2 + |k|^2 is never less than |2 q.k|, so two steps give the rounding error of the sum */
        vf product = load(s + j), norms = load(firsts + j) + first, sum = product + norms;
        vf rest = ((norms - sum) + product) + (load(seconds + j) + second);
        vf x = sum + rest;
        store(low + j, rest - (x - sum));
        x = vmax(x, all(TINY));
        store(s + j, x);
        closest = vmin(closest, x - CLOSE * load(it->norms + j0 + j));
    }
    if (any_less(closest, all(CLOSE * norm))) repair(a, it, q, norm, j0, cols, s, low);
}

#endif
