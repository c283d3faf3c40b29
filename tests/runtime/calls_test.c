/* SPDX-License-Identifier: Apache-2.0 */
/* The library form of a model of library calls (calls/): results against plain loops, arenas on
   threads of their own, set-up and end again and again. Its weights are in argv[1]. */
#define _POSIX_C_SOURCE 200809L

#include "calls/model.h"

#include "test.h"
#include "ul_run.h"
#include "ul_winograd.h"

#include <malloc.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77, THREADS = 3, ROUNDS = 20 };

static unsigned char file[32768];
static size_t file_bytes;

static enum ul_result set_up(unsigned char **arena)
{
    struct ul_weights_source source = {.size_bytes = file_bytes, .memory = file};
    struct ul_failure failure;
    void *block = NULL;
    if (posix_memalign(&block, MODEL_ARENA_ALIGN, MODEL_ARENA_BYTES) != 0)
        abort();
    memset(block, 0xa5, MODEL_ARENA_BYTES);
    *arena = block;
    return (enum ul_result)model_init(block, MODEL_ARENA_BYTES, &source, &failure);
}

static void fill(float *x, int seed)
{
    for (int i = 0; i < 1024; i++)
        x[i] = (float)((i * 37 + seed * 11) % 101) / 50.0f - 1.0f;
}

/* relu(x * w + b) at [o, y, x]. */
static float conv(const float *x, const float *w, int o, int row, int column)
{
    float sum = w[32 * 16 * 9 + o];
    for (int c = 0; c < 16; c++)
        for (int tap = 0; tap < 9; tap++) {
            int i = row + tap / 3 - 1, j = column + tap % 3 - 1;
            if (i >= 0 && i < 8 && j >= 0 && j < 8)
                sum += x[c * 64 + i * 8 + j] * w[(o * 16 + c) * 9 + tap];
        }
    return sum > 0.0f ? sum : 0.0f;
}

static float want(const float *x, const float *w, int o)
{
    float sum = 0.0f;
    for (int row = 0; row < 8; row += 2)
        for (int column = 0; column < 8; column += 2) {
            for (int tap = 0; tap < 4; tap++)
                sum += conv(x, w, o, row + tap / 2, column + tap % 2) / 4.0f;
        }
    return sum / 16.0f;
}

static int run_and_compare(unsigned char *arena, int seed)
{
    static const float *weights = (const float *)(const void *)file;
    float x[1024], y[32];
    int wrong = 0;
    fill(x, seed);
    if (model_run(arena, (const void *[]){x}, (void *[]){y}, NULL) != UL_OK)
        return 1;
    for (int o = 0; o < 32; o++)
        wrong += !(fabsf(y[o] - want(x, weights, o)) < 1e-4f);
    return wrong;
}

/* One thread: an arena of its own. */
static void *work(void *context)
{
    unsigned char *arena;
    int *wrong = context;
    *wrong = set_up(&arena) != UL_OK;
    for (int i = 0; i < ROUNDS && *wrong == 0; i++)
        *wrong = run_and_compare(arena, i);
    if (*wrong == 0)
        model_done(arena);
    free(arena);
    return NULL;
}

