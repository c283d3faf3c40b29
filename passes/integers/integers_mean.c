/* SPDX-License-Identifier: Apache-2.0 */
/* Means of 8-bit integers as sums in 32 bits, with the number of terms in the scale after them.
 *
 * Over whole axes they are a ReduceSum. Over windows AveragePool is a convolution of each channel
 * with ones, which take no bytes; where windows hang over the edge the number of terms depends on
 * the place, and so does the factor. */
#include "ir/geometry.h"
#include "ir/op_names.h"
#include "passes/integers/integers_internal.h"

#include <string.h>

enum { MAX_TERMS = 1 << 22 }; /* of 8 bits, whose sum stays in 32 */

/* `pool`: for AveragePool alone. */
struct mean {
    struct ul_scaled x, y;
    struct ul_pool pool;
    bool counts_padding;
};

static ul_value_id add_ones(struct ul_integers *integers, const struct ul_type *type)
{
    struct ul_graph *graph = integers->graph;
    const unsigned char one = 1;
    UL_ASSERT(type->dtype == UL_I8);
    return ul_graph_add_weight(graph,
                               ul_arena_printf(graph->arena, "%s.ones", integers->build.name),
                               ul_tensor_new_splat(graph->arena, type, &one));
}

/* Takes terms * zero off the sums. */
static ul_value_id add_offset(struct ul_integers *integers, ul_value_id sum,
                              const struct ul_scaled *x, double terms)
{
    struct ul_graph *graph = integers->graph;
    const double offset = -terms * (double)ul_scaled_zero(x, 0);
    if (offset == 0)
        return sum;
    const char *name = ul_arena_printf(graph->arena, "%s.offset", integers->build.name);
    const ul_value_id both[2] = {sum, ul_edit_add_numbers(graph, name, UL_I32, &offset, 1, 0)};
    return ul_integers_add(integers, UL_OP_Add, both, 2, NULL);
}

/* Elements of x under window o of dimension d. */
static int64_t covered(const struct mean *mean, uint32_t d, int64_t o)
{
    const struct ul_pool *pool = &mean->pool;
    int64_t pad = mean->counts_padding ? pool->pad_begin[d] : 0, step = pool->dilation[d];
    int64_t end = pool->in[d] + (mean->counts_padding ? pool->pad_end[d] : 0);
    int64_t begin = o * pool->stride[d] - pool->pad_begin[d]; /* of the window */
    int64_t before = -pad > begin ? (-pad - begin + step - 1) / step : 0;
    int64_t after = end > begin ? (end - begin + step - 1) / step : 0;
    after = after < pool->kernel[d] ? after : pool->kernel[d];
    return after > before ? after - before : 0;
}

/* There is something to sum, the sums stay in 32 bits, and there are at most MAX_TERMS factors. */
static bool has_window_sums(const struct ul_integers *integers, const struct mean *mean)
{
    const struct ul_pool *pool = &mean->pool;
    int64_t terms = 1, places = 1;
    if (ul_type_elements(&integers->graph->values[mean->x.x].type) == 0)
        return false;
    for (uint32_t d = 0; d < pool->count; d++) {
        if (pool->out[d] < 1 || pool->out[d] > MAX_TERMS / places ||
            pool->kernel[d] > MAX_TERMS / terms)
            return false;
        terms *= pool->kernel[d];
        places *= pool->out[d];
    }
    return true;
}

static void become_mean(struct ul_integers *integers, ul_node_id id, const struct mean *mean,
                        ul_value_id sum)
{
    const struct ul_pool *pool = &mean->pool;
    struct ul_type type = {.dtype = UL_F32, .rank = pool->count};
    for (uint32_t d = 0; d < pool->count; d++)
        type.dims[d] = pool->out[d];
    uint64_t count = ul_type_elements(&type);
    double *factors = UL_NEW_ARRAY(integers->pass->scratch, double, count);
    double scale = ul_scaled_scale(&mean->x, 0) / ul_scaled_scale(&mean->y, 0);
    bool are_equal = true;
    for (uint64_t i = 0; i < count; i++) {
        int64_t rest = (int64_t)i, terms = 1;
        for (uint32_t d = pool->count; d-- > 0; rest /= pool->out[d])
            terms *= covered(mean, d, rest % pool->out[d]);
        factors[i] = scale / (double)(terms < 1 ? 1 : terms);
        are_equal = are_equal && factors[i] == factors[0];
    }
    type.rank = are_equal ? 0 : type.rank;
    ul_integers_become_rescale(integers, id, sum, &mean->y, &type, factors);
}

