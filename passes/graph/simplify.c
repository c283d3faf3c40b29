/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that do nothing, and chains that are longer than they need be.
 *
 * - what hands its input on unchanged (by its row's view hook, or a Cast to the same type, a Pad of
 *   nothing, or arithmetic with 0 or 1) is forwarded; a power of 2 becomes a product;
 * - a Reshape of a Reshape reads the first one's input; likewise two Transposes;
 * - Concat drops empty operands; one whose first operands are all those of an earlier Concat along
 *   the same axis starts from that one's result. (Networks that join all earlier features again
 *   and again, as DenseNet does, become a chain that the concat pass lays out in one place.)
 * What becomes unused is left to dce. Left undone: arithmetic identities across several nodes. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

#include <string.h>

struct simplify {
    struct ul_graph *graph;
    struct ul_rewrite rewrite;
    /* Concats of the block by their first operand: per value the last one, and a chain. */
    ul_node_id *concat_of;
    ul_node_id *concat_next;
    uint32_t node_known_count;
    bool trains; /* modes.c says what Dropout does */
};

static const struct ul_type *type_of(const struct simplify *simplify, ul_value_id value)
{
    return &simplify->graph->values[value].type;
}

/* ---- Nodes that do nothing ---- */

static bool is_view_of_all(const struct simplify *simplify, const struct ul_node *node)
{
    const struct ul_graph *graph = simplify->graph;
    const struct ul_op_info *row = ul_op_get(node->op);
    if (row->view == NULL || node->output_count != 1)
        return false;
    struct ul_view own = ul_view_own(graph, node->inputs[0]);
    struct ul_view view;
    return row->view(graph, node, 0, &own, &view) && view.base == own.base &&
           view.offset_bytes == 0 && ul_view_is_dense(type_of(simplify, node->outputs[0]), &view);
}

static bool is_number(const struct simplify *simplify, ul_value_id value, double number)
{
    double own;
    return ul_graph_get_number(simplify->graph, value, &own) && own == number;
}

/* All pads are 0: where an operator's result has its input's shape, others would cut off as much as
 * they add. */
static bool is_padding_nothing(const struct simplify *simplify, const struct ul_node *node)
{
    const struct ul_tensor *pads =
        node->op != UL_OP_Pad ? NULL : ul_graph_get_constant(simplify->graph, node->inputs[1]);
    for (uint64_t i = 0; pads != NULL && i < ul_type_elements(&pads->type); i++)
        if (ul_tensor_get_int(pads, i) != 0)
            return false;
    return pads != NULL;
}

/* A Cast to the type that it reads; in a model of 16 bits it may still round. */
static bool casts_nothing(const struct simplify *simplify, const struct ul_node *node)
{
    const struct ul_value *values = simplify->graph->values;
    return node->op == UL_OP_Cast &&
           values[node->inputs[0]].declared == values[node->outputs[0]].declared;
}

/* The input that the node's only output equals, or UL_NONE. */
static ul_value_id unchanged_input(const struct simplify *simplify, const struct ul_node *node)
{
    if (node->output_count != 1 || node->input_count == 0 || node->inputs[0] == UL_NONE ||
        (simplify->trains && node->op == UL_OP_Dropout &&
         (node->input_count < 2 || node->inputs[1] == UL_NONE ||
          !is_number(simplify, node->inputs[1], 0))))
        return UL_NONE;
    if (!simplify->trains && node->op == UL_OP_StopGradient)
        return node->inputs[0];
    const struct ul_type *type = type_of(simplify, node->outputs[0]);
    bool first = ul_type_equal(type, type_of(simplify, node->inputs[0]));
    if (first && (is_view_of_all(simplify, node) || casts_nothing(simplify, node) ||
                  is_padding_nothing(simplify, node) ||
                  (node->op == UL_OP_Concat && node->input_count == 1)))
        return node->inputs[0];
    if (node->input_count != 2 || node->inputs[1] == UL_NONE)
        return UL_NONE;
    bool second = ul_type_equal(type, type_of(simplify, node->inputs[1]));
    bool adds = node->op == UL_OP_Add;
    bool multiplies = node->op == UL_OP_Mul;
    if (first && (adds || node->op == UL_OP_Sub) && is_number(simplify, node->inputs[1], 0))
        return node->inputs[0];
    if (first && (multiplies || node->op == UL_OP_Div) && is_number(simplify, node->inputs[1], 1))
        return node->inputs[0];
    if (second && (adds || multiplies) && is_number(simplify, node->inputs[0], adds ? 0 : 1))
        return node->inputs[1];
    return UL_NONE;
}

