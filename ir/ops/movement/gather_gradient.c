/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of operators that read and write at indexes that are data: the gradient of writing is
 * reading, and that of reading is adding up into zeros. Sums are formed in the order of the updates
 * in memory. */
#include "ir/op_names.h"
#include "ir/ops/movement/movement.h"
#include "ir/ops/movement/scatter.def"
#include "ir/training.h"

#include <string.h>

enum { DATA, INDEXES, UPDATES };

static struct ul_type input_type(const struct ul_gradient *gradient, uint32_t input)
{
    return ul_gradient_type(gradient, ul_gradient_input(gradient, input));
}

static int64_t axis_of(const struct ul_gradient *gradient, int64_t otherwise)
{
    uint32_t rank = input_type(gradient, DATA).rank;
    int64_t axis = ul_node_get_int(ul_gradient_node(gradient), "axis", otherwise);
    return axis < 0 ? axis + (int64_t)rank : axis;
}

/* The data with updates at indexes: along an axis or, for UL_NONE, in slices that tuples name. */
static ul_value_id scatter(struct ul_gradient *gradient, ul_value_id data, ul_value_id indexes,
                           ul_value_id updates, uint32_t axis, const char *reduction)
{
    const ul_value_id inputs[3] = {data, indexes, updates};
    ul_op_id op = axis == UL_NONE ? UL_OP_ScatterND : UL_OP_ScatterElements;
    ul_node_id node = ul_build_node(&gradient->build, op, inputs, 3, 1);
    if (axis != UL_NONE)
        ul_node_set_int(gradient->graph, node, "axis", axis);
    ul_node_set_string(gradient->graph, node, "reduction", reduction);
    return ul_build_infer(&gradient->build, node);
}

/* The elements at the places that `scatter` writes to. */
static ul_value_id gather(struct ul_gradient *gradient, ul_value_id data, ul_value_id indexes,
                          uint32_t axis)
{
    const ul_value_id inputs[2] = {data, indexes};
    if (axis == UL_NONE)
        return ul_build_value(&gradient->build, UL_OP_GatherND, inputs, 2, NULL);
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_GatherElements, inputs, 2, 1);
    ul_node_set_int(gradient->graph, node, "axis", axis);
    return ul_build_infer(&gradient->build, node);
}

static void add_into_zeros(struct ul_gradient *gradient, ul_value_id indexes, ul_value_id updates,
                           uint32_t axis)
{
    struct ul_type type = input_type(gradient, DATA);
    ul_value_id zeros = ul_build_zeros(&gradient->build, &type);
    ul_gradient_give(gradient, DATA, scatter(gradient, zeros, indexes, updates, axis, "add"));
}

/* Puts zeros into the rows of g, [count] along `axis`, whose index is the padding's, also where it
 * counts from the end. */
static ul_value_id without_padding(struct ul_gradient *gradient, ul_value_id at, ul_value_id g,
                                   int64_t padding, int64_t rows)
{
    ul_value_id is[2];
    for (uint32_t i = 0; i < 2; i++)
        is[i] = ul_build_binary(&gradient->build, UL_OP_Equal, at,
                                ul_build_number_like(&gradient->build, at,
                                                     (double)(i == 0 ? padding : padding - rows)));
    return ul_build_choose(&gradient->build,
                           ul_build_binary(&gradient->build, UL_OP_Or, is[0], is[1]),
                           ul_build_number_like(&gradient->build, g, 0), g);
}

/* The indexes replace the axis as one dimension, for all elements beside it. */
enum ul_status ul_gradient_gather(struct ul_gradient *gradient)
{
    struct ul_type type = input_type(gradient, DATA), indexes = input_type(gradient, INDEXES);
    uint32_t axis = (uint32_t)axis_of(gradient, 0);
    struct ul_type row = {.dtype = indexes.dtype, .rank = type.rank};
    ul_value_id g = ul_gradient_of(gradient, 0), at = ul_gradient_input(gradient, INDEXES);
    for (uint32_t d = 0; d < type.rank; d++)
        row.dims[d] = d == axis ? (int64_t)ul_type_elements(&indexes) : 1;
    int64_t padding = ul_node_get_int(ul_gradient_node(gradient), UL_TRAINING_PADDING, -1);
    int64_t rows = type.dims[axis];
    type.dims[axis] = row.dims[axis];
    at = ul_build_reshape_to(&gradient->build, at, &row);
    g = ul_build_reshape_to(&gradient->build, g, &type);
    if (padding >= 0)
        g = without_padding(gradient, at, g, padding, rows);
    add_into_zeros(gradient, ul_build_expand(&gradient->build, at, &type), g, axis);
    return UL_OK;
}

