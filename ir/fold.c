/* SPDX-License-Identifier: Apache-2.0 */
/* Folding a node with constant inputs: lowered, then interpreted. */
#include "ir/infer.h"
#include "ir/kernel_build.h"
#include "ir/lower_group.h"
#include "ir/op.h"

#include <string.h>

/* Shape inference has fixed the outputs already. */
static bool is_known(const struct ul_graph *graph, const struct ul_node *node)
{
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (graph->values[node->outputs[i]].tensor == NULL)
            return false;
    }
    return node->output_count > 0;
}

static bool foldable(const struct ul_graph *graph, const struct ul_node *node,
                     uint64_t max_elements)
{
    const struct ul_op_info *op = ul_op_get(node->op);
    if (node->op == UL_OP_NONE || (op->flags & (UL_OP_RANDOM | UL_OP_CONTROL)) != 0)
        return false;
    if (op->map == NULL && op->expression == NULL && op->lower == NULL)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE && ul_graph_get_constant(graph, node->inputs[i]) == NULL)
            return false;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] == UL_NONE)
            continue;
        const struct ul_type *type = &graph->values[node->outputs[i]].type;
        if (!ul_type_known(type) || ul_type_elements(type) > max_elements)
            return false;
    }
    return true;
}

/* The bytes under a buffer: a constant's own, an output's new ones. */
static unsigned char *bytes_of(struct ul_graph *graph, ul_value_id value, struct ul_arena *keep,
                               struct ul_arena *scratch)
{
    struct ul_value *info = &graph->values[value];
    uint64_t size_bytes = ul_type_bytes(&info->type);
    if (info->tensor == NULL)
        return ul_arena_alloc(keep, size_bytes);
    if (info->tensor->data != NULL)
        return (unsigned char *)(uintptr_t)info->tensor->data; /* inputs are only read */
    unsigned char *copy = ul_arena_alloc(scratch, size_bytes);
    ul_tensor_read(info->tensor, 0, ul_type_elements(&info->type), copy);
    return copy;
}

bool ul_node_fold_within(struct ul_graph *graph, ul_node_id node, struct ul_fold *fold,
                         struct ul_arena *scratch)
{
    const struct ul_node *info = &graph->nodes[node];
    if (is_known(graph, info))
        return true;
    if (!foldable(graph, info, fold->max_elements))
        return false;
    struct ul_lower_result result;
    ul_lower_group(graph, &node, 1, NULL, NULL, scratch, &result);
    const struct ul_kernel *kernel = result.kernel;
    unsigned char **buffers = UL_NEW_ARRAY(scratch, unsigned char *, kernel->buffer_count);
    unsigned char **outputs = UL_NEW_ARRAY(scratch, unsigned char *, info->output_count);
    for (uint32_t i = 0; i < info->output_count; i++) {
        if (info->outputs[i] != UL_NONE)
            outputs[i] = bytes_of(graph, info->outputs[i], fold->keep, scratch);
    }
    for (uint32_t b = 0; b < kernel->buffer_count; b++) {
        ul_value_id value = kernel->buffers[b].value;
        if (value == UL_NONE)
            continue;
        for (uint32_t i = 0; i < info->output_count; i++) {
            if (info->outputs[i] == value)
                buffers[b] = outputs[i];
        }
        if (buffers[b] == NULL)
            buffers[b] = bytes_of(graph, value, fold->keep, scratch);
    }
    bool reported = false;
    if (!ul_kernel_eval(kernel, buffers, &fold->work_left, scratch, &reported) || reported)
        return false;
    for (uint32_t i = 0; i < info->output_count; i++) {
        if (info->outputs[i] == UL_NONE)
            continue;
        struct ul_value *value = &graph->values[info->outputs[i]];
        struct ul_tensor *tensor = UL_NEW(fold->keep, struct ul_tensor);
        tensor->type = value->type;
        tensor->data = outputs[i];
        value->tensor = tensor;
    }
    return true;
}

bool ul_node_fold(struct ul_graph *graph, ul_node_id node, struct ul_arena *scratch)
{
    struct ul_fold fold = {.keep = graph->arena,
                           .max_elements = UL_LIMIT_FOLD_ELEMENTS,
                           .work_left = UL_LIMIT_FOLD_WORK};
    return ul_node_fold_within(graph, node, &fold, scratch);
}
