/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer as a library that offloads values to memory of the caller's, or to what the caller
 * makes of it: here to a second array, of which every transfer is done as late as it may be. Prints
 * a line for the checkpoint after some steps; with PLAIN the program offloads nothing.
 */
#include "model.h"
#include "ul_offload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PLAIN
enum { WAITING = 512 };

/* A transfer that was begun and is not done. */
struct late {
    struct ul_offload memory;
    struct ul_transfer waiting[WAITING];
    int count;
};

static void begin(void *context, const struct ul_transfer *transfer)
{
    struct late *late = (struct late *)context;
    if (late->count == WAITING)
        abort();
    late->waiting[late->count++] = *transfer;
}

static int wait_for(void *context, uint64_t number)
{
    struct late *late = (struct late *)context;
    int done = 0;
    for (; done < late->count && late->waiting[done].number <= number; done++)
        late->memory.begin(late->memory.context, &late->waiting[done]);
    memmove(late->waiting, late->waiting + done,
            (size_t)(late->count - done) * sizeof *late->waiting);
    late->count -= done;
    return 0;
}
#endif

static unsigned char *saved;

static int put(void *context, uint64_t offset_bytes, const void *bytes, uint64_t size_bytes)
{
    (void)context;
    memcpy(saved + offset_bytes, bytes, (size_t)size_bytes);
    return 0;
}

static int get(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    (void)context;
    memcpy(target, saved + offset_bytes, (size_t)size_bytes);
    return 0;
}

static void require(int result, int wanted, const char *what)
{
    if (result == wanted)
        return;
    fprintf(stderr, "%s: %s\n", what, ul_result_text((enum ul_result)result));
    exit(1);
}

/* Some steps on samples that are made here. */
static void train(void *arena, struct ul_trainer *trainer, int steps)
{
    const void *inputs[MODEL_INPUT_COUNT] = {NULL};
    void *outputs[MODEL_OUTPUT_COUNT] = {NULL};
    for (int step = 0; step < steps; step++) {
        const struct ul_rt_tensor *data = &model_model.inputs[model_model.training->data];
        const struct ul_rt_tensor *labels = &model_model.inputs[model_model.training->labels];
        float *x = (float *)(void *)((unsigned char *)arena + data->offset_bytes);
        unsigned char *y = (unsigned char *)arena + labels->offset_bytes;
        uint64_t label_bytes = labels->type == UL_TYPE_I64 ? 8 : 4;
        for (uint64_t i = 0; i < data->size_bytes / sizeof *x; i++)
            x[i] = (float)((i * 7 + trainer->step * 3) % 11) / 8.0f;
        memset(y, 0, (size_t)labels->size_bytes); /* little-endian */
        for (uint64_t i = 0; i < labels->size_bytes / label_bytes; i++)
            y[i * label_bytes] = (unsigned char)((i + trainer->step) % 10);
        require(model_train_step(arena, trainer, inputs, outputs, NULL), UL_OK, "step");
    }
}

int main(int argc, char **argv)
{
    struct ul_weights_source weights = {0};
    struct ul_trainer trainer;
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        return 1;
    weights.size_bytes = (uint64_t)ftell(file);
    unsigned char *stored = (unsigned char *)malloc((size_t)weights.size_bytes);
    unsigned char *block = (unsigned char *)malloc(MODEL_ARENA_BYTES + MODEL_ARENA_ALIGN);
    void *arena = block + (MODEL_ARENA_ALIGN - (uintptr_t)block % MODEL_ARENA_ALIGN);
    saved = (unsigned char *)malloc(MODEL_CHECKPOINT_BYTES);
    rewind(file);
    if (fread(stored, 1, (size_t)weights.size_bytes, file) != weights.size_bytes)
        return 1;
    fclose(file);
    weights.memory = stored;
#ifdef PLAIN
    require(model_init(arena, MODEL_ARENA_BYTES, &weights, NULL), UL_OK, "init");
#else
    struct ul_failure failure;
    static struct late late;
    unsigned char *other = (unsigned char *)malloc(MODEL_OFFLOAD_BYTES);
    struct ul_offload offload = {MODEL_OFFLOAD_BYTES, &late, begin, wait_for};
    ul_offload_memory(&late.memory, other, MODEL_OFFLOAD_BYTES - 1);
    require(model_init(arena, MODEL_ARENA_BYTES, NULL, &weights, &failure), UL_OFFLOAD_TOO_SMALL,
            "nothing to offload to");
    require(model_init(arena, MODEL_ARENA_BYTES, &late.memory, &weights, &failure),
            UL_OFFLOAD_TOO_SMALL, "too little");
    if (failure.needed_bytes != MODEL_OFFLOAD_BYTES ||
        failure.available_bytes != MODEL_OFFLOAD_BYTES - 1)
        return 1;
    ul_offload_memory(&late.memory, other, MODEL_OFFLOAD_BYTES);
    require(model_init(arena, MODEL_ARENA_BYTES, &offload, &weights, NULL), UL_OK, "init");
#endif
    model_train_init(&trainer);
    train(arena, &trainer, 3);
    require(model_save(arena, &trainer, put, NULL, NULL), UL_OK, "save");
    train(arena, &trainer, 2);
    require(model_load(arena, &trainer, get, NULL, NULL), UL_OK, "load");
    train(arena, &trainer, 2);
    require(model_save(arena, &trainer, put, NULL, NULL), UL_OK, "save");
    uint64_t sum = 0;
    for (uint64_t i = 0; i < MODEL_CHECKPOINT_BYTES; i++)
        sum = (sum ^ saved[i]) * UINT64_C(1099511628211);
    printf("%llu bytes, %016llx\n", (unsigned long long)MODEL_CHECKPOINT_BYTES,
           (unsigned long long)sum);
    model_done(arena);
    return 0;
}
