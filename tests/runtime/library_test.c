/* SPDX-License-Identifier: Apache-2.0 */
/* The library form of the tiny model: results, every failure of init and run, weights by memory and
   by callback, inputs in place, threads on arenas of their own, and no allocation at all. */
#define _POSIX_C_SOURCE 200809L

#include "tiny/model.h"

#include "ul_run.h"

#include "test.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Linked with --wrap: every allocation of this program comes through here. */
static int allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    allocations++;
    return __real_realloc(block, size);
}

static unsigned char file[4096];
static size_t file_bytes;

static unsigned char *new_arena(void)
{
    void *arena = NULL;
    if (posix_memalign(&arena, TINY_ARENA_ALIGN, TINY_ARENA_BYTES) != 0)
        abort();
    return arena;
}

static const struct ul_weights_source *by_memory(struct ul_weights_source *source)
{
    memset(source, 0, sizeof *source);
    source->size_bytes = file_bytes;
    source->memory = file;
    return source;
}

static int read_file(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    uint64_t *budget = context;
    if (offset_bytes + size_bytes > file_bytes || (*budget)-- == 0)
        return 1;
    memcpy(target, file + offset_bytes, (size_t)size_bytes);
    return 0;
}

/* h = relu(x W + 0.5), W[k][j] = (k - 3) / 4 + j / 8, in the model's order of additions. */
static void expect(const float *x, const int64_t *pick, float *y, int64_t *label)
{
    for (int i = 0; i < 2; i++) {
        float h[4];
        label[i] = 0;
        for (int j = 0; j < 4; j++) {
            h[j] = 0.5f;
            for (int k = 0; k < 8; k++)
                h[j] += x[i * 8 + k] * ((float)(k - 3) * 0.25f + (float)j * 0.125f);
            h[j] = h[j] > 0.0f ? h[j] : 0.0f;
            label[i] = h[j] > h[label[i]] ? j : label[i];
        }
        for (int j = 0; j < 3; j++)
            y[i * 3 + j] = h[pick[j]];
    }
}

static void make_inputs(float *x, int64_t *pick, unsigned seed)
{
    for (unsigned i = 0; i < 16; i++)
        x[i] = (float)((i * 7 + seed) % 11) * 0.25f - 1.0f;
    for (unsigned i = 0; i < 3; i++)
        pick[i] = (int64_t)((i + seed) % 4);
}

static int run_matches(unsigned char *arena, unsigned seed)
{
    float x[16], y[6], want_y[6];
    int64_t pick[3], label[2], want_label[2];
    const void *inputs[] = {x, pick};
    void *outputs[] = {y, label};
    make_inputs(x, pick, seed);
    expect(x, pick, want_y, want_label);
    return tiny_run(arena, inputs, outputs) == UL_OK && memcmp(y, want_y, sizeof y) == 0 &&
           memcmp(label, want_label, sizeof label) == 0;
}

static void test_run(void)
{
    unsigned char *arena = new_arena();
    struct ul_weights_source source;
    uint64_t budget = 100;
    int before = allocations;
    CHECK(tiny_init(arena, TINY_ARENA_BYTES, by_memory(&source), NULL) == UL_OK);
    for (unsigned seed = 0; seed < 50; seed++)
        CHECK(run_matches(arena, seed));
    memset(&source, 0, sizeof source);
    memset(arena, 0xff, TINY_ARENA_BYTES);
    source.size_bytes = file_bytes;
    source.read = read_file;
    source.context = &budget;
    CHECK(tiny_init(arena, TINY_ARENA_BYTES, &source, NULL) == UL_OK);
    CHECK(run_matches(arena, 3));
    CHECK(allocations == before);
    free(arena);
}

static void test_in_place(void)
{
    unsigned char *arena = new_arena();
    struct ul_weights_source source;
    float x[16], want_y[6];
    int64_t pick[3], want_label[2];
    CHECK(tiny_init(arena, TINY_ARENA_BYTES, by_memory(&source), NULL) == UL_OK);
    make_inputs(x, pick, 5);
    expect(x, pick, want_y, want_label);
    memcpy(arena + TINY_INPUT_X_OFFSET, x, sizeof x);
    memcpy(arena + TINY_INPUT_PICK_OFFSET, pick, sizeof pick);
    CHECK(tiny_run(arena, NULL, NULL) == UL_OK);
    CHECK(memcmp(arena + TINY_OUTPUT_Y_OFFSET, want_y, sizeof want_y) == 0);
    CHECK(memcmp(arena + TINY_OUTPUT_LABEL_OFFSET, want_label, sizeof want_label) == 0);
    free(arena);
}

static void test_arena_failures(void)
{
    unsigned char *arena = new_arena();
    struct ul_weights_source source;
    struct ul_failure failure;
    by_memory(&source);
    CHECK(tiny_init(arena, TINY_ARENA_BYTES - 1, &source, &failure) == UL_ARENA_TOO_SMALL);
    CHECK(failure.needed_bytes == TINY_ARENA_BYTES);
    CHECK(failure.available_bytes == TINY_ARENA_BYTES - 1);
    CHECK(tiny_init(NULL, TINY_ARENA_BYTES, &source, &failure) == UL_ARENA_TOO_SMALL);
    CHECK(tiny_init(arena + 16, TINY_ARENA_BYTES, &source, &failure) == UL_ARENA_MISALIGNED);
    CHECK(failure.needed_bytes == TINY_ARENA_ALIGN && failure.available_bytes == 16);
    CHECK(tiny_init(arena, TINY_ARENA_BYTES, NULL, &failure) == UL_WEIGHTS_MISSING);
    CHECK(failure.needed_bytes == 128);
    free(arena);
}

