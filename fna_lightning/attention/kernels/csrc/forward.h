/* Forward pass: an online softmax over blocks of keys.
 *
 * A row keeps a reference logit instead of its maximum: weights are 2^(logit - reference), and the reference moves only
 * when a key comes that much closer that they might overflow. What is saved for the backward pass are the reference and
 * 1 / (sum of weights); their sum in one float would lose the digits of a large logit. */
#ifndef FNA_FORWARD_H
#define FNA_FORWARD_H

#include "dropout.h"
#include "visible.h"
#include "work.h"

/* the reference may lag behind the maximum by this many powers of 2 */
#define LAG 30.0f

typedef struct {
    float reference; /* log2 C the weights are relative to */
    float bound;     /* a squared distance below this moves it */
    int started;
} row_state;

typedef struct {
    float *s, *p, *out, *queries, *norms, *sums; /* sums: (BQ, VL) */
    row_state *rows;
    visible seen;
} forward_space;

static void rescale(float *out, int64_t width, float *sums, float factor) {
    for (int64_t c = 0; c < width; c += VL) store(out + c, load(out + c) * factor);
    store(sums, load(sums) * factor);
}

/* Moves the reference of a row to the nearest key of the block, if that is much nearer than all before. */
INLINE void refer(const float *s, int64_t cols, const int32_t *lanes, law it, const int gaussian, const int sphere,
                  row_state *row, float *out, int64_t width, float *sums) {
    vf nearest = all(3e38f);
    for (int64_t j = 0; j < cols; j += VL) {
        vf x = load(s + j);
        /* pairs near the antipode are negative, and the last to matter */
        if (sphere) x = choose((vi)(x < 0.0f), 4.0f + x, x);
        if (lanes) x = choose((vi)load((const float *)(lanes + j)), x, all(3e38f));
        nearest = vmin(nearest, x);
    }
    if (row->started && !any_less(nearest, all(row->bound))) return;
    float least = min_lane(nearest);
    if (least > 2e38f) return;
    vf slope, r = distance(all(least), sphere, &slope);
    float moved = log2_kernel(all(least), r, it, gaussian, sphere, all(0.0f))[0];
    if (row->started) rescale(out, width, sums, exp2f(row->reference - moved));
    row->reference = moved;
    row->started = 1;
    if (sphere)
        row->bound = least;
    else if (gaussian)
        row->bound = least - LAG / LOG2_E * it.kappa * it.kappa;
    else
        row->bound = least * exp2f(-2.0f * LAG / it.exponent);
}

INLINE void weigh(const float *s, int64_t cols, const int32_t *lanes, law it, const int gaussian, const int sphere,
                  float reference, float *p, float *sums) {
    vf sum = load(sums), rest = all(-reference);
    for (int64_t j = 0; j < cols; j += VL) {
        vf x = load(s + j), slope;
        vf r = gaussian && !sphere ? x : distance(x, sphere, &slope);
        vf w = exp2_bounded(log2_kernel(x, r, it, gaussian, sphere, rest));
        if (lanes) w = keep((vi)load((const float *)(lanes + j)), w);
        sum += w;
        store(p + j, w);
    }
    store(sums, sum);
}

INLINE void forward_block(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count, int64_t j0,
                          int64_t cols, int view, const int gaussian, const int sphere) {
    for (int64_t i = 0; i < count; i++) {
        float *s = w->s + i * BK, *p = w->p + i * BK, *out = w->out + i * it->dvp, *sums = w->sums + i * VL;
        row_state *row = w->rows + i;
        finish_row(a, it, it->q + (i0 + i) * a->q.row, w->norms[i], j0, cols, s, 0);
        int sees = w->seen.per_row ? fill(a, it, i0 + i, j0, cols, w->seen.lanes) : view;
        const int32_t *lanes = sees == EVERY ? NULL : w->seen.lanes;
        refer(s, cols, lanes, it->law, gaussian, sphere, row, out, it->dvp, sums);
        if (sees == NONE || !row->started) {
            memset(p, 0, sizeof(float) * (size_t)cols);
            continue;
        }
        if (lanes)
            weigh(s, cols, lanes, it->law, gaussian, sphere, row->reference, p, sums);
        else
            weigh(s, cols, NULL, it->law, gaussian, sphere, row->reference, p, sums);
        if (a->dropout > 0.0f) {
            drop_factors(a, it->b * a->heads + it->h, i0 + i, j0, cols, s);
            for (int64_t j = 0; j < cols; j += VL) store(p + j, load(p + j) * load(s + j));
        }
    }
}

