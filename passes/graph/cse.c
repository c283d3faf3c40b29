/* SPDX-License-Identifier: Apache-2.0 */
/* Common subexpressions: nodes with equal operator, attributes and inputs, and weights with equal
 * bytes.
 *
 * Method: one walk in execution order with a hash table; a node of a nested block may be replaced
 * by an earlier one of an enclosing block, never by one of a sibling, so entries are taken out when
 * their block ends. Not merged: random numbers, nodes with blocks, values that are updated in
 * place, what widens integers, which each reader does for itself. Weights are first compared by a
 * sample of their bytes, so that a file of many gigabytes is not read for this. Left undone: equal
 * nested blocks. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

struct entry {
    ul_node_id node; /* or UL_NONE once its block has ended */
    uint32_t next;   /* entry with the same hash, or UL_NONE */
};

struct cse {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_rewrite rewrite;
    struct entry *entries;
    uint32_t entry_count;
    uint32_t *heads;
    uint32_t mask;
};

static uint32_t mix_u32(uint32_t hash, uint32_t number)
{
    return ul_hash_more(hash, &number, sizeof number);
}

/* ---- Weights ---- */

enum { SAMPLE_BYTES = 64 };

static uint32_t tensor_hash(const struct ul_tensor *tensor)
{
    uint32_t hash = mix_u32(UL_HASH_BEGIN, (uint32_t)tensor->type.dtype);
    for (uint32_t d = 0; d < tensor->type.rank; d++)
        hash = ul_hash_more(hash, &tensor->type.dims[d], sizeof tensor->type.dims[d]);
    if (tensor->data == NULL)
        return ul_hash_more(hash, tensor->splat, ul_dtype_get(tensor->type.dtype)->size_bytes);
    uint64_t size_bytes = ul_type_bytes(&tensor->type);
    size_t sample = size_bytes < SAMPLE_BYTES ? (size_t)size_bytes : SAMPLE_BYTES;
    hash = ul_hash_more(hash, tensor->data, sample);
    return ul_hash_more(hash, tensor->data + size_bytes - sample, sample);
}

static bool tensor_equal(const struct ul_tensor *a, const struct ul_tensor *b)
{
    if (a == b)
        return true;
    if (!ul_type_equal(&a->type, &b->type) || (a->data == NULL) != (b->data == NULL))
        return false;
    if (a->data == NULL)
        return memcmp(a->splat, b->splat, ul_dtype_get(a->type.dtype)->size_bytes) == 0;
    return a->data == b->data || memcmp(a->data, b->data, (size_t)ul_type_bytes(&a->type)) == 0;
}

static uint32_t table_mask(uint32_t count)
{
    uint32_t size = 64;
    while (size < 2 * count && size < (uint32_t)1 << 31)
        size *= 2;
    UL_ASSERT((size & (size - 1)) == 0);
    return size - 1;
}

static void merge_weights(struct cse *cse)
{
    struct ul_graph *graph = cse->graph;
    uint32_t mask = table_mask(graph->value_count);
    ul_value_id *slots = UL_NEW_ARRAY(cse->pass->scratch, ul_value_id, (uint64_t)mask + 1);
    memset(slots, 0xFF, ((size_t)mask + 1) * sizeof *slots);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind != UL_VALUE_WEIGHT || (value->flags & UL_VALUE_PERSISTENT) != 0)
            continue;
        uint32_t slot = tensor_hash(value->tensor) & mask;
        while (slots[slot] != UL_NONE &&
               (graph->values[slots[slot]].declared != value->declared ||
                !tensor_equal(graph->values[slots[slot]].tensor, value->tensor)))
            slot = (slot + 1) & mask;
        if (slots[slot] == UL_NONE)
            slots[slot] = v;
        else if (!ul_graph_is_output(graph, v)) /* its name is the caller's */
            ul_rewrite_replace(&cse->rewrite, v, slots[slot]);
    }
}

/* ---- Nodes ---- */

static uint32_t attr_hash(uint32_t hash, const struct ul_attr *attr)
{
    hash = ul_hash_more(hash, attr->name, strlen(attr->name));
    hash = mix_u32(hash, (uint32_t)attr->kind);
    hash = ul_hash_more(hash, &attr->i, sizeof attr->i);
    return mix_u32(hash, attr->count);
}

static bool attr_equal(const struct ul_attr *a, const struct ul_attr *b)
{
    if (strcmp(a->name, b->name) != 0 || a->kind != b->kind)
        return false;
    switch (a->kind) {
    case UL_ATTR_INT:
        return a->i == b->i;
    case UL_ATTR_FLOAT:
        return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case UL_ATTR_STRING:
        return strcmp(a->s, b->s) == 0;
    case UL_ATTR_INTS:
        return a->count == b->count &&
               (a->count == 0 || memcmp(a->ints, b->ints, a->count * sizeof *a->ints) == 0);
    case UL_ATTR_FLOATS:
        return a->count == b->count &&
               (a->count == 0 || memcmp(a->floats, b->floats, a->count * sizeof *a->floats) == 0);
    case UL_ATTR_STRINGS:
        for (uint32_t i = 0; a->count == b->count && i < a->count; i++) {
            if (strcmp(a->strings[i], b->strings[i]) != 0)
                return false;
        }
        return a->count == b->count;
    case UL_ATTR_TENSOR:
        return tensor_equal(a->tensor, b->tensor);
    }
    return false;
}