static void check_threads(void)
{
    pthread_t threads[THREADS];
    int wrong[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &wrong[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(wrong[i] == 0);
    }
}

/* Set-up and end again and again keep nothing: the library's cache finds its size in the first
   rounds. What the allocator keeps of freed blocks for each thread counts as in use, and grows with
   the threads of some OpenMP libraries: CMakeLists.txt switches that off. */
static void check_again(void)
{
    size_t settled = 0;
    for (int i = 0; i < 5 * ROUNDS; i++) {
        unsigned char *arena;
        file[0] ^= 1; /* found after the library was made ready */
        CHECK(set_up(&arena) == UL_WEIGHTS_WRONG_HASH);
        free(arena);
        file[0] ^= 1;
        CHECK(set_up(&arena) == UL_OK);
        CHECK(run_and_compare(arena, i) == 0);
        model_done(arena);
        model_done(arena); /* nothing more to give back */
        free(arena);
        if (i == 2 * ROUNDS)
            settled = mallinfo2().uordblks;
    }
    CHECK(mallinfo2().uordblks <= settled + 1024); /* 60 rounds */
}

static void meet_fault(unsigned char *arena, struct ul_run *run)
{
    (void)arena;
    run->fault = UL_FAULT_INDEX;
}

/* After a set-up that failed, at once or late, a run says so and there is nothing to give back. */
static void check_after_failure(void)
{
    struct ul_weights_source none = {0};
    struct ul_failure failure;
    float x[1024] = {0}, y[32];
    void *block = NULL;
    if (posix_memalign(&block, MODEL_ARENA_ALIGN, MODEL_ARENA_BYTES) != 0)
        abort();
    memset(block, 0xa5, MODEL_ARENA_BYTES);
    for (int i = 0; i < 2; i++) {
        CHECK(model_init(block, MODEL_ARENA_BYTES, &none, &failure) == UL_WEIGHTS_MISSING);
        CHECK(model_run(block, (const void *[]){x}, (void *[]){y}, &failure) == UL_NOT_READY);
        CHECK(failure.result == UL_NOT_READY && ul_result_text(UL_NOT_READY) != NULL);
        model_done(block);
        CHECK(model_run(block, (const void *[]){x}, (void *[]){y}, NULL) == UL_NOT_READY);
        CHECK(model_init(block, 1, &none, NULL) == UL_ARENA_TOO_SMALL);
    }
    struct ul_weights_source source = {.size_bytes = file_bytes, .memory = file};
    struct ul_model model = model_model;
    const struct ul_entry entries[] = {{"set_up", meet_fault, NULL, NULL, 0, 0, 0, 0},
                                       model_model.entries[UL_ENTRY_RUN]};
    model.entries = entries;
    CHECK(ul_run_init(&model, block, MODEL_ARENA_BYTES, &source, &failure) == UL_DATA_FAULT);
    CHECK(model_run(block, (const void *[]){x}, (void *[]){y}, NULL) == UL_NOT_READY);
    free(block);
}

/* In a parallel region a run has one thread: what was made ready for two reports that, and what was
   made ready there runs. */
static void check_region(void)
{
    unsigned char *outside, *inside = NULL;
    struct ul_failure failure = {0};
    float x[1024] = {0}, y[32];
    int result = UL_OK, wrong = 1;
    CHECK(set_up(&outside) == UL_OK);
#pragma omp parallel num_threads(2)
    {
#pragma omp single
        {
            result = model_run(outside, (const void *[]){x}, (void *[]){y}, &failure);
            if (set_up(&inside) == UL_OK)
                wrong = run_and_compare(inside, 5);
        }
    }
    CHECK(result == UL_THREADS_MISSING);
    CHECK(failure.needed_bytes == 2 && failure.available_bytes == 1);
    CHECK(wrong == 0);
    CHECK(run_and_compare(outside, 6) == 0);
    CHECK(run_and_compare(inside, 7) == 0);
    model_done(outside);
    model_done(inside);
    free(outside);
    free(inside);
}

/* There are few tiles, planned for two threads: V is made by all of them together. */
static const struct ul_call few_tiles = {
    .kind = UL_CALL_CONVOLUTION,
    .src = {4, {1, 16, 4, 4}, {256, 1, 64, 16}, UL_CALL_F32},
    .weights = {4, {16, 16, 3, 3}, {144, 9, 3, 1}, UL_CALL_F32},
    .dst = {4, {1, 16, 4, 4}, {256, 1, 64, 16}, UL_CALL_F32},
    .group_count = 1,
    .steps = {1, 1},
    .dilations = {1, 1},
    .pads = {1, 1, 1, 1},
};
enum { FLOATS = 256, SCRATCH = 32768 };

static void run_few_tiles(float *y)
{
    static const float *weights = (const float *)(const void *)file; /* any numbers */
    float x[1024];
    void *scratch = NULL;
    fill(x, 3);
    if (posix_memalign(&scratch, 64, SCRATCH) != 0)
        abort();
    ul_winograd_run(&few_tiles, (const void *const[]){x, weights, NULL, y}, scratch, 2, 1);
    free(scratch);
}

/* Threads of a region have runs of their own, and not all the same number: a run of one thread
   waits for no other. */
static void check_winograd_in_region(void)
{
    struct ul_winograd cut;
    float want[FLOATS], got[2][FLOATS] = {{0}};
    ul_winograd_tiling(&cut, &few_tiles, 2);
    CHECK(cut.shared && cut.scratch_bytes <= SCRATCH && cut.packed_bytes <= sizeof file);
    run_few_tiles(want);
#pragma omp parallel num_threads(2)
    {
        int thread = omp_get_thread_num();
        for (int i = 0; i <= thread; i++)
            run_few_tiles(got[thread]);
    }
    CHECK(memcmp(got[1], want, sizeof want) == 0 || omp_get_thread_limit() < 2);
    CHECK(memcmp(got[0], want, sizeof want) == 0);
}

int main(int argc, char **argv)
{
    FILE *in = argc > 1 ? fopen(argv[1], "rb") : NULL;
    unsigned char *arena;
    if (in == NULL)
        return 1;
    file_bytes = fread(file, 1, sizeof file, in);
    fclose(in);
    check_winograd_in_region();
    enum ul_result result = set_up(&arena);
    if (result == UL_LIBRARY_UNSUPPORTED) {
        printf("made for AVX-512\n");
        free(arena);
        return SKIPPED;
    }
    CHECK(result == UL_OK);
    if (result == UL_OK) {
        CHECK(run_and_compare(arena, 1) == 0);
        model_done(arena);
        check_again();
        check_after_failure();
        if (omp_get_max_threads() > 1 && omp_get_thread_limit() > 1)
            check_region();
        check_threads();
    }
    free(arena);
    return TEST_RESULT();
}
