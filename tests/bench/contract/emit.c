/* SPDX-License-Identifier: Apache-2.0 */
/* Prints kernels that contain contractions, with a table of them, for the bench and the test.
 *
 *     contract_emit bench OUT.c             the shapes of the bench
 *     contract_emit bench_int OUT.c         the same in f32 and in 8 bits
 *     contract_emit test OUT.c SEED COUNT THREADS   random shapes; their operands and the
 *                                                   interpreter's results go to OUT.c.data
 *     contract_emit cuda OUT.cu SEED COUNT          the same for target cuda, with shapes for each
 *                                                   of its tiles and layouts with channels last
 *
 * Each case is one small graph, lowered as a group: the operator and a Relu or an addition after
 * it, so that an epilogue is part of every measurement.
 */
#include "codegen/c/c.h"
#include "codegen/cuda/cuda.h"
#include "codegen/kernel/print_expr.h"
#include "codegen/kernel/threads.h"
#include "codegen/target.h"
#include "ir/infer.h"
#include "ir/kernel_build.h"
#include "ir/op_names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct conv_case {
    const char *name;
    int64_t batch, groups, in, out; /* channels of one group */
    uint32_t spatial;
    int64_t size[3], kernel[3], stride[3], dilation[3], pad[6];
    bool transposed;
};

struct gemm_case {
    const char *name;
    int64_t batch, m, n, k;
    bool trans_a, trans_b;
};

/* What stands in front of an operand, to become its transform. */
enum producer { NO_PRODUCER, PRODUCER_RELU, PRODUCER_SCALE };

struct emitter {
    struct ul_arena arena;
    struct ul_text text;
    FILE *data; /* of the test, else NULL */
    uint64_t state;
    uint32_t count;
    uint32_t thread_count;
    bool is_cuda;
    bool channels_last; /* the next convolution */
    bool fills_bytes;   /* operands of 8 bits take all values, factors of f32 small ones */
    struct ul_text table;
};

static uint64_t random_below(struct emitter *e, uint64_t bound)
{
    e->state = e->state * 6364136223846793005u + 1442695040888963407u;
    return (e->state >> 33) % bound;
}

static ul_value_id add_input(struct ul_graph *graph, const char *name, enum ul_dtype dtype,
                             uint32_t rank, const int64_t *dims)
{
    struct ul_type type = ul_type_make(dtype, rank, dims);
    ul_value_id value = ul_graph_add_value(graph, name, UL_VALUE_INPUT, &type);
    ul_block_add_input(graph, 0, value);
    return value;
}

static void infer(struct emitter *e, struct ul_graph *graph, ul_node_id node)
{
    struct ul_diag diag = {0};
    if (ul_node_infer(graph, node, &e->arena, &diag) != UL_OK) {
        fprintf(stderr, "contract_emit: %s\n", diag.text);
        exit(UL_INTERNAL);
    }
}

static void fill_random(struct emitter *e, unsigned char *bytes, const struct ul_buffer *buffer)
{
    uint32_t size_bytes = ul_dtype_get(buffer->dtype)->size_bytes;
    for (uint64_t i = 0; i < buffer->element_count; i++) {
        double value = (double)random_below(e, 17) - 8;
        if (e->fills_bytes && size_bytes == 1)
            value = (double)random_below(e, 256);
        if (e->fills_bytes && ul_dtype_get(buffer->dtype)->is_float)
            ul_element_put_float(bytes + i * size_bytes, buffer->dtype, value / 4096);
        else if (ul_dtype_get(buffer->dtype)->is_float)
            ul_element_put_float(bytes + i * size_bytes, buffer->dtype, value / 8);
        else
            ul_element_put_int(bytes + i * size_bytes, buffer->dtype, (int64_t)value);
    }
}

/* Operands before, results after: per buffer its bytes, in order. */
static void write_data(struct emitter *e, const struct ul_kernel *kernel)
{
    unsigned char **places = UL_NEW_ARRAY(&e->arena, unsigned char *, kernel->buffer_count);
    bool report = false;
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        const struct ul_buffer *buffer = &kernel->buffers[b];
        uint64_t bytes = buffer->element_count * ul_dtype_get(buffer->dtype)->size_bytes;
        places[b] = ul_arena_alloc(&e->arena, bytes);
        if (buffer->role == UL_BUFFER_INPUT)
            fill_random(e, places[b], buffer);
    }
    uint64_t work = UINT64_MAX;
    if (!ul_kernel_eval(kernel, places, &work, &e->arena, &report) || report) {
        fprintf(stderr, "contract_emit: the interpreter failed\n");
        exit(UL_INTERNAL);
    }
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        const struct ul_buffer *buffer = &kernel->buffers[b];
        uint64_t bytes = buffer->element_count * ul_dtype_get(buffer->dtype)->size_bytes;
        if (buffer->role == UL_BUFFER_INPUT || buffer->role == UL_BUFFER_OUTPUT)
            fwrite(places[b], 1, bytes, e->data);
    }
}

static enum ul_status print_c(struct emitter *e, const struct ul_kernel *kernel,
                              uint64_t *scratch_bytes, struct ul_diag *diag)
{
    struct ul_threads threads;
    ul_threads_init(&threads, kernel, e->thread_count, &e->arena);
    ul_text_printf(&e->text, "static void k%" PRIu32 "(", e->count);
    return ul_kernel_print_c(&e->text, kernel, &threads, scratch_bytes, diag);
}

