/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled integers: where they are, and how new nodes are added. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/integers/integers_internal.h"

#include <math.h>
#include <string.h>

const struct ul_node *ul_integers_maker(const struct ul_integers *integers, ul_value_id value)
{
    const struct ul_graph *graph = integers->graph;
    UL_ASSERT(value < graph->value_count);
    bool made = graph->values[value].kind == UL_VALUE_NODE;
    return made ? &graph->nodes[graph->values[value].producer] : NULL;
}

bool ul_integers_is_read_once(const struct ul_integers *integers, ul_value_id value)
{
    return value >= integers->known_count || integers->uses[value] == 1;
}

static bool are_finite(const struct ul_tensor *scales)
{
    uint64_t count = scales->data == NULL ? 1 : ul_type_elements(&scales->type);
    for (uint64_t i = 0; i < count; i++) {
        double scale = ul_tensor_get_float(scales, i);
        if (!(scale > 0) || !isfinite(scale))
            return false;
    }
    return true;
}

bool ul_integers_scale(const struct ul_integers *integers, ul_value_id x, ul_value_id scale,
                       ul_value_id zero, int64_t axis, struct ul_scaled *scaled)
{
    const struct ul_graph *graph = integers->graph;
    const struct ul_type *type = &graph->values[x].type;
    *scaled = (struct ul_scaled){.x = x, .scale = scale, .zero = zero, .count = 1};
    scaled->scales = ul_graph_get_constant(graph, scale);
    scaled->zeros = zero == UL_NONE ? NULL : ul_graph_get_constant(graph, zero);
    if (scaled->scales == NULL || scaled->scales->type.dtype != UL_F32 ||
        (zero != UL_NONE && scaled->zeros == NULL) || scaled->scales->type.rank > 1)
        return false;
    uint64_t count = ul_type_elements(&scaled->scales->type);
    uint64_t zero_count = zero == UL_NONE ? count : ul_type_elements(&scaled->zeros->type);
    axis += axis < 0 ? (int64_t)type->rank : 0;
    axis = type->rank == 1 && axis == 1 ? 0 : axis;
    if (count == 0 || count > UINT32_MAX || zero_count != count || !are_finite(scaled->scales) ||
        (count > 1 &&
         (axis < 0 || axis >= (int64_t)type->rank || type->dims[axis] != (int64_t)count)))
        return false;
    scaled->count = (uint32_t)count;
    scaled->axis = count > 1 ? (uint32_t)axis : 0;
    return true;
}

bool ul_integers_find(const struct ul_integers *integers, ul_value_id value,
                      struct ul_scaled *scaled)
{
    const struct ul_node *node = ul_integers_maker(integers, value);
    if (node == NULL || (node->op != UL_OP_DequantizeLinear && node->op != UL_OP_Dequantize) ||
        integers->graph->values[value].type.dtype != UL_F32 ||
        ul_node_get_int(node, "block_size", 0) != 0)
        return false;
    ul_value_id zero = node->input_count > 2 ? node->inputs[2] : UL_NONE;
    return ul_integers_scale(integers, node->inputs[0], node->inputs[1], zero,
                             ul_node_get_int(node, "axis", 1), scaled) &&
           (node->op == UL_OP_DequantizeLinear || scaled->count == 1);
}

bool ul_integers_is_8bit(const struct ul_integers *integers, ul_value_id value)
{
    return ul_dtype_is_8bit(integers->graph->values[value].type.dtype);
}

double ul_scaled_scale(const struct ul_scaled *scaled, uint64_t index)
{
    return ul_tensor_get_float(scaled->scales, scaled->count == 1 ? 0 : index);
}

int64_t ul_scaled_zero(const struct ul_scaled *scaled, uint64_t index)
{
    return scaled->zeros == NULL ? 0
                                 : ul_tensor_get_int(scaled->zeros, scaled->count == 1 ? 0 : index);
}

