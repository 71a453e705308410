/* The bias, which is added to the logits, and the logits with it.
 *
 * With a bias the nearest key need not have the largest logit, so the forward pass finds the key with the largest one. The
 * reference of a row is the logit of such a key, bias included:
 *
 *     power law, Student   log2 C + bias log2(e)
 *     Gaussian             z^2 - bias, so that the difference is taken before the factor log2(e)
 *     the same on the sphere: z^2 - bias as its square root, or as it is if it is negative */
#ifndef FNA_BIAS_H
#define FNA_BIAS_H

#include "mask.h"
#include "weigh.h"

/* A bias beyond this is rounded to it: more than any logarithm of a kernel, and sums of a few of them are finite. */
#define MAX_BIAS 1e37f
/* Logit of a key that is not a candidate for the reference. */
#define NO_LOGIT -3e38f
/* The derivatives with respect to kappa and the exponent use a reference only up to this. */
#define FAR_REFERENCE 1024.0f

/* Corrects the lanes and the coverage of a row where its bias is not finite: -inf masks out a key. Returns NOT_A_NUMBER if an
 * allowed key has the bias NaN or +inf, which makes the row NaN, else 0. */
static int mask_infinite_bias(const float *from, int64_t col, int64_t real, int64_t cols, int32_t *lanes, int *coverage) {
    int attended = 0;
    int64_t allowed = 0;
    for (int64_t j = 0; j < cols; j++) {
        if (lanes[j] && j < real && !(fabsf(from[j * col]) <= FLT_MAX)) {
            if (!(from[j * col] < 0.0f)) attended = NOT_A_NUMBER;
            lanes[j] = 0;
        }
        allowed -= lanes[j];
    }
    *coverage = allowed == 0 ? NONE : allowed == cols ? EVERY : SOME;
    return attended;
}

/* Writes the bias of the row i and the block at j0, times log2(e), to `bias`, after `fill_mask` of this row; returns as
 * `mask_infinite_bias`. */
static int fill_bias(const fna_args *a, const head *it, int64_t i, int64_t j0, int64_t cols, float *bias, int32_t *lanes,
                     int *coverage) {
    int64_t real = at_most(cols, a->m - j0), col = a->bias.col;
    const float *from = a->bias.data + it->b * a->bias.batch + it->h * a->bias.head + i * a->bias.row + j0 * col;
    float total = 0.0f;
    int64_t j = 0;
    if (col == 1) {
        vf sum = all(0.0f);
        for (; j + VL <= real; j += VL) {
            vf x = load(from + j);
            sum += x * 0.0f; /* NaN if x is not finite */
            store(bias + j, vmax(vmin(x, all(MAX_BIAS)), all(-MAX_BIAS)) * LOG2_E);
        }
        total = sum_lanes(sum);
    }
    for (; j < real; j++) {
        float x = from[j * col];
        total += x * 0.0f;
        bias[j] = (x > MAX_BIAS ? MAX_BIAS : x < -MAX_BIAS ? -MAX_BIAS : x) * LOG2_E;
    }
    for (; j < cols; j++) bias[j] = 0.0f;
    return total == total ? 0 : mask_infinite_bias(from, col, real, cols, lanes, coverage);
}

/* Returns the reference of a row whose largest logit is that of a key at the squared distance s with this bias. */
INLINE float biased_reference(float s, float bias, law it, const int profile, const int sphere) {
    if (profile != FNA_GAUSSIAN) return reference_at(all(s), it, profile, sphere)[0] + bias;
    if (!sphere) return s * it.scale - bias / LOG2_E;
    float z = reference_at(all(s), it, profile, sphere)[0], rest = z * z - bias / LOG2_E;
    return rest > 0.0f ? sqrtf(rest) : rest;
}

/* Returns the factor of the weights of a row when its reference moves. */
INLINE float biased_moved_factor(float before, float after, const int profile, const int sphere) {
    if (profile != FNA_GAUSSIAN) return exp2f(before - after);
    if (!sphere) return exp2f((after - before) * LOG2_E);
    if (before >= 0.0f && after >= 0.0f) return exp2f((after - before) * (after + before) * LOG2_E);
    return exp2f(((after < 0.0f ? after : after * after) - (before < 0.0f ? before : before * before)) * LOG2_E);
}

/* Writes the logits of the allowed keys of a row relative to its reference, and NO_LOGIT for the other keys; returns the largest
 * lane by lane. Keys too far away for a float are no candidates either. */
INLINE vf biased_row(const float *s, const float *low, const float *bias, const int32_t *lanes, int64_t cols, float *logits,
                     law it, const int profile, const int sphere, float reference) {
    vf largest = all(NO_LOGIT);
    for (int64_t j = 0; j < cols; j += VL) {
        vf squared = load(s + j), x[1] = {squared};
        kernel_logits(x, low ? low + j : NULL, bias + j, it, profile, sphere, all(-reference), 1);
        vi candidate = (vi)load((const float *)(lanes + j)) & (vi)(squared < 3e38f);
        x[0] = choose(candidate, x[0], all(NO_LOGIT));
        largest = vmax(x[0], largest);
        store(logits + j, x[0]);
    }
    return largest;
}

/* Returns the index of the largest logit of a row, or -1 if there is no candidate. */
INLINE int64_t leading_key(const float *logits, int64_t cols) {
    int64_t leading = -1;
    float largest = NO_LOGIT;
    for (int64_t j = 0; j < cols; j++)
        if (logits[j] > largest) largest = logits[j], leading = j;
    return leading;
}

/* Computes the weights p of a row from its logits; returns their sum, lane by lane. */
INLINE vf weigh_logits(const float *logits, const int32_t *lanes, int64_t cols, float *p) {
    vf sum = all(0.0f);
    for (int64_t j = 0; j < cols; j += VL) {
        vf x[1] = {vmin(load(logits + j), all(CEILING))};
        exp2_bounded(x, 1);
        x[0] = keep((vi)load((const float *)(lanes + j)), x[0]);
        sum += x[0];
        store(p + j, x[0]);
    }
    return sum;
}

/* Returns the value of log2 C (for the Gaussian of z^2) that the derivatives with respect to kappa and the exponent subtract. A
 * reference that the bias has moved far away would take the digits of the terms. */
INLINE float learning_reference(const fna_args *a, law it, float reference) {
    const int gaussian = a->profile == FNA_GAUSSIAN;
    if (!a->bias.data) return gaussian ? reference_squared_distance(reference, it, a->sphere) : reference;
    float value = gaussian && a->sphere && reference > 0.0f ? reference * reference : reference;
    return (gaussian ? value > 0.0f && value < FAR_REFERENCE : value < 0.0f && value > -FAR_REFERENCE) ? value : 0.0f;
}

#endif