/* The kernel's name stands for every @. */
static enum ul_status print_cuda(struct emitter *e, const struct ul_kernel *kernel,
                                 uint64_t *scratch_bytes, struct ul_diag *diag)
{
    struct ul_text text;
    ul_text_init(&text, &e->arena);
    const struct ul_profile_device device =
        ul_profile_device(ul_profile_find(UL_PROFILE_DEFAULT_DEVICE));
    struct ul_kernel_printed printed;
    UL_TRY(ul_kernel_print_cuda(&text, kernel, &device, &printed, diag));
    *scratch_bytes = printed.scratch_bytes;
    const char *rest = text.data;
    for (const char *at = strchr(rest, '@'); at != NULL; at = strchr(rest, '@')) {
        ul_text_printf(&e->text, "%.*sk%" PRIu32, (int)(at - rest), rest, e->count);
        rest = at + 1;
    }
    ul_text_put(&e->text, rest);
    return UL_OK;
}

/* The bits of the parameters that the result may be written over. */
static unsigned taken_by(const struct ul_lower_result *result)
{
    unsigned taken = 0;
    for (uint32_t i = 0; i < result->in_place_count; i++) {
        uint32_t param = 0;
        for (uint32_t b = 0; b < result->kernel->buffer_count; b++) {
            const struct ul_buffer *buffer = &result->kernel->buffers[b];
            if (buffer->role != UL_BUFFER_INPUT && buffer->role != UL_BUFFER_OUTPUT)
                continue;
            if (buffer->value == result->in_place[i].input)
                taken |= 1u << param;
            param++;
        }
    }
    return taken;
}

/* Lowers the graph's nodes as one group, of which the last output is stored, and prints it.
 * `m`, `n`, `k`, `runs`: the matrix products that oneDNN is given for comparison. */
static void emit(struct emitter *e, const struct ul_graph *graph, const char *name, int64_t m,
                 int64_t n, int64_t k, int64_t runs, const struct conv_case *conv)
{
    const struct ul_block *block = &graph->blocks[0];
    bool *escapes = UL_NEW_ARRAY(&e->arena, bool, graph->value_count);
    const struct ul_node *last = &graph->nodes[block->nodes[block->node_count - 1]];
    escapes[last->outputs[0]] = true;
    struct ul_lower_result result;
    ul_lower_group(graph, block->nodes, block->node_count, escapes,
                   e->is_cuda ? NULL : &ul_target_find("c")->traits, &e->arena, &result);
    struct ul_diag diag = {0};
    uint64_t scratch_bytes = 0;
    const struct ul_kernel *kernel = result.kernel;
    ul_text_printf(&e->text, "/* %s */\n", name);
    enum ul_status status = e->is_cuda ? print_cuda(e, kernel, &scratch_bytes, &diag)
                                       : print_c(e, kernel, &scratch_bytes, &diag);
    if (status != UL_OK) {
        fprintf(stderr, "contract_emit: %s\n", diag.text);
        exit(UL_INTERNAL);
    }
    ul_text_printf(&e->text,
                   "\nstatic void call%" PRIu32 "(void **p, unsigned char *s, kernel_run run)\n"
                   "{\n    (void)s;\n    k%" PRIu32 "(%s",
                   e->count, e->count, e->is_cuda ? "run, " : "");
    ul_text_printf(&e->table,
                   "{\"%s\", call%" PRIu32 ", %" PRIu64 "u, %" PRId64 ", %" PRId64 ", %" PRId64
                   ", %" PRId64 ", ",
                   name, e->count, scratch_bytes, m, n, k, runs);
    if (conv == NULL)
        ul_text_put(&e->table, "{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {");
    else
        ul_text_printf(&e->table,
                       "{%d, %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                       ", %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "}, {",
                       (int)conv->spatial, conv->batch, conv->groups, conv->in, conv->out,
                       conv->size[0], conv->size[1], conv->kernel[0], conv->stride[0],
                       conv->pad[0]);
    uint32_t params = 0;
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        const struct ul_buffer *buffer = &kernel->buffers[b];
        if (buffer->role != UL_BUFFER_INPUT && buffer->role != UL_BUFFER_OUTPUT)
            continue;
        ul_text_printf(&e->text, "%s(%s *)p[%" PRIu32 "]", params > 0 ? ", " : "",
                       ul_storage_type(buffer->dtype), params);
        params++;
        ul_text_printf(&e->table, "{%d, %d, %" PRIu64 "u}, ", buffer->role == UL_BUFFER_OUTPUT,
                       (int)buffer->dtype, buffer->element_count);
    }
    ul_text_printf(&e->text, "%s%s);\n}\n\n", scratch_bytes > 0 ? ", s" : "",
                   e->is_cuda ? "" : ", run");
    ul_text_printf(&e->table, "{0, 0, 0}}, %uu},\n", e->thread_count == 1 ? taken_by(&result) : 0);
    if (e->data != NULL)
        write_data(e, kernel);
    e->count++;
}

static void add_relu(struct emitter *e, struct ul_graph *graph, ul_value_id value)
{
    ul_node_id relu = ul_graph_add_node(graph, 0, UL_OP_Relu, "relu", 1, 1);
    graph->nodes[relu].inputs[0] = value;
    infer(e, graph, relu);
}