bool ul_scaled_same(const struct ul_scaled *a, const struct ul_scaled *b)
{
    return a->count == 1 && b->count == 1 && ul_scaled_scale(a, 0) == ul_scaled_scale(b, 0) &&
           ul_scaled_zero(a, 0) == ul_scaled_zero(b, 0);
}

ul_node_id ul_integers_begin(struct ul_integers *integers, ul_op_id op, const ul_value_id *inputs,
                             uint32_t input_count, const struct ul_node *attrs)
{
    const struct ul_node from = attrs == NULL ? (struct ul_node){0} : *attrs; /* nodes may move */
    struct ul_build build = integers->build;
    build.name = ul_arena_printf(build.graph->arena, "%s.%s", build.name, ul_op_get(op)->name);
    ul_node_id id = ul_build_node(&build, op, inputs, input_count, 1);
    integers->build.at = build.at;
    struct ul_node *node = &integers->graph->nodes[id];
    node->attrs = from.attrs;
    node->attr_count = from.attr_count;
    node->source = from.source;
    return id;
}

ul_value_id ul_integers_end(struct ul_integers *integers, ul_node_id id)
{
    struct ul_diag diag = {0};
    enum ul_status status = ul_node_infer(integers->graph, id, integers->pass->scratch, &diag);
    UL_ASSERT(status == UL_OK);
    return integers->graph->nodes[id].outputs[0];
}

ul_value_id ul_integers_add(struct ul_integers *integers, ul_op_id op, const ul_value_id *inputs,
                            uint32_t input_count, const struct ul_node *attrs)
{
    return ul_integers_end(integers, ul_integers_begin(integers, op, inputs, input_count, attrs));
}

ul_value_id ul_integers_cast(struct ul_integers *integers, ul_value_id value, enum ul_dtype dtype)
{
    ul_node_id id = ul_integers_begin(integers, UL_OP_Cast, &value, 1, NULL);
    ul_node_set_int(integers->graph, id, "to", (int64_t)dtype);
    return ul_integers_end(integers, id);
}

void ul_integers_become(struct ul_integers *integers, ul_node_id id, ul_op_id op,
                        const ul_value_id *inputs, uint32_t input_count,
                        const struct ul_node *attrs)
{
    struct ul_graph *graph = integers->graph;
    struct ul_attr *list = attrs == NULL ? NULL : attrs->attrs;
    uint32_t count = attrs == NULL ? 0 : attrs->attr_count;
    ul_node_become(graph, id, op, inputs, input_count);
    graph->nodes[id].attrs = list;
    graph->nodes[id].attr_count = count;
}

bool ul_integers_result(const struct ul_integers *integers, const struct ul_node *quantize,
                        struct ul_scaled *y)
{
    ul_value_id zero = quantize->input_count > 2 ? quantize->inputs[2] : UL_NONE;
    return ul_integers_scale(integers, quantize->outputs[0], quantize->inputs[1], zero, 0, y) &&
           y->count == 1;
}

static ul_value_id add_zero(struct ul_integers *integers, const struct ul_scaled *y)
{
    struct ul_graph *graph = integers->graph;
    const double zero = (double)ul_scaled_zero(y, 0);
    return ul_edit_add_numbers(graph,
                               ul_arena_printf(graph->arena, "%s.zero", integers->build.name),
                               graph->values[y->x].type.dtype, &zero, 1, 0);
}

void ul_integers_become_rescale(struct ul_integers *integers, ul_node_id id, ul_value_id sum,
                                const struct ul_scaled *y, const struct ul_type *type,
                                const double *factors)
{
    struct ul_graph *graph = integers->graph;
    UL_ASSERT(type->dtype == UL_F32);
    const char *name = ul_arena_printf(graph->arena, "%s.factor", integers->build.name);
    const ul_value_id inputs[3] = {add_zero(integers, y), sum,
                                   ul_edit_add_array(graph, name, type, factors)};
    ul_integers_become(integers, id, UL_OP_Rescale, inputs, 3, NULL);
}
