/* SPDX-License-Identifier: Apache-2.0 */
/* Small edits and questions that several passes share. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/passes_internal.h"

#include <string.h>

void ul_edit_make_weight(struct ul_graph *graph, ul_value_id id)
{
    struct ul_value *value = &graph->values[id];
    UL_ASSERT(value->kind == UL_VALUE_NODE && value->tensor != NULL);
    struct ul_node *node = &graph->nodes[value->producer];
    UL_ASSERT(node->output_count == 1 || value->producer_output + 1 == node->output_count);
    node->output_count--;
    value->kind = UL_VALUE_WEIGHT;
    value->producer = UL_NONE;
    value->producer_output = 0;
}

uint64_t ul_edit_weight_bytes(const struct ul_graph *graph, ul_value_id id)
{
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, id);
    if (tensor == NULL || tensor->data == NULL || ul_type_elements(&tensor->type) <= 1)
        return 0;
    return ul_type_bytes(&tensor->type);
}

const struct ul_tensor *ul_edit_tensor(struct ul_graph *graph, const struct ul_type *type,
                                       const unsigned char *data)
{
    size_t size_bytes = ul_dtype_get(type->dtype)->size_bytes;
    uint64_t count = ul_type_elements(type);
    UL_ASSERT(count > 0);
    if (memcmp(data, data + size_bytes, (size_t)(count - 1) * size_bytes) == 0)
        return ul_tensor_new_splat(graph->arena, type, data);
    struct ul_tensor *tensor = UL_NEW(graph->arena, struct ul_tensor);
    tensor->type = *type;
    tensor->data = data;
    return tensor;
}

void ul_edit_remove_known(struct ul_graph *graph, ul_node_id id, const bool *is_read)
{
    struct ul_node *node = &graph->nodes[id];
    while (node->output_count > 0) {
        ul_value_id output = node->outputs[node->output_count - 1];
        struct ul_value *value = &graph->values[output];
        if (!is_read[output]) {
            value->kind = UL_VALUE_DEAD;
            value->tensor = NULL;
            node->output_count--;
            continue;
        }
        uint64_t size_bytes = ul_type_bytes(&value->type);
        const unsigned char *data = value->tensor->data;
        if (data != NULL && size_bytes > 0)
            value->tensor =
                ul_edit_tensor(graph, &value->type, ul_arena_copy(graph->arena, data, size_bytes));
        else
            value->tensor = ul_arena_copy(graph->arena, value->tensor, sizeof *value->tensor);
        ul_edit_make_weight(graph, output);
    }
    ul_graph_remove_node(graph, id);
}

ul_value_id ul_edit_add_array(struct ul_graph *graph, const char *name, const struct ul_type *type,
                              const double *numbers)
{
    const struct ul_dtype_info *info = ul_dtype_get(type->dtype);
    uint64_t count = ul_type_elements(type);
    unsigned char *data = ul_arena_alloc(graph->arena, ul_type_bytes(type));
    UL_ASSERT(count > 0);
    for (uint64_t i = 0; i < count; i++) {
        if (info->is_integer)
            ul_element_put_int(data + i * info->size_bytes, type->dtype, (int64_t)numbers[i]);
        else
            ul_element_put_float(data + i * info->size_bytes, type->dtype, numbers[i]);
    }
    return ul_graph_add_weight(graph, name, ul_edit_tensor(graph, type, data));
}

ul_value_id ul_edit_add_numbers(struct ul_graph *graph, const char *name, enum ul_dtype dtype,
                                const double *numbers, uint32_t count, uint32_t rank)
{
    struct ul_type type = {.dtype = dtype, .rank = rank};
    UL_ASSERT(count > 0 && (rank > 0 || count == 1));
    for (uint32_t d = 0; d < rank; d++)
        type.dims[d] = d == 0 ? count : 1;
    return ul_edit_add_array(graph, name, &type, numbers);
}

ul_value_id ul_edit_add_state(struct ul_graph *graph, const char *name, const struct ul_type *type,
                              uint32_t flags, double number)
{
    unsigned char element[sizeof((struct ul_tensor *)0)->splat] = {0};
    ul_element_put_float(element, type->dtype, number);
    ul_value_id state =
        ul_graph_add_weight(graph, name, ul_tensor_new_splat(graph->arena, type, element));
    graph->values[state].flags |= UL_VALUE_PERSISTENT | flags;
    return state;
}

void ul_edit_add_next(struct ul_graph *graph, ul_value_id made, ul_value_id state)
{
    graph->values[made].donor = state;
    graph->values[made].name = ul_arena_printf(graph->arena, "%s/next", graph->values[state].name);
    ul_block_add_output(graph, 0, made);
}

uint32_t ul_edit_find_head(uint32_t *parents, uint32_t id)
{
    while (parents[id] != id) {
        parents[id] = parents[parents[id]];
        id = parents[id];
    }
    return id;
}

void ul_edit_join_heads(uint32_t *parents, uint32_t a, uint32_t b)
{
    a = ul_edit_find_head(parents, a);
    b = ul_edit_find_head(parents, b);
    parents[a < b ? b : a] = a < b ? a : b;
}

bool ul_edit_is_vector(const struct ul_type *type)
{
    uint32_t longer = 0;
    for (uint32_t d = 0; d < type->rank; d++)
        longer += type->dims[d] > 1;
    return longer <= 1;
}

bool ul_edit_is_reshape(ul_op_id op)
{
    return (ul_op_get(op)->flags & UL_OP_RESHAPES) != 0;
}

bool ul_edit_is_backward(const struct ul_graph *graph, const struct ul_node *node)
{
    return node->output_count > 0 &&
           (graph->values[node->outputs[0]].flags & UL_VALUE_BACKWARD) != 0;
}

uint32_t ul_edit_last_group(const struct ul_graph *graph)
{
    uint32_t last = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].group != UL_NONE && graph->nodes[n].group > last)
            last = graph->nodes[n].group;
    }
    return last;
}

bool ul_edit_is_dense(const struct ul_graph *graph, ul_value_id value)
{
    enum { LOOK_BACK = 8 };
    for (uint32_t i = 0; i < LOOK_BACK; i++) {
        if (graph->values[value].kind != UL_VALUE_NODE)
            return true;
        const struct ul_node *node = &graph->nodes[graph->values[value].producer];
        if (ul_op_get(node->op)->view == NULL)
            return true;
        if (!ul_edit_is_reshape(node->op))
            return false;
        value = node->inputs[0];
    }
    return false;
}

ul_node_id *ul_edit_find_readers(const struct ul_graph *graph, struct ul_arena *arena)
{
    ul_node_id *readers = UL_NEW_ARRAY(arena, ul_node_id, graph->value_count);
    for (uint32_t v = 0; v < graph->value_count; v++)
        readers[v] = UL_NONE;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; node->op != UL_OP_NONE && i < node->input_count; i++) {
            if (node->inputs[i] != UL_NONE)
                readers[node->inputs[i]] = n;
        }
    }
    return readers;
}

static void add_block(struct ul_node_list *list, const struct ul_graph *graph,
                      struct ul_arena *arena, ul_block_id id)
{
    const struct ul_block *block = &graph->blocks[id];
    for (uint32_t n = 0; n < block->node_count; n++) {
        const struct ul_node *node = &graph->nodes[block->nodes[n]];
        for (uint32_t b = 0; b < node->block_count; b++)
            add_block(list, graph, arena, node->blocks[b]);
        UL_GROW(arena, list->nodes, list->count, list->capacity);
        list->nodes[list->count++] = block->nodes[n];
    }
}

struct ul_node_list ul_edit_all_nodes(const struct ul_graph *graph, struct ul_arena *arena)
{
    struct ul_node_list list = {0};
    for (uint32_t r = 0; r < graph->root_count; r++)
        add_block(&list, graph, arena, r);
    return list;
}

ul_node_id ul_edit_find_node(const struct ul_graph *graph, const char *name)
{
    ul_node_id found = UL_NONE;
    uint32_t count = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].op == UL_OP_NONE || strcmp(graph->nodes[n].name, name) != 0)
            continue;
        found = n;
        count++;
    }
    for (uint32_t v = 0; count != 1 && v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_NODE && strcmp(value->name, name) == 0)
            return value->producer;
    }
    return count == 1 ? found : UL_NONE;
}

const char *ul_edit_name_node(const struct ul_graph *graph, ul_node_id node)
{
    const struct ul_node *info = &graph->nodes[node];
    const char *names[2] = {info->name, graph->values[info->outputs[0]].name};
    for (uint32_t i = 0; i < 2; i++) {
        if (names[i][0] != '\0' && ul_edit_find_node(graph, names[i]) == node)
            return names[i];
    }
    return NULL;
}

bool ul_edit_matches(const char *pattern, const char *name)
{
    for (; *pattern != '\0'; pattern++, name++) {
        if (*pattern == '*') {
            for (;; name++) {
                if (ul_edit_matches(pattern + 1, name))
                    return true;
                if (*name == '\0')
                    return false;
            }
        }
        if (*name == '\0' || (*pattern != '?' && *pattern != *name))
            return false;
    }
    return *name == '\0';
}

bool ul_edit_matches_any(const char *const *patterns, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (ul_edit_matches(patterns[i], name))
            return true;
    return false;
}

/* ---- who reads a weight ---- */

