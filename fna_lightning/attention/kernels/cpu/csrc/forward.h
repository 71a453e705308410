/* Forward pass: an online softmax over blocks of keys.
 *
 * A row keeps a reference logit instead of its maximum: weights are 2^(logit - reference), and the reference moves only
 * when a key is so much closer that the weights could overflow. The backward pass gets the reference and
 * 1 / (sum of weights); combining both in one float would lose the digits of a large logit. */
#ifndef FNA_FORWARD_H
#define FNA_FORWARD_H

#include "bias.h"
#include "dropout.h"
#include "mask.h"
#include "weigh.h"
#include "work.h"

/* The reference may be smaller than the maximum by this many powers of 2. */
#define LAG 30.0f

typedef struct {
    float reference; /* logit to which the weights are relative, see `reference_at` */
    float bound;     /* a squared distance below this moves the reference */
    int started;
    int attended;    /* finiteness of its allowed keys, joined by "or" */
} row_state;

/* The least squared distance of a row without an allowed key that moves its reference. */
#define NO_KEY 3e38f

typedef struct {
    float *s, *low;                        /* (BQ, BK): squared distances, then weights; second part of s if fine */
    float *out, *queries, *norms, *factors;
    float *bias, *logits;                  /* (BK): of one row */
    parts split;                           /* (BQ): the norms in two parts if fine */
    float *sums, *least;                   /* (BQ, VL) sums of weights; (BQ) */
    float slack;                           /* term or factor between the least squared distance of a row and its bound */
    row_state *rows;
    int coverage[BQ];
    lane_mask mask;
} forward_space;

/* Multiplies the sums of a row by the factor of its moved reference. */
static void rescale(float *out, int64_t width, float *sums, float factor) {
    for (int64_t c = 0; c < width; c += VL) store(out + c, load(out + c) * factor);
    store(sums, load(sums) * factor);
}

/* Returns the least squared distance of a row to its allowed keys in a block, or NO_KEY if no reference must move. */
INLINE float nearest(const float *s, int64_t cols, const int32_t *lanes, const int sphere, const row_state *row) {
    vf least = all(NO_KEY);
    for (int64_t j = 0; j < cols; j += VL) {
        vf x = load(s + j);
        /* the squared distance of a pair near the antipode is stored as a negative number, see radial.h */
        if (sphere) x = choose((vi)(x < 0.0f), 4.0f + x, x);
        if (lanes) x = choose((vi)load((const float *)(lanes + j)), x, all(NO_KEY));
        least = vmin(least, x);
    }
    return row->started && !any_less(least, all(row->bound)) ? NO_KEY : min_lane(least);
}

/* Moves the reference of each row that has a much closer key than before, at the squared distance `least`. */
INLINE void refer(const head *it, forward_space *w, int64_t count, const int profile, const int sphere) {
    for (int64_t i = 0; i < count; i += VL) {
        vf least = load(w->least + i);
        if (!any_less(least, all(NO_KEY))) continue;
        vf moved = reference_at(least, it->law, profile, sphere);
        for (int64_t l = 0; l < at_most(VL, count - i); l++) {
            row_state *row = w->rows + i + l;
            if (!(least[l] < NO_KEY)) continue;
            if (row->started)
                rescale(w->out + (i + l) * it->dvp, it->dvp, w->sums + (i + l) * VL,
                        moved_factor(row->reference, moved[l], it->law, profile, sphere));
            row->reference = moved[l];
            row->started = 1;
            row->bound = profile == FNA_GAUSSIAN ? least[l] - w->slack : least[l] * w->slack;
        }
    }
}

