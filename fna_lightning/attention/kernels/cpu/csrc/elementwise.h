/* Dropout of the elements of a tensor, in chunks that the threads take as they become free. */
#ifndef FNA_ELEMENTWISE_H
#define FNA_ELEMENTWISE_H

#include "dropout.h"

#define CHUNK 16384

typedef struct {
    const fna_dropout_args *args;
    int64_t taken;
} chunk_queue;

static void drop_chunks(void *context) {
    chunk_queue *work = context;
    const fna_dropout_args *a = work->args;
    int32_t threshold = drop_threshold(a->dropout);
    float scale = drop_scale(a->dropout);
    vu lane = lane_numbers();
    for (;;) {
        int64_t chunk = __atomic_fetch_add(&work->taken, 1, __ATOMIC_RELAXED), start = chunk * CHUNK;
        if (start >= a->count) return;
        int64_t size = a->count - start < CHUNK ? a->count - start : CHUNK, j = 0;
        const float *in = a->in + start;
        float *out = a->out + start;
        uint64_t key = mix(a->seed ^ mix((uint64_t)chunk));
        for (; j + VL <= size; j += VL)
            store(out + j, load(in + j) * drop_factor(lane + (uint32_t)j, key, threshold, scale));
        if (j < size) {
            vf rest = drop_factor(lane + (uint32_t)j, key, threshold, scale);
            for (int l = 0; j + l < size; l++) out[j + l] = in[j + l] * rest[l];
        }
    }
}

static int dropout(const fna_dropout_args *a) {
    chunk_queue work = {a, 0};
    fna_parallel(drop_chunks, &work, a->threads);
    return 0;
}

#endif
