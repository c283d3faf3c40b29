/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the invariants of ir/graph.h: links in both directions, definition before use by a walk
 * over the blocks in execution order, and, where views are set, that they lie inside their base. */
#include "ir/op.h"
#include "ir/view.h"

#include <string.h>

struct verify {
    const struct ul_graph *graph;
    struct ul_diag *diag;
    struct ul_arena scratch;
    bool *defined;      /* per value: it is in scope */
    bool *made;         /* per value: it was in scope of some block */
    bool *node_seen;    /* per node: stands in a block that was walked */
    bool *group_closed; /* per group (they are below node_count): its run has ended */
    ul_value_id *scope; /* values defined so far and still in scope */
    uint32_t scope_count;
};

static enum ul_status fail_node(struct verify *verify, ul_node_id node, const char *what,
                                uint32_t number)
{
    return ul_diag_set(verify->diag, UL_INVALID, "%s: %s %u",
                       ul_node_describe(verify->graph, node, &verify->scratch), what,
                       (unsigned)number);
}

static enum ul_status fail_value(struct verify *verify, ul_value_id id, const char *what)
{
    const char *name = ul_quote(&verify->scratch, verify->graph->values[id].name);
    return ul_diag_set(verify->diag, UL_INVALID, "value %u %s: %s", (unsigned)id, name, what);
}

static enum ul_status define(struct verify *verify, ul_value_id id)
{
    if (verify->defined[id])
        return fail_value(verify, id, "is defined twice");
    verify->defined[id] = verify->made[id] = true;
    verify->scope[verify->scope_count++] = id;
    return UL_OK;
}

static bool is_value(const struct verify *verify, ul_value_id id)
{
    return id < verify->graph->value_count && verify->graph->values[id].kind != UL_VALUE_DEAD;
}

static enum ul_status check_arity(struct verify *verify, ul_node_id id)
{
    const struct ul_node *node = &verify->graph->nodes[id];
    const struct ul_op_info *row = ul_op_get(node->op);
    if (node->input_count < row->min_inputs || node->input_count > row->max_inputs)
        return fail_node(verify, id, "wrong number of inputs:", node->input_count);
    if (node->output_count < row->min_outputs || node->output_count > row->max_outputs)
        return fail_node(verify, id, "wrong number of outputs:", node->output_count);
    for (uint32_t i = 0; i < row->min_inputs; i++) {
        if (node->inputs[i] == UL_NONE)
            return fail_node(verify, id, "lacks the required input", i);
    }
    if ((node->block_count > 0) != ((row->flags & UL_OP_CONTROL) != 0))
        return fail_node(verify, id, "wrong number of nested blocks:", node->block_count);
    return UL_OK;
}

static enum ul_status check_node(struct verify *verify, ul_block_id block, ul_node_id id)
{
    const struct ul_graph *graph = verify->graph;
    const struct ul_node *node = &graph->nodes[id];
    if (node->op == UL_OP_NONE || node->op >= ul_op_end())
        return ul_diag_set(verify->diag, UL_INVALID, "block %u lists the removed node %u",
                           (unsigned)block, (unsigned)id);
    if (verify->node_seen[id])
        return fail_node(verify, id, "is listed twice, again in block", block);
    verify->node_seen[id] = true;
    if (node->parent != block)
        return fail_node(verify, id, "stands in another block than its parent", node->parent);
    UL_TRY(check_arity(verify, id));
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        if (input != UL_NONE && (!is_value(verify, input) || !verify->defined[input]))
            return fail_node(verify, id, "uses a value that is not defined before it: input", i);
    }
    return UL_OK;
}

static enum ul_status define_outputs(struct verify *verify, ul_node_id id)
{
    const struct ul_node *node = &verify->graph->nodes[id];
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_value_id output = node->outputs[i];
        if (!is_value(verify, output))
            return fail_node(verify, id, "has a dead output", i);
        const struct ul_value *value = &verify->graph->values[output];
        if (value->kind != UL_VALUE_NODE || value->producer != id || value->producer_output != i)
            return fail_node(verify, id, "is not the producer of its output", i);
        UL_TRY(define(verify, output));
    }
    return UL_OK;
}

static enum ul_status define_arguments(struct verify *verify, ul_block_id id)
{
    const struct ul_block *block = &verify->graph->blocks[id];
    bool is_root = ul_graph_is_root(verify->graph, id);
    enum ul_value_kind kind = is_root ? UL_VALUE_INPUT : UL_VALUE_ARGUMENT;
    for (uint32_t i = 0; i < block->input_count; i++) {
        ul_value_id input = block->inputs[i];
        if (!is_value(verify, input))
            return ul_diag_set(verify->diag, UL_INVALID, "block %u has a dead input %u",
                               (unsigned)id, (unsigned)i);
        const struct ul_value *value = &verify->graph->values[input];
        if (value->kind != kind || value->producer != block->owner ||
            (!is_root && value->producer_output != i))
            return fail_value(verify, input, "is no proper argument of its block");
        UL_TRY(define(verify, input));
    }
    return UL_OK;
}

