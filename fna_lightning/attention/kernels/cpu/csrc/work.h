/* The division of the work: parts of the queries of a head, which the threads take as they become free. */
#ifndef FNA_WORK_H
#define FNA_WORK_H

#include "head.h"

/* The units of the work are query heads in the forward pass and key heads, with their group of query heads, in the backward
 * pass. */
typedef struct {
    const fna_args *args;
    int64_t parts, length, tasks; /* parts per unit, queries per part */
    int64_t first, step;          /* index of the first unit, and difference to the next one */
    int64_t taken;
    int threads, failed;
    /* backward, per task: gradients of keys and values if a unit has several parts; per task and query head: the sums for kappa
     * and the exponent, and the gradients of a bias that is the same for all queries */
    float *partial, *bias_sums;
    double *sums;
} queue;

/* Divides `units` units of work into `spread` parts per thread, which balances the load of masks; each costs memory in the
 * backward pass. */
static queue share(const fna_args *a, int64_t units, int64_t spread) {
    queue work = {.args = a, .step = 1, .threads = a->threads};
    int64_t blocks = up(a->n, BQ) / BQ;
    work.parts = 1;
    if (units % a->threads && units < 8 * a->threads) work.parts = up(spread * a->threads, units) / units;
    /* each part packs its head again, so it must be long enough to be worth that */
    if (work.parts > blocks / 2) work.parts = blocks / 2 > 0 ? blocks / 2 : 1;
    work.length = up(blocks, work.parts) / work.parts * BQ;
    work.tasks = units * work.parts;
    if (work.threads > work.tasks) work.threads = (int)work.tasks;
    return work;
}

/* Takes the next task, the queries first .. last of the unit `index`; returns its number, or -1 if there is none. */
static int64_t next(queue *work, int64_t *index, int64_t *first, int64_t *last) {
    int64_t task = __atomic_fetch_add(&work->taken, 1, __ATOMIC_RELAXED);
    if (task >= work->tasks) return -1;
    *index = work->first + work->step * (task / work->parts);
    *first = at_most(task % work->parts * work->length, work->args->n);
    *last = at_most(*first + work->length, work->args->n);
    return task;
}

/* Scratch memory of a thread. It is requested twice: first to add up the sizes, then to hand out the parts. */
typedef struct {
    char *base;
    size_t used;
    void *raw;
} arena;

/* Blocks of queries that are computed together if the keys are too many for the second-level cache: each part of the keys is read
 * from memory once for all of them. */
#define GROUP 8
/* Numbers of keys, values and their gradients that stay in the second-level cache. */
#define CACHED (1 << 17)

/* Returns how many keys are computed before the next block of queries: all of them, or a multiple of BK if a key takes so many
 * numbers that not all keys stay in the cache. */
INLINE int64_t keys_together(const fna_args *a, int64_t numbers) {
    int64_t keys = CACHED / numbers / BK * BK;
    if (keys < BK) keys = BK;
    return a->m <= 4 * keys ? up(a->m, BK) : keys;
}

static float *take(arena *space, int64_t floats) {
    float *at = space->base ? (float *)(space->base + space->used) : NULL;
    space->used += (sizeof(float) * (size_t)floats + 63) / 64 * 64;
    return at;
}

static int reserve(arena *space) {
    space->raw = malloc(space->used + 64);
    space->base = (char *)(((uintptr_t)space->raw + 63) / 64 * 64);
    space->used = 0;
    return space->raw != NULL;
}

static void release(arena *space) { free(space->raw); }

static void head_space(arena *space, const fna_args *a, head *it, int backward) {
    it->keys = up(a->m, VL), it->blocks = up(a->m, BK) / BK;
    it->dp = up(a->d, VL), it->dvp = up(a->dv, VL);
    it->finiteness = (int32_t *)take(space, it->keys);
    it->center = take(space, a->d);
    it->norms = take(space, it->keys);
    it->kt = take(space, it->blocks * a->d * BK);
    if (!backward) {
        it->key_norms = (parts){take(space, it->keys), take(space, it->keys)};
        it->padded = take(space, values_as_they_are(a) ? 0 : a->m * it->dvp);
        return;
    }
    it->rows = take(space, it->keys * it->dp);
    it->vt = take(space, it->blocks * a->dv * BK);
}

#endif
