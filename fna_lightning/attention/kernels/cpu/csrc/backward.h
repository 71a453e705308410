/* Backward pass: computes the weights again, block by block, from the saved statistics of each row.
 *
 *     P = C / sum C,  dL = P (dP - sum_j P dP)    gradient with respect to the logarithm of the kernel and to the bias
 *     G = dL d(log C)/dr / r                      so that dq = sum_j G (q - k), dk = sum_i G (k - q)
 *
 * The sums are matrix products, q sum G - G k, except for pairs so close that this difference would lose precision. */
#ifndef FNA_BACKWARD_H
#define FNA_BACKWARD_H

#include "bias.h"
#include "dropout.h"
#include "mask.h"
#include "weigh.h"
#include "work.h"

typedef struct {
    float *s, *p, *g; /* (BQ, BK): squared distances; weights; dP, then G */
    float *queries, *norms, *centered, *grad_out, *grad_q;
    float *reference, *inverse, *delta, *row_sums; /* (BQ) */
    float *grad_k, *grad_v, *column_sums;          /* (keys, dp), (keys, dvp), (keys) */
    float *factors, *grads, *exact;                /* (BK); `exact` is G of the pairs left out of the products */
    float *bias, *bias_sums;                       /* (BK) of one row; (keys) gradient of a bias without rows */
    double exponent, kappa;
    lane_mask mask;
} backward_space;

/* Computes G of one row from its squared distances s, weights p and dP, and stores it in place of dP. */
INLINE void differentiate(const fna_args *a, const head *it, backward_space *w, int64_t i, int64_t j0, int64_t cols,
                          const float *factors, int close, const int profile, const int sphere) {
    const law rule = it->law;
    float *s = w->s + i * BK, *p = w->p + i * BK, *g = w->g + i * BK, *columns = w->column_sums + j0;
    vf inverse = all(w->inverse[i]), delta = all(w->delta[i]), row_sum = all(0.0f);
    for (int64_t j = 0; j < cols; j += VL) {
        vf squared = load(s + j), slope = all(1.0f), z = squared, weight = load(p + j) * inverse, pull = load(g + j);
        if (profile != FNA_GAUSSIAN || sphere) z = log_argument(squared, rule, profile, sphere, &slope);
        if (factors) {
            vf factor = load(factors + j);
            store(p + j, weight * factor);
            pull *= factor;
        } else {
            store(p + j, weight);
        }
        vf grad = weight * (pull - delta);
        if (a->grad_kappa || a->grad_exponent || a->grad_bias.data) store(w->grads + j, grad);
        if (profile == FNA_POWER)
            grad *= -rule.exponent * reciprocal((z + 1.0f) * slope);
        else if (profile == FNA_STUDENT)
            grad *= -2.0f * rule.exponent * reciprocal(z + 1.0f);
        else
            grad *= sphere ? -2.0f * z * reciprocal(slope) : all(-2.0f);
        /* the gradient at distance 0 is 0 */
        if (profile == FNA_POWER || sphere) grad = keep((vi)(slope > rule.zero), grad);
        if (close) {
            vi very = (vi)(squared < VERY_CLOSE * (load(it->norms + j0 + j) + w->norms[i]));
            store(w->exact + j, keep(very, grad));
            grad = keep(~very, grad);
        }
        store(g + j, grad);
        row_sum += grad;
        store(columns + j, load(columns + j) + grad);
    }
    w->row_sums[i] += sum_lanes(row_sum);
}

