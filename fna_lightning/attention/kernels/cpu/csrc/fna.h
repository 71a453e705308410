/* What crosses the border between Python (ctypes) and C. Keep in step with the structures in ../cpu_library.py. */
#ifndef FNA_H
#define FNA_H

#include <stdint.h>

#define FNA_ABI 2

/* A (batch, head, row, column) view; the last axis of a float tensor is contiguous. */
typedef struct {
    float *data;
    int64_t batch, head, row;
} fna_tensor;

typedef struct {
    const uint8_t *data; /* NULL: everything is visible */
    int64_t batch, head, row, col;
} fna_mask;

typedef struct {
    int64_t batches, heads, n, m, d, dv;
    fna_tensor q, k, v, out, grad_out, grad_q, grad_k, grad_v;
    fna_mask mask;
    float *stats;          /* (batches, heads, n, 2): the reference of a row, 1 / its sum of weights */
    const float *kappa;    /* (heads) */
    const float *exponent; /* (heads); unread by the Gaussian */
    double *grad_kappa;    /* (batches, heads), or NULL */
    double *grad_exponent; /* (batches, heads), or NULL */
    int64_t offset;        /* place of the first query among the keys */
    uint64_t seed;
    float dropout;
    int32_t gaussian, sphere, causal, exclude_self, threads;
} fna_args;

typedef struct {
    const float *in;
    float *out;
    int64_t count;
    uint64_t seed;
    float dropout;
    int32_t threads;
} fna_dropout_args;

/* All return 0, or 1 if memory ran out. */
typedef struct {
    int (*forward)(const fna_args *);
    int (*backward)(const fna_args *);
    int (*dropout)(const fna_dropout_args *);
} fna_kernels;

extern const fna_kernels fna_avx512, fna_avx2, fna_baseline;

/* Calls work(context) once in each of `threads` threads. */
void fna_parallel(void (*work)(void *), void *context, int threads);

#endif