INLINE void forward_block(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count, int64_t j0,
                          int64_t cols, int coverage, const int profile, const int sphere, const int fine) {
    const int per_row = w->mask.per_row;
    for (int64_t i = 0; i < count; i++) {
        int32_t *lanes = w->mask.lanes + (per_row ? i * BK : 0);
        w->coverage[i] = per_row ? fill_mask(a, it, i0 + i, j0, cols, lanes) : coverage;
        if (it->all_finite)
            w->rows[i].attended |= w->coverage[i] == NONE ? 0 : FINITE;
        else if (per_row)
            w->rows[i].attended |= mask_not_finite(it, j0, cols, lanes, &w->coverage[i]);
        const float *q = it->q + (i0 + i) * a->q.row;
        if (fine)
            finish_row_finely(a, it, q, w->norms[i], w->split.first[i], w->split.second[i], j0, cols, w->s + i * BK,
                              w->low + i * BK);
        else
            finish_row(a, it, q, w->norms[i], j0, cols, w->s + i * BK, sphere, 0);
        w->least[i] = nearest(w->s + i * BK, cols, w->coverage[i] == EVERY ? NULL : lanes, sphere, w->rows + i);
    }
    refer(it, w, count, profile, sphere);
    for (int64_t i = 0; i < count; i++) {
        const int32_t *lanes = w->mask.lanes + (per_row ? i * BK : 0);
        float *s = w->s + i * BK, *sums = w->sums + i * VL;
        if (w->coverage[i] == NONE || !w->rows[i].started) {
            memset(s, 0, sizeof(float) * (size_t)cols);
            continue;
        }
        vf total = weigh(s, fine ? w->low + i * BK : NULL, NULL, s, cols, w->coverage[i] == EVERY ? NULL : lanes, it->law, profile,
                         sphere, w->rows[i].reference);
        store(sums, load(sums) + total);
        if (a->dropout > 0.0f) {
            drop_factors(a, it->b * a->heads + it->h, i0 + i, j0, cols, w->factors);
            for (int64_t j = 0; j < cols; j += VL) store(s + j, load(s + j) * load(w->factors + j));
        }
    }
}

/* Moves the reference of a row to the key with the largest logit, which is among `w->logits`; returns whether there is one. */
INLINE int refer_to_leading(const head *it, forward_space *w, int64_t i, int64_t cols, const int profile, const int sphere) {
    int64_t leading = leading_key(w->logits, cols);
    if (leading < 0) return 0;
    row_state *row = w->rows + i;
    float s = w->s[i * BK + leading];
    float moved = biased_reference(s, w->bias[leading], it->law, profile, sphere);
    if (row->started)
        rescale(w->out + i * it->dvp, it->dvp, w->sums + i * VL,
                biased_moved_factor(row->reference, moved, profile, sphere));
    row->reference = moved;
    row->started = 1;
    return 1;
}

/* `forward_block` with a bias. */
INLINE void forward_block_biased(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count, int64_t j0,
                                 int64_t cols, const int profile, const int sphere, const int fine) {
    int32_t *lanes = w->mask.lanes;
    for (int64_t i = 0; i < count; i++) {
        row_state *row = w->rows + i;
        float *s = w->s + i * BK, *low = fine ? w->low + i * BK : NULL, *sums = w->sums + i * VL;
        int covered = fill_mask(a, it, i0 + i, j0, cols, lanes);
        int attended = fill_bias(a, it, i0 + i, j0, cols, w->bias, lanes, &covered);
        if (it->all_finite)
            attended |= covered == NONE ? 0 : FINITE;
        else
            attended |= mask_not_finite(it, j0, cols, lanes, &covered);
        row->attended |= attended;
        const float *q = it->q + (i0 + i) * a->q.row;
        if (fine)
            finish_row_finely(a, it, q, w->norms[i], w->split.first[i], w->split.second[i], j0, cols, s, low);
        else
            finish_row(a, it, q, w->norms[i], j0, cols, s, sphere, 0);
        float reference = row->started ? row->reference : 0.0f;
        vf largest = biased_row(s, low, w->bias, lanes, cols, w->logits, it->law, profile, sphere, reference);
        if (!row->started || any_less(all(LAG), largest)) {
            if (refer_to_leading(it, w, i, cols, profile, sphere))
                biased_row(s, low, w->bias, lanes, cols, w->logits, it->law, profile, sphere, row->reference);
        }
        if (covered == NONE || !row->started) {
            memset(s, 0, sizeof(float) * (size_t)cols);
            continue;
        }
        store(sums, load(sums) + weigh_logits(w->logits, lanes, cols, s));
        if (a->dropout > 0.0f) {
            drop_factors(a, it->b * a->heads + it->h, i0 + i, j0, cols, w->factors);
            for (int64_t j = 0; j < cols; j += VL) store(s + j, load(s + j) * load(w->factors + j));
        }
    }
}

