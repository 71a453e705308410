/* One library for all CPUs: the first call chooses the widest instruction set that the CPU supports. */
#include <stdlib.h>
#include <string.h>

#include "fna.h"

typedef struct {
    const char *name;
    const fna_kernels *kernels;
} choice;

static int has(const char *name) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!strcmp(name, "avx512")) return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    if (!strcmp(name, "avx2")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return !strcmp(name, "baseline");
}

static const choice choices[] = {
#if defined(__x86_64__)
    {"avx512", &fna_avx512},
    {"avx2", &fna_avx2},
#endif
    {"baseline", &fna_baseline},
};

static const choice *chosen(void) {
    static const choice *it;
    if (it) return it;
    /* tests and bug reports can select a narrower set than the CPU supports */
    const char *wanted = getenv("FNA_CPU_ISA");
    const choice *best = NULL;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        if (!has(choices[i].name)) continue;
        if (!best) best = &choices[i];
        if (wanted && !strcmp(wanted, choices[i].name)) best = &choices[i];
    }
    return it = best;
}

__attribute__((visibility("default"))) int fna_abi(void) { return FNA_ABI; }
__attribute__((visibility("default"))) const char *fna_isa(void) { return chosen()->name; }
__attribute__((visibility("default"))) int fna_forward(const fna_args *args) { return chosen()->kernels->forward(args); }
__attribute__((visibility("default"))) int fna_backward(const fna_args *args) { return chosen()->kernels->backward(args); }
__attribute__((visibility("default"))) int fna_dropout(const fna_dropout_args *args) {
    return chosen()->kernels->dropout(args);
}
__attribute__((visibility("default"))) int fna_gelu(const fna_gelu_args *args) { return chosen()->kernels->gelu(args); }
__attribute__((visibility("default"))) int fna_decode(const fna_decode_args *args) {
    return chosen()->kernels->decode(args);
}
__attribute__((visibility("default"))) int fna_scores(const fna_scores_args *args) {
    return chosen()->kernels->scores(args);
}
__attribute__((visibility("default"))) int fna_largest(const fna_largest_args *args) {
    return chosen()->kernels->largest(args);
}