/* value + residual of the same shape */
static void add_residual(struct emitter *e, struct ul_graph *graph, ul_value_id value)
{
    struct ul_type type = graph->values[value].type;
    ul_value_id residual = add_input(graph, "residual", type.dtype, type.rank, type.dims);
    ul_node_id add = ul_graph_add_node(graph, 0, UL_OP_Add, "add", 2, 1);
    graph->nodes[add].inputs[0] = value;
    graph->nodes[add].inputs[1] = residual;
    infer(e, graph, add);
}

/* `value`, or what a producer makes of it: its Relu, or its product with one number for each index
 * of dimension `axis`. */
static ul_value_id add_producer(struct emitter *e, struct ul_graph *graph, ul_value_id value,
                                uint32_t axis, enum producer producer)
{
    if (producer == NO_PRODUCER)
        return value;
    if (producer == PRODUCER_RELU) {
        add_relu(e, graph, value);
        return graph->nodes[graph->node_count - 1].outputs[0];
    }
    struct ul_type type = graph->values[value].type;
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = d == axis ? type.dims[d] : 1;
    ul_value_id factor = add_input(graph, "factor", type.dtype, type.rank, type.dims);
    ul_node_id mul = ul_graph_add_node(graph, 0, UL_OP_Mul, "mul", 2, 1);
    graph->nodes[mul].inputs[0] = value;
    graph->nodes[mul].inputs[1] = factor;
    infer(e, graph, mul);
    return graph->nodes[mul].outputs[0];
}

static void emit_conv(struct emitter *e, const struct conv_case *c, enum ul_dtype dtype, bool adds,
                      enum producer producer)
{
    struct ul_graph graph;
    ul_graph_init(&graph, &e->arena, "case");
    uint32_t s = c->spatial, rank = 2 + s;
    int64_t x[5] = {c->batch, c->groups * c->in}, w[5] = {c->groups * c->out, c->in};
    if (c->transposed)
        w[0] = c->groups * c->in, w[1] = c->out;
    for (uint32_t d = 0; d < s; d++)
        x[2 + d] = c->size[d], w[2 + d] = c->kernel[d];
    int64_t bias = c->groups * c->out;
    ul_value_id xv = add_input(&graph, "x", dtype, rank, x);
    xv = add_producer(e, &graph, xv, 1, producer);
    ul_value_id wv = add_input(&graph, "w", dtype, rank, w);
    ul_value_id bv = add_input(&graph, "b", dtype, 1, &bias);
    ul_node_id node = ul_graph_add_node(&graph, 0, c->transposed ? UL_OP_ConvTranspose : UL_OP_Conv,
                                        "conv", 3, 1);
    graph.nodes[node].inputs[0] = xv;
    graph.nodes[node].inputs[1] = wv;
    graph.nodes[node].inputs[2] = bv;
    ul_node_set_ints(&graph, node, "strides", c->stride, s);
    ul_node_set_ints(&graph, node, "dilations", c->dilation, s);
    ul_node_set_ints(&graph, node, "pads", c->pad, 2 * s);
    ul_node_set_int(&graph, node, "group", c->groups);
    infer(e, &graph, node);
    ul_value_id out = graph.nodes[node].outputs[0];
    for (ul_value_id v = 0; e->channels_last && v < graph.value_count; v++)
        if (v != wv && graph.values[v].type.rank == rank)
            graph.values[v].flags |= UL_VALUE_CHANNELS_LAST;
    int64_t pixels = 1, taps = c->in;
    for (uint32_t d = 0; d < s; d++) {
        pixels *= graph.values[out].type.dims[2 + d];
        taps *= c->kernel[d];
    }
    if (adds)
        add_residual(e, &graph, out);
    else
        add_relu(e, &graph, out);
    emit(e, &graph, c->name, c->out, pixels, taps, c->batch * c->groups, c);
}

static void emit_gemm(struct emitter *e, const struct gemm_case *g, enum ul_dtype dtype, bool adds,
                      enum producer producer)
{
    struct ul_graph graph;
    ul_graph_init(&graph, &e->arena, "case");
    bool is_gemm = g->trans_a || g->trans_b;
    int64_t a[3] = {g->batch, g->m, g->k}, b[3] = {g->batch, g->k, g->n};
    if (g->trans_a)
        a[1] = g->k, a[2] = g->m;
    if (g->trans_b)
        b[1] = g->n, b[2] = g->k;
    uint32_t skip = g->batch == 1 ? 1 : 0;
    ul_value_id av = add_input(&graph, "a", dtype, 3 - skip, a + skip);
    ul_value_id bv = add_input(&graph, "b", dtype, 3 - skip, b + skip);
    av = add_producer(e, &graph, av, 2 - skip, producer);
    if (producer == PRODUCER_SCALE)
        bv = add_producer(e, &graph, bv, 1 - skip, producer);
    ul_node_id node = ul_graph_add_node(&graph, 0, is_gemm ? UL_OP_Gemm : UL_OP_MatMul, "mm", 2, 1);
    graph.nodes[node].inputs[0] = av;
    graph.nodes[node].inputs[1] = bv;
    if (g->trans_a)
        ul_node_set_int(&graph, node, "transA", 1);
    if (g->trans_b)
        ul_node_set_int(&graph, node, "transB", 1);
    infer(e, &graph, node);
    if (adds)
        add_residual(e, &graph, graph.nodes[node].outputs[0]);
    else
        add_relu(e, &graph, graph.nodes[node].outputs[0]);
    emit(e, &graph, g->name, g->m, g->n, g->k, g->batch, NULL);
}