static void forward_block_any_biased(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count,
                                     int64_t j0, int64_t cols) {
    if (a->profile == FNA_GAUSSIAN && a->sphere) forward_block_biased(a, it, w, i0, count, j0, cols, FNA_GAUSSIAN, 1, 0);
    else if (a->profile == FNA_GAUSSIAN) forward_block_biased(a, it, w, i0, count, j0, cols, FNA_GAUSSIAN, 0, 0);
    else if (a->profile == FNA_STUDENT && it->fine) forward_block_biased(a, it, w, i0, count, j0, cols, FNA_STUDENT, 0, 1);
    else if (a->profile == FNA_STUDENT) forward_block_biased(a, it, w, i0, count, j0, cols, FNA_STUDENT, 0, 0);
    else if (a->sphere) forward_block_biased(a, it, w, i0, count, j0, cols, FNA_POWER, 1, 0);
    else if (it->fine) forward_block_biased(a, it, w, i0, count, j0, cols, FNA_POWER, 0, 1);
    else forward_block_biased(a, it, w, i0, count, j0, cols, FNA_POWER, 0, 0);
}

static void forward_block_any(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count, int64_t j0,
                              int64_t cols, int coverage) {
    if (a->profile == FNA_GAUSSIAN && a->sphere) forward_block(a, it, w, i0, count, j0, cols, coverage, FNA_GAUSSIAN, 1, 0);
    else if (a->profile == FNA_GAUSSIAN) forward_block(a, it, w, i0, count, j0, cols, coverage, FNA_GAUSSIAN, 0, 0);
    else if (a->profile == FNA_STUDENT && it->fine) forward_block(a, it, w, i0, count, j0, cols, coverage, FNA_STUDENT, 0, 1);
    else if (a->profile == FNA_STUDENT) forward_block(a, it, w, i0, count, j0, cols, coverage, FNA_STUDENT, 0, 0);
    else if (a->sphere) forward_block(a, it, w, i0, count, j0, cols, coverage, FNA_POWER, 1, 0);
    else if (it->fine) forward_block(a, it, w, i0, count, j0, cols, coverage, FNA_POWER, 0, 1);
    else forward_block(a, it, w, i0, count, j0, cols, coverage, FNA_POWER, 0, 0);
}

/* Returns whether the output of a row is NaN: a key it attends to is NaN, none of its keys has a weight, or the query is not
 * finite. */
INLINE int undefined(const fna_args *a, const head *it, const forward_space *w, int64_t i0, int64_t i, float sum) {
    int attended = w->rows[i].attended;
    if (attended == FINITE && sum > 0.0f && w->norms[i] <= FLT_MAX) return 0;
    if (!attended) return 0;
    return (attended & NOT_A_NUMBER) || !(sum > 0.0f) || finiteness_of(it->q + (i0 + i) * a->q.row, a->d) != FINITE;
}

static void begin_queries(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count) {
    int64_t padded = up(count, ROWS);
    pack_queries(a, it, i0, count, padded, w->queries, w->norms, &w->split);
    memset(w->out, 0, sizeof(float) * (size_t)(padded * it->dvp));
    memset(w->sums, 0, sizeof(float) * (size_t)(padded * VL));
    memset(w->rows, 0, sizeof(row_state) * (size_t)padded);
}

/* Adds the keys first .. last to the output of a block of queries. */
static void attend_to_keys(const fna_args *a, const head *it, forward_space *w, int64_t i0, int64_t count, int64_t first,
                           int64_t last) {
    int64_t padded = up(count, ROWS), end = at_most(last_key(a, i0, count), last);
    for (int64_t j0 = first; j0 < end; j0 += BK) {
        int64_t cols = at_most(BK, it->keys - j0);
        int coverage = mask_block(a, it, i0, count, j0, cols, &w->mask);
        if (!it->all_finite && !w->mask.per_row) {
            int attended = mask_not_finite(it, j0, cols, w->mask.lanes, &coverage);
            for (int64_t i = 0; i < count; i++) w->rows[i].attended |= attended;
        }
        if (coverage == NONE) continue;
        distances(a, it, w->queries, padded, j0, cols, w->s);
        if (a->bias.data)
            forward_block_any_biased(a, it, w, i0, count, j0, cols);
        else
            forward_block_any(a, it, w, i0, count, j0, cols, coverage);
        operands o = {w->s, BK, 1, it->values + j0 * it->value_row, it->value_row, w->out, it->dvp};
        multiply_add(o, padded, it->dvp, at_most(cols, a->m - j0));
    }
}

