/* Threads without a second OpenMP runtime.
 *
 * PyTorch has already loaded a runtime, whose threads spin for a while after each parallel region; a second pool would
 * compete with them for the cores. The loaded runtime therefore runs this work too. Where there is none, or in a forked
 * child (whose copy of the pool has no threads and would wait forever), threads are created for the call and joined. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "fna.h"

/* Tiny gradients times tiny weights are denormal, which takes a CPU 40 times as long. They are too small to change any sum in
 * float32, so they are flushed to 0 during the work; the setting of the caller is restored afterwards. */
#if defined(__x86_64__)
#define FLUSH_AND_ZERO 0x8040u
static unsigned flush_denormals(void) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH_AND_ZERO);
    return before;
}
static void restore_denormals(unsigned before) { _mm_setcsr(before); }
#elif defined(__aarch64__)
#define FLUSH_TO_ZERO (1ull << 24)
static unsigned long long flush_denormals(void) {
    unsigned long long before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | FLUSH_TO_ZERO));
    return before;
}
static void restore_denormals(unsigned long long before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#else
static unsigned flush_denormals(void) { return 0; }
static void restore_denormals(unsigned before) { (void)before; }
#endif

typedef void (*gomp_parallel)(void (*)(void *), void *, unsigned, unsigned);

static gomp_parallel shared_pool;
static int forked;

static void in_child(void) { forked = 1; }

__attribute__((constructor)) static void find_pool(void) {
    /* a function pointer from a void pointer, in the form that POSIX requires */
    *(void **)(&shared_pool) = dlsym(RTLD_DEFAULT, "GOMP_parallel");
    pthread_atfork(NULL, NULL, in_child);
}

typedef struct {
    void (*work)(void *);
    void *context;
} job;

static void run(void *pointer) {
    job *it = pointer;
    __auto_type before = flush_denormals();
    it->work(it->context);
    restore_denormals(before);
}

static void *run_in_thread(void *pointer) {
    run(pointer);
    return NULL;
}

void fna_parallel(void (*work)(void *), void *context, int threads) {
    job it = {work, context};
    if (threads <= 1) {
        run(&it);
        return;
    }
    if (shared_pool && !forked) {
        shared_pool(run, &it, (unsigned)threads, 0);
        return;
    }
    pthread_t *helpers = malloc(sizeof(pthread_t) * (size_t)(threads - 1));
    int started = 0;
    while (helpers && started < threads - 1 && !pthread_create(&helpers[started], NULL, run_in_thread, &it)) started++;
    run(&it);
    for (int i = 0; i < started; i++) pthread_join(helpers[i], NULL);
    free(helpers);
}