/* Adds one row to the derivatives with respect to the exponent and kappa; call it after `differentiate`. */
static void learn(const fna_args *a, const head *it, backward_space *w, int64_t i, int64_t cols) {
    vf by_exponent = all(0.0f), by_kappa = all(0.0f), slope;
    /* The gradients of a row sum to 0, so any constant may be subtracted: the value at the reference keeps the terms small. */
    float reference = learning_reference(a, it->law, w->reference[i]);
    const int gaussian = a->profile == FNA_GAUSSIAN;
    float constant = gaussian ? reference : 1.0f - exp2f(reference / it->law.exponent);
    for (int64_t j = 0; j < cols; j += VL) {
        vf squared = load(w->s + i * BK + j), grad = load(w->grads + j), z[1];
        if (!a->sphere) squared = vmax(squared, all(it->law.least));
        z[0] = log_argument(squared, it->law, a->profile, a->sphere, &slope);
        by_kappa += grad * ((gaussian ? z[0] * z[0] : z[0] * reciprocal(z[0] + 1.0f)) - constant);
        if (!a->grad_exponent) continue;
        scaled_log2_1p(z, NULL, -it->law.exponent, all(-reference), 1);
        by_exponent += grad * z[0];
    }
    w->exponent += sum_lanes(by_exponent);
    w->kappa += sum_lanes(by_kappa);
}

/* Adds one row to the gradient of the bias; call it after `differentiate`. */
static void add_bias_gradient(const fna_args *a, const head *it, backward_space *w, int64_t i, int64_t j0, int64_t cols) {
    fna_tensor grad = a->grad_bias;
    float *to = grad.row ? grad.data + it->b * grad.batch + it->h * grad.head + i * grad.row + j0 : w->bias_sums + j0;
    add_row(to, w->grads, at_most(cols, a->m - j0));
}

/* Adds the gradient of the very close (and antipodal) pairs of a row, computed from the tokens themselves. */
static void pull_exactly(const fna_args *a, const head *it, backward_space *w, int64_t i, const float *q, int64_t j0,
                         int64_t cols) {
    float *s = w->s + i * BK, *grad_q = w->grad_q + i * it->dp;
    for (int64_t j = 0; j < at_most(cols, a->m - j0); j++) {
        float pull = w->exact[j], sign = s[j] < 0.0f ? -1.0f : 1.0f;
        if (pull == 0.0f) continue;
        const float *k = it->k + (j0 + j) * a->k.row;
        float *grad_k = w->grad_k + (j0 + j) * it->dp;
        for (int64_t c = 0; c < a->d; c++) {
            float t = pull * (q[c] - sign * k[c]);
            grad_q[c] -= sign * t;
            grad_k[c] += t;
        }
    }
}

INLINE void backward_block(const fna_args *a, const head *it, backward_space *w, int64_t i0, int64_t count, int64_t j0,
                           int64_t cols, int coverage, const int profile, const int sphere, const int biased) {
    for (int64_t i = 0; i < count; i++) {
        const float *q = it->q + (i0 + i) * a->q.row, *factors = NULL;
        int close = finish_row(a, it, q, w->norms[i], j0, cols, w->s + i * BK, sphere, 1);
        int row_coverage = w->mask.per_row ? fill_mask(a, it, i0 + i, j0, cols, w->mask.lanes) : coverage;
        if (!it->all_finite && w->mask.per_row) mask_not_finite(it, j0, cols, w->mask.lanes, &row_coverage);
        if (biased) fill_bias(a, it, i0 + i, j0, cols, w->bias, w->mask.lanes, &row_coverage);
        weigh(w->s + i * BK, NULL, biased ? w->bias : NULL, w->p + i * BK, cols, row_coverage == EVERY ? NULL : w->mask.lanes, it->law, profile,
              sphere, w->reference[i]);
        if (a->dropout > 0.0f) {
            drop_factors(a, it->b * a->heads + it->h, i0 + i, j0, cols, w->factors);
            factors = w->factors;
        }
        differentiate(a, it, w, i, j0, cols, factors, close, profile, sphere);
        if (a->grad_kappa || a->grad_exponent) learn(a, it, w, i, cols);
        if (biased && a->grad_bias.data) add_bias_gradient(a, it, w, i0 + i, j0, cols);
        if (close) pull_exactly(a, it, w, i, q, j0, cols);
    }
}

