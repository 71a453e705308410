/* The kernel as a function of the squared distance, in the base-2 logarithm, with vectors of pairs.
 *
 *     power law   log2 C = -m log2(1 + r / kappa)
 *     Gaussian    log2 C = -(r / kappa)^2 log2(e)
 *
 * r is sqrt(s), or on the unit sphere the angle of the chord sqrt(s). A negative s on the sphere means: -s is the squared
 * chord to the antipode, where s itself would have lost its digits. */
#ifndef FNA_RADIAL_H
#define FNA_RADIAL_H

#include "vec.h"

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f
/* below every distance two different floats of ordinary size can have, above what a square root turns into 0 */
#define TINY 1e-30f
/* 2^-100 is nothing beside the row's reference weight 1, and no product of it is a slow denormal */
#define FLOOR -100.0f

typedef struct {
    int gaussian, sphere;
    float kappa, per_kappa, exponent;
} law;

/* log2(1 + z) as e + log2(1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1]; relative error of the polynomial 3e-8. */
INLINE vf log2_1p_mantissa(vf f) {
    vf p = 0.125837234f * f - 0.207270084f;
    p = p * f + 0.215715681f;
    p = p * f - 0.238944781f;
    p = p * f + 0.287916237f;
    p = p * f - 0.360703684f;
    p = p * f + 0.480910643f;
    p = p * f - 0.721347347f;
    p = p * f + 1.44269500f;
    return p * f;
}

/* factor * log2(1 + z) + rest; each part is multiplied before the sum, which keeps the digits of a small logarithm. */
INLINE vf scaled_log2_1p(vf z, float factor, vf rest) {
    vi e = (bits(z + 1.0f) - 0x3f3504f3) & (int32_t)0xff800000;
    vf shrink = as_floats(0x3f800000 - e); /* 2^-e */
    vf f = z * shrink + (shrink - 1.0f);   /* z is not rounded to 1 + z first */
    return log2_1p_mantissa(f) * factor + (to_floats(e) * (factor * 0x1p-23f) + rest);
}

/* 2^x for FLOOR <= x < 127, relative error 1e-7. */
INLINE vf exp2_bounded(vf x) {
    x = vmax(x, all(FLOOR));
    vf shifted = x + 12582912.0f; /* 1.5 * 2^23: the integer part is now in the last bits */
    vf f = x - (shifted - 12582912.0f);
    vf p = 0.0013276472f * f + 0.00967554148f;
    p = p * f + 0.0555071327f;
    p = p * f + 0.240221197f;
    p = p * f + 0.693146967f;
    p = p * f + 1.00000007f;
    return as_floats(bits(p) + (bits(shifted) << 23));
}

/* asin(c / 2) / (c / 2) at s = c^2 in [0, 2], relative error 2e-9. */
INLINE vf arc_per_chord(vf s) {
    vf p = 1.95884155e-06f * s - 8.83668801e-06f;
    p = p * s + 2.79659265e-05f;
    p = p * s - 9.78420143e-06f;
    p = p * s + 0.000142617237f;
    p = p * s + 0.000687564036f;
    p = p * s + 0.00468956043f;
    p = p * s + 0.041666504f;
    return p * s + 1.0f;
}

/* The distance, and what the chord rule needs to be differentiated: d distance = (q - k) dq / slope. */
INLINE vf distance(vf s, const int sphere, vf *slope) {
    if (!sphere) return *slope = vsqrt(vmax(s, all(TINY)));
    vi far = (vi)((s < 0.0f) | (s > 2.0f));
    vf near = vmax(vmin(choose((vi)(s < 0.0f), -s, s), 4.0f - s), all(TINY));
    vf chord = vsqrt(near);
    vf angle = chord * arc_per_chord(near);
    *slope = chord * vsqrt(1.0f - 0.25f * near); /* the sine of the angle */
    return choose(far, 3.14159265f - angle, angle);
}

/* log2 C + rest at the squared distance s, whose distance is r. */
INLINE vf log2_kernel(vf s, vf r, law it, const int gaussian, const int sphere, vf rest) {
    if (!gaussian) return scaled_log2_1p(r * it.per_kappa, -it.exponent, rest);
    vf squared = sphere ? r * r : vmax(s, all(0.0f));
    return squared * (it.per_kappa * it.per_kappa * -LOG2_E) + rest;
}

#endif