/* What an integer contraction needs beside its shape. */
struct int_case {
    enum ul_dtype a, b;  /* of the first and the second operand */
    bool a_zero, b_zero; /* zero-points are subtracted */
    bool by_channel;     /* the second operand's has one for each channel or column */
    int64_t pad_value;
    enum ul_dtype result; /* of a Rescale after the sums, or UL_I32: none */
};

/* Rescale to c->result with a factor for each index of dimension `axis`; or the sums as they are,
 * with others added. */
static void add_rescale(struct emitter *e, struct ul_graph *graph, ul_value_id sums, uint32_t axis,
                        const struct int_case *c)
{
    if (c->result == UL_I32) {
        add_residual(e, graph, sums);
        return;
    }
    struct ul_type type = graph->values[sums].type;
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = d == axis ? type.dims[d] : 1;
    ul_value_id bias = add_input(graph, "bias", UL_I32, type.rank, type.dims);
    ul_node_id add = ul_graph_add_node(graph, 0, UL_OP_Add, "add", 2, 1);
    graph->nodes[add].inputs[0] = sums;
    graph->nodes[add].inputs[1] = bias;
    infer(e, graph, add);
    ul_value_id zero = add_input(graph, "y_zero", c->result, 0, type.dims);
    ul_value_id factor = add_input(graph, "factor", UL_F32, type.rank, type.dims);
    ul_node_id node = ul_graph_add_node(graph, 0, UL_OP_Rescale, "rescale", 3, 1);
    graph->nodes[node].inputs[0] = zero;
    graph->nodes[node].inputs[1] = graph->nodes[add].outputs[0];
    graph->nodes[node].inputs[2] = factor;
    infer(e, graph, node);
}

/* Sums of integers of operands a and b, the zero-points after them. */
static ul_node_id add_sums(struct ul_graph *graph, ul_op_id op, ul_value_id a, ul_value_id b,
                           const struct int_case *c, int64_t channels)
{
    bool has_zero = c->a_zero || c->b_zero;
    ul_node_id node = ul_graph_add_node(graph, 0, op, "sums", has_zero ? 4 : 2, 1);
    graph->nodes[node].inputs[0] = a;
    graph->nodes[node].inputs[1] = b;
    if (has_zero) {
        graph->nodes[node].inputs[2] =
            c->a_zero ? add_input(graph, "a_zero", c->a, 0, &channels) : UL_NONE;
        graph->nodes[node].inputs[3] =
            c->b_zero ? add_input(graph, "b_zero", c->b, c->by_channel ? 1 : 0, &channels)
                      : UL_NONE;
    }
    return node;
}

static void emit_conv_integer(struct emitter *e, const struct conv_case *c,
                              const struct int_case *types)
{
    struct ul_graph graph;
    ul_graph_init(&graph, &e->arena, "case");
    uint32_t s = c->spatial, rank = 2 + s;
    int64_t x[5] = {c->batch, c->groups * c->in}, w[5] = {c->groups * c->out, c->in};
    for (uint32_t d = 0; d < s; d++)
        x[2 + d] = c->size[d], w[2 + d] = c->kernel[d];
    ul_value_id xv = add_input(&graph, "x", types->a, rank, x);
    ul_value_id wv = add_input(&graph, "w", types->b, rank, w);
    ul_node_id node = add_sums(&graph, UL_OP_ConvInteger, xv, wv, types, w[0]);
    ul_node_set_ints(&graph, node, "strides", c->stride, s);
    ul_node_set_ints(&graph, node, "dilations", c->dilation, s);
    ul_node_set_ints(&graph, node, "pads", c->pad, 2 * s);
    ul_node_set_int(&graph, node, "group", c->groups);
    if (types->pad_value != 0)
        ul_node_set_int(&graph, node, "pad_value", types->pad_value);
    infer(e, &graph, node);
    ul_value_id out = graph.nodes[node].outputs[0];
    int64_t pixels = 1, taps = c->in;
    for (uint32_t d = 0; d < s; d++) {
        pixels *= graph.values[out].type.dims[2 + d];
        taps *= c->kernel[d];
    }
    for (ul_value_id v = 0; e->channels_last && v < graph.value_count; v++)
        if (v != wv && graph.values[v].type.rank == rank)
            graph.values[v].flags |= UL_VALUE_CHANNELS_LAST;
    add_rescale(e, &graph, out, 1, types);
    e->fills_bytes = true;
    emit(e, &graph, c->name, c->out, pixels, taps, c->batch * c->groups, NULL);
    e->fills_bytes = false;
}

