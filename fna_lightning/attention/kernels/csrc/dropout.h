/* Attention dropout: whether a weight is kept is a hash of (seed, head, query, key), so the backward pass sees the pattern
 * of the forward pass without storing it, whatever the blocks and threads are. */
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

/* Writes to `factors` what the weights of a row are multiplied by: 0 or 1 / (1 - dropout). */
static void drop_factors(const fna_args *a, int64_t index, int64_t i, int64_t j0, int64_t cols, float *factors) {
    uint64_t key = mix(mix(a->seed ^ mix((uint64_t)index)) + (uint64_t)i);
    uint32_t low = (uint32_t)key, high = (uint32_t)(key >> 32);
    int32_t threshold = (int32_t)(a->dropout * 2147483648.0f);
    float scale = 1.0f / (1.0f - a->dropout);
    vu lane;
    for (int l = 0; l < VL; l++) lane[l] = (uint32_t)l;
    for (int64_t j = 0; j < cols; j += VL) {
        vu x = (lane + (uint32_t)(j0 + j)) * 0x9e3779b1u + low;
        x = (x ^ (x >> 16)) * 0x85ebca6bu;
        x = (x ^ (x >> 13) ^ high) * 0xc2b2ae35u;
        x = (x ^ (x >> 16)) * 0x27d4eb2fu;
        x ^= x >> 15;
        store(factors + j, keep((vi)((vi)(x >> 1) >= threshold), all(scale)));
    }
}

#endif
