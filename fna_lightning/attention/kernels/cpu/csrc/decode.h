/* One query per sequence against its cached keys, as in decoding: nothing is packed, each key and value is read once.
 *
 * The keys of a sequence may lie in other rows of the cache: hypotheses of a beam search share their past, and `slots` says in
 * which row each of their tokens is. */
#ifndef FNA_DECODE_H
#define FNA_DECODE_H

#include <float.h>

#include "radial.h"

/* Keys per block: their squared distances or products stay in the first-level cache. A multiple of VL. */
#define KEYS 256
/* Keys whose sums are computed together, which hides the latency of the additions. */
#define TOGETHER 4
/* Keys and values are fetched this many rows before they are needed. */
#define AHEAD 12
/* Vectors of an output that are kept in registers. */
#define COLUMNS 4
/* Sequences that a thread takes at a time. */
#define SEQUENCES 8
/* Numbers in the keys and values of a sequence up to which they are fetched while the one before it is computed. */
#define FETCHED (1 << 13)

typedef struct {
    const fna_decode_args *args;
    int64_t taken;
} decode_queue;

/* The query and the cache of one sequence and head. */
typedef struct {
    const fna_decode_args *args;
    const float *q, *k, *v;
    float *out;
    int64_t b, m; /* index of the sequence; number of its keys */
    law law;
} decode_row;

INLINE int64_t slot(const decode_row *it, int64_t j) {
    const fna_decode_args *a = it->args;
    return a->slots ? a->slots[j * a->batches + it->b] : it->b / a->shared;
}
INLINE const float *key_at(const decode_row *it, int64_t j) {
    return it->k + j * it->args->k.row + slot(it, j) * it->args->k.batch;
}
INLINE const float *value_at(const decode_row *it, int64_t j) {
    return it->v + j * it->args->v.row + slot(it, j) * it->args->v.batch;
}

INLINE void fetch(const float *row, int64_t width) {
    for (int64_t c = 0; c < width; c += 16) __builtin_prefetch(row + c);
}

INLINE vf term(vf q, vf k, const int dot) {
    if (dot) return q * k;
    vf gap = q - k;
    return gap * gap;
}
INLINE float scalar_term(float q, float k, const int dot) { return dot ? q * k : (q - k) * (q - k); }

/* s = the products of the query with the keys j0 .. j0 + count, or their squared distances. */
INLINE void compare(const decode_row *it, int64_t j0, int64_t count, float *s, const int dot) {
    const int64_t d = it->args->d;
    for (int64_t j = 0; j < count; j += TOGETHER) {
        const float *k[TOGETHER];
        vf sum[TOGETHER];
        for (int i = 0; i < TOGETHER; i++) {
            k[i] = key_at(it, j0 + (j + i < count ? j + i : j));
            sum[i] = all(0.0f);
        }
        for (int i = 0; i < TOGETHER; i++)
            if (j + i + AHEAD < count) fetch(key_at(it, j0 + j + i + AHEAD), d);
        int64_t c = 0;
        for (; c + VL <= d; c += VL) {
            vf q = load(it->q + c);
            for (int i = 0; i < TOGETHER; i++) sum[i] += term(q, load(k[i] + c), dot);
        }
        for (int i = 0; i < TOGETHER && j + i < count; i++) {
            float rest = 0.0f;
            for (int64_t l = c; l < d; l++) rest += scalar_term(it->q[l], k[i][l], dot);
            s[j + i] = sum_lanes(sum[i]) + rest;
        }
    }
}

