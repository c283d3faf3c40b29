/* Runs an emitted model as a library with every allocation function of libc taken over: a call
 * while model_run is at work fails the test. Linked with model.c; its weights are in argv[1].
 *
 * glibc: the real functions have __libc_ names; mmap and mremap go to the kernel directly. */
#define _GNU_SOURCE
#include "model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static volatile int running;
static volatile unsigned calls;
static const char *volatile first_call;

static void note(const char *function)
{
    if (!running)
        return;
    if (calls++ == 0)
        first_call = function;
}

void *malloc(size_t size)
{
    note("malloc");
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    note("calloc");
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    note("realloc");
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    note("aligned_alloc");
    return __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size)
{
    note("memalign");
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    note("posix_memalign");
    *result = __libc_memalign(alignment, size);
    return *result == NULL ? ENOMEM : 0;
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset)
{
    note("mmap");
    return (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    void *address = (flags & MREMAP_FIXED) != 0 ? va_arg(args, void *) : NULL;
    va_end(args);
    note("mremap");
    return (void *)syscall(SYS_mremap, old, old_size, new_size, flags, address);
}

static int read_file(void *context, uint64_t offset, void *target, uint64_t size)
{
    FILE *file = context;
    return fseek(file, (long)offset, SEEK_SET) == 0 && fread(target, 1, size, file) == size ? 0 : 1;
}

/* Small positive numbers of the right type: valid as data and, mostly, as indexes. */
static void fill(unsigned char *place, const struct ul_tensor *tensor)
{
    memset(place, 0, tensor->size_bytes);
    if (tensor->type == UL_TYPE_F32) {
        for (uint64_t i = 0; i < tensor->size_bytes / sizeof(float); i++) {
            float value = (float)(i % 7) * 0.25f;
            memcpy(place + i * sizeof value, &value, sizeof value);
        }
    }
}

/* Buffers for what lives with the caller (--io caller); NULL for what lives in the arena. */
static const void **callers(const struct ul_tensor *tensors, uint32_t count)
{
    const void **buffers = calloc(count + 1, sizeof *buffers);
    for (uint32_t i = 0; i < count; i++)
        buffers[i] = tensors[i].space == UL_SPACE_ARENA ? NULL : malloc(tensors[i].size_bytes);
    return buffers;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        return 5;
    struct ul_weights_source weights = {(uint64_t)ftell(file), NULL, read_file, file};
    unsigned char *arena =
        aligned_alloc(MODEL_ARENA_ALIGN, MODEL_ARENA_BYTES + (-MODEL_ARENA_BYTES & 4095));
    struct ul_failure failure;
    int status = model_init(arena, MODEL_ARENA_BYTES, &weights, &failure);
    if (arena == NULL || status != 0) {
        fprintf(stderr, "init failed: %s\n", ul_result_text((enum ul_result)status));
        return 1;
    }
    const void **inputs = callers(model_model.inputs, model_model.input_count);
    void **outputs = (void **)callers(model_model.outputs, model_model.output_count);
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < model_model.input_count; i++)
            fill(inputs[i] != NULL ? (unsigned char *)inputs[i]
                                   : arena + model_model.inputs[i].offset_bytes,
                 &model_model.inputs[i]);
        running = 1;
        status = model_run(arena, inputs, outputs, &failure);
        running = 0;
        if (status != 0 && status != UL_DATA_FAULT)
            return 1;
    }
    if (calls != 0)
        fprintf(stderr, "%u allocations while running, the first by %s\n", calls, first_call);
    return calls == 0 ? 0 : 1;
}
