/* GELU, x Phi(x) with the exact normal distribution Phi, and its derivative, in one pass. */
#ifndef FNA_GELU_H
#define FNA_GELU_H

#include "elementwise.h"
#include "radial.h"

/* Beyond this number, Phi is 0 or 1 in float32 and the density is 0. */
#define GELU_END 13.0f

/* Returns Phi(x) and writes the density to `density`, each with an error of at most 3e-7. */
INLINE vf normal(vf x, vf *density) {
    vf size = choose((vi)(x < 0.0f), -x, x), bounded = vmin(size, all(GELU_END));
    vf power[1] = {bounded * bounded * (-0.5f * LOG2_E)};
    exp2_bounded(power, 1);
    vf bell = keep((vi)(size < GELU_END), power[0]);
    *density = bell * 0.398942280f;
    /* The tail 1 - Phi(|x|) is the bell times a polynomial in t; fitted with a relative error of 2e-8. */
    vf t = reciprocal(1.0f + 0.212132037f * bounded);
    vf p = -0.0647613996f * t + 0.242781356f;
    p = p * t - 0.256138546f;
    p = p * t + 0.273859466f;
    p = p * t - 0.0473250008f;
    p = p * t + 0.107462883f;
    p = p * t + 0.07416962f;
    p = p * t + 0.085357609f;
    p = p * t + 0.0845940028f;
    vf tail = p * t * bell;
    return choose((vi)(x < 0.0f), tail, 1.0f - tail);
}

INLINE vf gelu_of(vf x) {
    vf density;
    return x * normal(x, &density);
}

INLINE vf gelu_slope(vf x) {
    vf density, share = normal(x, &density);
    return share + x * density;
}

typedef struct {
    const fna_gelu_args *args;
    int64_t taken;
} gelu_queue;

static void gelu_chunks(void *context) {
    gelu_queue *work = context;
    const fna_gelu_args *a = work->args;
    for (;;) {
        int64_t start = __atomic_fetch_add(&work->taken, 1, __ATOMIC_RELAXED) * CHUNK, j = start;
        if (start >= a->count) return;
        int64_t end = a->count - start < CHUNK ? a->count : start + CHUNK;
        if (a->grad) {
            for (; j + VL <= end; j += VL) store(a->out + j, load(a->grad + j) * gelu_slope(load(a->in + j)));
        } else {
            for (; j + VL <= end; j += VL) store(a->out + j, gelu_of(load(a->in + j)));
        }
        if (j == end) continue;
        float rest[VL] = {0};
        for (int64_t l = 0; l < end - j; l++) rest[l] = a->in[j + l];
        vf last = a->grad ? gelu_slope(load(rest)) : gelu_of(load(rest));
        for (int64_t l = 0; l < end - j; l++) a->out[j + l] = a->grad ? a->grad[j + l] * last[l] : last[l];
    }
}

static int gelu(const fna_gelu_args *a) {
    gelu_queue work = {a, 0};
    fna_parallel(gelu_chunks, &work, a->threads);
    return 0;
}

#endif
