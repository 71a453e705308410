/* The kernel as a function of the squared distance, in the base-2 logarithm, with vectors of pairs.
 *
 *     power law   log2 C = -m log2(1 + r / kappa)
 *     Gaussian    log2 C = -(r / kappa)^2 log2(e)
 *
 * s is at least TINY. On R^d the distance is taken in units of kappa at once, r / kappa = sqrt(s / kappa^2): one rounding less, and the exponent
 * multiplies each of them. On the unit sphere it is the angle of the chord sqrt(s). A negative s on the sphere means: -s is
 * the squared chord to the antipode, where s itself would have lost its digits. */
#ifndef FNA_RADIAL_H
#define FNA_RADIAL_H

#include "gemm.h"

#define LOG2_E 1.44269504f
#define LN_2 0.693147181f
/* 2^-100 is nothing beside the row's reference weight 1, and no product of it is a slow denormal */
#define FLOOR -100.0f
/* more than a reference may lag behind, see forward.h */
#define CEILING 40.0f

typedef struct {
    float kappa, per_kappa, exponent;
    float scale; /* s times this is in units of kappa^2 (1 on the sphere, where an angle is not a length) */
    float zero;  /* a slope up to this is that of two equal tokens */
} law;

/* Everything below works on `u` vectors at once: each step of a polynomial waits for the last one, and the vectors fill
 * the time. */
#define MAX_U 8
#define EACH _Pragma("GCC unroll 8") for (int i = 0; i < u; i++)

/* p = p * f + coefficient */
#define STEP(p, f, coefficient) EACH p[i] = p[i] * f[i] + coefficient

/* z = factor * log2(1 + z + finer) + rest; `finer` may be NULL.
 * log2(1 + z) is e + log2(1 + f) with f in [sqrt(1/2) - 1, sqrt(2) - 1]; relative error of the polynomial 3e-8. Each part is
 * multiplied before the sum, which keeps the digits of a small logarithm. */
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
    /* unsigned: a hidden key, whose weight is thrown away, may be nearer than the reference and leave the range */
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

/* The distance z in units of kappa, and what the chord rule needs to be differentiated: d z = (q - k) dq / slope / kappa^2
 * on R^d, and / slope / kappa on the sphere. */
INLINE vf distance(vf s, law it, const int sphere, vf *slope) {
    if (!sphere) return *slope = vsqrt(s * it.scale);
    vi far = (vi)((s < 0.0f) | (s > 2.0f));
    vf near = vmax(vmin(choose((vi)(s < 0.0f), -s, s), 4.0f - s), all(TINY));
    vf chord = vsqrt(near);
    vf angle = chord * arc_per_chord(near);
    *slope = chord * vsqrt(1.0f - 0.25f * near); /* the sine of the angle */
    return choose(far, 3.14159265f - angle, angle) * it.per_kappa;
}

/* s = log2 C at the squared distance s, less that of a row's reference; `rest` is minus the reference, see `reference_at`. */
INLINE void log2_kernel(vf *s, law it, const int gaussian, const int sphere, vf rest, const int u) {
    vf slope;
    if (!gaussian || sphere) EACH s[i] = distance(s[i], it, sphere, &slope);
    if (!gaussian)
        scaled_log2_1p(s, NULL, -it.exponent, rest, u);
    else
        EACH {
            s[i] = (s[i] + rest) * (sphere ? (s[i] - rest) * -LOG2_E : all(it.scale * -LOG2_E));
            /* an angle of many kappa is rounded by more than exp2_bounded can take */
            if (sphere) s[i] = vmin(s[i], all(CEILING));
        }
}

/* The reference of a row whose nearest key is at the squared distance s: log2 C there. For the Gaussian it is s itself, on
 * the sphere z: the logarithms of keys many kappa away are so large that their difference would be nothing but rounding,
 * so the difference is taken before. */
INLINE vf reference_at(vf s, law it, const int gaussian, const int sphere) {
    vf value[1] = {s}, slope;
    if (gaussian) return sphere ? distance(s, it, sphere, &slope) : s;
    log2_kernel(value, it, gaussian, sphere, all(0.0f), 1);
    return value[0];
}

/* z^2 at a Gaussian's reference. */
INLINE float squared_hops_at(float reference, law it, const int sphere) {
    return sphere ? reference * reference : reference * it.scale;
}

/* What the weights of a row are multiplied by when its reference moves. */
INLINE float moved_factor(float before, float after, law it, const int gaussian, const int sphere) {
    if (!gaussian) return exp2f(before - after);
    return exp2f((after - before) * (sphere ? after + before : it.scale) * LOG2_E);
}

#endif