/* The input at place `i` when commuting ones are put in order. */
static ul_value_id input_at(const struct ul_node *node, uint32_t i)
{
    bool commutes = (ul_op_get(node->op)->flags & UL_OP_COMMUTES) != 0 && node->input_count >= 2;
    bool swap = commutes && i < 2 && node->inputs[0] > node->inputs[1];
    return node->inputs[swap ? 1 - i : i];
}

static uint32_t node_hash(const struct ul_node *node)
{
    uint32_t hash = mix_u32(UL_HASH_BEGIN, (uint32_t)node->op);
    hash = mix_u32(hash, node->output_count);
    for (uint32_t i = 0; i < node->input_count; i++)
        hash = mix_u32(hash, input_at(node, i));
    for (uint32_t i = 0; i < node->attr_count; i++)
        hash = attr_hash(hash, &node->attrs[i]);
    return hash;
}

bool ul_cse_attrs_equal(const struct ul_node *a, const struct ul_node *b)
{
    bool equal = a->attr_count == b->attr_count;
    for (uint32_t i = 0; equal && i < a->attr_count; i++)
        equal = attr_equal(&a->attrs[i], &b->attrs[i]);
    return equal;
}

/* Outputs are rounded differently where a model of 16 bits has them in different types. */
static bool node_equal(const struct ul_graph *graph, const struct ul_node *a,
                       const struct ul_node *b)
{
    if (a->op != b->op || a->input_count != b->input_count || a->output_count != b->output_count)
        return false;
    for (uint32_t i = 0; i < a->output_count; i++) {
        if (a->outputs[i] != UL_NONE && b->outputs[i] != UL_NONE &&
            graph->values[a->outputs[i]].declared != graph->values[b->outputs[i]].declared)
            return false;
    }
    for (uint32_t i = 0; i < a->input_count; i++) {
        if (input_at(a, i) != input_at(b, i))
            return false;
    }
    return ul_cse_attrs_equal(a, b);
}

static bool can_merge(const struct ul_graph *graph, const struct ul_node *node)
{
    if ((ul_op_get(node->op)->flags & (UL_OP_RANDOM | UL_OP_CONTROL | UL_OP_WIDENS)) != 0)
        return false;
    for (uint32_t i = 0; i < node->output_count; i++) {
        const struct ul_value *output = &graph->values[node->outputs[i]];
        if (output->donor != UL_NONE || output->flags != 0)
            return false;
    }
    return true;
}

/* Replaces the outputs of `id` by those of `same`. What must stay a value of its own becomes a
 * copy. */
static void replace(struct cse *cse, ul_node_id id, ul_node_id same)
{
    struct ul_graph *graph = cse->graph;
    const struct ul_node *node = &graph->nodes[id];
    const struct ul_node *kept = &graph->nodes[same];
    UL_ASSERT(id != same && node->output_count == kept->output_count);
    for (uint32_t i = 0; i < node->output_count; i++) {
        /* Both are outputs of the model, and no output may vanish: only nodes with a single output
         * are merged. */
        if (node->output_count > 1 && ul_graph_is_output(graph, node->outputs[i]))
            return;
    }
    bool gone = true;
    for (uint32_t i = 0; i < node->output_count; i++)
        gone = ul_rewrite_forward(&cse->rewrite, node->outputs[i], kept->outputs[i]) && gone;
    if (gone)
        ul_graph_remove_node(graph, id);
    else
        ul_node_become(graph, id, UL_OP_Identity, kept->outputs, 1);
}

static void visit(struct cse *cse, ul_node_id id)
{
    struct ul_graph *graph = cse->graph;
    const struct ul_node *node = &graph->nodes[id];
    ul_rewrite_inputs(&cse->rewrite, id);
    if (!can_merge(graph, node) || node->input_count == 0)
        return;
    uint32_t *head = &cse->heads[node_hash(node) & cse->mask];
    for (uint32_t e = *head; e != UL_NONE; e = cse->entries[e].next) {
        if (cse->entries[e].node != UL_NONE &&
            node_equal(graph, &graph->nodes[cse->entries[e].node], node)) {
            replace(cse, id, cse->entries[e].node);
            return;
        }
    }
    UL_ASSERT(cse->entry_count < graph->node_count);
    cse->entries[cse->entry_count] = (struct entry){id, *head};
    *head = cse->entry_count++;
}

static void visit_block(struct cse *cse, ul_block_id id)
{
    const struct ul_block *block = &cse->graph->blocks[id];
    uint32_t begin = cse->entry_count;
    for (uint32_t n = 0; n < block->node_count; n++) {
        ul_node_id node = block->nodes[n];
        for (uint32_t b = 0; b < cse->graph->nodes[node].block_count; b++)
            visit_block(cse, cse->graph->nodes[node].blocks[b]);
        visit(cse, node);
    }
    for (uint32_t e = begin; e < cse->entry_count; e++)
        cse->entries[e].node = UL_NONE;
}

enum ul_status ul_pass_cse(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct cse cse = {.pass = pass, .graph = graph};
    ul_rewrite_init(&cse.rewrite, graph, pass->scratch);
    cse.mask = table_mask(graph->node_count);
    cse.heads = UL_NEW_ARRAY(pass->scratch, uint32_t, (uint64_t)cse.mask + 1);
    memset(cse.heads, 0xFF, ((size_t)cse.mask + 1) * sizeof *cse.heads);
    cse.entries = UL_NEW_ARRAY(pass->scratch, struct entry, graph->node_count);
    merge_weights(&cse);
    for (uint32_t r = 0; r < graph->root_count; r++)
        visit_block(&cse, r);
    ul_rewrite_apply(&cse.rewrite);
    ul_graph_sweep(graph);
    return UL_OK;
}
