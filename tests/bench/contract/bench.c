/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of printed contractions against oneDNN's sgemm (and its convolution, for orientation) on
 * one thread, in the same run: GFLOP/s, the best of several rounds, and the ratio. */
#define _POSIX_C_SOURCE 200112L

#include "case.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include KERNELS

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may run beside it */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *floats(uint64_t count)
{
    void *place = NULL;
    if (posix_memalign(&place, 64, count * sizeof(float) + 64) != 0)
        exit(70);
    float *x = place;
    for (uint64_t i = 0; i < count; i++)
        x[i] = (float)(i % 13) / 8.0f - 0.7f;
    return x;
}

#define ROUNDS 7
#define ROUND_SECONDS 0.02

/* Seconds of one call: the best round. */
#define TIME(seconds, call)                                                                        \
    do {                                                                                           \
        seconds = 1e9;                                                                             \
        for (int round_ = 0; round_ < ROUNDS; round_++) {                                          \
            long calls_ = 0;                                                                       \
            double begin_ = now(), spent_;                                                         \
            do {                                                                                   \
                call;                                                                              \
                calls_++;                                                                          \
                spent_ = now() - begin_;                                                           \
            } while (spent_ < ROUND_SECONDS);                                                      \
            if (spent_ / (double)calls_ < seconds)                                                 \
                seconds = spent_ / (double)calls_;                                                 \
        }                                                                                          \
    } while (0)

static double time_ours(const struct kernel_case *c)
{
    struct ul_run run;
    memset(&run, 0, sizeof run);
    void *params[12];
    int count = 0;
    for (; c->buffers[count].element_count > 0; count++)
        params[count] = floats(c->buffers[count].element_count);
    unsigned char *scratch = (unsigned char *)floats(c->scratch_bytes / 4 + 16);
    double seconds;
    TIME(seconds, c->call(params, scratch, &run));
    while (count-- > 0)
        free(params[count]);
    free(scratch);
    return seconds;
}

static double time_sgemm(const struct kernel_case *c)
{
    int64_t m = c->m, n = c->n, k = c->k;
    float *a = floats((uint64_t)(m * k)), *b = floats((uint64_t)(n * k));
    float *out = floats((uint64_t)(m * n));
    double seconds;
    TIME(seconds, for (int64_t r = 0; r < c->runs; r++)
                      dnnl_sgemm('N', 'N', m, n, k, 1.0f, a, k, b, n, 0.0f, out, n));
    free(a);
    free(b);
    free(out);
    return seconds;
}

#define CHECK(expression)                                                                          \
    do {                                                                                           \
        if ((expression) != dnnl_success)                                                          \
            return 0;                                                                              \
    } while (0)

static dnnl_memory_t memory_of(const dnnl_memory_desc_t *desc, dnnl_engine_t engine)
{
    dnnl_memory_t memory = NULL;
    void *place = floats(dnnl_memory_desc_get_size(desc) / 4);
    return dnnl_memory_create(&memory, desc, engine, place) == dnnl_success ? memory : NULL;
}

/* oneDNN's convolution in the layouts that it likes best; 0 when it has none. */
static double time_convolution(const struct kernel_case *c)
{
    const struct kernel_conv *v = &c->conv;
    int64_t out_h = (v->height + 2 * v->pad - v->kernel) / v->stride + 1;
    int64_t out_w = (v->width + 2 * v->pad - v->kernel) / v->stride + 1;
    dnnl_dims_t src = {v->batch, v->groups * v->in, v->height, v->width};
    dnnl_dims_t dst = {v->batch, v->groups * v->out, out_h, out_w};
    dnnl_dims_t dense = {v->out, v->in, v->kernel, v->kernel};
    dnnl_dims_t grouped = {v->groups, v->out, v->in, v->kernel, v->kernel};
    dnnl_dims_t strides = {v->stride, v->stride}, pads = {v->pad, v->pad};
    dnnl_memory_desc_t src_md, weight_md, dst_md;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
    CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    CHECK(dnnl_memory_desc_init_by_tag(&src_md, 4, src, dnnl_f32, dnnl_format_tag_any));
    CHECK(dnnl_memory_desc_init_by_tag(&dst_md, 4, dst, dnnl_f32, dnnl_format_tag_any));
    CHECK(dnnl_memory_desc_init_by_tag(&weight_md, v->groups > 1 ? 5 : 4,
                                       v->groups > 1 ? grouped : dense, dnnl_f32,
                                       dnnl_format_tag_any));
    CHECK(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_inference, dnnl_convolution_direct,
                                             &src_md, &weight_md, NULL, &dst_md, strides, pads,
                                             pads));
    CHECK(dnnl_primitive_desc_create(&pd, &desc, NULL, engine, NULL));
    CHECK(dnnl_primitive_create(&primitive, pd));
    dnnl_exec_arg_t args[3] = {
        {DNNL_ARG_SRC, memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0), engine)},
        {DNNL_ARG_WEIGHTS,
         memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0), engine)},
        {DNNL_ARG_DST, memory_of(dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0), engine)}};
    double seconds;
    TIME(seconds, dnnl_primitive_execute(primitive, stream, 3, args); dnnl_stream_wait(stream));
    return seconds;
}

int main(void)
{
    printf("%-32s %9s %9s %6s %9s %6s %9s\n", "shape", "ours", "sgemm", "ratio", "convol.", "ratio",
           "scratch");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct kernel_case *c = &cases[i];
        double flops = 2e-9 * (double)c->m * (double)c->n * (double)c->k * (double)c->runs;
        double ours = time_ours(c), sgemm = time_sgemm(c);
        double conv = c->conv.spatial == 2 ? time_convolution(c) : 0;
        printf("%-32s %9.1f %9.1f %6.2f", c->name, flops / ours, flops / sgemm, sgemm / ours);
        if (conv > 0)
            printf(" %9.1f %6.2f", flops / conv, conv / ours);
        else
            printf(" %9s %6s", "", "");
        printf(" %9llu\n", (unsigned long long)c->scratch_bytes);
    }
    return 0;
}
