/* SPDX-License-Identifier: Apache-2.0 */
/* What only moves elements moves integers, which are a fourth of the bytes:
 *
 *      M(DequantizeLinear(x))     ->  DequantizeLinear(M(x))
 *      QuantizeLinear(M(x))       ->  M(QuantizeLinear(x))           where nothing else reads M(x)
 *
 * with one scale for all of x. A maximum or minimum is such an M, since scales are positive; ArgMax
 * finds its place among the integers. A Pad's value is that integer. What a Concat reads, or a
 * Where, or a Max or Min of several values, is brought to the scale that its result is asked for:
 * rounding keeps the order of numbers. */
#include "ir/op_names.h"
#include "passes/integers/integers_internal.h"

#include "ir/infer.h"
#include "ir/op.h"

#include <math.h>
#include <string.h>

/* Whether its only output holds elements of input 0 and nothing else. */
static bool moves(const struct ul_node *node)
{
    if (node->output_count != 1 || node->block_count > 0)
        return false;
    switch ((int)node->op) {
    case UL_OP_MaxPool:
    case UL_OP_GlobalMaxPool:
    case UL_OP_ReduceMax:
    case UL_OP_ReduceMin:
    case UL_OP_DepthToSpace:
    case UL_OP_SpaceToDepth:
    case UL_OP_Pad:
    case UL_OP_Tile:
        return true;
    case UL_OP_Resize:
        return strcmp(ul_node_get_string(node, "mode", "nearest"), "nearest") == 0 &&
               strcmp(ul_node_get_string(node, "coordinate_transformation_mode", "half_pixel"),
                      "tf_crop_and_resize") != 0;
    default:
        return ul_op_get(node->op)->view != NULL;
    }
}

/* The axis of the scales after the node; false where they follow no axis of the result. */
static bool moved_axis(const struct ul_node *node, const struct ul_scaled *scaled, int64_t *axis)
{
    uint32_t count = 0;
    const int64_t *perm = ul_node_get_ints(node, "perm", &count);
    *axis = 1;
    if (scaled->count == 1)
        return true;
    for (uint32_t d = 0; node->op == UL_OP_Transpose && d < count; d++) {
        if (perm[d] == (int64_t)scaled->axis) {
            *axis = d;
            return true;
        }
    }
    return false;
}

enum { MAX_INPUTS = 5 };

/* The movement's inputs as integers have them, except for the first. */
struct movement {
    ul_op_id op;
    ul_value_id inputs[MAX_INPUTS];
    uint32_t input_count;
};

/* A Pad of integers pads with the integer that stands for its value. `rounds`: with the nearest
 * one, which a QuantizeLinear would take; else there must be an exact one. */
static bool set_pad_value(struct ul_integers *integers, const struct ul_node *pad,
                          const struct ul_scaled *scaled, bool rounds, struct movement *movement)
{
    struct ul_graph *graph = integers->graph;
    enum ul_dtype dtype = graph->values[scaled->x].type.dtype;
    double value = 0;
    int64_t low, high;
    if (strcmp(ul_node_get_string(pad, "mode", "constant"), "constant") != 0) {
        movement->inputs[2] = UL_NONE;
        return true;
    }
    if (pad->input_count > 2 && pad->inputs[2] != UL_NONE &&
        (!ul_graph_get_number(graph, pad->inputs[2], &value) || isnan(value)))
        return false;
    if (scaled->count != 1 || !ul_dtype_range(dtype, &low, &high))
        return false;
    float steps = (float)value / (float)ul_scaled_scale(scaled, 0);
    double integer = nearbyint((double)steps) + (double)ul_scaled_zero(scaled, 0);
    double within = fmax((double)low, fmin((double)high, integer));
    if (!rounds && !(within == integer && (double)steps == nearbyint((double)steps)))
        return false;
    movement->inputs[2] =
        ul_edit_add_numbers(graph, ul_arena_printf(graph->arena, "%s.value", integers->build.name),
                            dtype, &within, 1, 0);
    movement->input_count = movement->input_count < 3 ? 3 : movement->input_count;
    return true;
}

