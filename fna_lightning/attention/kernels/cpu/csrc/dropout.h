/* Dropout: whether a number is kept is a hash of the seed and its position (for a weight: head, query, key). The backward
 * pass gets the pattern of the forward pass without storing it, and the pattern does not depend on blocks or threads. */
#ifndef FNA_DROPOUT_H
#define FNA_DROPOUT_H

#include "fna.h"
#include "vec.h"

/* SplitMix64 (Steele, Lea, Flood 2014) */
INLINE uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Returns the factors, 0 or `scale`, of the VL numbers at the positions `at`. */
INLINE vf drop_factor(vu at, uint64_t key, int32_t threshold, float scale) {
    vu x = at * 0x9e3779b1u + (uint32_t)key;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13) ^ (uint32_t)(key >> 32)) * 0xc2b2ae35u;
    x = (x ^ (x >> 16)) * 0x27d4eb2fu;
    x ^= x >> 15;
    return keep((vi)((vi)(x >> 1) >= threshold), all(scale));
}

/* A probability just below 1 is rounded to 1 in float32, for which the threshold and the scale are not defined. */
INLINE float drop_share(float dropout) { return dropout < 0x1.fffffep-1f ? dropout : 0x1.fffffep-1f; }
INLINE int32_t drop_threshold(float dropout) { return (int32_t)(drop_share(dropout) * 2147483648.0f); }
INLINE float drop_scale(float dropout) { return 1.0f / (1.0f - drop_share(dropout)); }

/* Writes the factors of the weights of a row to `factors`: 0 or 1 / (1 - dropout). */
static void drop_factors(const fna_args *a, int64_t index, int64_t i, int64_t j0, int64_t cols, float *factors) {
    uint64_t key = mix(mix(a->seed ^ mix((uint64_t)index)) + (uint64_t)i);
    int32_t threshold = drop_threshold(a->dropout);
    float scale = drop_scale(a->dropout);
    vu lane = lane_numbers();
    for (int64_t j = 0; j < cols; j += VL)
        store(factors + j, drop_factor(lane + (uint32_t)(j0 + j), key, threshold, scale));
}

#endif