INLINE void backward_block_by_profile(const fna_args *a, const head *it, backward_space *w, int64_t i0, int64_t count,
                                      int64_t j0, int64_t cols, int coverage, const int biased) {
    if (a->profile == FNA_GAUSSIAN && a->sphere)
        backward_block(a, it, w, i0, count, j0, cols, coverage, FNA_GAUSSIAN, 1, biased);
    else if (a->profile == FNA_GAUSSIAN)
        backward_block(a, it, w, i0, count, j0, cols, coverage, FNA_GAUSSIAN, 0, biased);
    else if (a->profile == FNA_STUDENT)
        backward_block(a, it, w, i0, count, j0, cols, coverage, FNA_STUDENT, 0, biased);
    else if (a->sphere)
        backward_block(a, it, w, i0, count, j0, cols, coverage, FNA_POWER, 1, biased);
    else
        backward_block(a, it, w, i0, count, j0, cols, coverage, FNA_POWER, 0, biased);
}

static void backward_block_any(const fna_args *a, const head *it, backward_space *w, int64_t i0, int64_t count,
                               int64_t j0, int64_t cols, int coverage) {
    backward_block_by_profile(a, it, w, i0, count, j0, cols, coverage, 0);
}

static void backward_block_any_biased(const fna_args *a, const head *it, backward_space *w, int64_t i0, int64_t count,
                                      int64_t j0, int64_t cols, int coverage) {
    backward_block_by_profile(a, it, w, i0, count, j0, cols, coverage, 1);
}

INLINE float dot(const float *x, const float *y, int64_t d) {
    vf sum = all(0.0f);
    int64_t c = 0;
    for (; c + VL <= d; c += VL) sum += load(x + c) * load(y + c);
    float total = sum_lanes(sum);
    for (; c < d; c++) total += x[c] * y[c];
    return total;
}

/* The factor that turns G, which is d log C / dz / slope, into the coefficient of q - k. */
INLINE float per_pull(const fna_args *a, const head *it) {
    return it->law.per_kappa * (a->sphere ? 1.0f : it->law.per_kappa);
}

static void begin_backward(const fna_args *a, const head *it, backward_space *w, int64_t i0, int64_t count) {
    int64_t padded = up(count, ROWS), index = it->b * a->heads + it->h;
    const float *stats = a->stats + 2 * (index * a->n + i0);
    const float *out = a->out.data + it->b * a->out.batch + it->h * a->out.head + i0 * a->out.row;
    const float *grad = a->grad_out.data + it->b * a->grad_out.batch + it->h * a->grad_out.head + i0 * a->grad_out.row;
    pack_queries(a, it, i0, count, padded, w->queries, w->norms, NULL);
    pad_rows(w->centered, it->dp, it->q + i0 * a->q.row, a->q.row, count, a->d, it->center);
    pad_rows(w->grad_out, it->dvp, grad, a->grad_out.row, count, a->dv, NULL);
    memset(w->grad_out + count * it->dvp, 0, sizeof(float) * (size_t)((padded - count) * it->dvp));
    memset(w->grad_q, 0, sizeof(float) * (size_t)(padded * it->dp));
    for (int64_t i = 0; i < count; i++) {
        w->reference[i] = stats[2 * i];
        w->inverse[i] = stats[2 * i + 1];
        w->delta[i] = dot(grad + i * a->grad_out.row, out + i * a->out.row, a->dv);
        w->row_sums[i] = 0.0f;
    }
}

/* Adds the pairs of a block of queries with the keys first .. last to the gradients. */
static void differentiate_keys(const fna_args *a, const head *it, backward_space *w, int64_t i0, int64_t count, int64_t first,
                               int64_t last) {
    int64_t padded = up(count, ROWS), end = at_most(last_key(a, i0, count), last);
    for (int64_t j0 = first; j0 < end; j0 += BK) {
        int64_t cols = at_most(BK, it->keys - j0), real = at_most(cols, a->m - j0);
        int coverage = mask_block(a, it, i0, count, j0, cols, &w->mask);
        if (!it->all_finite && !w->mask.per_row) mask_not_finite(it, j0, cols, w->mask.lanes, &coverage);
        if (coverage == NONE) continue;
        distances(a, it, w->queries, padded, j0, cols, w->s);
        multiply((operands){w->grad_out, it->dvp, 1, it->vt + j0 * a->dv, BK, w->g, BK}, padded, cols, a->dv);
        if (a->bias.data)
            backward_block_any_biased(a, it, w, i0, count, j0, cols, coverage);
        else
            backward_block_any(a, it, w, i0, count, j0, cols, coverage);
        for (int64_t i = count; i < padded; i++) memset(w->g + i * BK, 0, sizeof(float) * (size_t)cols);
        multiply_add((operands){w->p, 1, BK, w->grad_out, it->dvp, w->grad_v + j0 * it->dvp, it->dvp}, cols,
                     it->dvp, count);
        multiply_add((operands){w->g, 1, BK, w->centered, it->dp, w->grad_k + j0 * it->dp, it->dp}, cols, it->dp,
                     count);
        multiply_add((operands){w->g, BK, 1, it->rows + j0 * it->dp, it->dp, w->grad_q, it->dp}, padded, it->dp,
                     real);
    }
}