/* The sums over windows as a convolution of each channel. */
static ul_value_id add_window_sums(struct ul_integers *integers, const struct mean *mean)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_pool *pool = &mean->pool;
    int64_t channels = graph->values[mean->x.x].type.dims[1], pads[2 * UL_CONV_SPATIAL];
    struct ul_type ones = {.dtype = UL_I8, .rank = 2 + pool->count, .dims = {channels, 1}};
    double terms = 1;
    for (uint32_t d = 0; d < pool->count; d++) {
        int64_t last = (pool->out[d] - 1) * pool->stride[d] - pool->pad_begin[d] +
                       (pool->kernel[d] - 1) * pool->dilation[d];
        ones.dims[2 + d] = pool->kernel[d];
        pads[d] = pool->pad_begin[d];
        pads[pool->count + d] = last >= pool->in[d] ? last + 1 - pool->in[d] : 0;
        terms *= (double)pool->kernel[d];
    }
    const ul_value_id inputs[2] = {mean->x.x, add_ones(integers, &ones)};
    ul_node_id id = ul_integers_begin(integers, UL_OP_ConvInteger, inputs, 2, NULL);
    ul_node_set_int(graph, id, "group", channels);
    ul_node_set_ints(graph, id, "kernel_shape", pool->kernel, pool->count);
    ul_node_set_ints(graph, id, "strides", pool->stride, pool->count);
    ul_node_set_ints(graph, id, "dilations", pool->dilation, pool->count);
    ul_node_set_ints(graph, id, "pads", pads, 2 * pool->count);
    ul_node_set_int(graph, id, "pad_value", ul_scaled_zero(&mean->x, 0));
    return add_offset(integers, ul_integers_end(integers, id), &mean->x, terms);
}

/* GlobalAveragePool and ReduceMean: the axes stay as they are. */
static bool become_reduced(struct ul_integers *integers, ul_node_id id, const struct ul_node *node,
                           const struct mean *mean)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_type x = graph->values[mean->x.x].type;
    uint64_t results = ul_type_elements(&graph->values[node->outputs[0]].type);
    uint64_t terms = results == 0 ? 0 : ul_type_elements(&x) / results;
    int64_t axes[UL_LIMIT_RANK];
    uint32_t input_count = node->input_count > 1 && node->inputs[1] != UL_NONE ? 2 : 1;
    if (terms == 0 || terms > MAX_TERMS)
        return false;
    ul_value_id inputs[2] = {ul_integers_cast(integers, mean->x.x, UL_I32),
                             input_count > 1 ? node->inputs[1] : UL_NONE};
    if (node->op == UL_OP_GlobalAveragePool) {
        for (uint32_t d = 2; d < x.rank; d++)
            axes[d - 2] = d;
        inputs[1] = ul_build_ints(graph, "axes", x.rank - 2, axes);
        input_count = 2;
    }
    ul_value_id sum = ul_integers_add(integers, UL_OP_ReduceSum, inputs, input_count, node);
    sum = add_offset(integers, sum, &mean->x, (double)terms);
    double factor = ul_scaled_scale(&mean->x, 0) / ul_scaled_scale(&mean->y, 0) / (double)terms;
    const struct ul_type one = {.dtype = UL_F32};
    ul_integers_become_rescale(integers, id, sum, &mean->y, &one, &factor);
    return true;
}

bool ul_integers_mean(struct ul_integers *integers, ul_node_id id)
{
    const struct ul_graph *graph = integers->graph;
    const struct ul_node quantize = graph->nodes[id];
    const struct ul_node *maker = ul_integers_maker(integers, quantize.inputs[0]);
    struct mean mean = {.counts_padding = false};
    if (maker == NULL || maker->input_count == 0 || maker->inputs[0] == UL_NONE ||
        !ul_integers_find(integers, maker->inputs[0], &mean.x) || mean.x.count != 1 ||
        !ul_integers_result(integers, &quantize, &mean.y) ||
        !ul_integers_is_8bit(integers, mean.x.x) ||
        !ul_dtype_get(graph->values[mean.y.x].type.dtype)->is_integer)
        return false;
    const struct ul_node node = *maker;
    if (node.op == UL_OP_GlobalAveragePool || node.op == UL_OP_ReduceMean)
        return become_reduced(integers, id, &node, &mean);
    if (node.op != UL_OP_AveragePool ||
        ul_pool_read(&node, &graph->values[mean.x.x].type, &mean.pool) != NULL ||
        mean.pool.count > UL_CONV_SPATIAL || !has_window_sums(integers, &mean))
        return false;
    mean.counts_padding = ul_node_get_int(&node, "count_include_pad", 0) != 0;
    become_mean(integers, id, &mean, add_window_sums(integers, &mean));
    return true;
}
