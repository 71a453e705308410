/* The logarithm of the sum of the exponentials of each row, and the largest number of each block of a row, in one pass. */
#ifndef FNA_SCORES_H
#define FNA_SCORES_H

#include <float.h>

#include "radial.h"

/* Numbers per block. */
#define SCORE_BLOCK 64

typedef struct {
    const fna_scores_args *args;
    int64_t taken;
} scores_queue;

/* Writes the maxima of the whole blocks of a row and returns the largest number of the row. */
INLINE float block_maxima(const float *x, int64_t size, float *maxima) {
    float largest = -INFINITY;
    int64_t j = 0;
    for (; j + SCORE_BLOCK <= size; j += SCORE_BLOCK) {
        vf most = load(x + j);
        for (int64_t i = VL; i < SCORE_BLOCK; i += VL) most = vmax(most, load(x + j + i));
        float block = -min_lane(-most);
        maxima[j / SCORE_BLOCK] = block;
        largest = fmaxf(largest, block);
    }
    for (; j < size; j++) largest = fmaxf(largest, x[j]);
    return largest;
}

INLINE float log_sum_of(const float *x, int64_t size, float largest) {
    vf sum = all(0.0f), other = all(0.0f);
    vi undefined = {0};
    int64_t j = 0;
    for (; j + 2 * VL <= size; j += 2 * VL) {
        vf y[2] = {(load(x + j) - largest) * LOG2_E, (load(x + j + VL) - largest) * LOG2_E};
        undefined |= (vi)(y[0] != y[0]) | (vi)(y[1] != y[1]);
        exp2_bounded(y, 2);
        sum += y[0];
        other += y[1];
    }
    float total = sum_lanes(sum + other);
    for (; j < size; j++) total += expf(x[j] - largest);
    for (int l = 0; l < VL; l++)
        if (undefined[l]) return NAN; /* a score is NaN, or infinite and the largest */
    return largest + logf(total);
}

static void scan_scores(void *context) {
    scores_queue *work = context;
    const fna_scores_args *a = work->args;
    int64_t blocks = a->size / SCORE_BLOCK, row;
    while ((row = __atomic_fetch_add(&work->taken, 1, __ATOMIC_RELAXED)) < a->rows) {
        const float *x = a->in + row * a->row;
        float largest = block_maxima(x, a->size, a->maxima + row * blocks);
        a->log_sums[row] = log_sum_of(x, a->size, largest);
    }
}

static int scores(const fna_scores_args *a) {
    scores_queue work = {a, 0};
    fna_parallel(scan_scores, &work, a->threads);
    return 0;
}

#endif