static bool is_turn(const struct ul_node *node)
{
    uint32_t count = 0;
    const int64_t *perm =
        node->op == UL_OP_Transpose ? ul_node_get_ints(node, "perm", &count) : NULL;
    return node->op == UL_OP_Transpose &&
           (perm == NULL || (count == 2 && perm[0] == 1 && perm[1] == 0));
}

ul_value_id ul_edit_find_turned(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    while (info->kind == UL_VALUE_NODE) {
        const struct ul_node *node = &graph->nodes[info->producer];
        if (!is_turn(node) && node->op != UL_OP_Identity)
            break;
        value = node->inputs[0];
        info = &graph->values[value];
    }
    return value;
}

static void find_sites(const struct ul_graph *graph, struct ul_arena *arena, ul_value_id value,
                       bool turned, struct ul_sites *sites)
{
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; node->op != UL_OP_NONE && i < node->input_count; i++) {
            if (node->inputs[i] != value)
                continue;
            bool turns = is_turn(node);
            if (turns || node->op == UL_OP_Identity) {
                find_sites(graph, arena, node->outputs[0], turned != turns, sites);
                continue;
            }
            UL_GROW(arena, sites->items, sites->count, sites->capacity);
            sites->items[sites->count++] = (struct ul_site){n, i, turned};
        }
    }
}

void ul_edit_find_sites(const struct ul_graph *graph, struct ul_arena *arena, ul_value_id value,
                        struct ul_sites *sites)
{
    *sites = (struct ul_sites){.count = 0};
    find_sites(graph, arena, value, false, sites);
}

bool ul_pass_is_disabled(const struct ul_pass *pass, const char *name)
{
    for (uint32_t i = 0; i < pass->options->disabled_count; i++) {
        if (strcmp(pass->options->disabled[i], name) == 0)
            return true;
    }
    return false;
}
