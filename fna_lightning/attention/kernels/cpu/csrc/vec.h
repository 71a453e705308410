/* A vector of floats, as wide as the instruction set this file is compiled for.
 *
 * Arithmetic uses the vector extensions of GCC and Clang; intrinsics are only used where these have no operator. */
#ifndef FNA_VEC_H
#define FNA_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define VL 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define VL 8
#else
#define VL 4
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef double vd __attribute__((vector_size(8 * VL)));
typedef float vf_loose __attribute__((vector_size(4 * VL), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *p) { return *(const vf_loose *)p; }
INLINE void store(float *p, vf v) { *(vf_loose *)p = v; }
INLINE vf all(float x) { return x - (vf){0}; }
INLINE vf as_floats(vi v) { return (vf)v; }
INLINE vf to_floats(vi v) { return __builtin_convertvector(v, vf); }
INLINE vd widen(vf v) { return __builtin_convertvector(v, vd); }
INLINE vf narrow(vd v) { return __builtin_convertvector(v, vf); }
INLINE vu lane_numbers(void) {
    vu lane;
    for (int l = 0; l < VL; l++) lane[l] = (uint32_t)l;
    return lane;
}
INLINE vf keep(vi mask, vf v) { return (vf)(mask & (vi)v); }
INLINE vf choose(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }

#if defined(__AVX512F__)
INLINE vf vmin(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
/* 14 bits and a Newton step: four times as fast as the division unit */
INLINE vf vsqrt(vf a) {
    vf y = (vf)_mm512_rsqrt14_ps((__m512)a), r = a * y;
    return r + (a - r * r) * (0.5f * y);
}
INLINE vf reciprocal(vf a) {
    vf y = (vf)_mm512_rcp14_ps((__m512)a);
    return y + y * (1.0f - a * y);
}
INLINE float sum_lanes(vf v) { return _mm512_reduce_add_ps((__m512)v); }
INLINE float min_lane(vf v) { return _mm512_reduce_min_ps((__m512)v); }
INLINE int any_less(vf a, vf b) { return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ) != 0; }
#elif defined(__AVX2__)
INLINE vf vmin(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vf vmax(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf vsqrt(vf a) { return (vf)_mm256_sqrt_ps((__m256)a); }
INLINE int any_less(vf a, vf b) { return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_LT_OQ)) != 0; }
#else
INLINE vf vmin(vf a, vf b) { return choose((vi)(a < b), a, b); }
INLINE vf vmax(vf a, vf b) { return choose((vi)(a > b), a, b); }
#if defined(__SSE2__)
INLINE vf vsqrt(vf a) { return (vf)_mm_sqrt_ps((__m128)a); }
INLINE int any_less(vf a, vf b) { return _mm_movemask_ps(_mm_cmplt_ps((__m128)a, (__m128)b)) != 0; }
#else
INLINE vf vsqrt(vf a) {
    for (int i = 0; i < VL; i++) a[i] = sqrtf(a[i]);
    return a;
}
INLINE int any_less(vf a, vf b) {
    vi less = (vi)(a < b);
    int any = 0;
    for (int i = 0; i < VL; i++) any |= less[i];
    return any != 0;
}
#endif
#endif

/* Returns a - r * r without rounding error: with a fused instruction, or with r in two halves. */
INLINE vf left_of(vf a, vf r) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return a - r * r;
#else
    vf c = r * 4097.0f, high = c - (c - r), low = r - high;
    return ((a - high * high) - 2.0f * high * low) - low * low;
#endif
}
/* Returns the first part of the square root of a + low and writes the second part to `rest`. */
INLINE vf root_parts(vf a, vf low, vf *rest) {
#if defined(__AVX512F__)
    vf half = 0.5f * (vf)_mm512_rsqrt14_ps((__m512)a), r = a * (2.0f * half);
#else
    vf r = vsqrt(a), half = 0.5f / r;
#endif
    *rest = (left_of(a, r) + low) * half;
    return r;
}

#if !defined(__AVX512F__)
INLINE vf reciprocal(vf a) { return 1.0f / a; }
INLINE float sum_lanes(vf v) {
    float x = 0;
    for (int i = 0; i < VL; i++) x += v[i];
    return x;
}
INLINE float min_lane(vf v) {
    float x = v[0];
    for (int i = 1; i < VL; i++) x = v[i] < x ? v[i] : x;
    return x;
}
#endif

/* Rows of any width, vector by vector; explicit because the compiler cannot know that they do not overlap. */
#define ROW(width, vector, scalar)                          \
    do {                                                    \
        int64_t c = 0;                                      \
        for (; c + VL <= (width); c += VL) store(to + c, vector); \
        for (; c < (width); c++) to[c] = scalar;            \
    } while (0)

INLINE void add_row(float *to, const float *x, int64_t width) { ROW(width, load(to + c) + load(x + c), to[c] + x[c]); }
INLINE void copy_row(float *to, const float *x, int64_t width) { ROW(width, load(x + c), x[c]); }
INLINE void scale_row(float *to, const float *x, float by, int64_t width) { ROW(width, load(x + c) * by, x[c] * by); }
INLINE void shift_row(float *to, const float *x, const float *by, int64_t width) {
    ROW(width, load(x + c) - load(by + c), x[c] - by[c]);
}
/* to = unit * (x * factor - y) */
INLINE void combine_row(float *to, float unit, const float *x, float factor, const float *y, int64_t width) {
    ROW(width, (load(x + c) * factor - load(y + c)) * unit, (x[c] * factor - y[c]) * unit);
}

/* Four lanes, available in every instruction set, for transposing. */
typedef float quad __attribute__((vector_size(16)));
typedef float quad_loose __attribute__((vector_size(16), aligned(4), may_alias));

/* to[c * ld + r] = from[r * row + c] - shift[c] for four rows r and four columns c */
INLINE void transpose_4x4(float *to, int64_t ld, const float *from, int64_t row, quad shift) {
    quad a = *(const quad_loose *)from - shift, b = *(const quad_loose *)(from + row) - shift;
    quad c = *(const quad_loose *)(from + 2 * row) - shift, d = *(const quad_loose *)(from + 3 * row) - shift;
    quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(quad_loose *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(quad_loose *)(to + ld) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(quad_loose *)(to + 2 * ld) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    *(quad_loose *)(to + 3 * ld) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

#endif
