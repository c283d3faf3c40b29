/* SPDX-License-Identifier: Apache-2.0 */
/* What a step of the graph touches, and what it may store in the place of what it reads.
 *
 * For kernels that exist it is known which output may lie on which input. In other steps an output
 * may lie on an operand of its own shape and strides that nodes of the step read only where they
 * store: each element of it is then loaded before it is overwritten, and nowhere else. Left undone:
 * kernels that store on rows that they have read whole. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/shared/steps.h"

/* The planner's value of a base, made at its first use; UL_NONE: a weight. */
uint32_t ul_steps_value(struct ul_steps *steps, ul_value_id base)
{
    const struct ul_value *info = &steps->graph->values[base];
    UL_ASSERT(info->kind != UL_VALUE_DEAD && info->view.base == base);
    if (info->kind == UL_VALUE_WEIGHT || steps->value_of[base] != UL_NONE)
        return steps->value_of[base];
    UL_GROW(steps->arena, steps->values, steps->value_count, steps->value_capacity);
    struct ul_plan_value *value = &steps->values[steps->value_count];
    *value =
        ul_plan_value_make(info->name, UL_PLAN_ACTIVATIONS, ul_value_bytes(steps->graph, base));
    value->persistent = (info->flags & UL_VALUE_PERSISTENT) != 0;
    value->live_from_start = info->kind == UL_VALUE_INPUT;
    steps->value_of[base] = steps->value_count;
    return steps->value_count++;
}

/* ---- Reads and writes ---- */

static ul_value_id base_of(const struct ul_steps *steps, ul_value_id value)
{
    return steps->graph->values[value].view.base;
}

/* The index of the node of the step that makes `value`, or UL_NONE. */
static uint32_t maker_of(const struct ul_steps *steps, const ul_node_id *nodes, uint32_t count,
                         ul_value_id value)
{
    const struct ul_value *info = &steps->graph->values[value];
    for (uint32_t i = 0; info->kind == UL_VALUE_NODE && i < count; i++) {
        if (info->producer == nodes[i])
            return i;
    }
    return UL_NONE;
}

static void add_base(struct ul_steps *steps, struct ul_step_ids *list, ul_value_id value)
{
    uint32_t id = ul_steps_value(steps, base_of(steps, value));
    if (id == UL_NONE || (list->count > 0 && ul_ids_have(list->ids, list->count, id)))
        return;
    UL_GROW(steps->arena, list->ids, list->count, list->capacity);
    list->ids[list->count++] = id;
}

/* What only the group uses has no bytes inside of it. */
static void find_touches(struct ul_steps *steps, const ul_node_id *nodes, uint32_t count)
{
    steps->reads.count = steps->writes.count = 0;
    for (uint32_t n = 0; n < count; n++) {
        const struct ul_node *node = &steps->graph->nodes[nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            ul_value_id input = node->inputs[i];
            if (input != UL_NONE && (count == 1 || steps->escapes[input] ||
                                     maker_of(steps, nodes, count, input) == UL_NONE))
                add_base(steps, &steps->reads, input);
        }
        for (uint32_t i = 0; i < node->output_count; i++) {
            ul_value_id output = node->outputs[i];
            if (output != UL_NONE && (count == 1 || steps->escapes[output]))
                add_base(steps, &steps->writes, output);
        }
    }
}

/* ---- What may be taken over: of kernels that exist ---- */

/* The value that the facts are about: itself, or the value that it is a piece of. */
static ul_value_id origin_of(const struct ul_steps *steps, ul_value_id id)
{
    const struct ul_graph *whole = steps->facts->graph;
    const struct ul_value *value = &steps->graph->values[id];
    if (id < whole->value_count)
        return id;
    if (value->kind != UL_VALUE_NODE)
        return UL_NONE;
    int64_t from = ul_node_get_int(&steps->graph->nodes[value->producer], "ul_piece_of", -1);
    if (from < 0 || from >= whole->node_count)
        return UL_NONE;
    return whole->nodes[from].outputs[value->producer_output];
}

static bool is_known(const struct ul_steps *steps, ul_value_id base, ul_value_id output)
{
    const struct ul_split_facts *kernels = steps->facts->kernels;
    ul_value_id from = origin_of(steps, base);
    ul_value_id to = origin_of(steps, output);
    for (uint32_t f = to == UL_NONE ? 0 : kernels->first[to];
         to != UL_NONE && f < kernels->first[to + 1]; f++) {
        if (kernels->inputs[f] == from)
            return true;
    }
    return false;
}

/* ---- Steps without a kernel ---- */

/* Marks the nodes that compute an element where it is stored: those that read at its index, and
 * that only such nodes read. */
