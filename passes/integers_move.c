/* What only moves elements moves integers, which are a fourth of the bytes:
 *
 *      M(DequantizeLinear(x))     ->  DequantizeLinear(M(x))
 *      QuantizeLinear(M(x))       ->  M(QuantizeLinear(x))           where nothing else reads M(x)
 *
 * with one scale for all of x. A maximum is such an M, since scales are positive. What a Concat
 * reads is brought to the scale that its result is asked for. */
#include "passes/integers_internal.h"

#include "ir/op.h"

#include <string.h>

/* Its only output holds elements of input 0, and nothing else. */
static bool moves(const struct ul_node *node)
{
    if (node->output_count != 1 || node->block_count > 0)
        return false;
    switch ((int)node->op) {
    case UL_OP_MaxPool:
    case UL_OP_GlobalMaxPool:
    case UL_OP_DepthToSpace:
    case UL_OP_SpaceToDepth:
        return true;
    case UL_OP_Resize:
        return strcmp(ul_node_get_string(node, "mode", "nearest"), "nearest") == 0 &&
               strcmp(ul_node_get_string(node, "coordinate_transformation_mode", "half_pixel"),
                      "tf_crop_and_resize") != 0;
    default:
        return ul_op_get(node->op)->view != NULL;
    }
}

/* The axis of the scales behind the node; false where they follow no axis of the result. */
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

bool ul_integers_move(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    struct ul_scaled scaled;
    int64_t axis;
    if (node.input_count == 0 || node.inputs[0] == UL_NONE || !moves(&node) ||
        !ul_integers_find(integers, node.inputs[0], &scaled) ||
        !ul_integers_is_8bit(integers, scaled.x) || !moved_axis(&node, &scaled, &axis))
        return false;
    ul_value_id *inputs =
        ul_arena_copy(integers->pass->scratch, node.inputs, node.input_count * sizeof *inputs);
    inputs[0] = scaled.x;
    ul_value_id moved = ul_integers_add(integers, node.op, inputs, node.input_count, &node);
    const ul_value_id operands[3] = {moved, scaled.scale, scaled.zero};
    ul_integers_become(integers, id, UL_OP_DequantizeLinear, operands,
                       scaled.zero == UL_NONE ? 2 : 3, NULL);
    if (scaled.count > 1)
        ul_node_set_int(graph, id, "axis", axis);
    return true;
}

/* What the QuantizeLinear `node` makes of another value, of which it may be that it is known. */
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
    (void)ul_integers_rescale(integers, integers->graph->values[quantized].producer);
    return quantized;
}

static bool has_integers(const struct ul_integers *integers, const struct ul_node *node)
{
    struct ul_scaled scaled;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (ul_integers_find(integers, node->inputs[i], &scaled) && scaled.count == 1)
            return true;
    }
    return false;
}

bool ul_integers_move_quantize(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    const struct ul_node *maker = ul_integers_maker(integers, node.inputs[0]);
    if (maker == NULL || !ul_integers_is_read_once(integers, node.inputs[0]) ||
        ul_type_elements(&graph->values[node.inputs[1]].type) != 1 ||
        !ul_integers_is_8bit(integers, node.outputs[0]))
        return false;
    const struct ul_node movement = *maker;
    bool joins = (ul_op_get(movement.op)->flags & UL_OP_JOINS) != 0;
    if (joins ? !has_integers(integers, &movement) : !moves(&movement))
        return false;
    ul_value_id *inputs = ul_arena_copy(integers->pass->scratch, movement.inputs,
                                        movement.input_count * sizeof *inputs);
    for (uint32_t i = 0; i < (joins ? movement.input_count : 1); i++)
        inputs[i] = add_quantize(integers, &node, movement.inputs[i]);
    ul_integers_become(integers, id, movement.op, inputs, movement.input_count, &movement);
    return true;
}
