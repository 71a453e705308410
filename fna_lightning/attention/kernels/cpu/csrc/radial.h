/* The base-2 logarithm of the kernel as a function of the squared distance, for vectors of pairs.
 *
 *     power law   log2 C = -m log2(1 + r / kappa)
 *     Gaussian    log2 C = -(r / kappa)^2 log2(e)
 *     Student     log2 C = -m log2(1 + (r / kappa)^2), on R^d only
 *
 * s is at least TINY. On R^d the distance is computed in units of kappa, r / kappa = sqrt(s / kappa^2): that is one rounding
 * less, and the exponent multiplies every rounding error. On the unit sphere it is the angle of the chord sqrt(s). A negative
 * s on the sphere means that -s is the squared chord to the antipode, where s itself would have lost its digits. */
#ifndef FNA_RADIAL_H
#define FNA_RADIAL_H

#include "fna.h"
#include "gemm.h"

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f
/* 2^-100 is negligible beside the reference weight 1 of a row, and its products are not denormal, which would be slow. */
#define FLOOR -100.0f
/* A squared distance in units of a large kappa^2 may be denormal, which is flushed to 0, and `vsqrt` of 0 is NaN. */
#define SMALLEST 1e-37f
/* More than the LAG of forward.h. */
#define CEILING 40.0f

typedef struct {
    float kappa, per_kappa, exponent;
    float scale; /* s times this is in units of kappa^2 (1 on the sphere, where kappa scales the angle) */
    float zero;  /* two tokens with a slope up to this are equal */
    float least; /* an s below this is flushed to 0 in units of kappa^2 */
} law;

/* All functions below work on `u` vectors at once: each step of a polynomial depends on the one before, and the other
 * vectors use the time in between. */
#define MAX_U 8
#define EACH _Pragma("GCC unroll 8") for (int i = 0; i < u; i++)

/* p = p * f + coefficient */
#define STEP(p, f, coefficient) EACH p[i] = p[i] * f[i] + coefficient

/* z = factor * log2(1 + z + finer) + rest; `finer` may be NULL.
 * log2(1 + z) is e + log2(1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1]; the relative error of the polynomial is 3e-8. Each
 * part is multiplied before the sum, which keeps the digits of a small logarithm. */
INLINE void scaled_log2_1p(vf *z, const vf *finer, float factor, vf rest, const int u) {
    vf f[MAX_U], p[MAX_U];
    EACH {
        vi e = (vi)(((vu)(z[i] + 1.0f) - 0x3f3504f3u) & 0xff800000u);
        vf shrink = (vf)(0x3f800000u - (vu)e);    /* 2^-e */
        f[i] = z[i] * shrink + (shrink - 1.0f);   /* z is not rounded to 1 + z first */
        if (finer) f[i] += finer[i] * shrink;
        z[i] = to_floats(e) * (factor * 0x1p-23f) + rest;
    }
    EACH p[i] = 0.125837234f * f[i] - 0.207270084f;
    STEP(p, f, 0.215715681f);
    STEP(p, f, -0.238944781f);
    STEP(p, f, 0.287916237f);
    STEP(p, f, -0.360703684f);
    STEP(p, f, 0.480910643f);
    STEP(p, f, -0.721347347f);
    STEP(p, f, 1.44269500f);
    EACH z[i] = p[i] * f[i] * factor + z[i];
}

/* x = 2^x for x < 127, never less than 2^FLOOR; relative error 1e-7. */
INLINE void exp2_bounded(vf *x, const int u) {
    vf f[MAX_U], p[MAX_U];
    EACH {
        vf bounded = vmax(x[i], all(FLOOR));
        x[i] = bounded + 12582912.0f; /* 1.5 * 2^23: the integer part is now in the last bits */
        f[i] = bounded - (x[i] - 12582912.0f);
    }
    EACH p[i] = 0.0013276472f * f[i] + 0.00967554148f;
    STEP(p, f, 0.0555071327f);
    STEP(p, f, 0.240221197f);
    STEP(p, f, 0.693146967f);
    STEP(p, f, 1.00000007f);
    /* unsigned: a masked key, whose weight is discarded, may be closer than the reference and overflow */
    EACH x[i] = (vf)((vu)p[i] + ((vu)x[i] << 23));
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

/* Returns the distance z in units of kappa, and the slope for its derivative: dz = (q - k) dq / slope / kappa^2 on R^d, and
 * (q - k) dq / slope / kappa on the sphere. */
INLINE vf distance(vf s, law it, const int sphere, vf *slope) {
    if (!sphere) return *slope = vsqrt(s * it.scale);
    vi far = (vi)((s < 0.0f) | (s > 2.0f));
    vf near = vmax(vmin(choose((vi)(s < 0.0f), -s, s), 4.0f - s), all(TINY));
    vf chord = vsqrt(near);
    vf angle = chord * arc_per_chord(near);
    *slope = chord * vsqrt(1.0f - 0.25f * near); /* the sine of the angle */
    return choose(far, 3.14159265f - angle, angle) * it.per_kappa;
}

/* Returns the x of log2 C = -m log2(1 + x): z for the power law, z^2 for Student. */
INLINE vf log_argument(vf s, law it, const int profile, const int sphere, vf *slope) {
    return profile == FNA_STUDENT ? s * it.scale : distance(s, it, sphere, slope);
}

/* s = log2 C at the squared distance s minus the reference of the row; `rest` is -reference, see `reference_at`. */
INLINE void log2_kernel(vf *s, law it, const int profile, const int sphere, vf rest, const int u) {
    vf slope;
    if (profile != FNA_GAUSSIAN || sphere) EACH s[i] = log_argument(s[i], it, profile, sphere, &slope);
    if (profile != FNA_GAUSSIAN)
        scaled_log2_1p(s, NULL, -it.exponent, rest, u);
    else
        EACH {
            s[i] = (s[i] + rest) * (sphere ? (s[i] - rest) * -LOG2_E : all(it.scale * -LOG2_E));
            /* the rounding error of an angle of many kappa would exceed the range of exp2_bounded */
            if (sphere) s[i] = vmin(s[i], all(CEILING));
        }
}

/* Returns the reference of a row whose nearest key is at the squared distance s: log2 C there. For the Gaussian it is s, or
 * z on the sphere: the logarithms of keys many kappa away are so large that their difference would be only rounding error,
 * so the difference is taken before the logarithm. */
INLINE vf reference_at(vf s, law it, const int profile, const int sphere) {
    vf value[1] = {s}, slope;
    if (profile == FNA_GAUSSIAN) return sphere ? distance(s, it, sphere, &slope) : s;
    log2_kernel(value, it, profile, sphere, all(0.0f), 1);
    return value[0];
}

/* Returns z^2 at the reference of a Gaussian. */
INLINE float reference_squared_distance(float reference, law it, const int sphere) {
    return sphere ? reference * reference : reference * it.scale;
}

/* Returns the factor of the weights of a row when its reference moves. */
INLINE float moved_factor(float before, float after, law it, const int profile, const int sphere) {
    if (profile != FNA_GAUSSIAN) return exp2f(before - after);
    return exp2f((after - before) * (sphere ? after + before : it.scale) * LOG2_E);
}

#endif
