/* SPDX-License-Identifier: Apache-2.0 */
/* Calls for which a library would keep too much.
 *
 * Problem: a library keeps tables and generated code for each call as long as the program lives,
 * and some of its code grows with a dimension: for a convolution along a line of 10,000 elements it
 * is many times what the convolution reads and writes. Method: there are two bounds on what the
 * library says that it keeps (kept_bytes).
 *
 *     a call        its own operands, or FREE_BYTES where they are less
 *     all of them   weights and the operands of the neediest call, which are in the buffer in any
 *                   plan, or FREE_BYTES where they are less; calls are removed first for which it
 *                   keeps most per multiplication
 *
 * Calls above them become kernels of ours, under every budget alike. Equal calls count once. Left
 * undone: weighing bytes against time. */
#include "codegen/program/calls_internal.h"
#include "ir/view.h"

#include <string.h>

enum { FREE_BYTES = 1 << 20 };

struct kept {
    const struct ul_call *call;
    uint64_t kept_bytes, operand_bytes, product_count;
    bool leaves;
};

struct keeper {
    struct kept *items;
    uint32_t count, capacity;
    uint32_t *by_node; /* index into items, for nodes with a call */
};

static uint64_t tensor_bytes(const struct ul_call_tensor *tensor)
{
    uint64_t elements = tensor->rank == 0 ? 0 : 1;
    for (uint32_t d = 0; d < tensor->rank; d++)
        elements = ul_size_mul_saturating(elements, (uint64_t)tensor->dims[d]);
    return ul_size_mul_saturating(elements, ul_call_element_bytes(tensor));
}

static uint64_t operand_bytes(const struct ul_call *call)
{
    return ul_size_add_saturating(
        ul_size_add_saturating(tensor_bytes(&call->src), tensor_bytes(&call->dst)),
        tensor_bytes(&call->weights));
}

static uint64_t at_least_free(uint64_t bytes)
{
    return bytes > FREE_BYTES ? bytes : FREE_BYTES;
}

/* The item of the call, which equal calls share. */
static uint32_t item_of(struct ul_arena *arena, struct keeper *keeper,
                        const struct ul_group_call *group)
{
    const struct ul_call *call = &group->call;
    const struct ul_target_library *library = group->library;
    uint32_t at = 0;
    while (at < keeper->count && memcmp(keeper->items[at].call, call, sizeof *call) != 0)
        at++;
    if (at == keeper->count) {
        UL_GROW(arena, keeper->items, keeper->count, keeper->capacity);
        keeper->items[keeper->count++] = (struct kept){
            .call = call,
            .kept_bytes =
                library->kept_bytes != NULL ? library->kept_bytes(library->context, call) : 0,
            .operand_bytes = operand_bytes(call)};
    }
    keeper->items[at].product_count += group->product_count;
    return at;
}

/* What is in the buffer in any plan. */
static uint64_t buffer_bytes(const struct ul_graph *graph, const struct keeper *keeper)
{
    uint64_t weights = 0, neediest = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind == UL_VALUE_WEIGHT)
            weights = ul_size_add_saturating(weights, ul_value_bytes(graph, v));
    }
    for (uint32_t i = 0; i < keeper->count; i++) {
        const struct ul_call *call = keeper->items[i].call;
        uint64_t moved = keeper->items[i].operand_bytes - tensor_bytes(&call->weights);
        neediest = moved > neediest ? moved : neediest;
    }
    return ul_size_add_saturating(weights, neediest);
}

static bool is_dearer(const struct kept *a, const struct kept *b)
{
    return (double)a->kept_bytes * (double)b->product_count >
           (double)b->kept_bytes * (double)a->product_count;
}

static void choose(struct keeper *keeper, uint64_t all_bytes)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < keeper->count; i++) {
        struct kept *item = &keeper->items[i];
        item->leaves = item->kept_bytes > at_least_free(item->operand_bytes);
        sum = ul_size_add_saturating(sum, item->leaves ? 0 : item->kept_bytes);
    }
    while (sum > at_least_free(all_bytes)) {
        struct kept *dearest = NULL;
        for (uint32_t i = 0; i < keeper->count; i++) {
            struct kept *item = &keeper->items[i];
            if (!item->leaves && item->kept_bytes > 0 &&
                (dearest == NULL || is_dearer(item, dearest)))
                dearest = item;
        }
        UL_ASSERT(dearest != NULL);
        dearest->leaves = true;
        sum -= dearest->kept_bytes;
    }
}

void ul_calls_bound_kept(struct ul_arena *arena, const struct ul_graph *graph,
                         struct ul_calls *calls)
{
    struct keeper keeper = {.count = 0};
    keeper.by_node = UL_NEW_ARRAY(arena, uint32_t, graph->node_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (calls->by_node[n] != NULL)
            keeper.by_node[n] = item_of(arena, &keeper, calls->by_node[n]);
    }
    choose(&keeper, buffer_bytes(graph, &keeper));
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (calls->by_node[n] != NULL && keeper.items[keeper.by_node[n]].leaves)
            calls->by_node[n] = NULL;
    }
}