static void forward_block_any(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count, int64_t j0,
                              int64_t cols, int view) {
    if (a->gaussian && a->sphere) forward_block(a, it, w, i0, count, j0, cols, view, 1, 1);
    else if (a->gaussian) forward_block(a, it, w, i0, count, j0, cols, view, 1, 0);
    else if (a->sphere) forward_block(a, it, w, i0, count, j0, cols, view, 0, 1);
    else forward_block(a, it, w, i0, count, j0, cols, view, 0, 0);
}

static void forward_queries(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count) {
    int64_t padded = up(count, ROWS), end = last_key(a, i0, count);
    pack_queries(a, it, i0, count, padded, w->queries, w->norms);
    memset(w->out, 0, sizeof(float) * (size_t)(padded * it->dvp));
    memset(w->sums, 0, sizeof(float) * (size_t)(padded * VL));
    memset(w->rows, 0, sizeof(row_state) * (size_t)padded);
    for (int64_t j0 = 0; j0 < end; j0 += BK) {
        int64_t cols = at_most(BK, it->keys - j0);
        int view = look(a, it, i0, count, j0, cols, &w->seen);
        if (view == NONE) continue;
        distances(a, it, w->queries, padded, j0, cols, w->s);
        forward_block_any(a, it, w, i0, count, j0, cols, view);
        operands o = {w->p, BK, 1, it->values + j0 * it->dvp, it->dvp, w->out, it->dvp, NULL};
        multiply_add(o, padded, it->dvp, at_most(cols, a->m - j0));
    }
    int64_t index = it->b * a->heads + it->h;
    float *stats = a->stats + 2 * (index * a->n + i0);
    float *to = a->out.data + it->b * a->out.batch + it->h * a->out.head + i0 * a->out.row;
    for (int64_t i = 0; i < count; i++, to += a->out.row) {
        float sum = sum_lanes(load(w->sums + i * VL)), inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        stats[2 * i] = w->rows[i].reference;
        stats[2 * i + 1] = inverse;
        for (int64_t c = 0; c < a->dv; c++) to[c] = w->out[i * it->dvp + c] * inverse;
    }
}

static void forward_thread(void *pointer) {
    queue *work = pointer;
    const fna_args *a = work->args;
    arena space = {0};
    head it = {0};
    forward_space w;
    for (int pass = 0; pass < 2; pass++) {
        head_space(&space, a, &it, 0);
        w.s = take(&space, BQ * BK);
        w.p = take(&space, BQ * BK);
        w.out = take(&space, BQ * it.dvp);
        w.queries = take(&space, BQ * a->d);
        w.norms = take(&space, BQ);
        w.sums = take(&space, BQ * VL);
        w.rows = (row_state *)take(&space, BQ * 4);
        if (pass == 0 && !reserve(&space)) {
            work->failed = 1;
            return;
        }
    }
    int64_t packed = -1, index, first, last;
    while (next(work, &index, &first, &last)) {
        if (index != packed) pack_head(a, &it, packed = index, 0);
        for (int64_t i0 = first; i0 < last; i0 += BQ) forward_queries(a, &it, &w, i0, at_most(BQ, last - i0));
    }
    release(&space);
}

static int forward(const fna_args *a) {
    queue work = share(a, 4);
    fna_parallel(forward_thread, &work, work.threads);
    return work.failed;
}

#endif
