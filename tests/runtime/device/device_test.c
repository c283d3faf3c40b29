/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library form of a model on a device, under tests/cuda_emulation: results, a caller's arena
 * and stream, two contexts on disjoint parts of one allocation, buffers of host and device, every
 * failure of open and run, what is allocated and replayed, and that closing gives all back.
 *
 * usage: UL_EMULATE_DEVICES=2 UL_EMULATE_FREE_BYTES=100000000 UL_EMULATE_LOG=FILE \
 *        device_test WEIGHTS
 */
#define _POSIX_C_SOURCE 200809L

#include "model.h"

#include "../test.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static unsigned char file[512 + BIG_BYTES + UL_TRAILER_BYTES];

struct tensors {
    float x[4];
    int64_t pick[2];
    uint8_t flag;
    float y[2];
    float rows[12];
    int64_t check;
};

static struct ul_weights_source by_memory(void)
{
    struct ul_weights_source source = {0};
    source.size_bytes = sizeof file;
    source.memory = file;
    return source;
}

static void make_inputs(struct tensors *t, unsigned seed)
{
    for (unsigned i = 0; i < 4; i++)
        t->x[i] = (float)((i * 7 + seed) % 11) * 0.25f - 1.0f;
    for (unsigned i = 0; i < 2; i++)
        t->pick[i] = (int64_t)((i + seed) % 4);
    t->flag = seed % 3 == 0;
}

static void expect(struct tensors *t)
{
    float h[4];
    t->check = 2;
    for (uint32_t i = 0; i < BIG_COUNT; i++)
        t->check += (uint32_t)(i * UINT32_C(2654435761));
    for (int i = 0; i < 4; i++)
        h[i] = t->x[i] * (float)(i + 1) + 0.5f;
    for (int i = 0; i < 2; i++)
        t->y[i] = h[t->pick[i]];
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 4; i++)
            t->rows[r * 4 + i] = (t->flag ? -h[i] : h[i]) + (float)r;
}

static int same(const struct tensors *a, const struct tensors *b)
{
    return memcmp(a->y, b->y, sizeof a->y) == 0 && memcmp(a->rows, b->rows, sizeof a->rows) == 0 &&
           a->check == b->check;
}

/* How many lines of the emulation's log begin with a word. */
static int logged(const char *word)
{
    char line[128];
    int count = 0;
    FILE *log = fopen(getenv("UL_EMULATE_LOG"), "r");
    while (log != NULL && fgets(line, sizeof line, log) != NULL)
        count += strncmp(line, word, strlen(word)) == 0;
    if (log != NULL)
        fclose(log);
    return count;
}

static uint64_t free_bytes(void)
{
    size_t free_now = 0, total = 0;
    CHECK(cudaMemGetInfo(&free_now, &total) == cudaSuccess);
    return free_now;
}

#ifdef DEVICE_CALLER

/* Device memory for what is the caller's. */
struct buffers {
    void *x, *y, *rows;
};

static struct buffers new_buffers(void)
{
    struct buffers b = {NULL, NULL, NULL};
    CHECK(cudaMalloc(&b.x, 16) == cudaSuccess && cudaMalloc(&b.y, 8) == cudaSuccess &&
          cudaMalloc(&b.rows, 48) == cudaSuccess);
    return b;
}

static void free_buffers(const struct buffers *b)
{
    (void)cudaFree(b->x);
    (void)cudaFree(b->y);
    (void)cudaFree(b->rows);
}