static void emit_matmul_integer(struct emitter *e, const struct gemm_case *g,
                                const struct int_case *types)
{
    struct ul_graph graph;
    ul_graph_init(&graph, &e->arena, "case");
    int64_t a[3] = {g->batch, g->m, g->k}, b[3] = {g->batch, g->k, g->n};
    uint32_t skip = g->batch == 1 ? 1 : 0;
    ul_value_id av = add_input(&graph, "a", types->a, 3 - skip, a + skip);
    ul_value_id bv = add_input(&graph, "b", types->b, 3 - skip, b + skip);
    ul_node_id node = add_sums(&graph, UL_OP_MatMulInteger, av, bv, types, g->n);
    infer(e, &graph, node);
    add_rescale(e, &graph, graph.nodes[node].outputs[0], 2 - skip, types);
    e->fills_bytes = true;
    emit(e, &graph, g->name, g->m, g->n, g->k, g->batch, NULL);
    e->fills_bytes = false;
}

#define SQUARE(size, kernel, stride, pad)                                                          \
    2, {size, size}, {kernel, kernel}, {stride, stride}, {1, 1}, {pad, pad, pad, pad}, false

static const struct conv_case bench_convs[] = {
    {"resnet 7x7/2 3->64 @224", 1, 1, 3, 64, SQUARE(224, 7, 2, 3)},
    {"resnet 1x1 64->64 @56", 1, 1, 64, 64, SQUARE(56, 1, 1, 0)},
    {"resnet 3x3 64->64 @56", 1, 1, 64, 64, SQUARE(56, 3, 1, 1)},
    {"resnet 1x1 64->256 @56", 1, 1, 64, 256, SQUARE(56, 1, 1, 0)},
    {"resnet 1x1 256->64 @56", 1, 1, 256, 64, SQUARE(56, 1, 1, 0)},
    {"resnet 3x3/2 128->128 @56", 1, 1, 128, 128, SQUARE(56, 3, 2, 1)},
    {"resnet 1x1/2 256->512 @56", 1, 1, 256, 512, SQUARE(56, 1, 2, 0)},
    {"resnet 3x3 128->128 @28", 1, 1, 128, 128, SQUARE(28, 3, 1, 1)},
    {"resnet 1x1 128->512 @28", 1, 1, 128, 512, SQUARE(28, 1, 1, 0)},
    {"resnet 1x1 512->128 @28", 1, 1, 512, 128, SQUARE(28, 1, 1, 0)},
    {"resnet 3x3 256->256 @14", 1, 1, 256, 256, SQUARE(14, 3, 1, 1)},
    {"resnet 1x1 256->1024 @14", 1, 1, 256, 1024, SQUARE(14, 1, 1, 0)},
    {"resnet 1x1 1024->256 @14", 1, 1, 1024, 256, SQUARE(14, 1, 1, 0)},
    {"resnet 3x3/2 512->512 @14", 1, 1, 512, 512, SQUARE(14, 3, 2, 1)},
    {"resnet 3x3 512->512 @7", 1, 1, 512, 512, SQUARE(7, 3, 1, 1)},
    {"resnet 1x1 512->2048 @7", 1, 1, 512, 2048, SQUARE(7, 1, 1, 0)},
    {"resnet 1x1 2048->512 @7", 1, 1, 2048, 512, SQUARE(7, 1, 1, 0)},
    {"mobilenet 3x3/2 3->32 @224", 1, 1, 3, 32, SQUARE(224, 3, 2, 1)},
    {"mobilenet dw 3x3 x32 @112", 1, 32, 1, 1, SQUARE(112, 3, 1, 1)},
    {"mobilenet dw 3x3/2 x96 @112", 1, 96, 1, 1, SQUARE(112, 3, 2, 1)},
    {"mobilenet dw 3x3 x576 @14", 1, 576, 1, 1, SQUARE(14, 3, 1, 1)},
    {"mobilenet 1x1 32->16 @112", 1, 1, 32, 16, SQUARE(112, 1, 1, 0)},
    {"convnext dw 7x7 x96 @56", 1, 96, 1, 1, SQUARE(56, 7, 1, 3)},
    {"regnet 3x3 g16 x8 @28", 1, 8, 16, 16, SQUARE(28, 3, 1, 1)},
};

static const struct gemm_case bench_gemms[] = {
    {"bert 128x768x768", 1, 128, 768, 768, false, false},
    {"bert 128x3072x768", 1, 128, 3072, 768, false, false},
    {"bert 128x768x3072", 1, 128, 768, 3072, false, false},
    {"bert 128x768x768 transB", 1, 128, 768, 768, false, true},
    {"bert scores 12x128x128x64", 12, 128, 128, 64, false, false},
    {"bert context 12x128x64x128", 12, 128, 64, 128, false, false},
    {"vit 197x768x768", 1, 197, 768, 768, false, false},
    {"swin 49x49x32 x64", 64, 49, 49, 32, false, false},
    {"gemv 1x768x3072", 1, 1, 768, 3072, false, false},
    {"gemv 1x3072x768", 1, 1, 3072, 768, false, false},
    {"gemv 1x1000x2048 transB", 1, 1, 1000, 2048, false, true},
    {"gemv 768x1x3072", 1, 768, 1, 3072, false, false},
    {"few rows 4x3072x768", 1, 4, 3072, 768, false, false},
    {"few rows 8x1024x4096 transB", 1, 8, 1024, 4096, false, true},
};