/* GlobalMaxPool takes floats alone; a maximum over axes takes integers too. */
static void reduce_axes(struct ul_integers *integers, const struct ul_type *x,
                        struct movement *movement)
{
    int64_t axes[UL_LIMIT_RANK];
    UL_ASSERT(x->rank >= 2);
    for (uint32_t d = 2; d < x->rank; d++)
        axes[d - 2] = d;
    movement->op = UL_OP_ReduceMax;
    movement->inputs[1] = ul_build_ints(integers->graph, "axes", x->rank - 2, axes);
    movement->input_count = 2;
}

static bool read_movement(struct ul_integers *integers, const struct ul_node *node,
                          const struct ul_scaled *scaled, bool rounds, struct movement *movement)
{
    const struct ul_type *x = &integers->graph->values[node->inputs[0]].type;
    *movement = (struct movement){.op = node->op, .input_count = node->input_count};
    if (node->input_count > MAX_INPUTS)
        return false;
    for (uint32_t i = 0; i < MAX_INPUTS; i++)
        movement->inputs[i] = i < node->input_count ? node->inputs[i] : UL_NONE;
    if (node->op == UL_OP_GlobalMaxPool && x->rank > 2)
        reduce_axes(integers, x, movement);
    else if (node->op == UL_OP_GlobalMaxPool)
        movement->op = UL_OP_Identity;
    return node->op != UL_OP_Pad || set_pad_value(integers, node, scaled, rounds, movement);
}

/* The parts of a Split, each with its own scale after it. */
static bool split(struct ul_integers *integers, ul_node_id id, const struct ul_scaled *scaled)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node from = graph->nodes[id];
    const ul_value_id inputs[2] = {scaled->x, from.input_count > 1 ? from.inputs[1] : UL_NONE};
    for (uint32_t i = 0; i < from.output_count; i++) {
        if (from.outputs[i] == UL_NONE || ul_graph_is_output(graph, from.outputs[i]))
            return false;
    }
    ul_node_id parts = ul_build_like(&integers->build, id, inputs);
    (void)ul_integers_end(integers, parts);
    for (uint32_t i = 0; i < from.output_count; i++) {
        const ul_value_id operands[3] = {graph->nodes[parts].outputs[i], scaled->scale,
                                         scaled->zero};
        ul_rewrite_replace(&integers->rewrite, from.outputs[i],
                           ul_integers_add(integers, UL_OP_DequantizeLinear, operands,
                                           scaled->zero == UL_NONE ? 2 : 3, NULL));
    }
    return true;
}

bool ul_integers_move(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    struct ul_scaled scaled;
    struct movement movement;
    int64_t axis;
    if (node.input_count == 0 || node.inputs[0] == UL_NONE ||
        !ul_integers_find(integers, node.inputs[0], &scaled) ||
        !ul_integers_is_8bit(integers, scaled.x))
        return false;
    if (scaled.count == 1 && node.op == UL_OP_Split)
        return split(integers, id, &scaled);
    if (scaled.count == 1 && (node.op == UL_OP_ArgMax || node.op == UL_OP_ArgMin)) {
        ul_integers_become(integers, id, node.op, &scaled.x, 1, &node);
        return true;
    }
    if (!moves(&node) || !moved_axis(&node, &scaled, &axis) ||
        !read_movement(integers, &node, &scaled, false, &movement))
        return false;
    movement.inputs[0] = scaled.x;
    ul_value_id moved =
        ul_integers_add(integers, movement.op, movement.inputs, movement.input_count, &node);
    const ul_value_id operands[3] = {moved, scaled.scale, scaled.zero};
    ul_integers_become(integers, id, UL_OP_DequantizeLinear, operands,
                       scaled.zero == UL_NONE ? 2 : 3, NULL);
    if (scaled.count > 1)
        ul_node_set_int(graph, id, "axis", axis);
    return true;
}

