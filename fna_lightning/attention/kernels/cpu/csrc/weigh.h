/* One row of weights: 2^(log2 C + bias - reference), and 0 where the key is masked out. */
#ifndef FNA_WEIGH_H
#define FNA_WEIGH_H

#include "radial.h"

/* x = Gaussian logits at the squared distances x with a bias; see bias.h for the reference, which is -rest. */
INLINE void biased_gaussian(vf *x, const float *bias, law it, const int sphere, vf rest, const int u) {
    vf slope, near = vmax(-rest, all(0.0f)), over = vmin(-rest, all(0.0f));
    EACH {
        if (sphere) {
            vf z = distance(x[i], it, sphere, &slope);
            x[i] = ((near - z) * (near + z) + over) * LOG2_E + load(bias + i * VL);
        } else {
            x[i] = (rest + x[i] * it.scale) * -LOG2_E + load(bias + i * VL);
        }
    }
}

/* x = logits at the squared distances x, or x + low if `low` is not NULL, minus the reference, which is -rest. `bias` may be
 * NULL. */
INLINE void kernel_logits(vf *x, const float *low, const float *bias, law it, const int profile, const int sphere, vf rest,
                          const int u) {
    if (bias && profile == FNA_GAUSSIAN) {
        biased_gaussian(x, bias, it, sphere, rest, u);
        return;
    }
    if (bias && !sphere) EACH x[i] = vmax(x[i], all(it.least));
    if (low) {
        vf finer[MAX_U];
        if (profile == FNA_STUDENT)
            EACH finer[i] = load(low + i * VL);
        else
            EACH x[i] = root_parts(x[i], load(low + i * VL), finer + i);
        scaled_log2_1p(x, finer, -it.exponent, rest, u);
    } else {
        log2_kernel(x, it, profile, sphere, rest, u);
    }
    if (bias) EACH x[i] += load(bias + i * VL);
}

INLINE vf weigh_vectors(const float *s, const float *low, const float *bias, float *p, const int32_t *lanes, law it,
                        const int profile, const int sphere, vf rest, const int u) {
    vf x[MAX_U], sum = all(0.0f);
    EACH x[i] = load(s + i * VL);
    kernel_logits(x, low, bias, it, profile, sphere, rest, u);
    if (bias) EACH x[i] = vmin(x[i], all(CEILING));
    exp2_bounded(x, u);
    EACH {
        if (lanes) x[i] = keep((vi)load((const float *)(lanes + i * VL)), x[i]);
        sum += x[i];
        store(p + i * VL, x[i]);
    }
    return sum;
}

#define WEIGH(u)                                                                                       \
    for (; j + u * VL <= cols; j += u * VL)                                                            \
    sum += weigh_vectors(s + j, low ? low + j : NULL, bias ? bias + j : NULL, p + j, lanes ? lanes + j : NULL, it, \
                         profile, sphere, rest, u)

/* Computes the weights p from the squared distances s, or s + low if `low` is not NULL (power law or Student on R^d, in
 * units of kappa^2), and the bias, if it is not NULL; p may be s. Returns the sum of the weights, lane by lane. */
INLINE vf weigh(const float *s, const float *low, const float *bias, float *p, int64_t cols, const int32_t *lanes, law it,
                const int profile, const int sphere, float reference) {
    vf sum = all(0.0f), rest = all(-reference);
    int64_t j = 0;
#if defined(__AVX512F__)
    WEIGH(6);
#endif
    WEIGH(3);
    WEIGH(2);
    WEIGH(1);
    return sum;
}

#undef WEIGH

#endif