static bool find_at_store(struct ul_steps *steps, const ul_node_id *nodes, uint32_t count)
{
    const uint32_t pointwise = UL_OP_ELEMENTWISE | UL_OP_POINTWISE;
    bool any = false;
    if (count > steps->at_store_capacity) {
        steps->at_store = UL_NEW_ARRAY(steps->arena, bool, 2 * (uint64_t)count);
        steps->at_store_capacity = 2 * count;
    }
    for (uint32_t n = 0; n < count; n++)
        steps->at_store[n] = (ul_op_get(steps->graph->nodes[nodes[n]].op)->flags & pointwise) != 0;
    for (uint32_t n = count; n-- > 0;) {
        const struct ul_node *node = &steps->graph->nodes[nodes[n]];
        any = any || steps->at_store[n];
        for (uint32_t i = 0; !steps->at_store[n] && n > 0 && i < node->input_count; i++) {
            uint32_t made = node->inputs[i] == UL_NONE
                                ? UL_NONE
                                : maker_of(steps, nodes, count, node->inputs[i]);
            if (made != UL_NONE)
                steps->at_store[made] = false;
        }
    }
    return any;
}

/* The same element lies at the same place; strides of dimensions of size 1 do not matter. */
static bool same_places(const struct ul_value *a, const struct ul_value *b)
{
    if (a->type.rank != b->type.rank || a->view.offset_bytes != b->view.offset_bytes)
        return false;
    for (uint32_t d = 0; d < a->type.rank; d++) {
        if (a->type.dims[d] != b->type.dims[d] ||
            (a->type.dims[d] != 1 && a->view.strides[d] != b->view.strides[d]))
            return false;
    }
    return true;
}

static bool is_read_in_order(const struct ul_node *node, uint32_t input)
{
    uint32_t flags = ul_op_get(node->op)->flags;
    return (flags & UL_OP_ELEMENTWISE) != 0 || ((flags & UL_OP_LOOKS_UP) != 0 && input == 0);
}

/* Each element of the base is read where the same element of `output` is stored, and nowhere else.
 */
static bool is_read_at_store(const struct ul_steps *steps, const ul_node_id *nodes, uint32_t count,
                             ul_value_id base, ul_value_id output)
{
    const struct ul_value *values = steps->graph->values;
    for (uint32_t n = 0; n < count; n++) {
        const struct ul_node *node = &steps->graph->nodes[nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            ul_value_id input = node->inputs[i];
            if (input == UL_NONE || base_of(steps, input) != base)
                continue;
            if (!steps->at_store[n] || !is_read_in_order(node, i) ||
                !same_places(&values[input], &values[output]))
                return false;
        }
    }
    return true;
}

/* ---- Options ---- */

/* Adds what `output` may take over among what the nodes read. */
static void add_options(struct ul_steps *steps, const ul_node_id *nodes, uint32_t count,
                        ul_value_id output)
{
    const struct ul_plan_value *values = steps->values;
    uint32_t to = steps->value_of[output];
    for (uint32_t n = 0; n < count; n++) {
        const struct ul_node *node = &steps->graph->nodes[nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            ul_value_id base =
                node->inputs[i] == UL_NONE ? UL_NONE : base_of(steps, node->inputs[i]);
            uint32_t from = base == UL_NONE ? UL_NONE : steps->value_of[base];
            if (from == UL_NONE || from == to || values[from].size_bytes != values[to].size_bytes ||
                (count > 1 && !ul_ids_have(steps->reads.ids, steps->reads.count, from)))
                continue;
            if (steps->facts != NULL
                    ? !is_known(steps, base, output)
                    : !steps->at_store[n] || !is_read_at_store(steps, nodes, count, base, output))
                continue;
            UL_GROW(steps->arena, steps->options, steps->option_count, steps->option_capacity);
            steps->options[steps->option_count++] =
                (struct ul_plan_in_place){.output = to, .input = from};
        }
    }
}

struct ul_plan_substep ul_steps_touch(struct ul_steps *steps, const ul_node_id *nodes,
                                      uint32_t count)
{
    UL_ASSERT(count > 0);
    find_touches(steps, nodes, count);
    steps->option_count = 0;
    bool any = steps->facts != NULL || find_at_store(steps, nodes, count);
    for (uint32_t n = 0; any && n < count; n++) {
        const struct ul_node *node = &steps->graph->nodes[nodes[n]];
        for (uint32_t i = 0; i < node->output_count; i++) {
            ul_value_id output = node->outputs[i];
            if (output != UL_NONE && base_of(steps, output) == output &&
                (count == 1 || steps->escapes[output]))
                add_options(steps, nodes, count, output);
        }
    }
    return (struct ul_plan_substep){.reads = steps->reads.ids,
                                    .writes = steps->writes.ids,
                                    .in_place = steps->options,
                                    .read_count = steps->reads.count,
                                    .write_count = steps->writes.count,
                                    .in_place_count = steps->option_count};
}

/* What moves values over a block's edge. */
struct ul_plan_substep ul_steps_copy(struct ul_steps *steps, const ul_value_id *from,
                                     uint32_t from_count, const ul_value_id *to, uint32_t to_count)
{
    steps->reads.count = steps->writes.count = 0;
    for (uint32_t i = 0; i < from_count; i++) {
        if (from[i] != UL_NONE)
            add_base(steps, &steps->reads, from[i]);
    }
    for (uint32_t i = 0; i < to_count; i++) {
        if (to[i] != UL_NONE)
            add_base(steps, &steps->writes, to[i]);
    }
    return (struct ul_plan_substep){.reads = steps->reads.ids,
                                    .writes = steps->writes.ids,
                                    .read_count = steps->reads.count,
                                    .write_count = steps->writes.count};
}