/* The nodes of a group are side by side in one block. */
static enum ul_status check_group(struct verify *verify, ul_node_id id, uint32_t *open_group)
{
    uint32_t group = verify->graph->nodes[id].group;
    if (group == *open_group)
        return UL_OK;
    if (*open_group != UL_NONE)
        verify->group_closed[*open_group] = true;
    *open_group = group;
    if (group == UL_NONE)
        return UL_OK;
    if (group >= verify->graph->node_count)
        return fail_node(verify, id, "has a group beyond the number of nodes:", group);
    if (verify->group_closed[group])
        return fail_node(verify, id, "is apart from the rest of its group", group);
    return UL_OK;
}

static enum ul_status check_block(struct verify *verify, ul_block_id id, uint32_t depth)
{
    const struct ul_block *block = &verify->graph->blocks[id];
    uint32_t scope_begin = verify->scope_count;
    uint32_t open_group = UL_NONE;
    if (depth > UL_LIMIT_NESTING)
        return ul_diag_set(verify->diag, UL_INVALID, "blocks are nested more than %u deep",
                           (unsigned)UL_LIMIT_NESTING);
    UL_TRY(define_arguments(verify, id));
    for (uint32_t n = 0; n < block->node_count; n++) {
        ul_node_id node_id = block->nodes[n];
        if (node_id >= verify->graph->node_count)
            return ul_diag_set(verify->diag, UL_INVALID, "block %u lists node %u of %u",
                               (unsigned)id, (unsigned)node_id,
                               (unsigned)verify->graph->node_count);
        UL_TRY(check_node(verify, id, node_id));
        UL_TRY(check_group(verify, node_id, &open_group));
        const struct ul_node *node = &verify->graph->nodes[node_id];
        for (uint32_t b = 0; b < node->block_count; b++) {
            if (ul_graph_is_root(verify->graph, node->blocks[b]) ||
                node->blocks[b] >= verify->graph->block_count ||
                verify->graph->blocks[node->blocks[b]].owner != node_id)
                return fail_node(verify, node_id, "does not own its block", b);
            UL_TRY(check_block(verify, node->blocks[b], depth + 1));
        }
        UL_TRY(define_outputs(verify, node_id));
    }
    if (open_group != UL_NONE)
        verify->group_closed[open_group] = true;
    for (uint32_t i = 0; i < block->output_count; i++) {
        if (!is_value(verify, block->outputs[i]) || !verify->defined[block->outputs[i]])
            return ul_diag_set(verify->diag, UL_INVALID,
                               "output %u of block %u is not defined in it", (unsigned)i,
                               (unsigned)id);
    }
    while (verify->scope_count > scope_begin)
        verify->defined[verify->scope[--verify->scope_count]] = false;
    return UL_OK;
}

/* The view's first and last byte lie in the base, which owns its bytes. */
static enum ul_status check_view(struct verify *verify, ul_value_id id)
{
    const struct ul_value *value = &verify->graph->values[id];
    const struct ul_view *view = &value->view;
    if (view->base == UL_NONE)
        return UL_OK;
    if (!is_value(verify, view->base) || !ul_type_known(&value->type))
        return fail_value(verify, id, "has a view on nothing");
    const struct ul_value *base = &verify->graph->values[view->base];
    if (base->storage != value->storage)
        return fail_value(verify, id, "is stored in another way than what it lies in");
    if (base->view.base != view->base || base->view.offset_bytes != 0)
        return fail_value(verify, id, "has a view on a value that is a view itself");
    if (ul_type_elements(&value->type) == 0)
        return UL_OK;
    int64_t size_bytes = ul_value_element_bytes(verify->graph, id);
    int64_t first = view->offset_bytes;
    int64_t last = view->offset_bytes;
    for (uint32_t d = 0; d < value->type.rank; d++) {
        int64_t reach;
        if (__builtin_mul_overflow(view->strides[d], value->type.dims[d] - 1, &reach) ||
            __builtin_mul_overflow(reach, size_bytes, &reach) ||
            __builtin_add_overflow(reach < 0 ? first : last, reach, reach < 0 ? &first : &last))
            return fail_value(verify, id, "has strides out of range");
    }
    uint64_t base_bytes = ul_value_bytes(verify->graph, view->base);
    if (first < 0 || last < 0 || base_bytes < (uint64_t)size_bytes ||
        (uint64_t)last > base_bytes - (uint64_t)size_bytes)
        return fail_value(verify, id, "has a view that leaves its base");
    return UL_OK;
}