enum ul_status ul_gradient_gather_elements(struct ul_gradient *gradient)
{
    add_into_zeros(gradient, ul_gradient_input(gradient, INDEXES), ul_gradient_of(gradient, 0),
                   (uint32_t)axis_of(gradient, 0));
    return UL_OK;
}

/* Tuples with the coordinates of the batch in front. */
static ul_value_id with_batch(struct ul_gradient *gradient, ul_value_id indexes, uint32_t batch)
{
    struct ul_type type = ul_gradient_type(gradient, indexes), own = type;
    own.dims[own.rank - 1] = batch;
    uint64_t count = ul_type_elements(&own) / batch, inner = 1;
    int64_t *numbers = UL_NEW_ARRAY(gradient->scratch, int64_t, count * batch + 1);
    for (uint32_t d = own.rank - 1; d-- > 0;) {
        for (uint64_t i = 0; d < batch && i < count; i++)
            numbers[i * batch + d] = (int64_t)(i / inner) % own.dims[d];
        inner *= (uint64_t)own.dims[d];
    }
    const ul_value_id parts[2] = {
        ul_graph_add_weight(
            gradient->graph, "batch",
            ul_tensor_new_ints(gradient->graph->arena, type.dtype, own.rank, own.dims, numbers)),
        indexes};
    return ul_build_concat(&gradient->build, parts, 2, own.rank - 1, NULL);
}

enum ul_status ul_gradient_gather_nd(struct ul_gradient *gradient)
{
    uint32_t batch = (uint32_t)ul_node_get_int(ul_gradient_node(gradient), "batch_dims", 0);
    ul_value_id indexes = ul_gradient_input(gradient, INDEXES);
    if (batch > 0)
        indexes = with_batch(gradient, indexes, batch);
    add_into_zeros(gradient, indexes, ul_gradient_of(gradient, 0), UL_NONE);
    return UL_OK;
}

/* ---- Writing ---- */

/* The largest or smallest: the gradient goes to all elements that equal it, in equal parts. */
static void give_extreme(struct ul_gradient *gradient, ul_value_id indexes, uint32_t axis)
{
    ul_value_id g = ul_gradient_of(gradient, 0), y = ul_gradient_output(gradient, 0);
    ul_value_id data = ul_gradient_input(gradient, DATA);
    ul_value_id updates = ul_gradient_input(gradient, UPDATES);
    enum ul_dtype dtype = ul_gradient_type(gradient, g).dtype;
    ul_value_id kept = ul_build_cast(
        &gradient->build, ul_build_binary(&gradient->build, UL_OP_Equal, data, y), dtype);
    ul_value_id taken = ul_build_cast(
        &gradient->build,
        ul_build_binary(&gradient->build, UL_OP_Equal, updates, gather(gradient, y, indexes, axis)),
        dtype);
    ul_value_id count = scatter(gradient, kept, indexes, taken, axis, "add");
    g = ul_build_binary(&gradient->build, UL_OP_Div, g, count);
    if (ul_gradient_wanted(gradient, UPDATES))
        ul_gradient_give(gradient, UPDATES,
                         ul_build_binary(&gradient->build, UL_OP_Mul, taken,
                                         gather(gradient, g, indexes, axis)));
    if (ul_gradient_wanted(gradient, DATA))
        ul_gradient_give(gradient, DATA, ul_build_binary(&gradient->build, UL_OP_Mul, kept, g));
}

/* y is the product of the data and its updates: the gradient of each of them has y divided by
 * it. */