static void finish_queries(const fna_args *a, const head *it, const forward_space *w, int64_t i0, int64_t count) {
    int64_t index = it->b * a->heads + it->h;
    float *stats = a->stats + 2 * (index * a->n + i0);
    float *to = a->out.data + it->b * a->out.batch + it->h * a->out.head + i0 * a->out.row;
    for (int64_t i = 0; i < count; i++, to += a->out.row) {
        float sum = sum_lanes(load(w->sums + i * VL)), inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
        if (undefined(a, it, w, i0, i, sum)) inverse = NAN;
        stats[2 * i] = w->rows[i].reference;
        stats[2 * i + 1] = inverse;
        scale_row(to, w->out + i * it->dvp, inverse, a->dv);
    }
}

/* Computes the output of the queries first .. last. */
static void forward_queries(const fna_args *a, const head *it, forward_space *blocks, int64_t first, int64_t last) {
    int64_t keys = keys_together(a, a->d + it->value_row);
    if (keys >= a->m) {
        for (int64_t i0 = first; i0 < last; i0 += BQ) {
            int64_t count = at_most(BQ, last - i0);
            begin_queries(a, it, blocks, i0, count);
            attend_to_keys(a, it, blocks, i0, count, 0, keys);
            finish_queries(a, it, blocks, i0, count);
        }
        return;
    }
    for (; first < last; first += GROUP * BQ) {
        int64_t end = at_most(first + GROUP * BQ, last);
        for (int64_t i0 = first, b = 0; i0 < end; i0 += BQ, b++) begin_queries(a, it, blocks + b, i0, at_most(BQ, end - i0));
        for (int64_t j0 = 0; j0 < a->m; j0 += keys)
            for (int64_t i0 = first, b = 0; i0 < end; i0 += BQ, b++)
                attend_to_keys(a, it, blocks + b, i0, at_most(BQ, end - i0), j0, j0 + keys);
        for (int64_t i0 = first, b = 0; i0 < end; i0 += BQ, b++) finish_queries(a, it, blocks + b, i0, at_most(BQ, end - i0));
    }
}

/* An angle decreases up to pi / 2 times faster than its chord, so the power law on the sphere has no slack. */
static float slack(const fna_args *a, law it) {
    if (a->profile == FNA_GAUSSIAN) return a->sphere ? 0.0f : LAG / LOG2_E / it.scale;
    if (a->profile == FNA_STUDENT) return exp2f(-LAG / it.exponent);
    return a->sphere ? 1.0f : exp2f(-2.0f * LAG / it.exponent);
}

/* Takes the memory of a thread. The blocks of queries share what belongs to one block of keys. */
static int reserve_forward(const fna_args *a, arena *space, head *it, forward_space *blocks) {
    for (int pass = 0; pass < 2; pass++) {
        head_space(space, a, it, 0);
        forward_space w = {0};
        w.s = take(space, BQ * BK);
        w.low = take(space, BQ * BK);
        w.least = take(space, BQ + VL);
        w.factors = take(space, BK);
        w.bias = take(space, BK);
        w.logits = take(space, BK);
        w.mask.lanes = (int32_t *)take(space, BQ * BK);
        for (int b = 0; b < GROUP; b++) {
            w.split = (parts){take(space, BQ), take(space, BQ)};
            w.out = take(space, BQ * it->dvp);
            w.queries = take(space, BQ * a->d);
            w.norms = take(space, BQ);
            w.sums = take(space, BQ * VL);
            w.rows = (row_state *)take(space, BQ * 4);
            blocks[b] = w;
        }
        if (pass == 0 && !reserve(space)) return 0;
    }
    return 1;
}

static void forward_thread(void *pointer) {
    queue *work = pointer;
    const fna_args *a = work->args;
    arena space = {0};
    head it = {.packed = -1, .index = -1};
    forward_space blocks[GROUP] = {{0}};
    if (!reserve_forward(a, &space, &it, blocks)) {
        work->failed = 1;
        return;
    }
    int64_t index, first, last;
    while (next(work, &index, &first, &last) >= 0) {
        if (index != it.index) {
            pack_head(a, &it, index, 0);
            for (int b = 0; b < GROUP; b++) blocks[b].slack = slack(a, it.law);
        }
        forward_queries(a, &it, blocks, first, last);
    }
    release(&space);
}

static int forward(const fna_args *a) {
    queue work = share(a, a->batches * a->heads, 4);
    fna_parallel(forward_thread, &work, work.threads);
    return work.failed;
}

#endif