static enum ul_status check_value(struct verify *verify, ul_value_id id)
{
    const struct ul_graph *graph = verify->graph;
    const struct ul_value *value = &graph->values[id];
    if (value->name == NULL)
        return ul_diag_set(verify->diag, UL_INVALID, "value %u has no name", (unsigned)id);
    if (value->type.rank != UL_RANK_UNKNOWN && value->type.rank > UL_LIMIT_RANK)
        return fail_value(verify, id, "has too high a rank");
    if (ul_type_known(&value->type) && !ul_type_in_limits(&value->type))
        return fail_value(verify, id, "is over the limits of size");
    /* A node's output may be known too, until shape inference makes it a weight. */
    if (value->kind == UL_VALUE_WEIGHT && value->tensor == NULL)
        return fail_value(verify, id, "is a weight without a tensor");
    if (value->kind == UL_VALUE_WEIGHT && !ul_type_equal(&value->type, &value->tensor->type))
        return fail_value(verify, id, "differs in type from its tensor");
    if (value->storage != UL_DTYPE_NONE &&
        (value->type.dtype != UL_F32 || !ul_dtype_is_half(value->storage)))
        return fail_value(verify, id, "cannot be stored as it says");
    if (value->declared != UL_DTYPE_NONE &&
        (value->type.dtype != UL_F32 ||
         (!ul_dtype_is_half(value->declared) && value->declared != UL_F32)))
        return fail_value(verify, id, "cannot be what the model says");
    if (value->donor != UL_NONE &&
        (!is_value(verify, value->donor) || graph->values[value->donor].kind == UL_VALUE_NODE))
        return fail_value(verify, id, "overwrites what is no input");
    if (value->link_root != UL_NONE &&
        (value->kind != UL_VALUE_INPUT || value->link_root >= graph->root_count ||
         value->link_output >= graph->blocks[value->link_root].output_count))
        return fail_value(verify, id, "is linked to no output of a root");
    return check_view(verify, id);
}

/* Roots are the first blocks, which no node has, each with a name of its own. */
static enum ul_status check_roots(const struct verify *verify)
{
    const struct ul_graph *graph = verify->graph;
    if (graph->root_count == 0 || graph->root_count > graph->block_count)
        return ul_diag_set(verify->diag, UL_INVALID, "the graph has no root");
    for (uint32_t r = 0; r < graph->root_count; r++) {
        const struct ul_block *root = &graph->blocks[r];
        if (root->owner != UL_NONE || root->name == NULL)
            return ul_diag_set(verify->diag, UL_INVALID, "block %u is no root", (unsigned)r);
        for (uint32_t other = 0; other < r; other++)
            if (strcmp(root->name, graph->blocks[other].name) == 0)
                return ul_diag_set(verify->diag, UL_INVALID, "two roots have one name");
    }
    return UL_OK;
}

static enum ul_status check_all(struct verify *verify)
{
    const struct ul_graph *graph = verify->graph;
    UL_TRY(check_roots(verify));
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind != UL_VALUE_DEAD)
            UL_TRY(check_value(verify, v));
        if (graph->values[v].kind == UL_VALUE_WEIGHT)
            verify->defined[v] = true;
    }
    for (uint32_t r = 0; r < graph->root_count; r++)
        UL_TRY(check_block(verify, r, 0));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].op != UL_OP_NONE && !verify->node_seen[n])
            return fail_node(verify, n, "is missing from its block", graph->nodes[n].parent);
    }
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        bool orphan = value->kind == UL_VALUE_NODE &&
                      (value->producer >= graph->node_count ||
                       value->producer_output >= graph->nodes[value->producer].output_count ||
                       graph->nodes[value->producer].outputs[value->producer_output] != v);
        if (orphan || (value->kind == UL_VALUE_INPUT && !verify->made[v]))
            return fail_value(verify, v, "has no producer");
    }
    return UL_OK;
}

enum ul_status ul_graph_verify(const struct ul_graph *graph, struct ul_diag *diag)
{
    struct verify verify = {.graph = graph, .diag = diag};
    ul_arena_init(&verify.scratch);
    verify.defined = UL_NEW_ARRAY(&verify.scratch, bool, graph->value_count);
    verify.made = UL_NEW_ARRAY(&verify.scratch, bool, graph->value_count);
    verify.node_seen = UL_NEW_ARRAY(&verify.scratch, bool, graph->node_count);
    verify.group_closed = UL_NEW_ARRAY(&verify.scratch, bool, graph->node_count);
    verify.scope = UL_NEW_ARRAY(&verify.scratch, ul_value_id, graph->value_count);
    enum ul_status status = check_all(&verify);
    ul_arena_done(&verify.scratch);
    return status;
}