static const struct conv_case bench_int_convs[] = {
    {"ds-cnn 10x4/2 1->64 @49x10",
     1,
     1,
     1,
     64,
     2,
     {49, 10},
     {10, 4},
     {2, 2},
     {1, 1},
     {4, 1, 5, 1},
     false},
    {"ds-cnn dw 3x3 x64 @25x5",
     1,
     64,
     1,
     1,
     2,
     {25, 5},
     {3, 3},
     {1, 1},
     {1, 1},
     {1, 1, 1, 1},
     false},
    {"ds-cnn 1x1 64->64 @25x5",
     1,
     1,
     64,
     64,
     2,
     {25, 5},
     {1, 1},
     {1, 1},
     {1, 1},
     {0, 0, 0, 0},
     false},
};

/* Each shape in f32 and, after it, in 8 bits with a Rescale. */
static void emit_int_bench(struct emitter *e)
{
    static const struct int_case types = {.a = UL_U8, .b = UL_I8, .pad_value = 3, .result = UL_U8};
    size_t convs = sizeof bench_convs / sizeof *bench_convs;
    size_t all = convs + sizeof bench_int_convs / sizeof *bench_int_convs;
    for (size_t i = 0; i < all; i++) {
        struct conv_case c = i < convs ? bench_convs[i] : bench_int_convs[i - convs];
        emit_conv(e, &c, UL_F32, false, NO_PRODUCER);
        c.name = ul_arena_printf(&e->arena, "%s u8", c.name);
        emit_conv_integer(e, &c, &types);
    }
    for (size_t i = 0; i < sizeof bench_gemms / sizeof *bench_gemms; i++) {
        struct gemm_case g = bench_gemms[i];
        emit_gemm(e, &g, UL_F32, false, NO_PRODUCER);
        g.name = ul_arena_printf(&e->arena, "%s u8", g.name);
        emit_matmul_integer(e, &g, &types);
    }
}

static void emit_bench(struct emitter *e)
{
    for (size_t i = 0; i < sizeof bench_convs / sizeof bench_convs[0]; i++)
        emit_conv(e, &bench_convs[i], UL_F32, false, NO_PRODUCER);
    for (size_t i = 0; i < sizeof bench_gemms / sizeof bench_gemms[0]; i++)
        emit_gemm(e, &bench_gemms[i], UL_F32, false, NO_PRODUCER);
}

static int64_t pick(struct emitter *e, int64_t low, int64_t high)
{
    return low + (int64_t)random_below(e, (uint64_t)(high - low + 1));
}

static enum producer random_producer(struct emitter *e)
{
    int64_t choice = pick(e, 0, 5);
    return choice == 0 ? PRODUCER_RELU : choice == 1 ? PRODUCER_SCALE : NO_PRODUCER;
}

static struct int_case random_int_case(struct emitter *e)
{
    static const enum ul_dtype results[] = {UL_I32, UL_U8, UL_I8, UL_I16};
    struct int_case c = {.a = pick(e, 0, 1) ? UL_U8 : UL_I8, .b = pick(e, 0, 2) ? UL_I8 : UL_U8};
    if (pick(e, 0, 2) == 0) {
        c.a_zero = pick(e, 0, 1);
        c.b_zero = pick(e, 0, 1);
        c.by_channel = pick(e, 0, 1);
    } else if (pick(e, 0, 1)) {
        c.pad_value = pick(e, 1, 100);
    }
    c.result = results[pick(e, 0, 3)];
    return c;
}

static const char *name_of(struct emitter *e, const struct int_case *c, const char *name)
{
    return ul_arena_printf(
        &e->arena, "%s (%s%s by %s%s%s, pad %d, to %s)", name, ul_dtype_get(c->a)->name,
        c->a_zero ? " with zero" : "", ul_dtype_get(c->b)->name, c->b_zero ? " with zero" : "",
        c->by_channel ? "s" : "", (int)c->pad_value, ul_dtype_get(c->result)->name);
}

static void random_conv(struct emitter *e, enum ul_dtype dtype, bool is_int)
{
    struct conv_case c = {.batch = pick(e, 1, 2), .groups = pick(e, 0, 2) ? 1 : pick(e, 2, 5)};
    c.spatial = (uint32_t)pick(e, 1, 3);
    c.transposed = !is_int && pick(e, 0, 3) == 0;
    c.in = pick(e, 0, 3) == 0 ? 1 : pick(e, 1, pick(e, 0, 4) == 0 ? 90 : 12);
    c.out = pick(e, 0, 3) == 0 ? 1 : pick(e, 1, 21);
    if (pick(e, 0, 3) == 0) { /* depthwise */
        c.groups = pick(e, 2, 6);
        c.in = c.out = 1;
    }
    bool is_same = pick(e, 0, 3) == 0; /* the result is as large as the input: 1 x 1 or padded */
    if (is_same)
        c.out = c.in;
    for (uint32_t d = 0; d < c.spatial; d++) {
        c.kernel[d] = pick(e, 1, 4);
        c.dilation[d] = pick(e, 1, 3);
        c.stride[d] = pick(e, 1, c.transposed ? 5 : 3);
        int64_t max_pad = c.transposed ? c.kernel[d] - 1 : c.kernel[d];
        c.pad[d] = pick(e, 0, max_pad);
        c.pad[c.spatial + d] = pick(e, 0, max_pad);
        if (is_same) {
            c.kernel[d] = c.in > 1 ? 1 : c.kernel[d] | 1;
            c.stride[d] = 1;
            c.pad[d] = c.pad[c.spatial + d] = c.dilation[d] * (c.kernel[d] / 2);
        }
        int64_t extent = (c.kernel[d] - 1) * c.dilation[d] + 1;
        c.size[d] = extent + pick(e, 0, c.spatial == 1 ? 120 : c.spatial == 2 ? 15 : 3);
    }
    c.name = ul_arena_printf(&e->arena,
                             "%s %s n%d g%d %d->%d spatial %d size %d kernel %d stride %d %d "
                             "dilation %d pad %d %d",
                             c.transposed ? "transposed" : "conv", ul_dtype_get(dtype)->name,
                             (int)c.batch, (int)c.groups, (int)c.in, (int)c.out, (int)c.spatial,
                             (int)c.size[0], (int)c.kernel[0], (int)c.stride[0], (int)c.stride[1],
                             (int)c.dilation[0], (int)c.pad[0], (int)c.pad[c.spatial]);
    if (is_int) {
        struct int_case types = random_int_case(e);
        c.name = name_of(e, &types, c.name);
        e->channels_last = pick(e, 0, 2) == 0;
        emit_conv_integer(e, &c, &types);
        e->channels_last = false;
        return;
    }
    e->channels_last = e->is_cuda && pick(e, 0, 1);
    emit_conv(e, &c, dtype, pick(e, 0, 1), random_producer(e));
    e->channels_last = false;
}

