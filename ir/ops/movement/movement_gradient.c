/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of movements: they go back where the elements came from; where an element was read more
 * than once, they add up. */
#include "ir/op_names.h"
#include "ir/ops/movement/movement.h"

#include <string.h>

static struct ul_type input_type(const struct ul_gradient *gradient)
{
    return ul_gradient_type(gradient, ul_gradient_input(gradient, 0));
}

enum ul_status ul_gradient_reshape_of(struct ul_gradient *gradient)
{
    struct ul_type type = input_type(gradient);
    ul_gradient_give(gradient, 0,
                     ul_build_reshape_to(&gradient->build, ul_gradient_of(gradient, 0), &type));
    return UL_OK;
}

enum ul_status ul_gradient_transpose(struct ul_gradient *gradient)
{
    struct ul_type type = input_type(gradient);
    int64_t back[UL_LIMIT_RANK];
    uint32_t count = 0;
    const int64_t *perm = ul_node_get_ints(ul_gradient_node(gradient), "perm", &count);
    for (uint32_t d = 0; d < type.rank; d++)
        back[count != 0 ? perm[d] : type.rank - 1 - d] = d;
    ul_gradient_give(gradient, 0,
                     ul_build_transpose(&gradient->build, ul_gradient_of(gradient, 0), back));
    return UL_OK;
}

enum ul_status ul_gradient_expand_of(struct ul_gradient *gradient)
{
    ul_gradient_give_broadcast(gradient, 0, ul_gradient_of(gradient, 0));
    return UL_OK;
}

/* For operators that move elements one to one, and back if they are applied again. */
enum ul_status ul_gradient_again(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    const ul_value_id inputs[2] = {ul_gradient_of(gradient, 0), ul_gradient_input(gradient, 1)};
    ul_node_id made = ul_gradient_begin_like(gradient, ul_gradient_node(gradient)->op, inputs,
                                             node->input_count, 1);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, made));
    return UL_OK;
}

/* ---- Slices ---- */

/* Puts a[i] at i * step of a dimension that is that much longer, with zeros between. */
static ul_value_id spread(struct ul_gradient *gradient, ul_value_id a, uint32_t d, int64_t step)
{
    struct ul_type type = ul_gradient_type(gradient, a), split;
    int64_t none[UL_LIMIT_RANK] = {0}, behind[UL_LIMIT_RANK] = {0, 0, step - 1};
    split = (struct ul_type){.dtype = type.dtype, .rank = 4, .dims = {1, type.dims[d], 1, 1}};
    for (uint32_t i = 0; i < type.rank; i++)
        if (i != d)
            split.dims[i < d ? 0 : 3] *= type.dims[i];
    a = ul_build_pad(&gradient->build, ul_build_reshape_to(&gradient->build, a, &split), none,
                     behind);
    type.dims[d] *= step;
    return ul_build_reshape_to(&gradient->build, a, &type);
}

/* Reverses the order: the last element comes first. */
static ul_value_id turn(struct ul_gradient *gradient, ul_value_id a, uint32_t d)
{
    const int64_t first = -1, end = INT64_MIN, axis = d, step = -1;
    const ul_value_id inputs[5] = {a, ul_build_ints(gradient->graph, "", 1, &first),
                                   ul_build_ints(gradient->graph, "", 1, &end),
                                   ul_build_ints(gradient->graph, "", 1, &axis),
                                   ul_build_ints(gradient->graph, "", 1, &step)};
    return ul_build_value(&gradient->build, UL_OP_Slice, inputs, 5, NULL);
}