static void finish_backward(const fna_args *a, const head *it, const backward_space *w, int64_t i0, int64_t count) {
    float unit = per_pull(a, it);
    float *to = a->grad_q.data + it->b * a->grad_q.batch + it->h * a->grad_q.head + i0 * a->grad_q.row;
    for (int64_t i = 0; i < count; i++, to += a->grad_q.row)
        combine_row(to, unit, w->centered + i * it->dp, w->row_sums[i], w->grad_q + i * it->dp, a->d);
}

/* Adds the queries first .. last to the gradients, see `forward_queries`. */
static void backward_queries(const fna_args *a, const head *it, backward_space *blocks, int64_t first, int64_t last) {
    int64_t keys = keys_together(a, a->d + a->dv + 2 * it->dp + it->dvp);
    if (keys >= a->m) {
        for (int64_t i0 = first; i0 < last; i0 += BQ) {
            int64_t count = at_most(BQ, last - i0);
            begin_backward(a, it, blocks, i0, count);
            differentiate_keys(a, it, blocks, i0, count, 0, keys);
            finish_backward(a, it, blocks, i0, count);
        }
        return;
    }
    for (; first < last; first += GROUP * BQ) {
        int64_t end = at_most(first + GROUP * BQ, last);
        for (int64_t i0 = first, b = 0; i0 < end; i0 += BQ, b++) begin_backward(a, it, blocks + b, i0, at_most(BQ, end - i0));
        for (int64_t j0 = 0; j0 < a->m; j0 += keys)
            for (int64_t i0 = first, b = 0; i0 < end; i0 += BQ, b++)
                differentiate_keys(a, it, blocks + b, i0, at_most(BQ, end - i0), j0, j0 + keys);
        for (int64_t i0 = first, b = 0; i0 < end; i0 += BQ, b++) finish_backward(a, it, blocks + b, i0, at_most(BQ, end - i0));
    }
    for (int b = 1; b < GROUP; b++) {
        blocks->exponent += blocks[b].exponent;
        blocks->kappa += blocks[b].kappa;
        blocks[b].exponent = blocks[b].kappa = 0.0;
    }
}

/* Writes the gradients of keys and values of one task, to the output or to a partial sum that is added later. The heads of a group
 * are added in their order, so the result does not depend on the threads. */
static void finish_keys(const fna_args *a, const head *it, backward_space *w, float *grad_k, int64_t k_row, float *grad_v,
                        int64_t v_row, int first_of_group) {
    float unit = per_pull(a, it);
    for (int64_t j = 0; j < a->m; j++) {
        const float *k = it->rows + j * it->dp, *gv = w->grad_v + j * it->dvp;
        float *gk = w->grad_k + j * it->dp;
        if (first_of_group) {
            combine_row(grad_k + j * k_row, unit, k, w->column_sums[j], gk, a->d);
            copy_row(grad_v + j * v_row, gv, a->dv);
        } else {
            combine_row(gk, unit, k, w->column_sums[j], gk, a->d);
            add_row(grad_k + j * k_row, gk, a->d);
            add_row(grad_v + j * v_row, gv, a->dv);
        }
    }
}

