/* Scores of the next token: the logarithm of the sum of the exponentials of each row and the largest number of each block in one
 * pass, and the largest numbers of each row. */
#ifndef FNA_SCORES_H
#define FNA_SCORES_H

#include <float.h>

#include "radial.h"

/* Numbers per block. */
#define SCORE_BLOCK 64
/* Largest numbers of a row that are found together. */
#define MOST_LARGEST 32

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

/* The largest numbers of a row so far, in descending order, and where they are. */
typedef struct {
    float *values;
    int64_t *places;
    int64_t count, capacity;
} ranking;

/* Adds a number, which is in the ranking afterwards if it is larger than its last one or the ranking is not full. */
INLINE void rank_number(ranking *to, float x, int64_t place) {
    if (to->count == to->capacity && !(x > to->values[to->capacity - 1])) return;
    int64_t i = to->count < to->capacity ? to->count++ : to->capacity - 1;
    for (; i > 0 && x > to->values[i - 1]; i--) {
        to->values[i] = to->values[i - 1];
        to->places[i] = to->places[i - 1];
    }
    to->values[i] = x;
    to->places[i] = place;
}

/* The largest numbers of a row lie in the blocks with the largest maxima, and in the rest that is no whole block. */
static void rank_row(const fna_largest_args *a, int64_t row) {
    const float *x = a->in + row * a->row;
    int64_t blocks = a->size / SCORE_BLOCK, places[MOST_LARGEST];
    float values[MOST_LARGEST];
    ranking best_blocks = {values, places, 0, a->count};
    for (int64_t i = 0; i < blocks; i++) rank_number(&best_blocks, a->maxima[row * blocks + i], i);
    ranking best = {a->values + row * a->count, a->places + row * a->count, 0, a->count};
    for (int64_t i = 0; i < best_blocks.count; i++)
        for (int64_t j = places[i] * SCORE_BLOCK; j < (places[i] + 1) * SCORE_BLOCK; j += VL) {
            vf block = load(x + j);
            if (best.count == best.capacity && !any_less(all(best.values[best.capacity - 1]), block)) continue;
            for (int64_t l = 0; l < VL; l++) rank_number(&best, block[l], j + l);
        }
    for (int64_t j = blocks * SCORE_BLOCK; j < a->size; j++) rank_number(&best, x[j], j);
}

typedef struct {
    const fna_largest_args *args;
    int64_t taken;
} largest_queue;

static void rank_rows(void *context) {
    largest_queue *work = context;
    int64_t row;
    while ((row = __atomic_fetch_add(&work->taken, 1, __ATOMIC_RELAXED)) < work->args->rows) rank_row(work->args, row);
}

/* `count` is at most MOST_LARGEST and at most `size`. */
static int largest(const fna_largest_args *a) {
    largest_queue work = {a, 0};
    fna_parallel(rank_rows, &work, a->threads);
    return 0;
}

#endif