static void give_product(struct ul_gradient *gradient, ul_value_id indexes, uint32_t axis)
{
    ul_value_id g = ul_gradient_of(gradient, 0), updates = ul_gradient_input(gradient, UPDATES);
    if (ul_gradient_wanted(gradient, UPDATES)) {
        ul_value_id all =
            ul_build_binary(&gradient->build, UL_OP_Mul, g, ul_gradient_output(gradient, 0));
        ul_gradient_give(gradient, UPDATES,
                         ul_build_binary(&gradient->build, UL_OP_Div,
                                         gather(gradient, all, indexes, axis), updates));
    }
    if (ul_gradient_wanted(gradient, DATA))
        ul_gradient_give(gradient, DATA, scatter(gradient, g, indexes, updates, axis, "mul"));
}

enum ul_status ul_gradient_scatter(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    const char *reduction = ul_node_get_string(node, "reduction", "none");
    uint32_t axis = node->op == UL_OP_ScatterND ? UL_NONE : (uint32_t)axis_of(gradient, 0);
    ul_value_id g = ul_gradient_of(gradient, 0), indexes = ul_gradient_input(gradient, INDEXES);
    if (strcmp(reduction, "max") == 0 || strcmp(reduction, "min") == 0) {
        give_extreme(gradient, indexes, axis);
        return UL_OK;
    }
    if (strcmp(reduction, "mul") == 0) {
        give_product(gradient, indexes, axis);
        return UL_OK;
    }
    bool replaces = strcmp(reduction, "none") == 0;
    if (ul_gradient_wanted(gradient, UPDATES))
        ul_gradient_give(gradient, UPDATES, gather(gradient, g, indexes, axis));
    if (ul_gradient_wanted(gradient, DATA)) {
        struct ul_type type = input_type(gradient, UPDATES);
        if (replaces)
            g = scatter(gradient, g, indexes, ul_build_zeros(&gradient->build, &type), axis,
                        "none");
        ul_gradient_give(gradient, DATA, g);
    }
    return UL_OK;
}

/* ---- A cache, places of pooling, and largest elements ---- */

/* Where element i of the update went: i elements after the first one, wrapping around. */
static ul_value_id cache_places(struct ul_gradient *gradient, uint32_t axis, int64_t length)
{
    struct ul_type type = input_type(gradient, 1), row = {.dtype = UL_I64, .rank = type.rank};
    int64_t count = type.dims[axis];
    int64_t *numbers = UL_NEW_ARRAY(gradient->scratch, int64_t, (uint64_t)count + 1);
    ul_value_id first = ul_gradient_input(gradient, 2);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = i;
    for (uint32_t d = 0; d < type.rank; d++)
        row.dims[d] = d == axis ? count : 1;
    ul_value_id places = ul_build_reshape_to(
        &gradient->build, ul_build_ints(gradient->graph, "", (uint32_t)count, numbers), &row);
    if (first != UL_NONE) {
        row.dims[axis] = 1;
        row.dims[0] = type.dims[0];
        first = ul_build_reshape_to(&gradient->build,
                                    ul_build_cast(&gradient->build, first, UL_I64), &row);
        places = ul_build_binary(&gradient->build, UL_OP_Add, places, first);
        places = ul_build_binary(&gradient->build, UL_OP_Mod, places,
                                 ul_build_number(gradient->graph, "", UL_I64, 0, (double)length));
    }
    return ul_build_expand(&gradient->build, places, &type);
}

enum ul_status ul_gradient_tensor_scatter(struct ul_gradient *gradient)
{
    struct ul_type cache = input_type(gradient, 0), update = input_type(gradient, 1);
    uint32_t axis = (uint32_t)axis_of(gradient, -2);
    ul_value_id g = ul_gradient_of(gradient, 0);
    if (ul_gradient_wanted(gradient, 1))
        ul_gradient_give(gradient, 1,
                         gather(gradient, g, cache_places(gradient, axis, cache.dims[axis]), axis));
    if (ul_gradient_wanted(gradient, 0)) {
        const ul_value_id inputs[3] = {g, ul_build_zeros(&gradient->build, &update),
                                       ul_gradient_input(gradient, 2)};
        uint32_t count = inputs[2] != UL_NONE ? 3 : 2;
        ul_node_id node =
            ul_gradient_begin_like(gradient, ul_gradient_node(gradient)->op, inputs, count, 1);
        ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    }
    return UL_OK;
}