/* What the QuantizeLinear `node` makes of another value, which may be such integers already. */
static ul_value_id add_quantize(struct ul_integers *integers, const struct ul_node *node,
                                ul_value_id value)
{
    ul_value_id *inputs =
        ul_arena_copy(integers->pass->scratch, node->inputs, node->input_count * sizeof *inputs);
    struct ul_scaled x, y;
    ul_value_id zero = node->input_count > 2 ? inputs[2] : UL_NONE;
    enum ul_dtype dtype = integers->graph->values[node->outputs[0]].type.dtype;
    if (ul_integers_find(integers, value, &x) &&
        ul_integers_scale(integers, node->outputs[0], inputs[1], zero, 0, &y) &&
        ul_scaled_same(&x, &y) && integers->graph->values[x.x].type.dtype == dtype)
        return x.x;
    inputs[0] = value;
    ul_value_id quantized =
        ul_integers_add(integers, UL_OP_QuantizeLinear, inputs, node->input_count, node);
    ul_node_id made = integers->graph->values[quantized].producer;
    if (!ul_integers_rescale(integers, made) &&
        ul_node_fold(integers->graph, made, integers->pass->scratch)) {
        ul_edit_make_weight(integers->graph, quantized);
        ul_graph_remove_node(integers->graph, made);
    }
    return quantized;
}

/* The first of the inputs that end up side by side, or of which the result's elements are taken;
 * UL_NONE: the node does neither, as a Max of one value and numbers, which is a table. */
static uint32_t first_joined(const struct ul_integers *integers, const struct ul_node *node)
{
    const struct ul_graph *graph = integers->graph;
    uint32_t several = 0;
    if (node->op == UL_OP_Where)
        return 1;
    if (node->op != UL_OP_Max && node->op != UL_OP_Min)
        return (ul_op_get(node->op)->flags & UL_OP_JOINS) != 0 ? 0 : UL_NONE;
    for (uint32_t i = 0; i < node->input_count; i++)
        several += ul_graph_get_constant(graph, node->inputs[i]) == NULL ||
                   ul_type_elements(&graph->values[node->inputs[i]].type) > 1;
    return several > 1 ? 0 : UL_NONE;
}

static bool has_integers(const struct ul_integers *integers, const struct ul_node *node,
                         uint32_t first)
{
    struct ul_scaled scaled;
    for (uint32_t i = first; i < node->input_count; i++) {
        if (ul_integers_find(integers, node->inputs[i], &scaled) && scaled.count == 1)
            return true;
    }
    return false;
}

static bool join(struct ul_integers *integers, ul_node_id id, const struct ul_node *joint,
                 uint32_t first)
{
    const struct ul_node node = integers->graph->nodes[id];
    ul_value_id *inputs =
        ul_arena_copy(integers->pass->scratch, joint->inputs, joint->input_count * sizeof *inputs);
    if (!has_integers(integers, joint, first))
        return false;
    for (uint32_t i = first; i < joint->input_count; i++)
        inputs[i] = add_quantize(integers, &node, inputs[i]);
    ul_integers_become(integers, id, joint->op, inputs, joint->input_count, joint);
    return true;
}

bool ul_integers_move_quantize(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    const struct ul_node *maker = ul_integers_maker(integers, node.inputs[0]);
    struct ul_scaled y;
    struct movement movement;
    if (maker == NULL || !ul_integers_is_read_once(integers, node.inputs[0]) ||
        ul_type_elements(&graph->values[node.inputs[1]].type) != 1 ||
        !ul_integers_is_8bit(integers, node.outputs[0]))
        return false;
    const struct ul_node moved = *maker;
    uint32_t first = first_joined(integers, &moved);
    if (first != UL_NONE)
        return join(integers, id, &moved, first);
    if (!moves(&moved) || !ul_integers_result(integers, &node, &y) ||
        !read_movement(integers, &moved, &y, true, &movement))
        return false;
    movement.inputs[0] = add_quantize(integers, &node, moved.inputs[0]);
    ul_integers_become(integers, id, movement.op, movement.inputs, movement.input_count, &moved);
    return true;
}
