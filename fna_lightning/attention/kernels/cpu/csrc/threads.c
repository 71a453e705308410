/* Threads without an OpenMP runtime of our own.
 *
 * PyTorch has loaded one already, and its threads spin for a while after each parallel region; a second pool would fight
 * them for the cores. So the loaded runtime is asked to run our work too. Where there is none, or in a forked child
 * (whose copy of the pool has no threads and would wait for ever), threads are made for the call and joined. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "fna.h"

/* Tiny gradients times tiny weights are denormal, and a processor takes 40 times as long for each: while we work they
 * are 0, as far below float32's digits of any sum as they are. The caller's own setting comes back afterwards. */
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
    /* a function pointer out of a void pointer, as POSIX asks for it */
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
