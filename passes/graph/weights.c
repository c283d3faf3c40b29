/* SPDX-License-Identifier: Apache-2.0 */
/* What depends on weights alone is computed when the program is made.
 *
 * Problem: networks have weights that are made from others on every run: standardised ones, weights
 * with a norm of their own, products of two. Pass infer folds what is small beside the weights;
 * some of the rest would make the program larger, which only the whole expression tells:
 *
 *     w --+--> Sub --> Mul --> Reshape --> Conv        Sub alone has more bytes, since w is read
 *         '--> ReduceMean --^                          again; all together have as many
 *
 * Method: nodes that depend on weights alone and share one are one expression. It is computed if
 * what others read of it takes no more bytes than the weights that nobody else reads. Each
 * expression is computed by itself, with its intermediates in memory of its own, so that this takes
 * little more than its results; and with work in proportion to its weights, since nobody vouches
 * for the model.
 *
 * Left undone: the cheapest cut of an expression of which only a part is worth it; weights inside
 * of branches and loops. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

/* Steps of the interpreter for each byte of the weights that an expression frees. */
enum { WORK_PER_BYTE = 64 };

struct weights {
    struct ul_pass *pass;
    struct ul_graph *graph;
    bool *hangs;            /* per node: it depends on weights alone */
    bool *computes;         /* per expression, at its root: it has more than movements, which cost
                               nothing */
    bool *read_elsewhere;   /* per value: by a node that depends on more, or as an output */
    ul_node_id *expression; /* per node: a tree of a union-find */
    ul_node_id *first;      /* per value: the first node of an expression that reads it */
    uint64_t *freed_bytes, *made_bytes; /* per expression, at its root */
    ul_node_id *begin, *next; /* its nodes in the order of the block: at its root, and per node */
};

static ul_node_id expression_of(struct weights *weights, ul_node_id id)
{
    return ul_edit_find_head(weights->expression, id);
}

/* ---- What hangs on weights alone ---- */

/* Statistics that nobody asks for need no running ones. */
static void forget_statistics(struct ul_node *node)
{
    if (node->op != UL_OP_BatchNormalizationTraining || node->output_count != 1)
        return;
    node->inputs[3] = node->inputs[2];
    node->inputs[4] = node->inputs[2];
}

static bool hangs_on_weights(const struct weights *weights, const struct ul_node *node)
{
    const struct ul_graph *graph = weights->graph;
    const uint32_t never = UL_OP_RANDOM | UL_OP_CONTROL | UL_OP_WIDENS;
    if ((ul_op_get(node->op)->flags & never) != 0 || node->block_count > 0)
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id value = node->inputs[i];
        if (value == UL_NONE || ul_graph_get_constant(graph, value) != NULL)
            continue;
        if (graph->values[value].kind != UL_VALUE_NODE ||
            !weights->hangs[graph->values[value].producer])
            return false;
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] == UL_NONE || !ul_type_known(&graph->values[node->outputs[i]].type))
            return false;
    }
    return node->input_count > 0 && node->output_count > 0;
}

static void find_hanging(struct weights *weights)
{
    struct ul_graph *graph = weights->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    for (uint32_t at = 0; at < block->node_count; at++) {
        struct ul_node *node = &graph->nodes[block->nodes[at]];
        if (node->op == UL_OP_NONE)
            continue;
        forget_statistics(node);
        weights->hangs[block->nodes[at]] = hangs_on_weights(weights, node);
    }
}

/* Reads by all other nodes, in whatever block. */
static void find_read_elsewhere(struct weights *weights)
{
    const struct ul_graph *graph = weights->graph;
    for (ul_node_id id = 0; id < graph->node_count; id++) {
        const struct ul_node *node = &graph->nodes[id];
        bool reads = node->op != UL_OP_NONE && !weights->hangs[id];
        for (uint32_t i = 0; reads && i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                weights->read_elsewhere[node->inputs[i]] = true;
        }
    }
    for (ul_block_id b = 0; b < graph->block_count; b++) {
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            weights->read_elsewhere[graph->blocks[b].outputs[i]] = true;
    }
}

/* ---- Expressions ---- */

static void read_in_expression(struct weights *weights, ul_node_id id)
{
    const struct ul_node *node = &weights->graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id value = node->inputs[i];
        if (value == UL_NONE)
            continue;
        if (weights->first[value] == UL_NONE)
            weights->first[value] = id;
        else
            ul_edit_join_heads(weights->expression, weights->first[value], id);
    }
}

/* Goes from the end, so that what nobody reads belongs to no expression. It is removed: it may read
 * what goes with an expression. */
static void find_needed(struct weights *weights)
{
    struct ul_graph *graph = weights->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    for (uint32_t at = block->node_count; at-- > 0;) {
        ul_node_id id = block->nodes[at];
        const struct ul_node *node = &graph->nodes[id];
        if (node->op == UL_OP_NONE || !weights->hangs[id])
            continue;
        bool is_needed = false;
        for (uint32_t i = 0; i < node->output_count; i++)
            is_needed = is_needed || weights->read_elsewhere[node->outputs[i]] ||
                        weights->first[node->outputs[i]] != UL_NONE;
        weights->hangs[id] = is_needed;
        if (is_needed)
            read_in_expression(weights, id);
        else
            ul_graph_remove_node(graph, id);
    }
}

