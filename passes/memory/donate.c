/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs that overwrite an input where it lies.
 *
 * Problem: what reads the input must run before the node that makes the output, and the file may
 * have it the other way round. Method: the outermost block is ordered anew, as near to the old
 * order as can be, with an edge more from each reader of the input, through views and in nested
 * blocks too, to the maker of the output:
 *
 *      next = n + 1; y = n * 2             y = n * 2; next = n + 1      (next overwrites n)
 *
 * Donations may want each other to be first; then the smaller output is copied over its input at
 * the end:
 *
 *      p = a - b; q = a + b                t = a + b; p = a - b; q = t  (p overwrites a, q b)
 *
 * Left undone: a reader that needs the new value itself (next - n) stays after it. Fusion may make
 * one kernel of both; else the program is refused (codegen/program/donation.c). */
#include "ir/build.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

#include <string.h>

struct edge {
    uint32_t from, to; /* positions in the block */
};

struct order {
    struct ul_graph *graph;
    struct ul_arena *scratch;
    struct ul_block *block;
    uint32_t *position; /* per node of the block, or UL_NONE */
    struct edge *edges;
    uint32_t edge_count, edge_capacity;
};

bool ul_donate_reads(const struct ul_graph *graph, ul_node_id id, ul_value_id base)
{
    const struct ul_node *node = &graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE && graph->values[node->inputs[i]].view.base == base)
            return true;
    }
    for (uint32_t b = 0; b < node->block_count; b++) {
        const struct ul_block *block = &graph->blocks[node->blocks[b]];
        for (uint32_t i = 0; i < block->output_count; i++) {
            if (graph->values[block->outputs[i]].view.base == base)
                return true;
        }
        for (uint32_t n = 0; n < block->node_count; n++) {
            if (ul_donate_reads(graph, block->nodes[n], base))
                return true;
        }
    }
    return false;
}

static void add_edge(struct order *order, uint32_t from, uint32_t to)
{
    UL_GROW(order->scratch, order->edges, order->edge_count, order->edge_capacity);
    order->edges[order->edge_count++] = (struct edge){from, to};
}

static void add_need(struct order *order, ul_value_id value, uint32_t at)
{
    if (value == UL_NONE || order->graph->values[value].kind != UL_VALUE_NODE)
        return;
    uint32_t from = order->position[order->graph->values[value].producer];
    if (from != UL_NONE && from != at)
        add_edge(order, from, at);
}

/* What the node, or a block in it, needs of this block. */
static void add_needs(struct order *order, ul_node_id id, uint32_t at)
{
    const struct ul_node *node = &order->graph->nodes[id];
    for (uint32_t i = 0; i < node->input_count; i++)
        add_need(order, node->inputs[i], at);
    for (uint32_t b = 0; b < node->block_count; b++) {
        const struct ul_block *block = &order->graph->blocks[node->blocks[b]];
        for (uint32_t i = 0; i < block->output_count; i++)
            add_need(order, block->outputs[i], at);
        for (uint32_t n = 0; n < block->node_count; n++)
            add_needs(order, block->nodes[n], at);
    }
}

/* Adds the edges of one donation. `needs_count`: how many of the edges so far are the graph's;
 * those come in the order of `to`. */
static void add_readers(struct order *order, ul_value_id output, uint32_t needs_count)
{
    const struct ul_value *value = &order->graph->values[output];
    uint32_t maker = order->position[value->producer];
    uint32_t total = order->block->node_count;
    bool *depends = UL_NEW_ARRAY(order->scratch, bool, total);
    UL_ASSERT(maker != UL_NONE);
    depends[maker] = true;
    for (uint32_t e = 0; e < needs_count; e++)
        depends[order->edges[e].to] |= depends[order->edges[e].from];
    for (uint32_t p = 0; p < total; p++) {
        if (!depends[p] && ul_donate_reads(order->graph, order->block->nodes[p], value->donor))
            add_edge(order, p, maker);
    }
}

/* Sorts nodes in their old order, each as soon as all that it waits for has come. False: some wait
 * for each other in a circle. */
static bool sort(struct order *order, ul_node_id *nodes)
{
    uint32_t total = order->block->node_count;
    uint32_t *waits = UL_NEW_ARRAY(order->scratch, uint32_t, total);
    uint32_t *first = UL_NEW_ARRAY(order->scratch, uint32_t, (uint64_t)total + 2);
    uint32_t *users = UL_NEW_ARRAY(order->scratch, uint32_t, order->edge_count);
    uint32_t *sorted = UL_NEW_ARRAY(order->scratch, uint32_t, total);
    uint32_t count = 0;
    for (uint32_t e = 0; e < order->edge_count; e++) {
        waits[order->edges[e].to]++;
        first[order->edges[e].from + 2]++;
    }
    for (uint32_t p = 0; p < total; p++)
        first[p + 2] += first[p + 1];
    for (uint32_t e = 0; e < order->edge_count; e++)
        users[first[order->edges[e].from + 1]++] = order->edges[e].to;
    for (uint32_t p = 0; p < total; p++) {
        uint32_t done = count;
        if (waits[p] == 0)
            sorted[count++] = p;
        /* Nodes before `p` that waited for it, and for one another. */
        for (; done < count; done++) {
            for (uint32_t u = first[sorted[done]]; u < first[sorted[done] + 1]; u++) {
                if (--waits[users[u]] == 0 && users[u] < p)
                    sorted[count++] = users[u];
            }
        }
    }
    for (uint32_t i = 0; i < count; i++)
        nodes[i] = order->block->nodes[sorted[i]];
    return count == total;
}

