/* Means, and softmax, of integers.
 *
 * A mean over windows or axes is a sum of products with ones, with the number of its terms in the
 * scale behind it: AveragePool is a convolution of each channel, a mean over the last axis a
 * product with a column. The ones take no bytes. Where windows hang over the edge the number of
 * terms depends on the place, and so does the factor.
 *
 * Softmax: with d = max - x, 0 to 255, e = exp(-sx d) is a table in fixed point, and
 *
 *      y = round(e / (sum of e) / sy) + zy
 *
 * a division of integers for each element. */
#include "ir/geometry.h"
#include "passes/no_float_internal.h"

#include <math.h>
#include <string.h>

/* ---- means ---- */

/* A mean as sums over windows: of AveragePool, or of all of space. */
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
    int64_t count = 0, pad = mean->counts_padding ? pool->pad_begin[d] : 0;
    int64_t end = pool->in[d] + (mean->counts_padding ? pool->pad_end[d] : 0);
    for (int64_t t = 0; t < pool->kernel[d]; t++) {
        int64_t at = o * pool->stride[d] - pool->pad_begin[d] + t * pool->dilation[d];
        count += at >= -pad && at < end;
    }
    return count;
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
    ul_no_float_become_rescale(integers, id, sum, &mean->y, &type, factors);
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

/* All of space; axes of ReduceMean that are these. */
static bool read_space(const struct ul_integers *integers, const struct ul_node *node,
                       struct mean *mean)
{
    const struct ul_type *x = &integers->graph->values[mean->x.x].type;
    const struct ul_type *y = &integers->graph->values[node->outputs[0]].type;
    if (x->rank < 3 || x->rank > 2 + UL_CONV_SPATIAL || y->rank != x->rank ||
        y->dims[0] != x->dims[0] || y->dims[1] != x->dims[1])
        return false;
    mean->pool = (struct ul_pool){.count = x->rank - 2};
    for (uint32_t d = 0; d < mean->pool.count; d++) {
        if (y->dims[2 + d] != 1)
            return false;
        mean->pool.in[d] = mean->pool.kernel[d] = x->dims[2 + d];
        mean->pool.out[d] = mean->pool.stride[d] = mean->pool.dilation[d] = 1;
    }
    return true;
}

/* A mean over the last axis, which may be gone. */
static bool mean_of_rows(struct ul_integers *integers, ul_node_id id, const struct mean *mean,
                         const struct ul_node *node)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_type x = graph->values[mean->x.x].type;
    const struct ul_type y = graph->values[node->outputs[0]].type;
    int64_t columns = x.rank < 2 ? 0 : x.dims[x.rank - 1];
    bool keeps = y.rank == x.rank;
    for (uint32_t d = 0; d + 1 < x.rank; d++)
        columns = d < y.rank && y.dims[d] == x.dims[d] ? columns : 0;
    if (columns < 1 || (!keeps && y.rank + 1 != x.rank) || (keeps && y.dims[y.rank - 1] != 1))
        return false;
    const struct ul_type ones = {.dtype = UL_I8, .rank = 2, .dims = {columns, 1}};
    const ul_value_id inputs[2] = {mean->x.x, add_ones(integers, &ones)};
    ul_value_id sum = ul_integers_add(integers, UL_OP_MatMulInteger, inputs, 2, NULL);
    sum = add_offset(integers, sum, &mean->x, (double)columns);
    if (!keeps)
        sum = ul_build_reshape(&integers->build, sum, y.rank, y.dims);
    double factor = ul_scaled_scale(&mean->x, 0) / ul_scaled_scale(&mean->y, 0) / (double)columns;
    const struct ul_type one = {.dtype = UL_F32};
    ul_no_float_become_rescale(integers, id, sum, &mean->y, &one, &factor);
    return true;
}

bool ul_no_float_mean(struct ul_integers *integers, ul_node_id id)
{
    const struct ul_graph *graph = integers->graph;
    const struct ul_node quantize = graph->nodes[id];
    const struct ul_node *maker = ul_integers_maker(integers, quantize.inputs[0]);
    struct mean mean = {.counts_padding = false};
    if (maker == NULL || maker->input_count == 0 ||
        !ul_no_float_find(integers, maker->inputs[0], &mean.x) ||
        !ul_no_float_result(integers, &quantize, &mean.y))
        return false;
    const struct ul_node node = *maker;
    bool is_window = node.op == UL_OP_AveragePool;
    bool is_space = node.op == UL_OP_GlobalAveragePool || node.op == UL_OP_ReduceMean;
    if (!ul_integers_is_8bit(integers, mean.x.x) || (!is_window && !is_space))
        return false;
    mean.counts_padding = is_window && ul_node_get_int(&node, "count_include_pad", 0) != 0;
    bool is_read = is_window
                       ? ul_pool_read(&node, &graph->values[mean.x.x].type, &mean.pool) == NULL &&
                             mean.pool.count <= UL_CONV_SPATIAL
                       : read_space(integers, &node, &mean);
    if (!is_read)
        return node.op == UL_OP_ReduceMean && mean_of_rows(integers, id, &mean, &node);
    become_mean(integers, id, &mean, add_window_sums(integers, &mean));
    return true;
}