INLINE float *at_key_head(fna_tensor t, const fna_args *a, int64_t index) {
    return t.data + index / a->key_heads * t.batch + index % a->key_heads * t.head;
}

/* Takes the memory of a thread. The blocks of queries share what belongs to the keys. */
static int reserve_backward(const fna_args *a, arena *space, head *it, backward_space *blocks) {
    for (int pass = 0; pass < 2; pass++) {
        head_space(space, a, it, 1);
        backward_space w = {0};
        float **squares[] = {&w.s, &w.p, &w.g};
        for (int b = 0; b < 3; b++) *squares[b] = take(space, BQ * BK);
        w.grad_k = take(space, it->keys * it->dp);
        w.grad_v = take(space, it->keys * it->dvp);
        w.column_sums = take(space, it->keys);
        w.bias_sums = take(space, it->keys);
        float **columns[] = {&w.factors, &w.grads, &w.exact, &w.bias};
        for (int c = 0; c < 4; c++) *columns[c] = take(space, BK);
        w.mask.lanes = (int32_t *)take(space, BK);
        for (int b = 0; b < GROUP; b++) {
            float **rows[] = {&w.norms, &w.reference, &w.inverse, &w.delta, &w.row_sums};
            for (int r = 0; r < 5; r++) *rows[r] = take(space, BQ);
            w.queries = take(space, BQ * a->d);
            w.centered = take(space, BQ * it->dp);
            w.grad_q = take(space, BQ * it->dp);
            w.grad_out = take(space, BQ * it->dvp);
            blocks[b] = w;
        }
        if (pass == 0 && !reserve(space)) return 0;
    }
    return 1;
}

/* Computes the gradients of one query head for the queries first .. last. */
static void backward_head(const fna_args *a, head *it, backward_space *blocks, int64_t index, int64_t first, int64_t last) {
    backward_space *w = blocks;
    /* the heads of a task are different, unless a task has one head and the next task is another part of it */
    if (it->index != index) pack_head(a, it, index, 1);
    memset(w->grad_k, 0, sizeof(float) * (size_t)(it->keys * it->dp));
    memset(w->grad_v, 0, sizeof(float) * (size_t)(it->keys * it->dvp));
    memset(w->column_sums, 0, sizeof(float) * (size_t)it->keys);
    if (a->grad_bias.data) memset(w->bias_sums, 0, sizeof(float) * (size_t)it->keys);
    w->exponent = w->kappa = 0.0;
    backward_queries(a, it, blocks, first, last);
}

/* Writes the sums of one query head of a task. */
static void finish_head(const queue *work, const head *it, const backward_space *w, int64_t slot) {
    const fna_args *a = work->args;
    float m = it->law.exponent, kappa = it->law.kappa;
    float factor = a->profile == FNA_GAUSSIAN ? 2.0f : a->profile == FNA_STUDENT ? 2.0f * m : m;
    work->sums[2 * slot] = a->profile == FNA_GAUSSIAN ? 0.0 : w->exponent * LN_2 / m;
    work->sums[2 * slot + 1] = w->kappa * factor / kappa;
    if (work->bias_sums) memcpy(work->bias_sums + slot * a->m, w->bias_sums, sizeof(float) * (size_t)a->m);
}

static void backward_thread(void *pointer) {
    queue *work = pointer;
    const fna_args *a = work->args;
    arena space = {0};
    head it = {.packed = -1, .index = -1};
    backward_space blocks[GROUP] = {{0}}, *w = blocks;
    if (!reserve_backward(a, &space, &it, blocks)) {
        work->failed = 1;
        return;
    }
    int64_t group = a->heads / a->key_heads, task, index, first, last;
    while ((task = next(work, &index, &first, &last)) >= 0) {
        for (int64_t member = 0; member < group; member++) {
            backward_head(a, &it, blocks, index * group + member, first, last);
            if (work->parts > 1) {
                float *partial = work->partial + task * a->m * (a->d + a->dv);
                finish_keys(a, &it, w, partial, a->d, partial + a->m * a->d, a->dv, member == 0);
            } else {
                finish_keys(a, &it, w, at_key_head(a->grad_k, a, index), a->grad_k.row, at_key_head(a->grad_v, a, index),
                            a->grad_v.row, member == 0);
            }
            finish_head(work, &it, w, task * group + member);
        }
    }
    release(&space);
}