/* A square is a product: exact, and cheap enough to be computed in the loads of a sum. */
static void square(const struct simplify *simplify, struct ul_node *node)
{
    if (node->op != UL_OP_Pow || !is_number(simplify, node->inputs[1], 2) ||
        !ul_type_equal(type_of(simplify, node->inputs[0]), type_of(simplify, node->outputs[0])))
        return;
    node->op = UL_OP_Mul;
    node->inputs[1] = node->inputs[0];
}

/* ---- Chains of movements ---- */

static void join_reshapes(struct simplify *simplify, ul_node_id id)
{
    struct ul_graph *graph = simplify->graph;
    struct ul_node *node = &graph->nodes[id];
    const struct ul_node *before = ul_graph_maker(simplify->graph, node->inputs[0]);
    if (before == NULL || !ul_edit_is_reshape(before->op))
        return;
    const struct ul_type type = *type_of(simplify, node->outputs[0]);
    const char *name = ul_arena_printf(graph->arena, "%s.shape", node->name);
    UL_ASSERT(ul_type_elements(&type) == ul_type_elements(type_of(simplify, before->inputs[0])));
    const ul_value_id inputs[2] = {before->inputs[0],
                                   ul_build_ints(graph, name, type.rank, type.dims)};
    ul_node_become(graph, id, UL_OP_Reshape, inputs, 2);
    ul_node_set_int(graph, id, "allowzero", 1);
}

static void permutation(const struct ul_node *node, uint32_t rank, int64_t *perm)
{
    uint32_t count;
    const int64_t *given = ul_node_get_ints(node, "perm", &count);
    for (uint32_t d = 0; d < rank; d++)
        perm[d] = count == rank ? given[d] : (int64_t)(rank - 1 - d);
}

static void join_transposes(struct simplify *simplify, ul_node_id id)
{
    struct ul_graph *graph = simplify->graph;
    struct ul_node *node = &graph->nodes[id];
    const struct ul_node *before = ul_graph_maker(simplify->graph, node->inputs[0]);
    if (before == NULL || before->op != UL_OP_Transpose)
        return;
    uint32_t rank = type_of(simplify, node->inputs[0])->rank;
    int64_t first[UL_LIMIT_RANK];
    int64_t second[UL_LIMIT_RANK];
    int64_t both[UL_LIMIT_RANK];
    permutation(before, rank, first);
    permutation(node, rank, second);
    for (uint32_t d = 0; d < rank; d++) {
        UL_ASSERT(second[d] >= 0 && second[d] < (int64_t)rank);
        both[d] = first[second[d]];
    }
    node->inputs[0] = before->inputs[0];
    ul_node_set_ints(graph, id, "perm", both, rank);
}

/* ---- Concat ---- */

static void drop_empty_operands(struct simplify *simplify, struct ul_node *node)
{
    uint32_t kept = 0;
    if (ul_type_elements(type_of(simplify, node->outputs[0])) == 0)
        return;
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (ul_type_elements(type_of(simplify, node->inputs[i])) > 0)
            node->inputs[kept++] = node->inputs[i];
    }
    UL_ASSERT(kept > 0);
    node->input_count = kept;
}

static int64_t concat_axis(const struct simplify *simplify, const struct ul_node *node)
{
    int64_t axis = ul_node_get_int(node, "axis", 0);
    return axis < 0 ? axis + (int64_t)type_of(simplify, node->outputs[0])->rank : axis;
}

/* Counts the operands that are those of the earlier Concat, as it was given them: it may start from
 * another one itself by now. */
