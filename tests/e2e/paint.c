/* SPDX-License-Identifier: Apache-2.0 */
/* How deep the stack of an emitted model gets. Linked with model.c, whose weights are read-only
 * data or in the file of argv[1]: a thread with a painted stack calls model_init and model_run, or
 * of one that trains a step and what saves it, on
 * inputs of zeros and of any bytes, and what was painted over is counted.
 *
 * prints: the bytes of the stack that model_init took, and those of model_run */
#define _GNU_SOURCE
#include "model.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STACK_BYTES = 4 << 20, KEPT_BYTES = 64, RUNS = 3, PAINT = 0xa5 };

struct job {
    unsigned char *stack;
    void *arena;
    struct ul_weights_source weights;
    const void *inputs[MODEL_INPUT_COUNT + 1];
    void *outputs[MODEL_OUTPUT_COUNT + 1];
    size_t init_bytes, run_bytes;
    int result;
};

static int read_weights(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    FILE *file = context;
    return fseek(file, (long)offset_bytes, SEEK_SET) != 0 ||
           fread(target, 1, (size_t)size_bytes, file) != size_bytes;
}

/* Paints all below this frame. */
static void __attribute__((noinline)) paint(struct job *job)
{
    volatile unsigned char *here = __builtin_frame_address(0);
    for (here -= KEPT_BYTES; here-- != job->stack;)
        *here = PAINT; /* by no call, whose frame would be in the way */
}

/* How much of the stack below `top` was used: from the first byte that is no longer as painted. */
static size_t __attribute__((noinline)) taken(const struct job *job, const unsigned char *top)
{
    const unsigned char *at = job->stack;
    while (*at == PAINT)
        at++;
    return (size_t)(top - at);
}

static void fill_inputs(struct job *job, int run)
{
    for (int i = 0; i < MODEL_INPUT_COUNT; i++) {
        unsigned char *bytes = (unsigned char *)(uintptr_t)job->inputs[i];
        for (uint64_t k = 0; k < model_model.inputs[i].size_bytes; k++)
            bytes[k] = run == 0 ? 0 : (unsigned char)(rand() >> 4);
    }
}

#ifdef MODEL_CHECKPOINT_BYTES
static int write_nowhere(void *context, uint64_t offset_bytes, const void *bytes,
                         uint64_t size_bytes)
{
    (void)context, (void)offset_bytes, (void)bytes, (void)size_bytes;
    return 0;
}

static void run_model(struct job *job)
{
    struct ul_trainer trainer;
    model_train_init(&trainer);
    (void)model_train_step(job->arena, &trainer, job->inputs, job->outputs, NULL);
    (void)model_save(job->arena, &trainer, write_nowhere, NULL, NULL);
}
#else
static void run_model(struct job *job)
{
    (void)model_run(job->arena, job->inputs, job->outputs, NULL); /* or a fault in the data */
}
#endif

static void *work(void *context)
{
    struct job *job = context;
    unsigned char *top = __builtin_frame_address(0);
    paint(job);
    job->result = model_init(job->arena, MODEL_ARENA_BYTES,
                             job->weights.context != NULL ? &job->weights : NULL, NULL);
    job->init_bytes = taken(job, top);
    paint(job);
    for (int run = 0; run < RUNS && job->result == UL_OK; run++) {
        fill_inputs(job, run);
        run_model(job);
    }
    job->run_bytes = taken(job, top);
    return NULL;
}

/* Zeros, aligned to a page. */
static void *block(uint64_t bytes)
{
    void *memory = mmap(NULL, (size_t)bytes + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv)
{
    static struct job job;
    pthread_attr_t attributes;
    pthread_t thread;
    job.stack = block(STACK_BYTES);
    job.arena = block(MODEL_ARENA_BYTES);
    for (int i = 0; i < MODEL_INPUT_COUNT; i++)
        job.inputs[i] = block(model_model.inputs[i].size_bytes);
    for (int i = 0; i < MODEL_OUTPUT_COUNT; i++)
        job.outputs[i] = block(model_model.outputs[i].size_bytes);
    if (argc > 1) {
        FILE *file = fopen(argv[1], "rb");
        if (file == NULL || fseek(file, 0, SEEK_END) != 0)
            return 1;
        job.weights.size_bytes = (uint64_t)ftell(file);
        job.weights.read = read_weights;
        job.weights.context = file;
    }
    if (pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstack(&attributes, job.stack, STACK_BYTES) != 0 ||
        pthread_create(&thread, &attributes, work, &job) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    if (job.result != UL_OK)
        return job.result;
    printf("%zu %zu\n", job.init_bytes, job.run_bytes);
    return 0;
}
