/* SPDX-License-Identifier: Apache-2.0 */
/* Runs an emitted model as a library with every allocation function of libc taken over. Linked with
 * model.c; its weights are in argv[1]. While model_run is at work, on any thread,
 *      without argv[2]  a call fails the test;
 *      with it          (a library that keeps books) so does a block of more bytes than that, any
 *                       mapping, and a run that leaves more or less behind than it found.
 *
 * glibc: the real functions have __libc_ names; mmap and mremap go to the kernel directly. */
#define _GNU_SOURCE
#include "model.h"

#include <errno.h>
#include <malloc.h>
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
void __libc_free(void *block);

enum { RUNS = 4 };

/* Threads of the model come here too: all but the limit is accessed atomically. */
static size_t max_bytes; /* of one block */
static int running;
static unsigned calls, bad_calls;
static long long left_bytes; /* by one run */
static size_t bad_bytes;
static const char *bad_function;

static void *note(const char *function, void *block, size_t size)
{
    if (!__atomic_load_n(&running, __ATOMIC_SEQ_CST))
        return block;
    __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
    if (size > max_bytes && __atomic_fetch_add(&bad_calls, 1, __ATOMIC_SEQ_CST) == 0) {
        bad_function = function;
        bad_bytes = size;
    }
    __atomic_fetch_add(&left_bytes, (long long)malloc_usable_size(block), __ATOMIC_SEQ_CST);
    return block;
}

static void forget(void *block)
{
    if (__atomic_load_n(&running, __ATOMIC_SEQ_CST) && block != NULL)
        __atomic_fetch_sub(&left_bytes, (long long)malloc_usable_size(block), __ATOMIC_SEQ_CST);
}

/* A block of no bytes is a block: without a limit every call is bad. */
static size_t at_least_one(size_t size)
{
    return size == 0 ? 1 : size;
}

void *malloc(size_t size)
{
    return note("malloc", __libc_malloc(size), at_least_one(size));
}

void *calloc(size_t count, size_t size)
{
    return note("calloc", __libc_calloc(count, size), at_least_one(count * size));
}

void *realloc(void *old, size_t size)
{
    forget(old);
    return note("realloc", __libc_realloc(old, size), at_least_one(size));
}

void free(void *block)
{
    forget(block);
    __libc_free(block);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return note("aligned_alloc", __libc_memalign(alignment, size), at_least_one(size));
}

void *memalign(size_t alignment, size_t size)
{
    return note("memalign", __libc_memalign(alignment, size), at_least_one(size));
}

int posix_memalign(void **result, size_t alignment, size_t size)
{
    *result = note("posix_memalign", __libc_memalign(alignment, size), at_least_one(size));
    return *result == NULL ? ENOMEM : 0;
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset)
{
    note("mmap", NULL, SIZE_MAX);
    return (void *)syscall(SYS_mmap, address, length, protection, flags, file, offset);
}

void *mremap(void *old, size_t old_size, size_t new_size, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    void *address = (flags & MREMAP_FIXED) != 0 ? va_arg(args, void *) : NULL;
    va_end(args);
    note("mremap", NULL, SIZE_MAX);
    return (void *)syscall(SYS_mremap, old, old_size, new_size, flags, address);
}

static int read_file(void *context, uint64_t offset, void *target, uint64_t size)
{
    FILE *file = context;
    return fseek(file, (long)offset, SEEK_SET) == 0 && fread(target, 1, size, file) == size ? 0 : 1;
}

/* Small positive numbers of the right type: valid as data and, mostly, as indexes. */
static void fill(unsigned char *place, const struct ul_rt_tensor *tensor)
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
static const void **callers(const struct ul_rt_tensor *tensors, uint32_t count)
{
    const void **buffers = calloc(count + 1, sizeof *buffers);
    for (uint32_t i = 0; i < count; i++)
        buffers[i] = tensors[i].space == UL_SPACE_ARENA ? NULL : malloc(tensors[i].size_bytes);
    return buffers;
}

/* One run with the allocators watched; 0 when it kept what is promised. */
static int run(unsigned char *arena, const void **inputs, void **outputs, int round)
{
    struct ul_failure failure;
    for (uint32_t i = 0; i < model_model.input_count; i++)
        fill(inputs[i] != NULL ? (unsigned char *)inputs[i]
                               : arena + model_model.inputs[i].offset_bytes,
             &model_model.inputs[i]);
    __atomic_store_n(&left_bytes, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&running, 1, __ATOMIC_SEQ_CST);
    int status = model_run(arena, inputs, outputs, &failure);
    __atomic_store_n(&running, 0, __ATOMIC_SEQ_CST);
    if (status != 0 && status != UL_DATA_FAULT)
        fprintf(stderr, "run failed: %s\n", ul_result_text((enum ul_result)status));
    if (bad_calls != 0)
        fprintf(stderr, "run %d: %u allocations, the first by %s of %zu bytes\n", round, bad_calls,
                bad_function, bad_bytes);
    if (left_bytes != 0)
        fprintf(stderr, "run %d: left %lld bytes behind\n", round, left_bytes);
    return (status != 0 && status != UL_DATA_FAULT) || bad_calls != 0 || left_bytes != 0;
}

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        return 5;
    max_bytes = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 0;
    struct ul_weights_source weights = {
        .size_bytes = (uint64_t)ftell(file), .read = read_file, .context = file};
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
    int bad = 0;
    for (int round = 1; round <= RUNS && !bad; round++)
        bad = run(arena, inputs, outputs, round);
    if (!bad)
        printf("%u small blocks in %d runs, all given back\n", calls, RUNS);
    return bad;
}