/* Puts zeros around the elements that were taken. */
enum ul_status ul_gradient_slice_of(struct ul_gradient *gradient)
{
    struct ul_type type = input_type(gradient);
    struct ul_box box;
    int64_t begin[UL_LIMIT_RANK], end[UL_LIMIT_RANK];
    ul_value_id g = ul_gradient_of(gradient, 0);
    ul_slice_box(gradient->graph, ul_gradient_node(gradient), &box);
    for (uint32_t d = 0; d < type.rank; d++) {
        int64_t step = box.step[d] < 0 ? -box.step[d] : box.step[d], first = box.begin[d];
        if (box.step[d] < 0) {
            g = turn(gradient, g, d);
            first -= (box.count[d] - 1) * step;
        }
        if (step > 1)
            g = spread(gradient, g, d, step);
        begin[d] = first;
        end[d] = type.dims[d] - first - box.count[d] * step;
    }
    ul_gradient_give(gradient, 0, ul_build_pad(&gradient->build, g, begin, end));
    return UL_OK;
}

static uint32_t axis_of(const struct ul_gradient *gradient, int64_t otherwise)
{
    uint32_t rank = input_type(gradient).rank;
    int64_t axis = ul_node_get_int(ul_gradient_node(gradient), "axis", otherwise);
    return (uint32_t)(axis < 0 ? axis + (int64_t)rank : axis);
}

enum ul_status ul_gradient_split_of(struct ul_gradient *gradient)
{
    uint32_t axis = axis_of(gradient, 0), count = ul_gradient_node(gradient)->output_count;
    ul_value_id *parts = UL_NEW_ARRAY(gradient->scratch, ul_value_id, count);
    for (uint32_t i = 0; i < count; i++) {
        struct ul_type type = ul_gradient_type(gradient, ul_gradient_output(gradient, i));
        parts[i] = ul_gradient_of(gradient, i);
        if (parts[i] == UL_NONE)
            parts[i] = ul_build_zeros(&gradient->build, &type);
    }
    ul_gradient_give(gradient, 0, ul_build_concat(&gradient->build, parts, count, axis, NULL));
    return UL_OK;
}

enum ul_status ul_gradient_concat_of(struct ul_gradient *gradient)
{
    uint32_t axis = axis_of(gradient, 0), count = ul_gradient_node(gradient)->input_count;
    ul_value_id g = ul_gradient_of(gradient, 0);
    int64_t begin = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t end = begin + ul_gradient_type(gradient, ul_gradient_input(gradient, i)).dims[axis];
        if (ul_gradient_wanted(gradient, i))
            ul_gradient_give(gradient, i, ul_build_slice(&gradient->build, g, axis, begin, end));
        begin = end;
    }
    return UL_OK;
}

/* ---- Repetitions ---- */

/* Dimension d was repeated: [.., count * size, ..] becomes the sum of its parts. */
static ul_value_id sum_parts(struct ul_gradient *gradient, ul_value_id g, uint32_t d, int64_t size)
{
    struct ul_type type = ul_gradient_type(gradient, g), split;
    split =
        (struct ul_type){.dtype = type.dtype, .rank = 4, .dims = {1, type.dims[d] / size, size, 1}};
    for (uint32_t i = 0; i < type.rank; i++)
        if (i != d)
            split.dims[i < d ? 0 : 3] *= type.dims[i];
    type.dims[d] = size;
    g = ul_build_sum(&gradient->build, ul_build_reshape_to(&gradient->build, g, &split), 2);
    return ul_build_reshape_to(&gradient->build, g, &type);
}

enum ul_status ul_gradient_tile(struct ul_gradient *gradient)
{
    struct ul_type type = input_type(gradient);
    ul_value_id g = ul_gradient_of(gradient, 0);
    if (ul_type_elements(&type) == 0)
        return UL_OK;
    if (ul_type_elements(&gradient->graph->values[g].type) == 0) {
        ul_gradient_give(gradient, 0, ul_build_zeros(&gradient->build, &type));
        return UL_OK;
    }
    for (uint32_t d = 0; d < type.rank; d++)
        if (ul_gradient_type(gradient, g).dims[d] != type.dims[d])
            g = sum_parts(gradient, g, d, type.dims[d]);
    ul_gradient_give(gradient, 0, g);
    return UL_OK;
}