static void random_gemm(struct emitter *e, enum ul_dtype dtype, bool is_int)
{
    struct gemm_case g = {.batch = pick(e, 0, 2) == 0 ? pick(e, 2, 3) : 1};
    g.m = pick(e, 0, 3) == 0 ? 1 : pick(e, 1, 40);
    g.n = pick(e, 0, 5) == 0 ? 1 : pick(e, 1, 120);
    g.k = pick(e, 0, 6) == 0 ? pick(e, 500, 1200) : pick(e, 1, 70);
    if (pick(e, 0, 2) == 0) /* the result is as large as the second operand */
        g.k = g.m;
    if (g.batch == 1) {
        g.trans_a = pick(e, 0, 2) == 0;
        g.trans_b = pick(e, 0, 2) == 0;
    }
    g.name =
        ul_arena_printf(&e->arena, "matmul %s %d x %dx%dx%d trans %d %d", ul_dtype_get(dtype)->name,
                        (int)g.batch, (int)g.m, (int)g.n, (int)g.k, g.trans_a, g.trans_b);
    if (is_int) {
        struct int_case types = random_int_case(e);
        g.name = name_of(e, &types, g.name);
        emit_matmul_integer(e, &g, &types);
        return;
    }
    bool is_unsigned = dtype == UL_U32 || dtype == UL_U64; /* Relu has no unsigned form */
    emit_gemm(e, &g, dtype, pick(e, 0, 1) || is_unsigned,
              is_unsigned ? NO_PRODUCER : random_producer(e));
}

static void emit_test(struct emitter *e, uint32_t count)
{
    static const enum ul_dtype dtypes[] = {UL_F32,  UL_F32, UL_F32, UL_F64, UL_F16,
                                           UL_BF16, UL_I32, UL_I64, UL_U32, UL_U64};
    for (uint32_t i = 0; i < count; i++) {
        if (pick(e, 0, 1))
            random_conv(e, dtypes[pick(e, 0, 5)], false);
        else
            random_gemm(e, dtypes[pick(e, 0, 9)], false);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (pick(e, 0, 1))
            random_conv(e, UL_I8, true);
        else
            random_gemm(e, UL_I8, true);
    }
}

enum {
    LARGE = 11, /* the interpreter takes seconds for these */
    MANY = 100  /* random shapes, from which on there is time for them */
};

/* One for each tile of target cuda. */
static void emit_tiles(struct emitter *e, bool all)
{
    static const struct gemm_case gemms[] = {
        {"128 x 128", 140, 128, 126, 8, false, false}, {"64 x 128", 110, 64, 128, 18, false, false},
        {"128 x 64", 110, 128, 64, 18, false, false},  {"64 x 64", 110, 64, 60, 33, false, false},
        {"32 x 32", 60, 60, 64, 40, false, false},     {"16 x 64", 60, 15, 260, 40, false, false},
        {"64 x 32", 200, 62, 32, 33, false, false},    {"32 x 64", 200, 30, 64, 33, false, false},
        {"64 x 16", 60, 260, 12, 40, false, false},    {"8 x 64", 80, 5, 300, 60, false, false},
        {"64 x 8", 80, 300, 5, 60, false, false},      {"16 x 16", 1, 33, 36, 500, false, true},
        {"16 x 16", 1, 96, 40, 200, true, false},      {"dot", 1, 400, 1, 260, false, false},
        {"dots", 1, 900, 1, 132, true, true},          {"parts", 1, 20, 18, 2048, false, false},
    };
    for (size_t i = all ? 0 : LARGE; i < sizeof gemms / sizeof gemms[0]; i++) {
        emit_gemm(e, &gemms[i], UL_F32, false, NO_PRODUCER);
        emit_gemm(e, &gemms[i], i % 2 == 0 ? UL_F16 : UL_BF16, true, NO_PRODUCER);
    }
    static const struct conv_case convs[] = {
        {"3x3 32->40 @9", 2, 1, 32, 40, SQUARE(9, 3, 1, 1)},
        {"3x3/2 48->64 @13", 1, 1, 48, 64, SQUARE(13, 3, 2, 1)},
        {"1x1 64->96 @7", 1, 1, 64, 96, SQUARE(7, 1, 1, 0)},
        {"dw 5x5 x24 @11", 2, 24, 1, 1, SQUARE(11, 5, 1, 2)},
        {"g4 16->8 @6", 1, 4, 16, 8, SQUARE(6, 3, 1, 1)},
        {"parts 3x3 128->24 @5", 1, 1, 128, 24, SQUARE(5, 3, 1, 1)},
    };
    e->channels_last = true;
    for (size_t i = 0; i < sizeof convs / sizeof convs[0]; i++) {
        emit_conv(e, &convs[i], UL_F32, true, NO_PRODUCER);
        emit_conv(e, &convs[i], UL_F16, false, NO_PRODUCER);
    }
    e->channels_last = false;
}