static int run_with(struct ul_context *context, const struct buffers *b, unsigned seed)
{
    struct tensors t, want;
    memset(&t, 0, sizeof t);
    make_inputs(&t, seed);
    want = t;
    expect(&want);
    const void *inputs[] = {b->x, t.pick, &t.flag};
    void *outputs[] = {b->y, b->rows, &t.check};
    CHECK(cudaMemcpy(b->x, t.x, 16, cudaMemcpyHostToDevice) == cudaSuccess);
    if (model_run(context, inputs, outputs, NULL) != UL_OK)
        return 0;
    CHECK(cudaMemcpy(t.y, b->y, 8, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(cudaMemcpy(t.rows, b->rows, 48, cudaMemcpyDeviceToHost) == cudaSuccess);
    return same(&t, &want);
}

/* The graph is captured after the first run, for its buffers. Five launches have buffers of the
 * caller, and get others whenever these change. Where CUDA refuses, two sets have a graph each, and
 * a third set takes over the older graph. */
static void test_buffers(void)
{
    enum { RUNS = 12, NODES = 5 };
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_failure failure;
    struct ul_device_memory memory;
    struct buffers a = new_buffers(), b = new_buffers(), c = new_buffers();
    const struct buffers *in_turn[RUNS] = {&a, &a, &a, &b, &b, &a, &b, &a, &b, &c, &c, &a};
    int captures = logged("capture"), made = logged("instantiate"), kept = logged("graph_update");
    int changes = logged("set_params");
    int updates = getenv("UL_EMULATE_NO_UPDATE") == NULL;
    int gives = getenv("UL_EMULATE_NO_PARAMS") == NULL;
    CHECK(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_OK);
    CHECK(logged("capture") == captures);
    for (unsigned seed = 0; seed < RUNS; seed++) {
        CHECK(run_with(context, in_turn[seed], seed));
        if (seed == 2)
            CHECK(logged("capture") == captures + 1 && logged("instantiate") == made + 1);
        if (seed == 8 && !gives)
            CHECK(logged("capture") == captures + 3); /* b; a */
    }
    CHECK(logged("capture") == captures + (gives ? 1 : 5));
    CHECK(logged("instantiate") == made + (gives ? 1 : updates ? 2 : 5));
    CHECK(logged("graph_update") == kept + (gives || !updates ? 0 : 3));
    CHECK(logged("set_params") == changes + (gives ? 7 * NODES : 0));
    model_model.device->functions->memory(context, &memory);
    CHECK(memory.free_bytes == memory.ready_free_bytes && memory.replay_count == RUNS - 1);
    CHECK(memory.capture_count == (gives ? 1 : 5) && memory.given_count == (gives ? 7 : 0));
    uint64_t each_bytes = strtoull(getenv("UL_EMULATE_GRAPH_BYTES"), NULL, 0);
    CHECK(memory.graph_bytes == (gives ? 1 : updates ? 5 : 2) * each_bytes);

    struct tensors t;
    make_inputs(&t, 1);
    const void *inputs[] = {t.x, t.pick, &t.flag};
    void *outputs[] = {a.y, a.rows, &t.check};
    CHECK(model_run(context, inputs, outputs, &failure) == UL_INPUT_ELSEWHERE);
    CHECK(failure.tensor == 0);
    inputs[0] = a.x;
    outputs[1] = t.rows;
    CHECK(model_run(context, inputs, outputs, &failure) == UL_OUTPUT_ELSEWHERE);
    CHECK(failure.tensor == 1);
    outputs[1] = NULL;
    CHECK(model_run(context, inputs, outputs, &failure) == UL_OUTPUT_MISSING);
    CHECK(model_run(context, NULL, NULL, &failure) == UL_INPUT_MISSING && failure.tensor == 0);
    CHECK(run_with(context, &a, 6));
    model_close(context);
    free_buffers(&a);
    free_buffers(&b);
    free_buffers(&c);
}

/* What the first launch of a process takes stays taken: it is the row of code and local memory. */
static void test_code(void)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_device_memory memory;
    struct buffers b = new_buffers();
    CHECK(model_open(&context, NULL, 0, NULL, &source, NULL) == UL_OK);
    CHECK(run_with(context, &b, 1));
    model_model.device->functions->memory(context, &memory);
    CHECK(memory.code_bytes == 2 << 20);
    model_close(context);
    free_buffers(&b);
}

static void run_tests(void)
{
    test_code();
    uint64_t before = free_bytes();
    test_buffers();
    CHECK(free_bytes() == before);
}

#else

static int read_file(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    int *budget = context;
    if (offset_bytes + size_bytes > sizeof file || (*budget)-- == 0)
        return 1;
    memcpy(target, file + offset_bytes, (size_t)size_bytes);
    return 0;
}

static int run_matches(struct ul_context *context, unsigned seed)
{
    struct tensors t, want;
    memset(&t, 0, sizeof t);
    make_inputs(&t, seed);
    want = t;
    expect(&want);
    const void *inputs[] = {t.x, t.pick, &t.flag};
    void *outputs[] = {t.y, t.rows, &t.check};
    return model_run(context, inputs, outputs, NULL) == UL_OK && same(&t, &want);
}

static void get_memory(const struct ul_context *context, struct ul_device_memory *memory)
{
    model_model.device->functions->memory(context, memory);
}

/* One allocation of just the arena; a graph made once and replayed by every run; nothing allocated
   while running. */
static void test_run(void)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_failure failure;
    struct ul_device_memory memory;
    int mallocs = logged("malloc"), captures = logged("capture"), replays = logged("graph_launch");
    CHECK(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_OK);
    CHECK(logged("malloc") == mallocs + 1 && logged("capture") == captures + 1);
    int taken = logged("malloc") + logged("host_alloc");
    for (unsigned seed = 0; seed < 10; seed++)
        CHECK(run_matches(context, seed));
    CHECK(logged("malloc") + logged("host_alloc") == taken && logged("capture") == captures + 1);
    CHECK(logged("graph_launch") == replays + 10);
    get_memory(context, &memory);
    CHECK(memory.allocated_bytes == ARENA_BYTES && memory.granted_bytes >= ARENA_BYTES);
    CHECK(memory.run_count == 10 && memory.replay_count == 10 && memory.launch_count == 11);
    CHECK(memory.free_bytes == memory.ready_free_bytes && memory.uncaptured == NULL);
    CHECK(memory.context_bytes != 0 && memory.context_shared);
    CHECK(memory.graph_bytes == strtoull(getenv("UL_EMULATE_GRAPH_BYTES"), NULL, 0));
    model_close(context);

    int budget = 1000;
    memset(&source, 0, sizeof source);
    source.size_bytes = sizeof file;
    source.read = read_file;
    source.context = &budget;
    CHECK(model_open(&context, NULL, 0, NULL, &source, NULL) == UL_OK);
    CHECK(run_matches(context, 3));
    model_close(context);
    model_close(NULL);
}