static void find_expressions(struct weights *weights)
{
    const struct ul_graph *graph = weights->graph;
    for (ul_value_id value = 0; value < graph->value_count; value++) {
        const struct ul_value *info = &graph->values[value];
        bool is_made = info->kind == UL_VALUE_NODE && weights->hangs[info->producer];
        if (is_made && weights->first[value] != UL_NONE)
            ul_edit_join_heads(weights->expression, info->producer, weights->first[value]);
    }
    for (ul_node_id id = 0; id < graph->node_count; id++) {
        if (weights->hangs[id] && ul_op_get(graph->nodes[id].op)->view == NULL)
            weights->computes[expression_of(weights, id)] = true;
    }
    for (ul_value_id value = 0; value < graph->value_count; value++) {
        const struct ul_value *info = &graph->values[value];
        bool is_made = info->kind == UL_VALUE_NODE && weights->hangs[info->producer];
        if (is_made && weights->read_elsewhere[value])
            weights->made_bytes[expression_of(weights, info->producer)] +=
                ul_type_bytes(&info->type);
        else if (info->kind == UL_VALUE_WEIGHT && weights->first[value] != UL_NONE &&
                 !weights->read_elsewhere[value])
            weights->freed_bytes[expression_of(weights, weights->first[value])] +=
                ul_edit_weight_bytes(graph, value);
    }
}

/* ---- Computing ---- */

static void list_nodes(struct weights *weights)
{
    const struct ul_block *block = ul_graph_only_root(weights->graph);
    for (uint32_t at = block->node_count; at-- > 0;) {
        ul_node_id id = block->nodes[at];
        if (weights->graph->nodes[id].op == UL_OP_NONE || !weights->hangs[id])
            continue;
        ul_node_id root = expression_of(weights, id);
        weights->next[id] = weights->begin[root];
        weights->begin[root] = id;
    }
}

static uint32_t nodes_of(const struct weights *weights, ul_node_id expression, ul_node_id *nodes)
{
    uint32_t count = 0;
    for (ul_node_id id = weights->begin[expression]; id != UL_NONE; id = weights->next[id])
        nodes[count++] = id;
    return count;
}

/* All or nothing: `arena` then owns what is known of the expression. */
static bool compute(struct weights *weights, const ul_node_id *nodes, uint32_t count,
                    uint64_t freed_bytes, struct ul_arena *arena)
{
    struct ul_graph *graph = weights->graph;
    struct ul_fold fold = {.keep = arena, .max_elements = UL_LIMIT_TENSOR_BYTES};
    fold.work_left = UL_LIMIT_FOLD_WORK / WORK_PER_BYTE + WORK_PER_BYTE * freed_bytes;
    bool known = true;
    for (uint32_t n = 0; n < count && known; n++) {
        struct ul_arena scratch;
        ul_arena_init(&scratch);
        known = ul_node_fold_within(graph, nodes[n], &fold, &scratch);
        ul_arena_done(&scratch);
    }
    if (known)
        ul_fold_as_program(weights->pass, nodes, count, arena);
    for (uint32_t n = 0; n < count && !known; n++) {
        for (uint32_t i = 0; i < graph->nodes[nodes[n]].output_count; i++)
            graph->values[graph->nodes[nodes[n]].outputs[i]].tensor = NULL;
    }
    return known;
}

static void compute_expression(struct weights *weights, ul_node_id expression, ul_node_id *nodes)
{
    struct ul_arena arena;
    uint64_t freed_bytes = weights->freed_bytes[expression];
    if (!weights->computes[expression] || weights->made_bytes[expression] > freed_bytes)
        return;
    uint32_t count = nodes_of(weights, expression, nodes);
    UL_ASSERT(count > 0);
    ul_arena_init(&arena);
    if (compute(weights, nodes, count, freed_bytes, &arena)) {
        for (uint32_t n = count; n-- > 0;)
            ul_edit_remove_known(weights->graph, nodes[n], weights->read_elsewhere);
    }
    ul_arena_done(&arena);
}

enum ul_status ul_pass_weights(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct ul_arena *scratch = pass->scratch;
    uint32_t node_count = graph->node_count, value_count = graph->value_count;
    struct weights weights = {.pass = pass,
                              .graph = graph,
                              .hangs = UL_NEW_ARRAY(scratch, bool, node_count),
                              .computes = UL_NEW_ARRAY(scratch, bool, node_count),
                              .read_elsewhere = UL_NEW_ARRAY(scratch, bool, value_count),
                              .expression = UL_NEW_ARRAY(scratch, ul_node_id, node_count),
                              .first = UL_NEW_ARRAY(scratch, ul_node_id, value_count),
                              .begin = UL_NEW_ARRAY(scratch, ul_node_id, node_count),
                              .next = UL_NEW_ARRAY(scratch, ul_node_id, node_count),
                              .freed_bytes = UL_NEW_ARRAY(scratch, uint64_t, node_count),
                              .made_bytes = UL_NEW_ARRAY(scratch, uint64_t, node_count)};
    for (ul_node_id id = 0; id < node_count; id++) {
        weights.expression[id] = id;
        weights.begin[id] = UL_NONE;
    }
    for (ul_value_id value = 0; value < value_count; value++)
        weights.first[value] = UL_NONE;
    find_hanging(&weights);
    find_read_elsewhere(&weights);
    find_needed(&weights);
    find_expressions(&weights);
    list_nodes(&weights);
    ul_node_id *nodes = UL_NEW_ARRAY(scratch, ul_node_id, node_count);
    for (ul_node_id id = 0; id < node_count; id++) {
        if (weights.hangs[id] && expression_of(&weights, id) == id)
            compute_expression(&weights, id, nodes);
    }
    ul_graph_sweep(graph);
    return UL_OK;
}
