/* SPDX-License-Identifier: Apache-2.0 */
/* What the library writes: no implementation that a plan may hold stores outside of its result and
 * its scratchpad. All that the library offers on this machine for convolutions of a few shapes run
 * between guards, in f32, bf16 and 8-bit integers; those that are refused do not count. */
#include "ul_call.h"

#include "test.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 8192, FILL = 0xA5, ALIGNMENT = 64, RANK = 4 };

struct shape {
    int64_t batch, in, out, groups, height, width, kernel;
};

struct types {
    dnnl_data_type_t src, weights, dst;
};

static const struct shape shapes[] = {
    {3, 64, 64, 1, 1, 27, 1},   {1, 112, 48, 1, 3, 14, 1}, {2, 128, 48, 1, 9, 4, 1},
    {2, 96, 96, 1, 3, 16, 1},   {3, 64, 128, 1, 15, 3, 1}, {1, 32, 16, 1, 1, 27, 1},
    {1, 7, 13, 1, 5, 9, 1},     {2, 64, 64, 1, 7, 11, 3},  {1, 3, 24, 1, 17, 19, 3},
    {1, 40, 40, 40, 13, 15, 3}, {2, 48, 96, 2, 9, 5, 3},   {1, 256, 80, 1, 1, 1, 1},
};

static const struct types kinds[] = {
    {dnnl_f32, dnnl_f32, dnnl_f32},   {dnnl_bf16, dnnl_bf16, dnnl_bf16},
    {dnnl_bf16, dnnl_bf16, dnnl_f32}, {dnnl_u8, dnnl_s8, dnnl_u8},
    {dnnl_s8, dnnl_s8, dnnl_s8},      {dnnl_u8, dnnl_s8, dnnl_f32},
    {dnnl_s8, dnnl_s8, dnnl_s32},
};

static unsigned ran;

/* Memory of a description, with guards on both sides, of which `begin` is the first. */
struct guarded {
    unsigned char *begin;
    size_t size_bytes;
    dnnl_memory_t memory;
};

static struct guarded guarded_new(dnnl_engine_t engine, const dnnl_memory_desc_t *desc, int fill)
{
    struct guarded g = {.size_bytes = dnnl_memory_desc_get_size(desc)};
    size_t total_bytes = (g.size_bytes + 2 * GUARD_BYTES + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    g.begin = aligned_alloc(ALIGNMENT, total_bytes);
    CHECK(g.begin != NULL);
    memset(g.begin, FILL, total_bytes);
    memset(g.begin + GUARD_BYTES, fill, g.size_bytes);
    CHECK(dnnl_memory_create(&g.memory, desc, engine, g.begin + GUARD_BYTES) == dnnl_success);
    return g;
}

/* Frees it; whether its guards are what they were. */
static int guarded_done(struct guarded *g)
{
    int whole = 1;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        whole = whole && g->begin[i] == FILL && g->begin[GUARD_BYTES + g->size_bytes + i] == FILL;
    dnnl_memory_destroy(g->memory);
    free(g->begin);
    return whole;
}

static void run(dnnl_engine_t engine, const_dnnl_primitive_desc_t pd, const char *name)
{
    static const struct {
        dnnl_query_t query;
        int argument, fill;
    } rows[] = {{dnnl_query_src_md, DNNL_ARG_SRC, 1},
                {dnnl_query_weights_md, DNNL_ARG_WEIGHTS, 1},
                {dnnl_query_dst_md, DNNL_ARG_DST, 0},
                {dnnl_query_scratchpad_md, DNNL_ARG_SCRATCHPAD, 0}};
    enum { COUNT = sizeof rows / sizeof *rows };
    struct guarded memories[COUNT];
    dnnl_exec_arg_t arguments[COUNT];
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    for (int i = 0; i < COUNT; i++) {
        memories[i] =
            guarded_new(engine, dnnl_primitive_desc_query_md(pd, rows[i].query, 0), rows[i].fill);
        arguments[i] = (dnnl_exec_arg_t){rows[i].argument, memories[i].memory};
    }
    CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success);
    CHECK(dnnl_primitive_create(&primitive, pd) == dnnl_success);
    CHECK(dnnl_primitive_execute(primitive, stream, COUNT, arguments) == dnnl_success);
    CHECK(dnnl_stream_wait(stream) == dnnl_success);
    dnnl_primitive_destroy(primitive);
    dnnl_stream_destroy(stream);
    for (int i = 0; i < COUNT; i++) {
        if (guarded_done(&memories[i]))
            continue;
        printf("%s writes outside of argument %d\n", name, rows[i].argument);
        CHECK(0);
    }
    ran++;
}

static int describe(dnnl_convolution_desc_t *conv, const struct shape *shape,
                    const struct types *types)
{
    const dnnl_dims_t src = {shape->batch, shape->in, shape->height, shape->width};
    const dnnl_dims_t dst = {shape->batch, shape->out, shape->height, shape->width};
    const dnnl_dims_t plain = {shape->out, shape->in, shape->kernel, shape->kernel};
    const dnnl_dims_t grouped = {shape->groups, shape->out / shape->groups,
                                 shape->in / shape->groups, shape->kernel, shape->kernel};
    const dnnl_dims_t steps = {1, 1}, pads = {shape->kernel / 2, shape->kernel / 2};
    dnnl_memory_desc_t of_src, of_weights, of_dst;
    int is_grouped = shape->groups > 1;
    CHECK(dnnl_memory_desc_init_by_tag(&of_src, RANK, src, types->src, dnnl_nhwc) == dnnl_success);
    CHECK(dnnl_memory_desc_init_by_tag(&of_dst, RANK, dst, types->dst, dnnl_nhwc) == dnnl_success);
    CHECK(dnnl_memory_desc_init_by_tag(&of_weights, RANK + is_grouped, is_grouped ? grouped : plain,
                                       types->weights, dnnl_format_tag_any) == dnnl_success);
    return dnnl_convolution_forward_desc_init(conv, dnnl_forward_inference, dnnl_convolution_direct,
                                              &of_src, &of_weights, NULL, &of_dst, steps, pads,
                                              pads) == dnnl_success;
}

static void check_all(dnnl_engine_t engine, const struct shape *shape, const struct types *types)
{
    dnnl_convolution_desc_t conv;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_iterator_t iterator;
    CHECK(dnnl_primitive_attr_create(&attr) == dnnl_success);
    CHECK(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success);
    int more =
        describe(&conv, shape, types) &&
        dnnl_primitive_desc_iterator_create(&iterator, &conv, attr, engine, NULL) == dnnl_success;
    int made = more;
    while (more) {
        const char *name = "ref";
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(iterator);
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
        if (!ul_library_refuses(name))
            run(engine, pd, name);
        dnnl_primitive_desc_destroy(pd);
        more = dnnl_primitive_desc_iterator_next(iterator) == dnnl_success;
    }
    if (made)
        dnnl_primitive_desc_iterator_destroy(iterator);
    dnnl_primitive_attr_destroy(attr);
}

int main(void)
{
    dnnl_engine_t engine;
    CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            check_all(engine, &shapes[s], &kinds[k]);
    dnnl_engine_destroy(engine);
    printf("%u implementations stay within their memory\n", ran);
    CHECK(ran > 0);
    return TEST_RESULT();
}