static uint32_t matched(const struct simplify *simplify, const struct ul_node *shorter,
                        const struct ul_node *node)
{
    uint32_t at = 0;
    const ul_value_id *inputs = shorter->inputs;
    UL_ASSERT(shorter->op == UL_OP_Concat && node->op == UL_OP_Concat);
    for (uint32_t i = 0; i < shorter->input_count; i++) {
        if (at == node->input_count)
            return 0;
        if (inputs[i] == node->inputs[at]) {
            at++;
            continue;
        }
        const struct ul_node *inner = ul_graph_maker(simplify->graph, inputs[i]);
        uint32_t taken = 0;
        struct ul_node rest = *node;
        rest.inputs += at;
        rest.input_count -= at;
        if (inner != NULL && inner->op == UL_OP_Concat)
            taken = matched(simplify, inner, &rest);
        if (taken == 0)
            return 0;
        at += taken;
    }
    return at;
}

static void share_prefix(struct simplify *simplify, ul_node_id id)
{
    struct ul_graph *graph = simplify->graph;
    struct ul_node *node = &graph->nodes[id];
    ul_value_id first = node->inputs[0];
    if (node->input_count < 2 || first >= simplify->rewrite.known_count ||
        id >= simplify->node_known_count)
        return;
    enum { MAX_TRIED = 64 }; /* the latest ones, which are the longest in such networks */
    uint32_t best = 0;
    uint32_t tried = 0;
    ul_value_id start = UL_NONE;
    for (ul_node_id c = simplify->concat_of[first]; c != UL_NONE && tried < MAX_TRIED;
         c = simplify->concat_next[c], tried++) {
        const struct ul_node *other = &graph->nodes[c];
        uint32_t count = 0;
        if (other->op == UL_OP_Concat && other->parent == node->parent &&
            concat_axis(simplify, other) == concat_axis(simplify, node))
            count = matched(simplify, other, node);
        if (count > best && count < node->input_count) {
            best = count;
            start = other->outputs[0];
        }
    }
    simplify->concat_next[id] = simplify->concat_of[first];
    simplify->concat_of[first] = id;
    if (best < 2)
        return;
    ul_value_id *inputs = UL_NEW_ARRAY(graph->arena, ul_value_id, node->input_count - best + 1);
    inputs[0] = start;
    memcpy(inputs + 1, node->inputs + best, (node->input_count - best) * sizeof *inputs);
    node->inputs = inputs;
    node->input_count -= best - 1;
}

/* ---- The walk ---- */

static void simplify_node(struct simplify *simplify, ul_node_id id)
{
    struct ul_graph *graph = simplify->graph;
    struct ul_node *node = &graph->nodes[id];
    ul_rewrite_inputs(&simplify->rewrite, id);
    if (node->op == UL_OP_Concat)
        drop_empty_operands(simplify, node);
    if (ul_edit_is_reshape(node->op))
        join_reshapes(simplify, id);
    else if (node->op == UL_OP_Transpose)
        join_transposes(simplify, id);
    node = &graph->nodes[id];
    square(simplify, node);
    ul_value_id same = unchanged_input(simplify, node);
    if (same != UL_NONE && ul_rewrite_forward(&simplify->rewrite, node->outputs[0], same)) {
        ul_graph_remove_node(graph, id);
        return;
    }
    if (node->op == UL_OP_Concat)
        share_prefix(simplify, id);
}

static void simplify_block(struct simplify *simplify, ul_block_id id)
{
    for (uint32_t n = 0; n < simplify->graph->blocks[id].node_count; n++) {
        ul_node_id node = simplify->graph->blocks[id].nodes[n];
        for (uint32_t b = 0; b < simplify->graph->nodes[node].block_count; b++)
            simplify_block(simplify, simplify->graph->nodes[node].blocks[b]);
        simplify_node(simplify, node);
    }
}

enum ul_status ul_pass_simplify(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct simplify simplify = {.graph = graph, .trains = pass->options->training != NULL};
    ul_rewrite_init(&simplify.rewrite, graph, pass->scratch);
    simplify.node_known_count = graph->node_count;
    simplify.concat_of = UL_NEW_ARRAY(pass->scratch, ul_node_id, graph->value_count);
    simplify.concat_next = UL_NEW_ARRAY(pass->scratch, ul_node_id, graph->node_count);
    memset(simplify.concat_of, 0xFF, graph->value_count * sizeof *simplify.concat_of);
    simplify_block(&simplify, 0);
    ul_rewrite_apply(&simplify.rewrite);
    ul_graph_sweep(graph);
    return UL_OK;
}
