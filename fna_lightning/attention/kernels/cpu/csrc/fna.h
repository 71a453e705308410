/* The interface between Python (ctypes) and C. Keep it equal to the structures in ../library.py. */
#ifndef FNA_H
#define FNA_H

#include <stdint.h>

#define FNA_ABI 7

/* The kernel as a function of the distance, see radial.h; Student is for R^d only. The dot product is for decoding only. */
enum { FNA_POWER, FNA_GAUSSIAN, FNA_STUDENT, FNA_DOT };

/* A (batch, head, row, column) tensor with its strides; the last axis is contiguous. */
typedef struct {
    float *data;
    int64_t batch, head, row;
} fna_tensor;

typedef struct {
    const uint8_t *data; /* NULL: every key is allowed; else nonzero where a key is allowed */
    int64_t batch, head, row, col;
} fna_mask;

typedef struct {
    const float *data; /* NULL: nothing is added to the logits; -inf masks out a key */
    int64_t batch, head, row, col;
} fna_bias;

typedef struct {
    int64_t batches, heads, key_heads, n, m, d, dv; /* heads is a multiple of key_heads */
    fna_tensor q, k, v, out, grad_out, grad_q, grad_k, grad_v;
    fna_mask mask;
    fna_bias bias;
    fna_tensor grad_bias;  /* zeros, to which the gradient is added; data NULL: not wanted */
    float *stats;          /* (batches, heads, n, 2): reference of a row, 1 / sum of its weights */
    const float *kappa;    /* (heads) */
    const float *exponent; /* (heads); not used by the Gaussian */
    double *grad_kappa;    /* (batches, heads), or NULL */
    double *grad_exponent; /* (batches, heads), or NULL */
    int64_t offset;        /* position of the first query among the keys */
    uint64_t seed;
    float dropout;
    int32_t profile, sphere, causal, exclude_self, threads;
} fna_args;

typedef struct {
    const float *in;
    float *out;
    int64_t count;
    uint64_t seed;
    float dropout;
    int32_t threads;
} fna_dropout_args;

typedef struct {
    const float *in;
    const float *grad; /* NULL: the value; else the derivative times this */
    float *out;
    int64_t count;
    int32_t threads;
} fna_gelu_args;

/* One query per sequence on R^d. */
typedef struct {
    int64_t batches, heads, key_heads, m, d, dv;
    fna_tensor q, k, v, out; /* (batch, head, row): a row is a key or a value; q and out have one */
    int64_t shared;          /* so many sequences in a row have the same keys and values, which are stored once */
    const int32_t *slots;    /* (m, batches): batch index of each key and value of a sequence; NULL: its own */
    const int32_t *counts;   /* (batches / shared): number of keys that are allowed, the first ones; NULL: all m */
    const float *kappa;      /* (heads); the factor of a dot product */
    const float *exponent;   /* (heads); power law and Student only */
    int32_t profile, threads;
} fna_decode_args;

typedef struct {
    const float *in; /* (rows, size) with the stride `row` */
    int64_t rows, size, row;
    float *log_sums; /* (rows): logarithm of the sum of exponentials */
    float *maxima;   /* (rows, size / 64): of whole blocks of 64 numbers */
    int32_t threads;
} fna_scores_args;

typedef struct {
    const float *in, *maxima; /* as above */
    int64_t rows, size, row, count;
    float *values;   /* (rows, count): the largest numbers of each row, in descending order */
    int64_t *places; /* (rows, count): where they are */
    int32_t threads;
} fna_largest_args;

/* All functions return 0, or 1 if they are out of memory. */
typedef struct {
    int (*forward)(const fna_args *);
    int (*backward)(const fna_args *);
    int (*dropout)(const fna_dropout_args *);
    int (*gelu)(const fna_gelu_args *);
    int (*decode)(const fna_decode_args *);
    int (*scores)(const fna_scores_args *);
    int (*largest)(const fna_largest_args *);
} fna_kernels;

extern const fna_kernels fna_avx512, fna_avx2, fna_baseline;

/* Calls work(context) once in each of `threads` threads. */
void fna_parallel(void (*work)(void *), void *context, int threads);

#endif