/* The last of all steps is announced as such, loops each time round, skipped branches never. */
static void count_step(void *context, uint32_t step)
{
    int *counts = context;
    counts[step]++;
}

static void test_hook(void)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_failure failure;
    for (int flag = 0; flag < 2; flag++) {
        int counts[8] = {0};
        const int want[8] = {1, 1, 1, flag, 3, 3, 1, 1};
        struct tensors t, wanted;
        make_inputs(&t, 1);
        t.flag = (uint8_t)flag;
        wanted = t;
        expect(&wanted);
        const void *inputs[] = {t.x, t.pick, &t.flag};
        void *outputs[] = {t.y, t.rows, &t.check};
        CHECK(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_OK);
        CHECK(model_model.device->functions->run(context, UL_ENTRY_RUN, inputs, outputs, count_step,
                                                 counts, &failure) == UL_OK);
        CHECK(same(&t, &wanted) && memcmp(counts, want, sizeof counts) == 0);
        model_close(context);
    }
}

/* What is not stored: splats of every size. Also inputs and outputs in their places. */
static void test_arena(unsigned char *arena)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct tensors t, want;
    unsigned char *seen = malloc(AT_X);
    int mallocs = logged("malloc");
    CHECK(model_open(&context, arena, ARENA_BYTES, NULL, &source, NULL) == UL_OK);
    CHECK(logged("malloc") == mallocs);
    CHECK(cudaMemcpy(seen, arena, AT_X, cudaMemcpyDeviceToHost) == cudaSuccess);
    for (int i = 0; i < 4; i++)
        CHECK(memcmp(seen + AT_B + 4 * i, "\0\0\0\x3f", 4) == 0);
    for (int i = 0; i < 13; i++)
        CHECK(seen[AT_BYTES + i] == 0xab);
    for (int i = 0; i < 7; i++)
        CHECK(memcmp(seen + AT_WORDS + 2 * i, "\x34\x12", 2) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(memcmp(seen + AT_DOUBLES + 8 * i, "\x08\x07\x06\x05\x04\x03\x02\x01", 8) == 0);
    free(seen);

    memset(&t, 0, sizeof t);
    make_inputs(&t, 7);
    want = t;
    expect(&want);
    CHECK(cudaMemcpy(arena + AT_X, t.x, 16, cudaMemcpyDefault) == cudaSuccess);
    CHECK(cudaMemcpy(arena + AT_PICK, t.pick, 16, cudaMemcpyDefault) == cudaSuccess);
    CHECK(cudaMemcpy(arena + AT_FLAG, &t.flag, 1, cudaMemcpyDefault) == cudaSuccess);
    CHECK(model_run(context, NULL, NULL, NULL) == UL_OK);
    CHECK(cudaMemcpy(t.y, arena + AT_X, 8, cudaMemcpyDefault) == cudaSuccess);
    CHECK(cudaMemcpy(t.rows, arena + AT_ROWS, 48, cudaMemcpyDefault) == cudaSuccess);
    CHECK(cudaMemcpy(&t.check, arena + AT_CHECK, 8, cudaMemcpyDefault) == cudaSuccess);
    CHECK(same(&t, &want));

    void *x = NULL, *rows = NULL; /* of the device, from and to which is copied */
    CHECK(cudaMalloc(&x, 16) == cudaSuccess && cudaMalloc(&rows, 48) == cudaSuccess);
    CHECK(cudaMemcpy(x, t.x, 16, cudaMemcpyDefault) == cudaSuccess);
    const void *inputs[] = {x, t.pick, &t.flag};
    void *outputs[] = {NULL, rows, NULL};
    memset(t.rows, 0, sizeof t.rows);
    CHECK(model_run(context, inputs, outputs, NULL) == UL_OK);
    CHECK(cudaMemcpy(t.rows, rows, 48, cudaMemcpyDefault) == cudaSuccess && same(&t, &want));
    (void)cudaFree(x);
    (void)cudaFree(rows);
    model_close(context);
}

