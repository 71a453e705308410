/* Threads without an OpenMP runtime of our own.
 *
 * PyTorch has loaded one already, and its threads spin for a while after each parallel region; a second pool would fight
 * them for the cores. So the loaded runtime is asked to run our work too. Where there is none, or in a forked child
 * (whose copy of the pool has no threads and would wait for ever), threads are made for the call and joined. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "fna.h"

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

static void *run_job(void *pointer) {
    job *it = pointer;
    it->work(it->context);
    return NULL;
}

void fna_parallel(void (*work)(void *), void *context, int threads) {
    if (threads <= 1) {
        work(context);
        return;
    }
    if (shared_pool && !forked) {
        shared_pool(work, context, (unsigned)threads, 0);
        return;
    }
    job it = {work, context};
    pthread_t *helpers = malloc(sizeof(pthread_t) * (size_t)(threads - 1));
    int started = 0;
    while (helpers && started < threads - 1 && !pthread_create(&helpers[started], NULL, run_job, &it)) started++;
    work(context);
    for (int i = 0; i < started; i++) pthread_join(helpers[i], NULL);
    free(helpers);
}
