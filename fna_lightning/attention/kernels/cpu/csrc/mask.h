/* The keys of a block that a row may attend to: one lane mask that combines the mask tensor, causality, self-exclusion and
 * the end of the keys. */
#ifndef FNA_MASK_H
#define FNA_MASK_H

#include "head.h"

/* Coverage: how many keys of a block are allowed. */
enum { NONE, SOME, EVERY };

typedef struct {
    int32_t *lanes; /* -1 where a key is allowed, else 0: (BQ, BK), or (BK) if all rows are the same */
    int per_row;
} lane_mask;

/* Returns the end of the keys that any of the queries i0 .. i0 + count may attend to. */
INLINE int64_t last_key(const fna_args *a, int64_t i0, int64_t count) {
    if (!a->causal) return a->m;
    int64_t end = i0 + count + a->offset;
    return end < 0 ? 0 : at_most(end, a->m);
}

/* Fills `lanes` where there is no mask tensor: the first `end` keys of the block without the key `excluded`; returns the
 * coverage. */
static int fill_mask_without_tensor(int64_t end, int64_t excluded, int64_t cols, int32_t *lanes) {
    vi place = (vi)lane_numbers();
    for (int64_t j = 0; j < cols; j += VL) store((float *)(lanes + j), as_floats((vi)(place < (int32_t)(end - j))));
    int excludes = excluded >= 0 && excluded < end;
    if (excludes) lanes[excluded] = 0;
    return end == excludes ? NONE : end - excludes == cols ? EVERY : SOME;
}

/* Fills `lanes` for the row i and the block at j0; returns the coverage. */
static int fill_mask(const fna_args *a, const head *it, int64_t i, int64_t j0, int64_t cols, int32_t *lanes) {
    int64_t real = at_most(cols, a->m - j0), diagonal = i + a->offset - j0, excluded = a->exclude_self ? diagonal : -1;
    int64_t end = !a->causal ? real : diagonal < 0 ? 0 : at_most(diagonal + 1, real);
    const uint8_t *mask = a->mask.data;
    if (!mask) return fill_mask_without_tensor(end, excluded, cols, lanes);
    mask += it->b * a->mask.batch + it->h * a->mask.head + i * a->mask.row + j0 * a->mask.col;
    if (a->mask.col == 1)
        for (int64_t j = 0; j < end; j++) lanes[j] = -(int32_t)(mask[j] != 0);
    else
        for (int64_t j = 0; j < end; j++) lanes[j] = -(int32_t)(mask[j * a->mask.col] != 0);
    for (int64_t j = end; j < cols; j++) lanes[j] = 0;
    if (excluded >= 0 && excluded < cols) lanes[excluded] = 0;
    int64_t allowed = 0;
    for (int64_t j = 0; j < cols; j++) allowed -= lanes[j];
    return allowed == 0 ? NONE : allowed == cols ? EVERY : SOME;
}

/* Removes the keys that are not finite from `lanes` and corrects `coverage`; returns the finiteness of the keys that were
 * allowed, joined by "or". */
static int mask_not_finite(const head *it, int64_t j0, int64_t cols, int32_t *lanes, int *coverage) {
    int attended = 0;
    int64_t allowed = 0;
    for (int64_t j = 0; j < cols; j++) {
        if (!lanes[j]) continue;
        attended |= it->finiteness[j0 + j];
        if (it->finiteness[j0 + j] != FINITE) lanes[j] = 0;
        allowed -= lanes[j];
    }
    *coverage = allowed == 0 ? NONE : allowed == cols ? EVERY : SOME;
    return attended;
}

/* Returns the coverage of a block for the queries i0 .. i0 + count and fills the mask; if the rows differ, sets `per_row`
 * instead, and each row fills its own. */
INLINE int mask_block(const fna_args *a, const head *it, int64_t i0, int64_t count, int64_t j0, int64_t cols, lane_mask *mask) {
    int64_t first = i0 + a->offset, last = first + count - 1;
    int crossed = (a->causal && j0 + cols - 1 > first) || (a->exclude_self && first < j0 + cols && last >= j0);
    mask->per_row = crossed || (a->mask.data && a->mask.row != 0);
    if (mask->per_row) return SOME;
    if (a->bias.data) {
        /* the bias may mask out other keys in each row */
        mask->per_row = 1;
        return a->mask.data && fill_mask(a, it, i0, j0, cols, mask->lanes) == NONE ? NONE : SOME;
    }
    if (it->all_finite && !a->mask.data && j0 + cols <= a->m) return EVERY;
    return fill_mask(a, it, i0, j0, cols, mask->lanes);
}

#endif
