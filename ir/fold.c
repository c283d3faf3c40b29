/* SPDX-License-Identifier: Apache-2.0 */
/* Folding a node with constant inputs: lowered, then interpreted.
 *
 * Programs do not round to 16 bits between the nodes of one kernel. So a node of 16 bits is lowered
 * together with what is computed with it and read by nothing else, though that is folded already.
 * Left undone: values that two nodes of one kernel read, and nodes in front of a sum, which
 * programs compute with it where that takes no more bytes: both are rounded here. */
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

/* ---- Nodes that a program computes without rounding in between ---- */

enum { MAX_NODES = 16 };

struct chain {
    struct ul_graph *graph;
    ul_node_id nodes[MAX_NODES]; /* in the order of execution */
    uint32_t found, count;       /* nodes found so far; those already in `nodes` */
    bool has_anchor;
    const uint32_t *readers; /* per value below reader_count */
    uint32_t reader_count;
    bool *escapes; /* per value: not made for a node of these */
};

static bool is_half(const struct ul_type *type)
{
    return type->dtype == UL_F16 || type->dtype == UL_BF16;
}

static bool same_dims(const struct ul_type *a, const struct ul_type *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

static bool is_map(const struct ul_node *node)
{
    return (ul_op_get(node->op)->flags & UL_OP_ELEMENTWISE) != 0 && node->output_count == 1;
}

/* Whether the node has a loop of its own, behind which elementwise nodes may stand. */
static bool is_anchor(const struct ul_node *node)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    return row->lower != NULL && row->view == NULL && node->output_count == 1 &&
           (row->flags & (UL_OP_COMBINES | UL_OP_JOINS)) == 0;
}

/* Whether programs compute input `input` of the elementwise node with it (passes/fuse_rules.c):
 * another such node, or the anchor, of which there is one. */
static bool is_inlined(const struct chain *chain, const struct ul_node *node, uint32_t input)
{
    const struct ul_graph *graph = chain->graph;
    const struct ul_value *value = &graph->values[node->inputs[input]];
    if (value->kind != UL_VALUE_NODE || value->tensor == NULL || !is_half(&value->type) ||
        !is_map(node) || !same_dims(&value->type, &graph->values[node->outputs[0]].type))
        return false;
    const struct ul_node *made = &graph->nodes[value->producer];
    bool is_known = made->op != UL_OP_NONE && node->inputs[input] < chain->reader_count &&
                    chain->readers[node->inputs[input]] == 1;
    return is_known && (is_map(made) || (!chain->has_anchor && is_anchor(made)));
}

static void gather(struct chain *chain, ul_node_id id)
{
    const struct ul_node *node = &chain->graph->nodes[id];
    chain->has_anchor = chain->has_anchor || !is_map(node);
    chain->found++;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id value = node->inputs[i];
        if (value == UL_NONE || chain->found == MAX_NODES || !is_inlined(chain, node, i))
            continue;
        chain->escapes[value] = false;
        gather(chain, chain->graph->values[value].producer);
    }
    UL_ASSERT(chain->count < MAX_NODES);
    chain->nodes[chain->count++] = id;
}

/* One kernel of the node and of what is computed with it. */
static struct ul_kernel *lower(struct ul_graph *graph, ul_node_id node, const struct ul_fold *fold,
                               struct ul_arena *scratch)
{
    struct ul_lower_result result;
    struct chain chain = {
        .graph = graph, .readers = fold->readers, .reader_count = fold->reader_count};
    const struct ul_node *info = &graph->nodes[node];
    if (info->outputs[0] == UL_NONE || !is_half(&graph->values[info->outputs[0]].type)) {
        ul_lower_group(graph, &node, 1, NULL, NULL, scratch, &result);
        return result.kernel;
    }
    if (chain.readers == NULL) {
        chain.readers = ul_graph_count_uses(graph, scratch);
        chain.reader_count = graph->value_count;
    }
    chain.escapes = UL_NEW_ARRAY(scratch, bool, graph->value_count);
    memset(chain.escapes, true, graph->value_count * sizeof *chain.escapes);
    gather(&chain, node);
    const struct ul_tensor *folded[MAX_NODES] = {NULL}; /* not read, as if there were none */
    for (uint32_t i = 0; i + 1 < chain.count; i++) {
        struct ul_value *made = &graph->values[graph->nodes[chain.nodes[i]].outputs[0]];
        folded[i] = made->tensor;
        made->tensor = NULL;
    }
    ul_lower_group(graph, chain.nodes, chain.count, chain.escapes, NULL, scratch, &result);
    for (uint32_t i = 0; i + 1 < chain.count; i++)
        graph->values[graph->nodes[chain.nodes[i]].outputs[0]].tensor = folded[i];
    return result.kernel;
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
    struct ul_kernel *kernel = lower(graph, node, fold, scratch);
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