/* Both must have the same elements, which is known once types are. */
static enum ul_status check_type(const struct ul_pass *pass, const struct ul_value *output)
{
    const struct ul_value *input = &pass->graph->values[output->donor];
    struct ul_arena *arena = pass->scratch;
    if (ul_type_equal(&output->type, &input->type) && output->storage == input->storage)
        return UL_OK;
    return ul_diag_set(pass->diag, UL_USAGE, "--donate %s=%s: %s cannot overwrite %s",
                       ul_quote(arena, output->name), ul_quote(arena, input->name),
                       ul_type_text(arena, &output->type), ul_type_text(arena, &input->type));
}

/* The output is made in bytes of its own, and copied over the input when all else is done. */
static void add_copy(struct ul_graph *graph, ul_block_id root, uint32_t index)
{
    ul_value_id value = graph->blocks[root].outputs[index];
    struct ul_build build = ul_build_last(graph, root, graph->values[value].name);
    ul_value_id copy = ul_build_copy(&build, value);
    graph->values[copy].view = ul_view_own(graph, copy);
    graph->values[copy].donor = graph->values[value].donor;
    graph->values[value].donor = UL_NONE;
    graph->blocks[root].outputs[index] = copy;
}

/* Adds the edges of all donations, largest first, since a copy costs their bytes. One that would
 * make nodes wait for each other becomes a copy. */
static void order_donations(struct order *order, bool *copied)
{
    const struct ul_block *block = order->block;
    uint32_t needs_count = order->edge_count;
    bool *done = UL_NEW_ARRAY(order->scratch, bool, block->output_count);
    ul_node_id *nodes = UL_NEW_ARRAY(order->scratch, ul_node_id, block->node_count);
    for (;;) {
        uint32_t next = UL_NONE;
        uint64_t max_bytes = 0;
        for (uint32_t i = 0; i < block->output_count; i++) {
            uint64_t bytes = ul_value_bytes(order->graph, block->outputs[i]);
            bool open = order->graph->values[block->outputs[i]].donor != UL_NONE && !done[i];
            if (open && (next == UL_NONE || bytes > max_bytes)) {
                next = i;
                max_bytes = bytes;
            }
        }
        if (next == UL_NONE)
            break;
        uint32_t before_count = order->edge_count;
        add_readers(order, block->outputs[next], needs_count);
        done[next] = true;
        copied[next] = !sort(order, nodes);
        if (copied[next])
            order->edge_count = before_count;
    }
    bool sorted = sort(order, nodes);
    UL_ASSERT(sorted);
    memcpy(order->block->nodes, nodes, block->node_count * sizeof *nodes);
}

static enum ul_status order_root(struct ul_pass *pass, ul_block_id root)
{
    struct ul_graph *graph = pass->graph;
    struct order order = {.graph = graph, .scratch = pass->scratch, .block = &graph->blocks[root]};
    const struct ul_block *block = order.block;
    uint32_t donated = 0;
    for (uint32_t i = 0; i < block->output_count; i++) {
        if (graph->values[block->outputs[i]].donor == UL_NONE)
            continue;
        UL_TRY(check_type(pass, &graph->values[block->outputs[i]]));
        donated++;
    }
    if (donated == 0)
        return UL_OK;
    order.position = UL_NEW_ARRAY(pass->scratch, uint32_t, graph->node_count);
    memset(order.position, 0xFF, graph->node_count * sizeof *order.position);
    for (uint32_t p = 0; p < block->node_count; p++)
        order.position[block->nodes[p]] = p;
    for (uint32_t p = 0; p < block->node_count; p++)
        add_needs(&order, block->nodes[p], p);
    bool *copied = UL_NEW_ARRAY(pass->scratch, bool, block->output_count);
    order_donations(&order, copied);
    for (uint32_t i = 0; i < graph->blocks[root].output_count; i++) {
        if (copied[i])
            add_copy(graph, root, i);
    }
    return UL_OK;
}

enum ul_status ul_pass_donate(struct ul_pass *pass)
{
    for (uint32_t r = 0; r < pass->graph->root_count; r++)
        UL_TRY(order_root(pass, r));
    return UL_OK;
}