struct worker {
    unsigned char *arena;
    cudaStream_t stream;
    unsigned seed;
    int good;
};

static void *work(void *data)
{
    struct worker *worker = data;
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    worker->good =
        model_open(&context, worker->arena, ARENA_BYTES, worker->stream, &source, NULL) == UL_OK;
    for (unsigned i = 0; worker->good && i < 5; i++)
        worker->good = run_matches(context, worker->seed + i);
    model_close(context);
    return NULL;
}

/* Two contexts on the two halves of one allocation, in turns and at once, on streams of their own.
 */
static void test_contexts(unsigned char *arenas)
{
    struct worker workers[2];
    struct ul_context *contexts[2];
    struct ul_weights_source source = by_memory();
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        workers[i].arena = arenas + (size_t)i * ((ARENA_BYTES + 255) / 256 * 256);
        workers[i].seed = (unsigned)i * 20;
        CHECK(cudaStreamCreateWithFlags(&workers[i].stream, cudaStreamNonBlocking) == cudaSuccess);
        CHECK(model_open(&contexts[i], workers[i].arena, ARENA_BYTES, workers[i].stream, &source,
                         NULL) == UL_OK);
    }
    for (unsigned seed = 0; seed < 6; seed++)
        CHECK(run_matches(contexts[seed % 2], seed));
    model_close(contexts[0]);
    CHECK(run_matches(contexts[1], 11));
    model_close(contexts[1]);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], NULL) == 0 && workers[i].good);
    for (int i = 0; i < 2; i++)
        CHECK(cudaStreamDestroy(workers[i].stream) == cudaSuccess);
}

static void test_arena_failures(unsigned char *arena)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_failure failure;
    CHECK(model_open(&context, arena, ARENA_BYTES - 1, NULL, &source, &failure) ==
          UL_ARENA_TOO_SMALL);
    CHECK(failure.needed_bytes == ARENA_BYTES && failure.available_bytes == ARENA_BYTES - 1);
    CHECK(context == NULL);
    CHECK(model_open(&context, arena + 64, ARENA_BYTES, NULL, &source, &failure) ==
          UL_ARENA_MISALIGNED);
    CHECK(failure.needed_bytes == ARENA_ALIGN && failure.available_bytes == 64);
    void *host = NULL;
    CHECK(posix_memalign(&host, ARENA_ALIGN, ARENA_BYTES) == 0);
    CHECK(model_open(&context, host, ARENA_BYTES, NULL, &source, &failure) == UL_ARENA_ELSEWHERE);
    free(host);
}

static int open_changed(size_t at, unsigned char change)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    file[at] ^= change;
    int result = model_open(&context, NULL, 0, NULL, &source, NULL);
    file[at] ^= change;
    CHECK(context == NULL);
    return result;
}

static void test_weights_failures(void)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_failure failure;
    CHECK(open_changed(0, 1) == UL_WEIGHTS_WRONG_HASH);
    CHECK(open_changed(500, 1) == UL_WEIGHTS_WRONG_HASH); /* of the gap */
    CHECK(open_changed(sizeof file - 40, 1) == UL_WEIGHTS_WRONG_HASH);
    CHECK(open_changed(sizeof file - 1, 1) == UL_WEIGHTS_WRONG_HASH);
    CHECK(open_changed(sizeof file - 32, 1) == UL_WEIGHTS_INVALID);
    CHECK(model_open(&context, NULL, 0, NULL, NULL, &failure) == UL_WEIGHTS_MISSING);
    source.memory = file + 8;
    source.size_bytes -= 8;
    CHECK(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_WEIGHTS_WRONG_SIZE);
    for (int reads = 0; reads < 4; reads++) {
        int budget = reads;
        memset(&source, 0, sizeof source);
        source.size_bytes = sizeof file;
        source.read = read_file;
        source.context = &budget;
        CHECK(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_WEIGHTS_UNREADABLE);
    }
}

