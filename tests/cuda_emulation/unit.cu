/* SPDX-License-Identifier: Apache-2.0 */
/* The emulation itself: kernels with known results, and mistakes that it must name. Each case is a
   function; `unit CASE` runs one, run.sh says what is to come of it. */
#include "ul_cudnn_graph.h"
#include "ul_kernel.cuh"
#include "ul_tensor.cuh"
#include "ul_together.cuh"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) CHECK((call) == cudaSuccess)

static struct ul_cuda_run run;
static struct ul_cuda_step at;
static uint8_t step_apart[1];

static void begin(void)
{
    OK(cudaStreamCreateWithFlags(&run.stream, cudaStreamNonBlocking));
    run.launch_limit = UINT64_MAX;
    run.apart = step_apart;
    at.run = &run;
}

static void finish(void)
{
    CHECK(run.error == cudaSuccess);
    OK(cudaStreamSynchronize(run.stream));
}

template <class T> static T *device(size_t count)
{
    T *pointer = NULL;
    OK(cudaMalloc(&pointer, count * sizeof(T)));
    OK(cudaMemset(pointer, 0, count * sizeof(T)));
    return pointer;
}

template <class T> static T read(const T *pointer, size_t i)
{
    T value;
    OK(cudaMemcpy(&value, pointer + i, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

/* ---- kernels with known results ---- */

static __global__ void squares(int64_t *out, int64_t count, struct ul_where)
{
    for (int64_t i = ul_item_first(); i < count; i += ul_item_stride())
        out[i] += i * i;
}

static void loop(void)
{
    int64_t *out = device<int64_t>(10000);
    UL_LAUNCH(squares, 7, 96, &at, out, (int64_t)10000);
    UL_LAUNCH(squares, 300, 256, &at, out, (int64_t)10000);
    finish();
    for (int64_t i = 0; i < 10000; i += 17)
        CHECK(read(out, (size_t)i) == 2 * i * i);
    OK(cudaFree(out));
}

/* Sums each block's numbers in a tree of barriers. */
static __global__ void tree(const float *in, float *out, struct ul_where)
{
    UL_SHARED(float, part, 256);
    part[threadIdx.x] = in[blockIdx.x * 256 + threadIdx.x];
    for (unsigned half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = part[0];
}

static __global__ void iota(float *out, struct ul_where)
{
    out[ul_item_first()] = (float)(ul_item_first() % 1024);
}

static void barriers(void)
{
    float *in = device<float>(1024), *out = device<float>(4);
    UL_LAUNCH(iota, 4, 256, &at, in);
    UL_LAUNCH(tree, 4, 256, &at, (const float *)in, out);
    finish();
    for (size_t i = 0; i < 4; i++)
        CHECK(read(out, i) == (float)(256 * 255 / 2 + 256 * 256 * i));
}

static __global__ void lanes(int *out, struct ul_where)
{
    const unsigned all = 0xffffffffu;
    const int lane = (int)threadIdx.x % 32;
    double sum = lane;
    for (int flip = 16; flip > 0; flip /= 2)
        sum += __shfl_xor_sync(all, sum, flip);
    int up = __shfl_up_sync(all, lane, 3), down = __shfl_down_sync(all, lane, 3, 8);
    int first = __shfl_sync(all, lane, 5, 16);
    unsigned odd = __ballot_sync(all, lane % 2);
    bool good = sum == 496.0 && up == (lane < 3 ? lane : lane - 3);
    good = good && down == (lane % 8 + 3 < 8 ? lane + 3 : lane) && first == lane / 16 * 16 + 5;
    good = good && odd == 0xaaaaaaaau && __any_sync(all, lane == 7) && !__all_sync(all, lane == 7);
    good = good && __reduce_max_sync(all, (unsigned)lane) == 31;
    if (lane < 8)
        good = good && __shfl_sync(0xffu, lane, 6) == 6;
    __syncwarp();
    out[ul_item_first()] = good;
}

static void shuffles(void)
{
    int *out = device<int>(320);
    UL_LAUNCH(lanes, 2, 160, &at, out);
    finish();
    for (size_t i = 0; i < 320; i++)
        CHECK(read(out, i) == 1);
}

/* c = 1 + a b of 16 x 16 by 16 x 8 floats of 16 bits; b by columns, or by rows and turned. */
template <class KIND, bool TURNS>
static __global__ void product(const uint16_t *a, const uint16_t *b, float *c, struct ul_where)
{
    UL_SHARED(uint16_t, as, 16 * 24); /* rows begin in different banks */
    UL_SHARED(uint16_t, bs, 16 * 24);
    const int lane = (int)threadIdx.x, r = lane / 4, s = lane % 4 * 2;
    ul_copy<16>(as + lane / 2 * 24 + lane % 2 * 8, a + lane * 8, true);
    const int line = TURNS ? 1 : 2; /* copies of a row of b */
    if (lane < 16)
        ul_copy<16>(bs + lane / line * 24 + lane % line * 8, b + lane * 8, true);
    ul_copies_close();
    ul_copies_wait<0>();
    __syncwarp();
    uint32_t fa[4], fb[4];
    float sums[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    ul_matrices_read(fa, as + lane % 16 * 24 + lane / 16 * 8);
    if (TURNS)
        ul_matrices_turn(fb, bs + lane % 16 * 24);
    else
        ul_matrices_read(fb, bs + lane % 8 * 24 + lane / 8 % 2 * 8);
    ul_multiply(KIND(), sums, fa, fb[0], fb[1]);
    for (int i = 0; i < 4; i++)
        c[(r + i / 2 * 8) * 8 + s + i % 2] = sums[i];
}

template <class KIND, bool TURNS> static void check_product(void)
{
    uint16_t a[256], b[128];
    uint16_t *da = device<uint16_t>(256), *db = device<uint16_t>(128);
    float *dc = device<float>(128);
    for (int i = 0; i < 256; i++)
        a[i] = KIND::round((float)(i % 7 - 3));
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < 8; n++)
            b[TURNS ? k * 8 + n : n * 16 + k] = KIND::round((float)((3 * k + 5 * n) % 11 - 2));
    OK(cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice));
    UL_LAUNCH((product<KIND, TURNS>), 1, 32, &at, (const uint16_t *)da, (const uint16_t *)db, dc);
    finish();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float sum = 1.0f;
            for (int k = 0; k < 16; k++)
                sum += (float)((m * 16 + k) % 7 - 3) * (float)((3 * k + 5 * n) % 11 - 2);
            CHECK(read(dc, (size_t)(m * 8 + n)) == sum);
        }
}

static void tensor(void)
{
    check_product<ul_float16, false>();
    check_product<ul_float16, true>();
    check_product<ul_bfloat16, false>();
    check_product<ul_bfloat16, true>();
}

/* Copies come with the wait for their group, and no sooner; what is not there is 0. */
static __global__ void copies_kernel(const uint32_t *in, uint32_t *out, struct ul_where)
{
    UL_SHARED(uint32_t, place, 12);
    place[0] = 7;
    ul_copy<4>(place, in, true);
    ul_copies_close();
    ul_copy<8>(place + 2, in + 2, true);
    ul_copy<16>(place + 4, in + 4, true);
    ul_copy<16>(place + 8, in + 8, false);
    ul_copies_close();
    out[0] = place[0];
    ul_copies_wait<1>();
    out[1] = place[0];
    out[2] = place[4];
    ul_copies_wait<0>();
    for (int i = 2; i < 12; i++)
        out[1 + i] = place[i];
}

static void copies(void)
{
    uint32_t in[12], *din = device<uint32_t>(12), *out = device<uint32_t>(13);
    const char *order = getenv("UL_EMULATE_ORDER");
    const bool is_late = order == NULL || atoi(order) % 2 == 0;
    for (uint32_t i = 0; i < 12; i++)
        in[i] = 100 + i;
    OK(cudaMemcpy(din, in, sizeof in, cudaMemcpyHostToDevice));
    UL_LAUNCH(copies_kernel, 1, 1, &at, (const uint32_t *)din, out);
    finish();
    CHECK(read(out, 0) == (is_late ? UINT32_MAX : 100) && read(out, 1) == 100);
    CHECK(read(out, 2) == (is_late ? UINT32_MAX : 104));
    for (size_t i = 2; i < 12; i++)
        CHECK(read(out, 1 + i) == (i < 8 ? 100 + i : 0));
}

static __global__ void check_indexes(int64_t *out, struct ul_where run)
{
    int64_t i = ul_item_first();
    out[i] = ul_bound(run, i - 5, 1000);
}

static __global__ void miss_everywhere(int64_t *out, struct ul_where run)
{
    int64_t i = ul_item_first();
    out[i] = ul_bound(run, -1 - i % 7, 1000 - i % 13);
}

static void faults(void)
{
    struct ul_cuda_fault *fault = device<struct ul_cuda_fault>(1);
    int64_t *out = device<int64_t>(2048);
    at.where.fault = fault;
    at.where.step = 3;
    at.where.order = 9;
    UL_LAUNCH(check_indexes, 16, 128, &at, out);
    finish();
    struct ul_cuda_fault seen = read(fault, 0);
    CHECK(seen.kind == UL_FAULT_PLACE && seen.value == -5 && seen.limit == 1000 && seen.step == 3);
    CHECK(seen.lock == 0 && read(out, 0) == 0 && read(out, 2047) == 999 && read(out, 7) == 2);
    at.where.order = 10;
    UL_LAUNCH(miss_everywhere, 16, 128, &at, out);
    finish();
    seen = read(fault, 0);
    CHECK(seen.value == -5 && seen.limit == 1000 && seen.order == 9); /* the first step's */
    OK(cudaMemset(fault, 0, sizeof *fault));
    UL_LAUNCH(miss_everywhere, 16, 128, &at, out);
    finish();
    seen = read(fault, 0);
    CHECK(seen.value == -7 && seen.limit == 988 && seen.order == 10 && seen.lock == 0);
}

/* ---- kernels that begin before the one before them has ended ---- */

static __global__ void add_waiting(int *to, int value, struct ul_where run)
{
    UL_ENTER(run);
    if (threadIdx.x == 0 && blockIdx.x == 0)
        *to += value;
}

static __global__ void add_early(int *to, int value, struct ul_where run)
{
    const int now = ul_item_first() == 0 ? *to : 0;
    UL_ENTER(run);
    if (ul_item_first() == 0)
        *to = now + value;
}

static __global__ void add_some_wait(int *to, int value, struct ul_where)
{
    if (threadIdx.x % 2 == 0)
        ul_wait();
    if (ul_item_first() == 0)
        *to += value;
}

static void overlap(void)
{
    int *a = device<int>(1);
    run.overlaps = 1;
    UL_LAUNCH(add_early, 2, 64, &at, a, 1); /* after nothing: it need not wait */
    CHECK(run.is_behind);
    UL_LAUNCH(add_waiting, 3, 64, &at, a, 20);
    UL_LAUNCH(add_waiting, 2, 96, &at, a, 300);
    finish();
    CHECK(read(a, 0) == 321);
}

static void bad_early(void)
{
    int *a = device<int>(1);
    run.overlaps = 1;
    UL_LAUNCH(add_waiting, 1, 32, &at, a, 1);
    UL_LAUNCH(add_early, 1, 32, &at, a, 1);
    finish();
}

static void bad_order(void)
{
    int *a = device<int>(1);
    run.overlaps = 1;
    UL_LAUNCH(add_waiting, 1, 32, &at, a, 1);
    UL_LAUNCH(add_some_wait, 3, 32, &at, a, 1);
    finish();
}

/* ---- streams, events, graphs ---- */

static __global__ void add(int *to, int value, struct ul_where)
{
    *to += value;
}

static __global__ void twice(int *to, const int *from, struct ul_where)
{
    *to = 2 * *from;
}

static void streams(void)
{
    cudaStream_t first = run.stream, other;
    cudaEvent_t event;
    int *a = device<int>(1), *b = device<int>(1);
    OK(cudaStreamCreate(&other));
    OK(cudaEventCreate(&event));
    UL_LAUNCH(add, 1, 1, &at, a, 21);
    OK(cudaEventRecord(event, first));
    UL_LAUNCH(add, 1, 1, &at, a, 100);
    run.stream = other;
    OK(cudaStreamWaitEvent(other, event));
    UL_LAUNCH(twice, 1, 1, &at, b, (const int *)a);
    CHECK(cudaStreamQuery(other) == cudaErrorNotReady);
    OK(cudaStreamSynchronize(other));
    OK(cudaStreamSynchronize(first));
    CHECK(read(b, 0) == 42 || getenv("UL_EMULATE_ORDER") != NULL);
    CHECK(read(a, 0) == 121);
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(other));
    run.stream = first;
}

static void graphs(void)
{
    cudaStream_t first = run.stream, other;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int *a = device<int>(1), *b = device<int>(1);
    OK(cudaStreamCreate(&other));
    OK(cudaEventCreate(&fork));
    OK(cudaEventCreate(&join));
    OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    UL_LAUNCH(add, 1, 1, &at, a, 1);
    OK(cudaEventRecord(fork, first));
    OK(cudaStreamWaitEvent(other, fork));
    run.stream = other;
    UL_LAUNCH(twice, 1, 1, &at, b, (const int *)a);
    OK(cudaEventRecord(join, other));
    OK(cudaStreamWaitEvent(first, join));
    run.stream = first;
    UL_LAUNCH(add, 1, 1, &at, b, 1);
    OK(cudaStreamEndCapture(first, &graph));
    size_t count;
    OK(cudaGraphGetNodes(graph, NULL, &count));
    CHECK(count == 3);
    OK(cudaGraphInstantiate(&exec, graph));
    OK(cudaGraphDestroy(graph));
    CHECK(read(a, 0) == 0);
    for (int i = 1; i <= 5; i++) {
        OK(cudaGraphLaunch(exec, first));
        OK(cudaStreamSynchronize(first));
        CHECK(read(a, 0) == i && read(b, 0) == 2 * i + 1);
    }
    OK(cudaGraphExecDestroy(exec));
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
    OK(cudaStreamDestroy(other));
}

/* What must not be done while a stream is captured. */
static void capture(void)
{
    cudaGraph_t graph;
    int *a = device<int>(1), *b;
    OK(cudaStreamBeginCapture(run.stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMalloc(&b, 4) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(run.stream, &graph) == cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(run.stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaStreamSynchronize(run.stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(run.stream, &graph) == cudaErrorStreamCaptureInvalidated);
    cudaStream_t other;
    cudaEvent_t event;
    OK(cudaStreamCreate(&other));
    OK(cudaEventCreate(&event));
    OK(cudaStreamBeginCapture(run.stream, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(event, run.stream));
    OK(cudaStreamWaitEvent(other, event));
    OK(cudaMemsetAsync(a, 1, 4, other));
    CHECK(cudaStreamEndCapture(run.stream, &graph) == cudaErrorStreamCaptureUnjoined);
    OK(cudaStreamSynchronize(run.stream));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(other));
}

/* What another thread may do beside a capture: `what` is its mode. */
static void *beside(void *what)
{
    bool may = *(enum cudaStreamCaptureMode *)what != cudaStreamCaptureModeGlobal;
    cudaError_t expected = may ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
    int *a;
    cudaStream_t other;
    cudaGraph_t graph;
    CHECK(cudaMalloc(&a, 4) == expected);
    OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(other, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaFree(a) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(other, &graph) == cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamDestroy(other));
    CHECK(cudaFree(a) == expected);
    return NULL;
}

static void threads(void)
{
    const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeThreadLocal,
                                                cudaStreamCaptureModeRelaxed,
                                                cudaStreamCaptureModeGlobal};
    for (enum cudaStreamCaptureMode mode : modes) {
        pthread_t thread;
        cudaGraph_t graph;
        bool minds = mode == cudaStreamCaptureModeGlobal;
        OK(cudaStreamBeginCapture(run.stream, mode));
        CHECK(pthread_create(&thread, NULL, beside, (void *)&mode) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(cudaStreamEndCapture(run.stream, &graph) ==
              (minds ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
        if (!minds)
            OK(cudaGraphDestroy(graph));
    }
}

/* A process has no device that it did not begin itself. */
static void forked(void)
{
    int number, status;
    pid_t child = fork();
    if (child == 0)
        _exit(cudaGetDevice(&number) == cudaErrorInitializationError ? 7 : 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    OK(cudaGetDevice(&number));
}

/* Memory that nothing waited for is not there yet. */
static void late(void)
{
    int *a = device<int>(1), *seen;
    OK(cudaHostAlloc(&seen, sizeof *seen, cudaHostAllocDefault));
    *seen = 5;
    UL_LAUNCH(add, 1, 1, &at, a, 7);
    OK(cudaMemcpyAsync(seen, a, sizeof *seen, cudaMemcpyDeviceToHost, run.stream));
    CHECK(*seen == 5);
    finish();
    CHECK(*seen == 7);
    OK(cudaFreeHost(seen));
}

static void memory(void)
{
    size_t before, after, total;
    struct cudaPointerAttributes attributes;
    int *a, on_stack = 0;
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&a, 5 << 20));
    OK(cudaMemGetInfo(&after, &total));
    CHECK(before - after == 6 << 20);
    OK(cudaPointerGetAttributes(&attributes, (char *)a + (5 << 20) - 1));
    CHECK(attributes.type == cudaMemoryTypeDevice);
    OK(cudaPointerGetAttributes(&attributes, &on_stack));
    CHECK(attributes.type == cudaMemoryTypeUnregistered);
    CHECK(cudaMemcpy((char *)a + 8, &on_stack, 5 << 20, cudaMemcpyDefault) ==
          cudaErrorInvalidValue);
    CHECK(cudaMemcpy(a, &on_stack, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue && cudaGetLastError() == cudaSuccess);
    OK(cudaFree(a));
    CHECK(cudaFree(a) == cudaErrorInvalidValue);
    OK(cudaMemGetInfo(&after, &total));
    CHECK(before == after);
    CHECK(cudaMalloc(&a, total + 1) == cudaErrorMemoryAllocation);
}

/* ---- mistakes ---- */

static __global__ void no_barrier(float *out, struct ul_where)
{
    UL_SHARED(float, part, 64);
    part[threadIdx.x] = 1.0f;
    out[ul_item_first()] = part[(threadIdx.x + 1) % 64];
}

static void race_shared(void)
{
    float *out = device<float>(64);
    UL_LAUNCH(no_barrier, 1, 64, &at, out);
    finish();
}

static __global__ void all_write(int *out, struct ul_where)
{
    if (threadIdx.x == 0)
        *out = (int)blockIdx.x;
}

static void race_global(void)
{
    int *out = device<int>(1);
    UL_LAUNCH(all_write, 4, 32, &at, out);
    finish();
}

static __global__ void no_warp_barrier(float *out, struct ul_where)
{
    UL_SHARED(float, part, 32);
    part[threadIdx.x] = (float)threadIdx.x;
    float mine = __shfl_sync(0xffffffffu, 1.0f, 0); /* which orders no memory */
    out[threadIdx.x] = mine + part[31 - threadIdx.x];
}

static void race_shuffle(void)
{
    float *out = device<float>(32);
    UL_LAUNCH(no_warp_barrier, 1, 32, &at, out);
    finish();
}

static __global__ void some_wait(int *out, struct ul_where)
{
    if (threadIdx.x < 40)
        __syncthreads();
    out[threadIdx.x] = 1;
}

static void bad_barrier(void)
{
    int *out = device<int>(64);
    UL_LAUNCH(some_wait, 3, 64, &at, out);
    finish();
}

static __global__ void two_places(int *out, struct ul_where)
{
    if (threadIdx.x < 40)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

static void bad_places(void)
{
    int *out = device<int>(64);
    UL_LAUNCH(two_places, 3, 64, &at, out);
    finish();
}

static __global__ void lanes_missing(int *out, struct ul_where)
{
    int value = (int)threadIdx.x;
    if (threadIdx.x % 32 != 9)
        value = __shfl_xor_sync(0xffffffffu, value, 1);
    out[threadIdx.x] = value;
}

static void bad_shuffle(void)
{
    int *out = device<int>(64);
    UL_LAUNCH(lanes_missing, 1, 64, &at, out);
    finish();
}

static __global__ void short_warp(int *out, struct ul_where)
{
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 1);
}

static void bad_mask(void)
{
    int *out = device<int>(64);
    UL_LAUNCH(short_warp, 1, 40, &at, out);
    finish();
}

static void bad_host(void)
{
    int *a = device<int>(1);
    *a = 1;
}

static void bad_argument(void)
{
    int on_host = 0;
    UL_LAUNCH(add, 1, 1, &at, &on_host, 1);
    finish();
}

static void bad_freed(void)
{
    int *a = device<int>(1);
    OK(cudaFree(a));
    UL_LAUNCH(add, 1, 1, &at, a, 1);
}

static void bad_end(void)
{
    float *out = device<float>(64);
    UL_LAUNCH(iota, 2, 64, &at, out);
    finish();
}

static __global__ void much(float *out, struct ul_where)
{
    UL_SHARED(float, part, 12289);
    part[threadIdx.x] = 1.0f;
    out[threadIdx.x] = part[threadIdx.x];
}

/* An array, and beside it as much as a block has without asking for more. */
static __global__ void much_beside(float *out, struct ul_where)
{
    UL_SHARED(float, part, 64);
    UL_SHARED_REST(rest);
    part[threadIdx.x] = 1.0f;
    out[threadIdx.x] = part[threadIdx.x] + (float)rest[threadIdx.x];
}

static void bad_rest(void)
{
    float *out = device<float>(64);
    UL_LAUNCH_TOGETHER(much_beside, 1, 64, UL_EMULATE_SHARED_BYTES, &at, out);
    finish();
}

static void bad_shared(void)
{
    float *out = device<float>(64);
    UL_LAUNCH(much, 1, 64, &at, out);
    finish();
}

static __global__ void unset(float *out, struct ul_where)
{
    UL_SHARED(float, part, 64);
    if (threadIdx.x != 3)
        part[threadIdx.x] = 1.0f;
    out[ul_item_first()] = part[threadIdx.x];
}

/* Shared memory that nobody set is NaN, in every block. */
static void unset_shared(void)
{
    float *out = device<float>(128);
    UL_LAUNCH(unset, 2, 64, &at, out);
    finish();
    CHECK(read(out, 2) == 1.0f && isnan(read(out, 3)) && isnan(read(out, 67)));
}

/* As ul_meet, but that nothing orders what the blocks write. */
static void meet_unordered(struct ul_meeting *meeting)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t round = __atomic_load_n(&meeting->round, __ATOMIC_RELAXED);
        if (__atomic_fetch_add(&meeting->arrived, 1u, __ATOMIC_RELAXED) == gridDim.x - 1) {
            __atomic_store_n(&meeting->arrived, 0u, __ATOMIC_RELAXED);
            __atomic_store_n(&meeting->round, round + 1, __ATOMIC_RELAXED);
        }
        while (__atomic_load_n(&meeting->round, __ATOMIC_RELAXED) == round)
            ul_emulate_spin();
    }
    __syncthreads();
}

/* Rounds in which each block takes what the next one left, with a shared array that must last. */
static __global__ void in_turns(int *cells, struct ul_meeting *meeting, int rounds, int fenced,
                                struct ul_where)
{
    UL_SHARED(int, sum, 64);
    UL_SHARED_REST(rest);
    int *kept = (int *)(void *)rest;
    const unsigned blocks = gridDim.x, next = (blockIdx.x + 1) % blocks;
    sum[threadIdx.x] = kept[threadIdx.x] = 0;
    for (int i = 0; i < rounds; i++) {
        __syncthreads();
        if (threadIdx.x == 0)
            cells[(unsigned)(i + 1) % 2 * blocks + blockIdx.x] =
                cells[(unsigned)i % 2 * blocks + next] + 1;
        sum[(threadIdx.x + 1) % 64] += 1;
        kept[threadIdx.x] += 1;
        if (fenced)
            ul_meet(meeting);
        else
            meet_unordered(meeting);
    }
    if (sum[threadIdx.x] != rounds || kept[threadIdx.x] != rounds)
        cells[2 * blocks] = -1;
}

static void together_by(unsigned blocks, int fenced)
{
    int *cells = device<int>(2 * blocks + 1);
    struct ul_meeting *meeting = device<struct ul_meeting>(1);
    const int rounds = 6;
    for (int i = 0; i < 3; i++) /* the meeting is as it was, each time */
        UL_LAUNCH_TOGETHER(in_turns, blocks, 64, 256, &at, cells, meeting, rounds, fenced);
    finish();
    for (unsigned i = 0; fenced && i < blocks; i++)
        CHECK(read(cells, i) == 3 * rounds);
    CHECK(read(cells, 2 * blocks) == 0);
}

static void together(void)
{
    CHECK(ul_cuda_is_resident(&at, (const void *)in_turns, 31, 64, 256));
    together_by(1, 1);
    together_by(31, 1);
}

/* ---- the last block of a group ---- */

/* As ul_is_last, but that nothing orders what the blocks write. */
static bool is_last_unordered(uint32_t *counters, uint32_t group, uint32_t blocks)
{
    UL_SHARED(int, is_last, 1);
    __syncthreads();
    if (threadIdx.x == 0)
        is_last[0] = __atomic_fetch_add(&counters[group], 1u, __ATOMIC_RELAXED) == blocks - 1;
    __syncthreads();
    return is_last[0] != 0;
}

/* Sums of columns, which lie one after the other: a part of each by a thread, added up by the last
 * block of a group of 32 columns. */
template <int bits, bool is_fenced>
static __global__ void sum_columns(const int *numbers, int *parts, int *sums, uint32_t *counters,
                                   int rows, int columns, struct ul_where run)
{
    UL_ENTER(run);
    const int64_t item = ul_item_of_group(blockIdx.x, 32, (uint32_t)columns);
    const uint32_t groups = (uint32_t)columns / 32, group = blockIdx.x % groups;
    const uint32_t blocks = gridDim.x / groups;
    if (item < (int64_t)rows * columns)
        parts[item] = 2 * numbers[item];
    if (is_fenced ? ul_is_last<bits>(counters, group, blocks)
                  : is_last_unordered(counters, group, blocks)) {
        for (int c = (int)threadIdx.x; c < 32; c += (int)blockDim.x) {
            int sum = 0;
            for (int row = 0; row < rows; row++)
                sum += parts[row * columns + (int)group * 32 + c];
            sums[(int)group * 32 + c] += sum;
        }
    }
}

/* Rows in blocks of 128 threads that have four of each group; the last block of some has fewer. */
template <int bits, bool is_fenced> static void sum_by(int rows, int columns, unsigned words)
{
    const int count = rows * columns, runs = is_fenced ? 3 : 1;
    int *numbers = device<int>((size_t)count), *parts = device<int>((size_t)count);
    int *sums = device<int>((size_t)columns);
    uint32_t *counters = device<uint32_t>(words);
    int *host = (int *)malloc((size_t)count * sizeof(int));
    for (int i = 0; i < count; i++)
        host[i] = i % 1009;
    OK(cudaMemcpyAsync(numbers, host, (size_t)count * sizeof(int), cudaMemcpyHostToDevice,
                       run.stream));
    for (int i = 0; i < runs; i++) /* the counters are as they were, each time */
        UL_LAUNCH((sum_columns<bits, is_fenced>), (rows + 3) / 4 * (columns / 32), 128, &at,
                  numbers, parts, sums, counters, rows, columns);
    finish();
    for (int c = 0; c < columns; c++) {
        int sum = 0;
        for (int row = 0; row < rows; row++)
            sum += 2 * host[row * columns + c];
        CHECK(read(sums, (size_t)c) == runs * sum);
    }
    for (unsigned i = 0; is_fenced && i < words; i++)
        CHECK(read(counters, i) == 0);
    free(host);
}

static void last(void)
{
    sum_by<4, true>(50, 288, 2);
    sum_by<8, true>(50, 192, 2);
    sum_by<8, true>(1020, 32, 1);
    sum_by<16, true>(1030, 96, 2);
    sum_by<32, true>(7, 64, 2);
}

static void race_last(void)
{
    sum_by<32, false>(9, 32, 1);
}

/* ---- nodes of a graph that are given other arguments ---- */

static __global__ void put_all(int *out, int value, struct ul_where run)
{
    UL_ENTER(run);
    for (int64_t i = ul_item_first(); i < 64; i += ul_item_stride())
        out[i] += value;
}

static __global__ void put_together(int *out, int value, struct ul_where run)
{
    (void)run;
    if (threadIdx.x == 0)
        out[blockIdx.x] += value;
}

/* Kernels of both kinds, two of which have a buffer that may change. */
static void enqueue_nodes(int *own, int *buffer)
{
    run.touches = 0;
    UL_LAUNCH(put_all, 2, 32, &at, own, 1);
    run.touches = 1;
    UL_LAUNCH(put_all, 2, 32, &at, buffer, 20);
    UL_LAUNCH_TOGETHER(put_together, 64, 32, 0, &at, buffer, 300);
}

static cudaGraph_t capture_nodes(struct ul_cuda_nodes *nodes, int *own, int *buffer)
{
    cudaGraph_t graph = NULL;
    memset(nodes, 0, sizeof *nodes);
    nodes->keep = ul_cuda_keep_node;
    nodes->is_whole = 1;
    run.nodes = nodes;
    run.overlaps = 1;
    OK(cudaStreamBeginCapture(run.stream, cudaStreamCaptureModeThreadLocal));
    enqueue_nodes(own, buffer);
    OK(cudaStreamEndCapture(run.stream, &graph));
    run.nodes = NULL;
    CHECK(run.error == cudaSuccess && nodes->is_whole && nodes->count == 2);
    return graph;
}

/* Enqueues nothing; the next launches of the nodes have the other buffer. */
static void give_nodes(struct ul_cuda_nodes *nodes, cudaGraphExec_t exec, int *own, int *buffer)
{
    uint64_t before = run.launch_count;
    nodes->exec = exec;
    nodes->given = 0;
    run.nodes = nodes;
    enqueue_nodes(own, buffer);
    run.nodes = NULL;
    CHECK(run.launch_count == before);
}

static void changed_nodes(void)
{
    struct ul_cuda_nodes nodes;
    cudaGraphExec_t exec = NULL;
    int *own = device<int>(64), *a = device<int>(64), *b = device<int>(64);
    int got[3];
    OK(cudaMemset(own, 0, 256));
    OK(cudaMemset(a, 0, 256));
    OK(cudaMemset(b, 0, 256));
    cudaGraph_t graph = capture_nodes(&nodes, own, a);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphLaunch(exec, run.stream)); /* keeps the parameters of its launch */
    give_nodes(&nodes, exec, own, b);
    CHECK(run.error == cudaSuccess && nodes.given == 2);
    OK(cudaGraphLaunch(exec, run.stream));
    OK(cudaGraphLaunch(exec, run.stream));
    OK(cudaStreamSynchronize(run.stream));
    OK(cudaMemcpy(&got[0], own + 63, 4, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(&got[1], a + 63, 4, cudaMemcpyDeviceToHost));
    OK(cudaMemcpy(&got[2], b + 63, 4, cudaMemcpyDeviceToHost));
    CHECK(got[0] == 3 && got[1] == 320 && got[2] == 640);
    /* A node of another graph is refused, and a node keeps its kernel. */
    struct ul_cuda_nodes others;
    cudaGraph_t other = capture_nodes(&others, own, a);
    give_nodes(&others, exec, own, b);
    CHECK(run.error == cudaErrorInvalidValue);
    run.error = cudaSuccess;
    nodes.all[1].kernel = (const void *)put_all;
    give_nodes(&nodes, exec, own, a);
    CHECK(run.error == cudaErrorUnknown);
    run.error = cudaSuccess;
    int *out = b, value = 0;
    struct ul_where where = at.where;
    void *values[] = {&out, &value, &where};
    struct cudaKernelNodeParams params = {};
    params.func = (void *)put_together;
    params.blockDim = dim3(32);
    params.kernelParams = values;
    params.gridDim = dim3(108 * 64 + 1); /* for a cooperative launch too */
    CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes.all[1].node, &params) ==
          cudaErrorCooperativeLaunchTooLarge);
    params.blockDim = dim3(1025);
    CHECK(cudaGraphExecKernelNodeSetParams(exec, nodes.all[1].node, &params) ==
          cudaErrorInvalidConfiguration);
    OK(cudaGraphDestroy(other));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    free(nodes.all);
    free(others.all);
}

static void bad_node(void)
{
    struct ul_cuda_nodes nodes;
    cudaGraphExec_t exec = NULL;
    int *own = device<int>(64), *a = device<int>(64);
    cudaGraph_t graph = capture_nodes(&nodes, own, a);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    give_nodes(&nodes, exec, own, a);
}

static void race_together(void)
{
    together_by(8, 0);
}

static __global__ void never(int *out, struct ul_where)
{
    while (ul_acquire((const unsigned *)out) == 0)
        ;
}

static void bad_spin(void)
{
    int *out = device<int>(1);
    UL_LAUNCH_TOGETHER(never, 3, 32, 0, &at, out);
    finish();
}

static void bad_alone(void)
{
    int *out = device<int>(1);
    UL_LAUNCH(never, 3, 32, &at, out);
    finish();
}

/* More blocks than there are at once, and more shared memory than was asked for. */
static void limits_together(void)
{
    int *out = device<int>(1);
    CHECK(!ul_cuda_is_resident(&at, (const void *)never, 108 * 32 + 1, 32, 0));
    CHECK(ul_cuda_is_apart(&at) && run.error == cudaSuccess);
    step_apart[0] = 0;
    uint64_t before = run.launch_count;
    UL_LAUNCH_TOGETHER(never, 108 * 32 + 1, 32, 0, &at, out);
    CHECK(ul_cuda_is_apart(&at) && run.error == cudaSuccess && run.launch_count == before);
    CHECK(!ul_cuda_is_resident(&at, (const void *)never, 1, 32, 0)); /* nor ever again */
    UL_LAUNCH_TOGETHER(never, 1, 32, 50000, &at, out);
    CHECK(run.error == cudaErrorInvalidValue);
}

static void limits(void)
{
    int *out = device<int>(1);
    UL_LAUNCH(add, 1, 1025, &at, out, 1);
    CHECK(run.error == cudaErrorInvalidConfiguration);
}

static void fails(void)
{
    int *out = device<int>(1);
    UL_LAUNCH(add, 1, 1, &at, out, 1);
    CHECK(run.error == cudaSuccess);
    CHECK(cudaStreamSynchronize(run.stream) == cudaErrorLaunchFailure);
    CHECK(cudaFree(out) == cudaErrorLaunchFailure);
}

static void devices(void)
{
    int count = -1, version = 0, major = 0;
    size_t free_bytes = 0, total_bytes = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    OK(cudaDriverGetVersion(&version));
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    printf("%s %d %d %d %zu\n", cudaGetErrorName(error), count, version, major, free_bytes);
}

/* What stands in shared memory is not there for others without a barrier, waited for or not. */
static __global__ void copied_alone(const float *in, float *out, struct ul_where)
{
    UL_SHARED(float, part, 64);
    ul_copy<4>(part + threadIdx.x, in + threadIdx.x, true);
    ul_copies_close();
    ul_copies_wait<0>();
    out[threadIdx.x] = part[63 - threadIdx.x];
}

static void race_copy(void)
{
    float *in = device<float>(64), *out = device<float>(64);
    UL_LAUNCH(copied_alone, 1, 64, &at, (const float *)in, out);
    finish();
}

static __global__ void never_waits(const float *in, float *out, struct ul_where)
{
    UL_SHARED(float, part, 64);
    ul_copy<4>(part + threadIdx.x, in + threadIdx.x, true);
    ul_copies_close();
    out[threadIdx.x] = part[threadIdx.x];
}

static void bad_wait(void)
{
    float *in = device<float>(64), *out = device<float>(64);
    UL_LAUNCH(never_waits, 1, 64, &at, (const float *)in, out);
    finish();
}

static __global__ void copies_odd(const float *in, struct ul_where)
{
    UL_SHARED(float, part, 64);
    ul_copy<8>(part, in + 1, true);
}

static void bad_copy(void)
{
    float *in = device<float>(64);
    UL_LAUNCH(copies_odd, 1, 1, &at, (const float *)in);
    finish();
}

static __global__ void copies_elsewhere(const float *in, float *out, struct ul_where)
{
    UL_SHARED(float, part, 64);
    part[0] = 0.0f;
    ul_copy<4>(out, in, true);
}

static void bad_place(void)
{
    float *in = device<float>(64), *out = device<float>(64);
    UL_LAUNCH(copies_elsewhere, 1, 1, &at, (const float *)in, out);
    finish();
}

static __global__ void one_bank(uint32_t *out, struct ul_where)
{
    UL_SHARED(uint16_t, rows, 8 * 64);
    for (int i = 0; i < 16; i++)
        rows[16 * threadIdx.x + i] = (uint16_t)i;
    __syncwarp();
    uint32_t to[4];
    ul_matrices_read(to, rows + threadIdx.x % 8 * 64);
    out[threadIdx.x] = to[0];
}

static void bad_banks(void)
{
    uint32_t *out = device<uint32_t>(32);
    UL_LAUNCH(one_bank, 1, 32, &at, out);
    finish();
}

/* ---- cuDNN's descriptors ---- */

static cudnnBackendDescriptor_t new_descriptor(cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    CHECK(cudnnBackendCreateDescriptor(type, &made) == CUDNN_STATUS_SUCCESS);
    return made;
}

/* One of four axes but for the attribute `left_out`, and its end's answer. */
static cudnnStatus_t end_tensor(cudnnBackendDescriptor_t tensor, int left_out)
{
    const int64_t dims[] = {1, 2, 3, 4}, one = 1, align = 16;
    const cudnnDataType_t type = CUDNN_DATA_HALF;
    const struct {
        cudnnBackendAttributeName_t name;
        cudnnBackendAttributeType_t type;
        int64_t count;
        const void *values;
    } attributes[] = {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &one},
                      {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
                      {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
                      {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, dims},
                      {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align}};
    for (int i = 0; i < 5; i++) {
        if (i != left_out)
            CHECK(cudnnBackendSetAttribute(tensor, attributes[i].name, attributes[i].type,
                                           attributes[i].count,
                                           attributes[i].values) == CUDNN_STATUS_SUCCESS);
    }
    return cudnnBackendFinalize(tensor);
}

/* What the real library answers to the same. */
static void descriptors(void)
{
    const int64_t ids[] = {1, 2};
    const cudnnBackendAttributeName_t id = CUDNN_ATTR_TENSOR_UNIQUE_ID;
    void *places[] = {run.stream, run.stream};
    cudnnBackendDescriptor_t tensor = NULL, graph, pack;
    for (int left_out = 4; left_out >= 0; left_out--) {
        tensor = new_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
        CHECK(end_tensor(tensor, left_out) == CUDNN_STATUS_BAD_PARAM);
        CHECK(cudnnBackendDestroyDescriptor(tensor) == CUDNN_STATUS_SUCCESS);
    }
    tensor = new_descriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    CHECK(cudnnBackendSetAttribute(tensor, id, CUDNN_TYPE_FLOAT, 1, ids) ==
          CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
    CHECK(cudnnBackendSetAttribute(tensor, id, CUDNN_TYPE_INT64, 2, ids) == CUDNN_STATUS_BAD_PARAM);
    CHECK(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
                                   ids) == CUDNN_STATUS_BAD_PARAM);
    graph = new_descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    CHECK(cudnnBackendSetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                   &tensor) == CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    CHECK(end_tensor(tensor, -1) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnBackendSetAttribute(tensor, id, CUDNN_TYPE_INT64, 1, ids) == CUDNN_STATUS_BAD_PARAM);
    pack = new_descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    CHECK(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 2,
                                   ids) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                                   1, places) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnBackendFinalize(pack) == CUDNN_STATUS_BAD_PARAM);
    cudnnBackendDescriptor_t all[] = {tensor, graph, pack};
    for (cudnnBackendDescriptor_t descriptor : all)
        CHECK(cudnnBackendDestroyDescriptor(descriptor) == CUDNN_STATUS_SUCCESS);
}

struct unit {
    const char *name;
    void (*run)(void);
};

static const struct unit units[] = {
    {"loop", loop},
    {"barriers", barriers},
    {"shuffles", shuffles},
    {"tensor", tensor},
    {"copies", copies},
    {"faults", faults},
    {"streams", streams},
    {"overlap", overlap},
    {"bad_early", bad_early},
    {"bad_order", bad_order},
    {"graphs", graphs},
    {"capture", capture},
    {"threads", threads},
    {"forked", forked},
    {"late", late},
    {"memory", memory},
    {"unset_shared", unset_shared},
    {"together", together},
    {"last", last},
    {"changed_nodes", changed_nodes},
    {"bad_node", bad_node},
    {"limits", limits},
    {"limits_together", limits_together},
    {"fails", fails},
    {"devices", devices},
    {"descriptors", descriptors},
    {"race_shared", race_shared},
    {"race_global", race_global},
    {"race_shuffle", race_shuffle},
    {"race_together", race_together},
    {"race_last", race_last},
    {"bad_spin", bad_spin},
    {"bad_alone", bad_alone},
    {"race_copy", race_copy},
    {"bad_wait", bad_wait},
    {"bad_copy", bad_copy},
    {"bad_place", bad_place},
    {"bad_banks", bad_banks},
    {"bad_barrier", bad_barrier},
    {"bad_places", bad_places},
    {"bad_shuffle", bad_shuffle},
    {"bad_mask", bad_mask},
    {"bad_host", bad_host},
    {"bad_argument", bad_argument},
    {"bad_freed", bad_freed},
    {"bad_end", bad_end},
    {"bad_shared", bad_shared},
    {"bad_rest", bad_rest},
};

int main(int argc, char **argv)
{
    for (const struct unit &unit : units) {
        if (argc != 2 || strcmp(argv[1], unit.name) != 0)
            continue;
        if (unit.run != devices)
            begin();
        unit.run();
        return 0;
    }
    return 2;
}