/* out += the values of the keys j0 .. j0 + count, times their weights. */
static void add_values(const decode_row *it, int64_t j0, int64_t count, const float *weights, float *out) {
    const int64_t width = it->args->dv;
    int64_t c = 0;
    for (; c + COLUMNS * VL <= width; c += COLUMNS * VL) {
        vf sum[COLUMNS];
        for (int i = 0; i < COLUMNS; i++) sum[i] = load(out + c + i * VL);
        for (int64_t j = 0; j < count; j++) {
            const float *v = value_at(it, j0 + j) + c;
            if (j + AHEAD < count) fetch(value_at(it, j0 + j + AHEAD) + c, COLUMNS * VL);
            for (int i = 0; i < COLUMNS; i++) sum[i] += load(v + i * VL) * weights[j];
        }
        for (int i = 0; i < COLUMNS; i++) store(out + c + i * VL, sum[i]);
    }
    for (; c + 2 * VL <= width; c += 2 * VL) {
        vf even[2] = {load(out + c), load(out + c + VL)}, odd[2] = {all(0.0f), all(0.0f)};
        int64_t j = 0;
        for (; j + 2 <= count; j += 2) {
            const float *v = value_at(it, j0 + j) + c, *next = value_at(it, j0 + j + 1) + c;
            for (int i = 0; i < 2; i++) even[i] += load(v + i * VL) * weights[j];
            for (int i = 0; i < 2; i++) odd[i] += load(next + i * VL) * weights[j + 1];
        }
        if (j < count)
            for (int i = 0; i < 2; i++) even[i] += load(value_at(it, j0 + j) + c + i * VL) * weights[j];
        for (int i = 0; i < 2; i++) store(out + c + i * VL, even[i] + odd[i]);
    }
    for (; c + VL <= width; c += VL) {
        vf even = load(out + c), odd = all(0.0f);
        int64_t j = 0;
        for (; j + 2 <= count; j += 2) {
            even += load(value_at(it, j0 + j) + c) * weights[j];
            odd += load(value_at(it, j0 + j + 1) + c) * weights[j + 1];
        }
        if (j < count) even += load(value_at(it, j0 + j) + c) * weights[j];
        store(out + c, even + odd);
    }
    for (; c < width; c++)
        for (int64_t j = 0; j < count; j++) out[c] += weights[j] * value_at(it, j0 + j)[c];
}

/* Turns whole vectors of products or squared distances into what the weights are computed from, and returns the one with the
 * largest weight, or NaN if a number is not finite. */
INLINE float prepare(float *s, int64_t count, float factor, const int dot) {
    vf best = all(dot ? -FLT_MAX : FLT_MAX), check = all(0.0f);
    for (int64_t j = 0; j < count; j += VL) {
        vf x = load(s + j);
        check += x * 0.0f;
        x = dot ? x * factor : x + TINY;
        best = dot ? vmax(best, x) : vmin(best, x);
        store(s + j, x);
    }
    if (!(sum_lanes(check) == 0.0f)) return NAN;
    return dot ? -min_lane(-best) : min_lane(best);
}

/* The logarithm of the kernel in double, with the rules of IEEE for numbers that are not finite. */
static double plain_logit(const decode_row *it, float s, int profile) {
    double r = sqrt((double)s) / it->law.kappa;
    if (profile == FNA_DOT) return (double)s * it->law.kappa;
    if (profile == FNA_GAUSSIAN) return -r * r;
    return -(double)it->law.exponent * log1p(profile == FNA_STUDENT ? r * r : r);
}

/* One row with tokens that are not finite, in double: slow, and as the formula says. */
static void decode_plainly(const decode_row *it, int profile) {
    const fna_decode_args *a = it->args;
    double largest = -INFINITY, sum = 0.0;
    float s;
    for (int64_t j = 0; j < it->m; j++) {
        if (profile == FNA_DOT) compare(it, j, 1, &s, 1);
        else compare(it, j, 1, &s, 0);
        double logit = plain_logit(it, s, profile);
        if (!(logit <= largest)) largest = logit; /* NaN stays */
        if (largest != largest) break;
    }
    for (int64_t c = 0; c < a->dv; c++) it->out[c] = 0.0f;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t j = 0; j < it->m; j++) {
            if (profile == FNA_DOT) compare(it, j, 1, &s, 1);
            else compare(it, j, 1, &s, 0);
            double weight = exp(plain_logit(it, s, profile) - largest);
            if (pass == 0) {
                sum += weight;
                continue;
            }
            const float *v = value_at(it, j);
            for (int64_t c = 0; c < a->dv; c++) it->out[c] += (float)(weight / sum) * v[c];
        }
}

