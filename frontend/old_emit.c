/* SPDX-License-Identifier: Apache-2.0 */
/* Common nodes of which rewrites are made. */
#include "frontend/old_emit.h"
#include "ir/build.h"
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"

#include <string.h>

void ul_old_become(struct ul_old_node *node, const char *op)
{
    UL_ASSERT(ul_op_find("", op) != UL_OP_NONE);
    node->domain = "";
    node->op = op;
    node->version = UL_FRONTEND_OPSET_MAX;
}

double ul_old_float(const struct ul_old_node *node, const char *name, double otherwise)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    return attr != NULL && attr->kind == UL_ATTR_FLOAT ? attr->f : otherwise;
}

bool ul_old_has_input(const struct ul_old_node *node, uint32_t index)
{
    return ul_old_input(node, index) != UL_NONE;
}

bool ul_old_invalid(struct ul_old_node *node, const char *reason)
{
    struct ul_model_builder *builder = node->builder;
    node->finished = true;
    if (builder->diag->status == UL_OK)
        (void)!ul_diag_set(
            builder->diag, UL_INVALID, "%s: %s%s",
            ul_builder_describe(builder, node->name, node->op), reason,
            ul_inputs_text(builder->graph, node->inputs, node->input_count, builder->scratch));
    return false;
}

/* Why the shape of a value is not known though those of the inputs are: the message of the first
 * node on the way to the value whose own inputs are known. */
const char *ul_old_why_unknown(struct ul_old_node *node, ul_value_id value)
{
    struct ul_graph *graph = node->builder->graph;
    struct ul_arena *scratch = node->builder->scratch;
    struct ul_diag diag = {.status = UL_OK};
    ul_node_id id = UL_NONE;
    while (value < graph->value_count && graph->values[value].kind == UL_VALUE_NODE) {
        id = graph->values[value].producer;
        value = UL_NONE;
        if (id == UL_NONE) /* it replaces something that is not supported */
            break;
        for (uint32_t i = 0; i < graph->nodes[id].input_count && value == UL_NONE; i++) {
            ul_value_id input = graph->nodes[id].inputs[i];
            if (input != UL_NONE && !ul_type_known(&graph->values[input].type))
                value = input;
        }
    }
    if (id == UL_NONE)
        return "what makes it is not supported, or stands in another graph";
    if (graph->nodes[id].block_count > 0)
        return ul_arena_printf(scratch, "%s makes it, and what is in that is not known yet",
                               ul_node_describe(graph, id, scratch));
    if (ul_node_infer(graph, id, scratch, &diag) != UL_OK)
        return ul_arena_copy_string(scratch, diag.text);
    return ul_arena_printf(scratch, "%s makes it", ul_node_describe(graph, id, scratch));
}

bool ul_old_shape(struct ul_old_node *node, uint32_t index, uint32_t ranks, struct ul_type *type)
{
    UL_ASSERT(ranks != 0);
    struct ul_model_builder *builder = node->builder;
    struct ul_arena *scratch = builder->scratch;
    *type = ul_old_type(node, ul_old_input(node, index));
    if (!ul_type_known(type)) {
        const char *why = builder->has_open_inputs
                              ? "give the dimensions sizes with --dim or --shape"
                              : ul_old_why_unknown(node, ul_old_input(node, index));
        why = ul_arena_printf(scratch, "needs the shape of input %u, which is not known; %s",
                              (unsigned)index, why);
        if (builder->has_open_inputs)
            ul_old_unsized(node, why);
        else
            ul_old_problem(node, why);
        return false;
    }
    if (type->rank < 32 && (ranks >> type->rank & 1u) != 0)
        return true;
    return ul_old_invalid(node, ul_arena_printf(scratch, "input %u must not have rank %u",
                                                (unsigned)index, (unsigned)type->rank));
}

ul_value_id ul_old_concat(struct ul_old_node *node, const ul_value_id *values, uint32_t count,
                          int64_t axis)
{
    struct ul_build *build = ul_old_build(node);
    ul_node_id id = ul_build_node(build, UL_OP_Concat, values, count, 1);
    ul_node_set_int(build->graph, id, "axis", axis);
    return build->graph->nodes[id].outputs[0];
}