/* ---- Pads ---- */

/* Along one dimension elements were read by a list of indexes, which the operator itself gives when
 * it pads their numbers. */
static ul_value_id collect(struct ul_gradient *gradient, ul_value_id g, uint32_t d, int64_t size,
                           int64_t begin, int64_t end)
{
    const int64_t dims[1] = {size}, two[1] = {2}, pads[2] = {begin, end};
    struct ul_arena *arena = gradient->graph->arena;
    struct ul_type type = ul_gradient_type(gradient, g), row;
    int64_t *numbers = UL_NEW_ARRAY(arena, int64_t, (uint64_t)size + 1);
    for (int64_t i = 0; i < size; i++)
        numbers[i] = i;
    const struct ul_tensor *inputs[2] = {ul_tensor_new_ints(arena, UL_I64, 1, dims, numbers),
                                         ul_tensor_new_ints(arena, UL_I64, 1, two, pads)};
    const struct ul_tensor *from = ul_gradient_evaluate(gradient, inputs, 2, NULL, 0);
    UL_ASSERT(from != NULL);
    row = (struct ul_type){.dtype = UL_I64, .rank = type.rank};
    for (uint32_t i = 0; i < type.rank; i++)
        row.dims[i] = i == d ? type.dims[d] : 1;
    struct ul_tensor *shaped = ul_tensor_new(arena, &row, from->data);
    ul_value_id indexes = ul_graph_add_weight(gradient->graph, "indexes", shaped);
    indexes = ul_build_expand(&gradient->build, indexes, &type);
    type.dims[d] = size;
    const ul_value_id parts[3] = {ul_build_zeros(&gradient->build, &type), indexes, g};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_ScatterElements, parts, 3, 1);
    ul_node_set_int(gradient->graph, node, "axis", d);
    ul_node_set_string(gradient->graph, node, "reduction", "add");
    return ul_build_infer(&gradient->build, node);
}

enum ul_status ul_gradient_pad_of(struct ul_gradient *gradient)
{
    struct ul_type type = input_type(gradient);
    struct ul_pads pads;
    bool is_constant = ul_pad_read(gradient->graph, ul_gradient_node(gradient), &pads);
    ul_value_id g = ul_gradient_of(gradient, 0);
    for (uint32_t d = 0; !is_constant && d < type.rank; d++)
        if (pads.begin[d] != 0 || pads.end[d] != 0)
            g = collect(gradient, g, d, type.dims[d], pads.begin[d], pads.end[d]);
    for (uint32_t d = 0; d < type.rank; d++) {
        pads.begin[d] = -pads.begin[d];
        pads.end[d] = -pads.end[d];
    }
    if (is_constant)
        g = ul_build_pad(&gradient->build, g, pads.begin, pads.end);
    ul_gradient_give(gradient, 0, g);
    return UL_OK;
}

/* ---- Blocks ---- */

/* Each of the two undoes the other. */
static enum ul_status turn_back(struct ul_gradient *gradient, ul_op_id op)
{
    const struct ul_node *info = ul_gradient_node(gradient);
    int64_t size = ul_node_get_int(info, "blocksize", 1);
    const char *mode = ul_node_get_string(info, "mode", "DCR");
    ul_value_id g = ul_gradient_of(gradient, 0);
    ul_node_id node = ul_build_node(&gradient->build, op, &g, 1, 1);
    ul_node_set_int(gradient->graph, node, "blocksize", size);
    ul_node_set_string(gradient->graph, node, "mode", mode);
    ul_gradient_give(gradient, 0, ul_build_infer(&gradient->build, node));
    return UL_OK;
}

enum ul_status ul_gradient_space_to_depth(struct ul_gradient *gradient)
{
    return turn_back(gradient, UL_OP_DepthToSpace);
}

enum ul_status ul_gradient_depth_to_space(struct ul_gradient *gradient)
{
    return turn_back(gradient, UL_OP_SpaceToDepth);
}
