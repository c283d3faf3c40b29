/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the Winograd convolution against oneDNN's direct one, both channels-last, in the same
 * run: microseconds (the best of interleaved rounds), GFLOP/s of the direct count of operations,
 * the ratio, the largest difference in units of the results' root mean square, and bytes.
 *
 *      winograd_bench [THREADS [SHAPE ...]]     a shape: C,K,HEIGHT,WIDTH
 */
#define _POSIX_C_SOURCE 200112L

#include "ul_dnnl_desc.h"
#include "ul_winograd.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct shape {
    int64_t channels, outputs, height, width;
};
static const struct shape shapes[] = {
    {64, 64, 56, 56},    {128, 128, 28, 28},   {256, 256, 14, 14}, {512, 512, 7, 7},
    {64, 64, 256, 256},  {128, 128, 128, 128}, {256, 256, 64, 64}, {512, 512, 32, 32},
    {1024, 512, 32, 32}, {128, 32, 56, 56},    {128, 32, 28, 28},  {128, 32, 14, 14},
    {128, 32, 7, 7},     {96, 24, 80, 80},     {24, 24, 80, 80},   {56, 56, 40, 40},
    {32, 32, 112, 112},  {16, 16, 112, 112},   {3, 64, 224, 224},  {192, 384, 13, 13}};

static double now(int threads)
{
    struct timespec t;
    /* Others may run beside one thread. */
    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *floats(uint64_t count)
{
    void *place = NULL;
    if (posix_memalign(&place, 64, count * sizeof(float) + 64) != 0)
        exit(70);
    float *x = place;
    for (uint64_t i = 0; i < count; i++)
        x[i] = (float)((uint32_t)i * 2654435761u >> 8) / 16777216.0f - 0.5f;
    return x;
}

static void must(dnnl_status_t status)
{
    if (status != dnnl_success) {
        fprintf(stderr, "winograd_bench: oneDNN says %d\n", (int)status);
        exit(1);
    }
}

/* One image, channels last. */
static struct ul_call_tensor channels_last(int64_t channels, int64_t height, int64_t width)
{
    return (struct ul_call_tensor){
        .rank = 4,
        .dims = {1, channels, height, width},
        .strides = {height * width * channels, 1, width * channels, channels}};
}

static struct ul_call make_call(const struct shape *shape)
{
    struct ul_call call = {.kind = UL_CALL_CONVOLUTION, .group_count = 1};
    call.src = channels_last(shape->channels, shape->height, shape->width);
    call.dst = channels_last(shape->outputs, shape->height, shape->width);
    call.weights = (struct ul_call_tensor){.rank = 4,
                                           .dims = {shape->outputs, shape->channels, 3, 3},
                                           .strides = {shape->channels * 9, 9, 3, 1}};
    call.bias = (struct ul_call_tensor){.rank = 1, .dims = {shape->outputs}, .strides = {1}};
    for (int i = 0; i < 3; i++)
        call.steps[i] = call.dilations[i] = 1;
    for (int i = 0; i < 4; i++)
        call.pads[i] = 1;
    call.post_count = 1;
    call.posts[0].kind = UL_POST_RELU;
    return call;
}

static float *pack(const struct ul_winograd *tiling, const float *weights)
{
    float *packed = floats(tiling->packed_bytes / sizeof(float));
    memset(packed, 0, tiling->packed_bytes);
    for (int64_t k = 0; k < tiling->outputs; k++)
        for (int64_t c = 0; c < tiling->channels; c++) {
            float u[16];
            ul_winograd_weight(u, weights + (k * tiling->channels + c) * 9);
            float *to = packed +
                        k / tiling->panel_cols * tiling->panel_cols * 16 * tiling->channels +
                        c * tiling->panel_cols + k % tiling->panel_cols;
            for (int p = 0; p < 16; p++)
                to[p * tiling->channels * tiling->panel_cols] = u[p];
        }
    return packed;
}

/* oneDNN's side: everything made once. */
struct direct {
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    int count;
    dnnl_exec_arg_t args[5];
    const char *name;
};

static void add(struct direct *direct, dnnl_engine_t engine, int arg,
                const dnnl_memory_desc_t *desc, void *place)
{
    if (dnnl_memory_desc_get_size(desc) == 0)
        return;
    direct->args[direct->count].arg = arg;
    must(dnnl_memory_create(&direct->args[direct->count++].memory, desc, engine, place));
}

static void *reorder(dnnl_engine_t engine, dnnl_stream_t stream, const struct ul_call *call,
                     const dnnl_memory_desc_t *to, float *weights)
{
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[2] = {{.arg = DNNL_ARG_FROM}, {.arg = DNNL_ARG_TO}};
    void *place = floats(dnnl_memory_desc_get_size(to) / sizeof(float));
    ul_dnnl_plain(&plain, &call->weights);
    must(dnnl_memory_create(&args[0].memory, &plain, engine, weights));
    must(dnnl_memory_create(&args[1].memory, to, engine, place));
    must(dnnl_reorder_primitive_desc_create(&pd, &plain, engine, to, engine, NULL));
    must(dnnl_primitive_create(&primitive, pd));
    must(dnnl_primitive_execute(primitive, stream, 2, args));
    must(dnnl_stream_wait(stream));
    return place;
}

static void make_direct(struct direct *direct, const struct ul_call *call, float *const args[4])
{
    struct ul_dnnl_desc desc;
    dnnl_engine_t engine;
    dnnl_primitive_desc_t pd;
    memset(direct, 0, sizeof *direct);
    must(dnnl_engine_create(&engine, dnnl_cpu, 0));
    must(dnnl_stream_create(&direct->stream, engine, dnnl_stream_default_flags));
    if (!ul_dnnl_describe(&desc, call, true, NULL))
        must(dnnl_unimplemented);
    must(dnnl_primitive_desc_create(&pd, &desc.op, desc.attr, engine, NULL));
    must(dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&direct->name));
    must(dnnl_primitive_create(&direct->primitive, pd));
    const dnnl_memory_desc_t *weights = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *own = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    add(direct, engine, DNNL_ARG_SRC, &desc.src, args[0]);
    add(direct, engine, DNNL_ARG_WEIGHTS, weights,
        reorder(engine, direct->stream, call, weights, args[1]));
    add(direct, engine, DNNL_ARG_BIAS, &desc.bias, args[2]);
    add(direct, engine, DNNL_ARG_DST, &desc.dst, args[3]);
    add(direct, engine, DNNL_ARG_SCRATCHPAD, own,
        floats(dnnl_memory_desc_get_size(own) / sizeof(float)));
}