/* What init says about the weights file with one byte changed. */
static int init_changed(unsigned char *arena, size_t at, unsigned char change)
{
    struct ul_weights_source source;
    file[at] ^= change;
    int result = tiny_init(arena, TINY_ARENA_BYTES, by_memory(&source), NULL);
    file[at] ^= change;
    return result;
}

static void test_weights_failures(void)
{
    unsigned char *arena = new_arena();
    struct ul_weights_source source;
    struct ul_failure failure;
    uint64_t budget = 1;
    for (size_t size = 0; size < file_bytes; size++) { /* every truncation at the front */
        by_memory(&source);
        source.memory = file + (file_bytes - size);
        source.size_bytes = size;
        int result = tiny_init(arena, TINY_ARENA_BYTES, &source, &failure);
        CHECK(result == (size < UL_TRAILER_BYTES ? UL_WEIGHTS_INVALID : UL_WEIGHTS_WRONG_SIZE));
        CHECK(size < UL_TRAILER_BYTES || failure.needed_bytes == 128);
    }
    for (size_t size = 0; size < file_bytes; size++) { /* every truncation at the end */
        by_memory(&source);
        source.size_bytes = size;
        CHECK(tiny_init(arena, TINY_ARENA_BYTES, &source, NULL) == UL_WEIGHTS_INVALID);
    }
    for (size_t at = 0; at < file_bytes; at++)
        CHECK(init_changed(arena, at, 0x10) != UL_OK);
    CHECK(init_changed(arena, 0, 1) == UL_WEIGHTS_WRONG_HASH);
    CHECK(init_changed(arena, file_bytes - 1, 1) == UL_WEIGHTS_WRONG_HASH);
    CHECK(init_changed(arena, 128 + 16, 1) == UL_WEIGHTS_WRONG_SIZE);
    memset(&source, 0, sizeof source);
    source.size_bytes = file_bytes;
    source.read = read_file;
    source.context = &budget;
    CHECK(tiny_init(arena, TINY_ARENA_BYTES, &source, NULL) == UL_WEIGHTS_UNREADABLE);
    free(arena);
}

static void test_fault(void)
{
    unsigned char *arena = new_arena();
    struct ul_weights_source source;
    struct ul_failure failure;
    float x[16], y[6];
    int64_t pick[3] = {0, 4, -5}, clamped[3] = {0, 3, 0}, spare[3], label[2], want_label[2];
    float want_y[6];
    const void *inputs[] = {x, pick};
    void *outputs[] = {y, label};
    CHECK(tiny_init(arena, TINY_ARENA_BYTES, by_memory(&source), NULL) == UL_OK);
    make_inputs(x, spare, 1);
    expect(x, clamped, want_y, want_label);
    CHECK(tiny_run_with(arena, inputs, outputs, &failure) == UL_DATA_FAULT);
    CHECK(failure.step == 2 && failure.node != NULL && strcmp(failure.node, "select") == 0);
    CHECK(failure.fault == UL_FAULT_INDEX && failure.fault_value == 4 && failure.fault_limit == 4);
    CHECK(memcmp(y, want_y, sizeof y) == 0 && memcmp(label, want_label, sizeof label) == 0);
    pick[1] = pick[2] = -4;
    CHECK(tiny_run_with(arena, inputs, outputs, &failure) == UL_OK);
    CHECK(failure.result == UL_OK && failure.node == NULL);
    free(arena);
}

static void *run_many(void *context)
{
    unsigned char *arena = new_arena();
    struct ul_weights_source source;
    uintptr_t good = tiny_init(arena, TINY_ARENA_BYTES, by_memory(&source), NULL) == UL_OK;
    for (unsigned i = 0; i < 2000; i++)
        good &= (uintptr_t)run_matches(arena, i + (unsigned)(uintptr_t)context);
    free(arena);
    return (void *)good;
}

static void test_threads(void)
{
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, run_many, (void *)(i * 3)) == 0);
    for (int i = 0; i < 4; i++) {
        void *good;
        CHECK(pthread_join(threads[i], &good) == 0 && good != NULL);
    }
}

static void test_swap(void)
{
    unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8};
    ul_run_swap(bytes, 8, 4);
    CHECK(memcmp(bytes, "\4\3\2\1\10\7\6\5", 8) == 0);
    ul_run_swap(bytes, 8, 1);
    CHECK(bytes[0] == 4);
}

int main(int argc, char **argv)
{
    FILE *weights = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (weights == NULL)
        return 1;
    file_bytes = fread(file, 1, sizeof file, weights);
    fclose(weights);
    test_run();
    test_in_place();
    test_arena_failures();
    test_weights_failures();
    test_fault();
    test_threads();
    test_swap();
    return TEST_RESULT();
}