/* The least of the first step that met one, whatever thread came first; later runs are clean. */
static void test_fault(void)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_failure failure;
    struct tensors t, want;
    make_inputs(&t, 1);
    want = t;
    want.pick[0] = 3;
    want.pick[1] = 0;
    expect(&want);
    t.pick[0] = 9;
    t.pick[1] = -7;
    const void *inputs[] = {t.x, t.pick, &t.flag};
    void *outputs[] = {t.y, t.rows, &t.check};
    CHECK(model_open(&context, NULL, 0, NULL, &source, NULL) == UL_OK);
    CHECK(model_run(context, inputs, outputs, &failure) == UL_DATA_FAULT);
    CHECK(failure.step == 1 && failure.node != NULL && strcmp(failure.node, "select") == 0);
    CHECK(failure.fault == UL_FAULT_INDEX && failure.fault_value == -7 && failure.fault_limit == 4);
    CHECK(same(&t, &want));
    t.pick[0] = t.pick[1] = -4;
    CHECK(model_run(context, inputs, outputs, &failure) == UL_OK && failure.node == NULL);
    model_close(context);
}

/* More than what is free, by a little and by all. */
static void test_full(void)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_failure failure;
    void *rest = NULL;
    uint64_t free_now = free_bytes();
    CHECK(cudaMalloc(&rest, (size_t)(free_now - ARENA_BYTES / 2)) == cudaSuccess);
    CHECK(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_DEVICE_FULL);
    CHECK(failure.needed_bytes == ARENA_BYTES && failure.available_bytes == free_bytes());
    (void)cudaFree(rest);
    CHECK(cudaMalloc(&rest, (size_t)free_now) == cudaSuccess);
    CHECK(model_open(&context, NULL, 0, NULL, &source, &failure) == UL_DEVICE_FULL);
    CHECK(failure.available_bytes == 0);
    (void)cudaFree(rest);
}

/* With UL_EMULATE_DEVICES=2 there are two of them. */
static void test_devices(void)
{
    struct ul_context *contexts[2];
    struct ul_weights_source source = by_memory();
    struct ul_device_memory memory;
    int now = -1;
    for (int i = 0; i < 2; i++) {
        CHECK(cudaSetDevice(i) == cudaSuccess);
        CHECK(model_open(&contexts[i], NULL, 0, NULL, &source, NULL) == UL_OK);
    }
    for (unsigned seed = 0; seed < 4; seed++)
        CHECK(run_matches(contexts[seed % 2], seed));
    CHECK(cudaGetDevice(&now) == cudaSuccess && now == 1);
    get_memory(contexts[0], &memory);
    CHECK(strstr(memory.device, "device 0") != NULL);
    model_close(contexts[0]);
    model_close(contexts[1]);
    CHECK(cudaGetDevice(&now) == cudaSuccess && now == 1);
    CHECK(cudaSetDevice(0) == cudaSuccess);
}

/* What the first launch of a process takes stays taken: it is the row of code and local memory. */
static void test_code(void)
{
    struct ul_context *context;
    struct ul_weights_source source = by_memory();
    struct ul_device_memory memory;
    for (int again = 0; again < 2; again++) {
        CHECK(model_open(&context, NULL, 0, NULL, &source, NULL) == UL_OK);
        get_memory(context, &memory);
        CHECK(memory.code_bytes == (again ? 0 : 2 << 20));
        model_close(context);
    }
}

static void run_tests(void)
{
    void *arenas = NULL;
    test_code();
    uint64_t before = free_bytes();
    CHECK(cudaMalloc(&arenas, 2 * ((size_t)ARENA_BYTES + 256)) == cudaSuccess);
    test_run();
    test_hook();
    test_arena(arenas);
    test_contexts(arenas);
    test_arena_failures(arenas);
    test_weights_failures();
    test_fault();
    test_full();
    test_devices();
    CHECK(cudaFree(arenas) == cudaSuccess);
    CHECK(free_bytes() == before);
}

#endif

int main(int argc, char **argv)
{
    FILE *weights = argc == 2 ? fopen(argv[1], "rb") : NULL;
    if (weights == NULL || getenv("UL_EMULATE_LOG") == NULL)
        return 1;
    size_t got = fread(file, 1, sizeof file, weights);
    fclose(weights);
    CHECK(got == sizeof file);
    run_tests();
    return TEST_RESULT();
}
