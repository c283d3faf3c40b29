/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that a model asks for. Gradient of ai.onnx.preview.training names its values in
 * attributes; operators that are the gradient of one other operator become that operator and its
 * derivative. Both become ullage::Derivative, which pass `derive` writes out.
 *
 * The value by which a derivative is taken may not be folded before that; so names are collected
 * before any node is built (UL_VALUE_INDEPENDENT). */
#include "frontend/old_emit.h"
#include "ir/build.h"
#include "ir/op.h"
#include "ir/op_names.h"

#include <string.h>

static bool is_gradient(const Onnx__NodeProto *node)
{
    return node->op_type != NULL && strcmp(node->op_type, "Gradient") == 0 &&
           node->domain != NULL && strcmp(node->domain, "ai.onnx.preview.training") == 0;
}

static void collect(struct ul_model_builder *builder, size_t node_count,
                    Onnx__NodeProto *const *nodes)
{
    for (size_t n = 0; n < node_count; n++) {
        for (size_t a = 0; is_gradient(nodes[n]) && a < nodes[n]->n_attribute; a++) {
            const Onnx__AttributeProto *attr = nodes[n]->attribute[a];
            if (attr->name == NULL || strcmp(attr->name, "xs") != 0)
                continue;
            for (size_t i = 0; i < attr->n_strings; i++)
                (void)!ul_names_add(&builder->independent,
                                    ul_arena_printf(builder->scratch, "%.*s",
                                                    (int)attr->strings[i].len,
                                                    (const char *)attr->strings[i].data),
                                    0);
        }
    }
}

void ul_gradient_collect(struct ul_model_builder *builder)
{
    const Onnx__ModelProto *proto = builder->proto;
    ul_names_init(&builder->independent, builder->scratch);
    collect(builder, proto->graph->n_node, proto->graph->node);
    for (size_t f = 0; f < proto->n_functions; f++)
        collect(builder, proto->functions[f]->n_node, proto->functions[f]->node);
}

bool ul_gradient_is_by(const struct ul_model_builder *builder, const char *name)
{
    return ul_names_find(&builder->independent, name) != UL_NONE;
}

ul_node_id ul_old_emit_derivative(struct ul_old_node *node, ul_value_id y, ul_value_id gradient,
                                  const ul_value_id *xs, uint32_t x_count, uint32_t more_count)
{
    struct ul_model_builder *builder = node->builder;
    uint32_t count = x_count + more_count;
    ul_value_id *inputs = UL_NEW_ARRAY(builder->scratch, ul_value_id, (uint64_t)count + 2);
    inputs[0] = y;
    inputs[1] = gradient;
    memcpy(inputs + 2, xs, count * sizeof *xs);
    struct ul_build build =
        ul_build_last(builder->graph, builder->block, ul_builder_name(builder, node->name));
    ul_node_id id = ul_build_node(&build, UL_OP_Derivative, inputs, count + 2, x_count);
    builder->graph->nodes[id].source = node->source;
    ul_node_set_int(builder->graph, id, "ul_xs", x_count);
    return id;
}

ul_value_id ul_old_emit_unknown(struct ul_old_node *node, const struct ul_type *type)
{
    struct ul_graph *graph = node->builder->graph;
    static const unsigned char zero[16];
    ul_value_id value = ul_graph_add_weight(graph, ul_builder_name(node->builder, node->name),
                                            ul_tensor_new_splat(graph->arena, type, zero));
    graph->values[value].flags |= UL_VALUE_INDEPENDENT;
    return value;
}

/* ---- Gradient ---- */

struct named {
    uint32_t count;
    ul_value_id *values;
};

/* The values that an attribute names. */
static bool find_named(struct ul_old_node *node, const char *attribute, struct named *named)
{
    const struct ul_attr *attr = ul_old_attr(node, attribute);
    uint32_t count = attr != NULL && attr->kind == UL_ATTR_STRINGS ? attr->count : 0;
    for (uint32_t i = 0; i < count; i++) {
        ul_value_id value = ul_scope_find(node->builder->scope, attr->strings[i]);
        if (value >= UL_SEQUENCE_FIRST)
            return ul_old_invalid(
                node, ul_arena_printf(node->builder->scratch,
                                      "%s names %s, which is no tensor made before it", attribute,
                                      ul_quote(node->builder->scratch, attr->strings[i])));
        named->values[named->count++] = value;
    }
    return true;
}

/* Whether the values that are fed are those that are named. */
static bool feeds_named(const struct ul_old_node *node, const struct named *named)
{
    for (uint32_t i = 0; i < named->count; i++)
        if (ul_old_input(node, i) != UL_NONE && node->inputs[i] != named->values[i])
            return false;
    return true;
}

void ul_upgrade_gradient(struct ul_old_node *node)
{
    struct ul_model_builder *builder = node->builder;
    const char *name = ul_old_string(node, "y", "");
    ul_value_id y = ul_scope_find(builder->scope, name);
    struct named named = {0, UL_NEW_ARRAY(builder->scratch, ul_value_id, 2 * UL_LIMIT_NODE_INPUTS)};
    const struct ul_attr *xs = ul_old_attr(node, "xs"), *zs = ul_old_attr(node, "zs");
    if ((xs != NULL && xs->count > UL_LIMIT_NODE_INPUTS / 4) ||
        (zs != NULL && zs->count > UL_LIMIT_NODE_INPUTS / 4)) {
        ul_old_problem(node, "has more names in xs or zs than are supported");
        return;
    }
    if (y >= UL_SEQUENCE_FIRST) {
        ul_old_invalid(node, ul_arena_printf(builder->scratch,
                                             "y names %s, which is no tensor made before it",
                                             ul_quote(builder->scratch, name)));
        return;
    }
    if (!find_named(node, "xs", &named))
        return;
    uint32_t x_count = named.count;
    if (x_count == 0 || node->output_count > x_count) {
        ul_old_invalid(node, "has no name in xs for an output");
        return;
    }
    if (!find_named(node, "zs", &named))
        return;
    if (node->input_count > named.count) {
        ul_old_invalid(node, "has more inputs than names in xs and zs");
        return;
    }
    uint32_t count = named.count;
    bool feeds = !feeds_named(node, &named);
    for (uint32_t i = 0; feeds && i < count; i++) {
        ul_value_id fed = ul_old_input(node, i);
        named.values[count + i] = fed != UL_NONE ? fed : named.values[i];
    }
    ul_node_id id = ul_old_emit_derivative(node, y, UL_NONE, named.values, x_count,
                                           (feeds ? 2 * count : count) - x_count);
    if (feeds)
        ul_node_set_int(builder->graph, id, "ul_values", 1);
    for (uint32_t i = 0; i < node->output_count; i++)
        ul_old_set_result(node, i, builder->graph->nodes[id].outputs[i]);
    node->finished = true;
}