/* The same for bytes of all signs: four along k, four turned, one by one. */
static void emit_byte_tiles(struct emitter *e, bool all)
{
    static const struct gemm_case gemms[] = {
        {"bytes 128 x 128", 132, 128, 126, 40, false, false},
        {"bytes 64 x 128", 110, 64, 128, 50, false, false},
        {"bytes 128 x 64", 110, 128, 64, 33, false, false},
        {"bytes 64 x 64", 110, 64, 60, 130, false, false},
        {"bytes 64 x 64", 110, 60, 60, 50, false, false},
        {"bytes 32 x 32", 1, 45, 36, 200, false, false},
        {"bytes 32 x 32", 2, 33, 31, 67, false, false},
        {"bytes of few rows", 1, 3, 100, 96, false, false},
        {"bytes of few columns", 2, 70, 6, 45, false, false},
        {"bytes, dots", 1, 90, 1, 272, false, false},
        {"bytes, dots", 1, 9, 1, 75, false, false},
        {"bytes, parts", 1, 20, 18, 2048, false, false},
    };
    static const struct conv_case convs[] = {
        {"bytes 3x3 32->40 @9", 2, 1, 32, 40, SQUARE(9, 3, 1, 1)},
        {"bytes 7x7/2 3->16 @13", 1, 1, 3, 16, SQUARE(13, 7, 2, 3)},
        {"bytes 1x1 64->96 @7", 1, 1, 64, 96, SQUARE(7, 1, 1, 0)},
        {"bytes g4 16->8 @6", 1, 4, 16, 8, SQUARE(6, 3, 1, 1)},
        {"bytes, parts 3x3 128->24 @5", 1, 1, 128, 24, SQUARE(5, 3, 1, 1)},
    };
    enum { LARGE_BYTES = 5 };
    for (size_t i = all ? 0 : LARGE_BYTES; i < sizeof gemms / sizeof *gemms; i++) {
        struct int_case types = {.a = i % 2 ? UL_U8 : UL_I8, .b = i % 4 > 1 ? UL_U8 : UL_I8};
        types.result = i % 3 ? UL_U8 : UL_I32;
        emit_matmul_integer(e, &gemms[i], &types);
    }
    e->channels_last = true;
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
        struct int_case types = {.a = i % 2 ? UL_I8 : UL_U8, .b = UL_I8, .pad_value = 100};
        types.result = i % 3 ? UL_I8 : UL_I32;
        emit_conv_integer(e, &convs[i], &types);
    }
    e->channels_last = false;
}

int main(int argc, char **argv)
{
    struct emitter e = {.thread_count = 1};
    bool is_test = argc == 6 && strcmp(argv[1], "test") == 0;
    e.is_cuda = argc == 5 && strcmp(argv[1], "cuda") == 0;
    if (!is_test && !e.is_cuda && !(argc == 3 && strncmp(argv[1], "bench", 5) == 0)) {
        fprintf(stderr,
                "usage: contract_emit bench|bench_int OUT.c | test OUT.c SEED COUNT THREADS | "
                "cuda OUT.cu SEED COUNT\n");
        return UL_USAGE;
    }
    ul_arena_init(&e.arena);
    ul_text_init(&e.text, &e.arena);
    ul_text_init(&e.table, &e.arena);
    if (is_test || e.is_cuda) {
        e.state = strtoull(argv[3], NULL, 10);
        e.thread_count = is_test ? (uint32_t)strtoul(argv[5], NULL, 10) : 1;
        e.data = fopen(ul_arena_printf(&e.arena, "%s.data", argv[2]), "wb");
        if (e.data == NULL)
            return UL_IO;
        uint32_t count = (uint32_t)strtoul(argv[4], NULL, 10);
        emit_test(&e, count);
        if (e.is_cuda) {
            emit_tiles(&e, count >= MANY);
            emit_byte_tiles(&e, count >= MANY);
        }
        fclose(e.data);
    } else {
        (strcmp(argv[1], "bench_int") == 0 ? emit_int_bench : emit_bench)(&e);
    }
    FILE *file = fopen(argv[2], "w");
    if (file == NULL)
        return UL_IO;
    fprintf(file, "%s\nstatic const struct kernel_case cases[] = {\n%s};\n", e.text.data,
            e.table.data);
    fclose(file);
    ul_arena_done(&e.arena);
    return 0;
}