/* Adds the partial gradients of the parts of a unit. */
static void add_parts(const queue *work, int64_t unit, int64_t from, int64_t width, fna_tensor to) {
    const fna_args *a = work->args;
    int64_t stride = a->m * (a->d + a->dv);
    const float *parts = work->partial + unit * work->parts * stride + from;
    float *target = at_key_head(to, a, work->first + work->step * unit);
    for (int64_t j = 0; j < a->m; j++)
        for (int64_t c = 0; c < width; c++) {
            float sum = 0.0f;
            for (int64_t p = 0; p < work->parts; p++) sum += parts[p * stride + j * width + c];
            target[j * to.row + c] = sum;
        }
}

/* Adds the sums of the parts of one query head of a unit. */
static void add_sums(const queue *work, int64_t unit, int64_t member) {
    const fna_args *a = work->args;
    int64_t group = a->heads / a->key_heads, index = (work->first + work->step * unit) * group + member;
    fna_tensor grad_bias = a->grad_bias;
    double exponent = 0.0, kappa = 0.0;
    for (int64_t p = 0; p < work->parts; p++) {
        int64_t slot = (unit * work->parts + p) * group + member;
        exponent += work->sums[2 * slot];
        kappa += work->sums[2 * slot + 1];
        if (work->bias_sums)
            add_row(grad_bias.data + index / a->heads * grad_bias.batch + index % a->heads * grad_bias.head,
                    work->bias_sums + slot * a->m, a->m);
    }
    if (a->grad_exponent) a->grad_exponent[index] = exponent;
    if (a->grad_kappa) a->grad_kappa[index] = kappa;
}

/* Computes the gradients of `units` key heads with their query heads. */
static void backward_units(queue *work, int64_t units) {
    const fna_args *a = work->args;
    work->taken = 0;
    fna_parallel(backward_thread, work, work->threads);
    for (int64_t unit = 0; unit < units && !work->failed; unit++) {
        if (work->parts > 1) {
            add_parts(work, unit, 0, a->d, a->grad_k);
            add_parts(work, unit, a->m * a->d, a->dv, a->grad_v);
        }
        for (int64_t member = 0; member < a->heads / a->key_heads; member++) add_sums(work, unit, member);
    }
}

static int backward(const fna_args *a) {
    /* Units that share rows of the gradient of the bias are computed one after another, so that no two threads add to the same
     * row, and the order of the sum does not depend on the threads. */
    int shared = a->grad_bias.data && a->grad_bias.row;
    int64_t batch_rounds = shared && !a->grad_bias.batch ? a->batches : 1;
    int64_t head_rounds = shared && !a->grad_bias.head ? a->key_heads : 1;
    int64_t units = a->batches * a->key_heads / (batch_rounds * head_rounds), group = a->heads / a->key_heads;
    queue work = share(a, units, a->causal ? 2 : 1);
    work.step = head_rounds > 1 ? a->key_heads : 1;
    size_t slots = (size_t)(work.tasks * group);
    work.sums = calloc(slots * 2, sizeof(double));
    int sums_bias = a->grad_bias.data && !a->grad_bias.row;
    if (sums_bias) work.bias_sums = malloc(sizeof(float) * slots * (size_t)a->m);
    if (work.parts > 1) work.partial = malloc(sizeof(float) * (size_t)(work.tasks * a->m * (a->d + a->dv)));
    work.failed = !work.sums || (sums_bias && !work.bias_sums) || (work.parts > 1 && !work.partial);
    for (int64_t b = 0; b < batch_rounds; b++)
        for (int64_t h = 0; h < head_rounds && !work.failed; h++) {
            work.first = b * a->key_heads + h;
            backward_units(&work, units);
        }
    free(work.partial);
    free(work.bias_sums);
    free(work.sums);
    return work.failed;
}

#endif