/* ---- softmax ---- */

enum { TABLE_SIZE = 256, SUM_BITS = 30, MAX_BITS = 22, SCALE_BITS = 16 };

/* exp(-scale * d) for each d, in units of 2^-bits. */
static ul_value_id add_exponentials(struct ul_integers *integers, double scale, int bits)
{
    struct ul_graph *graph = integers->graph;
    double numbers[TABLE_SIZE];
    UL_ASSERT(bits > 0 && bits <= MAX_BITS);
    for (uint32_t d = 0; d < TABLE_SIZE; d++)
        numbers[d] = nearbyint(ldexp(exp(-scale * d), bits));
    return ul_edit_add_numbers(graph, ul_arena_printf(graph->arena, "%s.exp", integers->build.name),
                               UL_I32, numbers, TABLE_SIZE, 1);
}

static ul_value_id add_number(struct ul_integers *integers, enum ul_dtype dtype, double number)
{
    return ul_edit_add_numbers(integers->graph, integers->build.name, dtype, &number, 1, 0);
}

static ul_value_id add_reduced(struct ul_integers *integers, enum ul_op op, ul_value_id value,
                               int64_t axis)
{
    const ul_value_id inputs[2] = {value, ul_build_ints(integers->graph, "axes", 1, &axis)};
    return ul_integers_add(integers, op, inputs, 2, NULL);
}

static ul_value_id add_two(struct ul_integers *integers, enum ul_op op, ul_value_id a,
                           ul_value_id b)
{
    const ul_value_id inputs[2] = {a, b};
    return ul_integers_add(integers, op, inputs, 2, NULL);
}

bool ul_no_float_softmax(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node quantize = graph->nodes[id];
    const struct ul_node *node = ul_integers_maker(integers, quantize.inputs[0]);
    struct ul_scaled x, y;
    if (node == NULL || node->op != UL_OP_Softmax ||
        !ul_no_float_find(integers, node->inputs[0], &x) ||
        !ul_no_float_result(integers, &quantize, &y))
        return false;
    const struct ul_type type = graph->values[x.x].type;
    int64_t axis = ul_node_get_int(node, "axis", -1);
    axis += axis < 0 ? (int64_t)type.rank : 0;
    int bits = SUM_BITS;
    for (int64_t n = type.dims[axis]; n > 1; n = (n + 1) / 2)
        bits--;
    bits = bits > MAX_BITS ? MAX_BITS : bits;
    if (!ul_integers_is_8bit(integers, x.x) || bits < SCALE_BITS)
        return false;
    ul_value_id top = add_reduced(integers, UL_OP_ReduceMax, x.x, axis);
    ul_value_id d = add_two(integers, UL_OP_Sub, ul_integers_cast(integers, top, UL_I32),
                            ul_integers_cast(integers, x.x, UL_I32));
    ul_value_id e = add_two(integers, UL_OP_Lookup, ul_integers_cast(integers, d, UL_U8),
                            add_exponentials(integers, ul_scaled_scale(&x, 0), bits));
    ul_value_id sum = add_reduced(integers, UL_OP_ReduceSum, e, axis);
    sum = ul_integers_cast(integers, sum, UL_I64);
    /* (e * m + sum / 2 * unit) / (sum * unit), m = unit / sy */
    double unit = 1 << SCALE_BITS;
    double m = nearbyint(unit / ul_scaled_scale(&y, 0));
    ul_value_id top_part = add_two(integers, UL_OP_Mul, ul_integers_cast(integers, e, UL_I64),
                                   add_number(integers, UL_I64, m));
    ul_value_id half = add_two(integers, UL_OP_Mul, sum, add_number(integers, UL_I64, unit / 2));
    ul_value_id whole = add_two(integers, UL_OP_Mul, sum, add_number(integers, UL_I64, unit));
    ul_value_id quotient =
        add_two(integers, UL_OP_Div, add_two(integers, UL_OP_Add, top_part, half), whole);
    const struct ul_type one = {.dtype = UL_F32};
    const double same = 1;
    ul_no_float_become_rescale(integers, id, quotient, &y, &one, &same);
    return true;
}