INLINE void decode_one(const decode_row *it, const int profile) {
    const fna_decode_args *a = it->args;
    float s[KEYS], reference = 0.0f;
    vf sums = all(0.0f);
    const vi lanes = (vi)lane_numbers();
    memset(it->out, 0, sizeof(float) * (size_t)a->dv);
    if (!it->m) return;
    for (int64_t j0 = 0; j0 < it->m; j0 += KEYS) {
        int64_t count = it->m - j0 < KEYS ? it->m - j0 : KEYS;
        compare(it, j0, count, s, profile == FNA_DOT);
        for (int64_t j = count; j % VL; j++) s[j] = s[0];
        /* the closest key is the reference: logits are then at most 0 */
        float best = prepare(s, count, it->law.kappa * LOG2_E, profile == FNA_DOT);
        if (best != best) {
            decode_plainly(it, profile);
            return;
        }
        float moved = profile == FNA_DOT ? best : reference_at(all(best), it->law, profile, 0)[0];
        int closer = j0 == 0 || (profile == FNA_GAUSSIAN ? moved < reference : moved > reference);
        if (closer) {
            if (j0) {
                float factor = profile == FNA_DOT ? exp2f(reference - moved)
                                                  : moved_factor(reference, moved, it->law, profile, 0);
                sums *= factor;
                scale_row(it->out, it->out, factor, a->dv);
            }
            reference = moved;
        }
        for (int64_t j = 0; j < count; j += VL) {
            vf x[1] = {load(s + j)};
            if (profile == FNA_DOT) x[0] -= reference;
            else log2_kernel(x, it->law, profile, 0, all(-reference), 1);
            exp2_bounded(x, 1);
            if (count - j < VL) x[0] = keep((vi)(lanes < (int32_t)(count - j)), x[0]);
            sums += x[0];
            store(s + j, x[0]);
        }
        add_values(it, j0, count, s, it->out);
    }
    scale_row(it->out, it->out, 1.0f / sum_lanes(sums), a->dv);
}

/* Returns the number of keys of a sequence. */
INLINE int64_t keys_of(const fna_decode_args *a, int64_t row) {
    int64_t count = a->counts ? a->counts[row / a->shared] : a->m;
    return count < 0 ? 0 : count < a->m ? count : a->m;
}

/* Fetches the keys and values of a sequence. Short ones lie all over the memory, so the processor cannot foresee them. */
INLINE void fetch_sequence(const fna_decode_args *a, int64_t row) {
    int64_t m = keys_of(a, row);
    if (m * a->key_heads * (a->d + a->dv) > FETCHED) return;
    for (int64_t head = 0; head < a->key_heads; head++) {
        decode_row it = {.args = a, .k = a->k.data + head * a->k.head, .v = a->v.data + head * a->v.head, .b = row, .m = m};
        for (int64_t j = 0; j < m; j++) {
            fetch(key_at(&it, j), a->d);
            fetch(value_at(&it, j), a->dv);
        }
    }
}

static void decode_heads(const fna_decode_args *a, int64_t row, int64_t first, int64_t end) {
    for (int64_t h = first; h < end; h++) {
        int64_t key_head = h / (a->heads / a->key_heads);
        float kappa = a->kappa[h];
        decode_row it = {a, a->q.data + row * a->q.batch + h * a->q.head, a->k.data + key_head * a->k.head,
                         a->v.data + key_head * a->v.head, a->out.data + row * a->out.batch + h * a->out.head,
                         row, keys_of(a, row), {kappa, 1.0f / kappa, 0.0f, 1.0f, 0.0f, 0.0f}};
        if (a->profile != FNA_DOT) {
            it.law.exponent = a->exponent[h];
            it.law.scale = fmaxf(1.0f / (kappa * kappa), 10.0f * SMALLEST);
        }
        if (a->profile == FNA_DOT) decode_one(&it, FNA_DOT);
        else if (a->profile == FNA_POWER) decode_one(&it, FNA_POWER);
        else if (a->profile == FNA_GAUSSIAN) decode_one(&it, FNA_GAUSSIAN);
        else decode_one(&it, FNA_STUDENT);
    }
}

static void decode_rows(void *context) {
    decode_queue *work = context;
    const fna_decode_args *a = work->args;
    /* The heads of a sequence share lines of the cache, so one thread computes them, unless there are few sequences. */
    int64_t parts = a->batches >= a->threads ? 1 : a->heads, part = a->heads / parts;
    int64_t chunk = a->batches >= 4 * SEQUENCES * a->threads ? SEQUENCES : 1;
    for (;;) {
        int64_t start = __atomic_fetch_add(&work->taken, chunk, __ATOMIC_RELAXED);
        if (start >= a->batches * parts) return;
        int64_t end = start + chunk < a->batches * parts ? start + chunk : a->batches * parts;
        for (int64_t i = start; i < end; i++) {
            int64_t row = i / parts, first = i % parts * part, next = (i + 1) / parts;
            if (i + 1 < end && (a->slots ? next != row : next / a->shared != row / a->shared)) fetch_sequence(a, next);
            decode_heads(a, row, first, first + part);
        }
    }
}

static int decode(const fna_decode_args *a) {
    decode_queue work = {a, 0};
    fna_parallel(decode_rows, &work, a->threads);
    return 0;
}

#endif
