/* Which keys of a block a row sees: one lane mask out of padding, causality, self-exclusion and the end of the keys. */
#ifndef FNA_VISIBLE_H
#define FNA_VISIBLE_H

#include "head.h"

enum { NONE, SOME, EVERY };

typedef struct {
    int32_t *lanes; /* (BQ, BK), or (BK) if it is the same for every row */
    int per_row;
} visible;

/* Returns the end of the keys that any of the queries i0 .. i0 + count sees. */
INLINE int64_t last_key(const fna_args *a, int64_t i0, int64_t count) {
    if (!a->causal) return a->m;
    int64_t end = i0 + count + a->offset;
    return end < 0 ? 0 : at_most(end, a->m);
}

/* Without a mask: the first `end` keys of the block but for one `hidden`. */
static int fill_plainly(int64_t end, int64_t hidden, int64_t cols, int32_t *lanes) {
    vi place = (vi)lane_numbers();
    for (int64_t j = 0; j < cols; j += VL) store((float *)(lanes + j), as_floats((vi)(place < (int32_t)(end - j))));
    int hides = hidden >= 0 && hidden < end;
    if (hides) lanes[hidden] = 0;
    return end == hides ? NONE : end - hides == cols ? EVERY : SOME;
}

static int fill(const fna_args *a, const head *it, int64_t i, int64_t j0, int64_t cols, int32_t *lanes) {
    int64_t real = at_most(cols, a->m - j0), diagonal = i + a->offset - j0, hidden = a->exclude_self ? diagonal : -1;
    int64_t end = !a->causal ? real : diagonal < 0 ? 0 : at_most(diagonal + 1, real);
    const uint8_t *mask = a->mask.data;
    if (!mask) return fill_plainly(end, hidden, cols, lanes);
    mask += it->b * a->mask.batch + it->h * a->mask.head + i * a->mask.row + j0 * a->mask.col;
    if (a->mask.col == 1)
        for (int64_t j = 0; j < end; j++) lanes[j] = -(int32_t)(mask[j] != 0);
    else
        for (int64_t j = 0; j < end; j++) lanes[j] = -(int32_t)(mask[j * a->mask.col] != 0);
    for (int64_t j = end; j < cols; j++) lanes[j] = 0;
    if (hidden >= 0 && hidden < cols) lanes[hidden] = 0;
    int64_t seen = 0;
    for (int64_t j = 0; j < cols; j++) seen -= lanes[j];
    return seen == 0 ? NONE : seen == cols ? EVERY : SOME;
}

/* Hides the keys of a block that are not finite from `lanes`, and corrects `sees`; returns the kinds of keys in sight. */
static int hide_not_finite(const head *it, int64_t j0, int64_t cols, int32_t *lanes, int *sees) {
    int met = 0;
    int64_t seen = 0;
    for (int64_t j = 0; j < cols; j++) {
        if (!lanes[j]) continue;
        met |= it->kinds[j0 + j];
        if (it->kinds[j0 + j] != FINITE) lanes[j] = 0;
        seen -= lanes[j];
    }
    *sees = seen == 0 ? NONE : seen == cols ? EVERY : SOME;
    return met;
}

/* What the queries i0 .. i0 + count see of a block; if that differs from row to row, `per_row` is set. */
INLINE int look(const fna_args *a, const head *it, int64_t i0, int64_t count, int64_t j0, int64_t cols, visible *seen) {
    int64_t first = i0 + a->offset, last = first + count - 1;
    int crossed = (a->causal && j0 + cols - 1 > first) || (a->exclude_self && first < j0 + cols && last >= j0);
    seen->per_row = crossed || (a->mask.data && a->mask.row != 0);
    if (seen->per_row) return SOME;
    if (it->all_finite && !a->mask.data && j0 + cols <= a->m) return EVERY;
    return fill(a, it, i0, j0, cols, seen->lanes);
}

#endif