static void run_direct(const struct direct *direct)
{
    must(dnnl_primitive_execute(direct->primitive, direct->stream, direct->count, direct->args));
    must(dnnl_stream_wait(direct->stream));
}

/* The largest difference, by the root mean square of `right`. */
static double difference(const float *left, const float *right, uint64_t count)
{
    double square = 0, max = 0;
    for (uint64_t i = 0; i < count; i++) {
        square += (double)right[i] * right[i];
        max = fmax(max, fabs((double)left[i] - right[i]));
    }
    return max / sqrt(square / (double)count);
}

#define ROUNDS 9
#define ROUND_SECONDS 0.01

/* The best of several calls in a row, and of what was before. */
#define TIME(seconds, threads, call)                                                               \
    do {                                                                                           \
        double spent_ = 0;                                                                         \
        while (spent_ < ROUND_SECONDS) {                                                           \
            double begin_ = now(threads);                                                          \
            call;                                                                                  \
            double took_ = now(threads) - begin_;                                                  \
            seconds = took_ < seconds ? took_ : seconds;                                           \
            spent_ += took_;                                                                       \
        }                                                                                          \
    } while (0)

static void compare(const struct shape *shape, int threads)
{
    struct ul_call call = make_call(shape);
    struct ul_winograd tiling;
    struct direct direct;
    ul_winograd_tiling(&tiling, &call, (uint32_t)threads);
    const uint64_t pixels = (uint64_t)(shape->height * shape->width);
    const uint64_t count = pixels * (uint64_t)shape->outputs;
    float *args[4] = {floats(pixels * (uint64_t)shape->channels),
                      floats((uint64_t)(shape->channels * shape->outputs) * 9),
                      floats((uint64_t)shape->outputs), floats(count)};
    make_direct(&direct, &call, args);
    float *result = floats(count), *packed = pack(&tiling, args[1]);
    unsigned char *scratch = (unsigned char *)floats(tiling.scratch_bytes / sizeof(float));
    const void *own[4] = {args[0], packed, args[2], result};
    double ours = 1e9, theirs = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        TIME(ours, threads,
             ul_winograd_run(&call, own, scratch, (uint32_t)threads, (uint32_t)threads));
        TIME(theirs, threads, run_direct(&direct));
    }
    double work = 18e-9 * (double)shape->channels * (double)count;
    printf("%4" PRId64 " ->%4" PRId64 " @%3" PRId64 "x%-3" PRId64
           " %9.1f %9.1f %6.2f  %6.1f %6.1f  %8.1e %9" PRIu64 " %9" PRIu64 "  %s\n",
           shape->channels, shape->outputs, shape->height, shape->width, ours * 1e6, theirs * 1e6,
           theirs / ours, work / ours, work / theirs, difference(result, args[3], count),
           tiling.scratch_bytes, tiling.packed_bytes, direct.name);
    for (int i = 0; i < 4; i++)
        free(args[i]);
    free(result);
    free(packed);
    free(scratch);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 1;
    omp_set_num_threads(threads);
    printf("%-19s %9s %9s %6s  %6s %6s  %8s %9s %9s\n", "shape", "ours, us", "direct", "ratio",
           "GF/s", "direct", "error", "scratch", "weights");
    for (size_t i = 0; argc <= 2 && i < sizeof shapes / sizeof shapes[0]; i++)
        compare(&shapes[i], threads);
    for (int i = 2; i < argc; i++) {
        struct shape shape;
        if (sscanf(argv[i], "%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64, &shape.channels,
                   &shape.outputs, &shape.height, &shape.width) != 4)
            return 2;
        compare(&shape, threads);
    }
    return 0;
}
