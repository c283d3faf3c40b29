/* SPDX-License-Identifier: Apache-2.0 */
/* Light results of the forward pass that kernels of the backward pass compute for themselves, where
 * --inside asks for it: products while they pack their operands, elementwise kernels as they load.
 *
 *      c = Conv;  y = Relu(Normalize(c))         c = Conv;  y = Relu(Normalize(c))
 *      dw = WeightGradient(y, dz)                dw = WeightGradient(Relu(Normalize(c)), dz)
 *
 * Problem: y is kept from the forward pass on, or made again in memory, beside c, which the
 * gradient of Normalize reads later. A product that computes y for itself does so once for each
 * time that it packs an element (nine times for a window of 3 x 3), which is dearer than y in
 * memory: so it is a choice that a budget makes. Method: all that reads y backwards gets copies of
 * the maps that make it, in its own group. Groups stand already, so that all other kernels are
 * those of the program without --inside. What is computed so has the bits of y: both are rounded by
 * the same operations, and nothing between the operators of the maps is a product that a compiler
 * may fuse with the sum after it in one kernel and not in another (ul_maps_is_closed, is_apart).
 * That sums are formed in the same order is checked when the program is built: the step of a copy
 * is a piece of what it was ("ul_piece_of"). Left undone: what is read through views (transposed
 * operands of products), maps of several large values, and products of the forward pass, beside
 * which y may lie where c did. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/memory/split.h"
#include "passes/shared/maps.h"

#include <string.h>

struct inside {
    const struct ul_graph *graph;
    const struct ul_passes_options *options;
    struct ul_arena *scratch;
    bool *escapes;
};

/* A value, the maps that make it, and its readers in the backward pass, in the block's order. */
struct site {
    ul_value_id value;
    struct ul_maps maps;
    ul_node_id *readers;
    uint32_t count, capacity;
    uint32_t last_place; /* of a reader */
};

static bool is_of_maps(const struct inside *inside, const struct site *site, ul_value_id value)
{
    const struct ul_value *info = &inside->graph->values[value];
    for (uint32_t m = 0; info->kind == UL_VALUE_NODE && m < site->maps.count; m++)
        if (info->producer == site->maps.nodes[m])
            return true;
    return false;
}

/* Whether kernels so far compute the map from exactly the bits of `value` that are in memory. */
static bool is_stored(const struct inside *inside, ul_node_id map, ul_value_id value)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_value *info = &graph->values[value];
    uint32_t group = graph->nodes[map].group;
    if (info->kind != UL_VALUE_NODE)
        return true;
    return inside->escapes[value] &&
           (group == UL_NONE || graph->nodes[info->producer].group != group);
}

/* ---- What the maps read ---- */

/* A node before `place` overwrites the value. */
static bool is_overwritten(const struct inside *inside, ul_value_id value, uint32_t place)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    ul_value_id base = graph->values[value].view.base;
    for (uint32_t n = 0; n < place; n++) {
        const struct ul_node *node = &graph->nodes[block->nodes[n]];
        for (uint32_t i = 0; i < node->output_count; i++)
            if (node->outputs[i] != UL_NONE && graph->values[node->outputs[i]].donor == base)
                return true;
    }
    return false;
}

/* The backward pass reads the value at a place or after it. */
static bool is_kept(const struct inside *inside, ul_value_id value, uint32_t place)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    for (uint32_t n = place; n < block->node_count; n++) {
        ul_node_id id = block->nodes[n];
        if (ul_edit_is_backward(graph, &graph->nodes[id]) && !ul_node_is_view(graph, id) &&
            ul_donate_reads(graph, id, graph->values[value].view.base))
            return true;
    }
    return false;
}

/* The node reads what a map does as well as the large value, and is no such map itself. */
static bool mixes(const struct inside *inside, const struct site *site, const struct ul_node *node)
{
    for (uint32_t m = 0; m < site->maps.count; m++) {
        const struct ul_node *map = &inside->graph->nodes[site->maps.nodes[m]];
        for (uint32_t k = 0; node->op != map->op && k < map->input_count; k++)
            for (uint32_t i = 0; i < node->input_count; i++)
                if (node->inputs[i] == map->inputs[k] && map->inputs[k] != UL_NONE &&
                    map->inputs[k] != site->maps.large && map->inputs[k] != site->value)
                    return true;
    }
    return false;
}

/* Kernels of the readers share no part of the maps' expressions: a compiler fuses no product that
 * has two uses. */
static bool is_apart(const struct inside *inside, const struct site *site)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    for (uint32_t r = 0; r < site->count; r++) {
        uint32_t group = graph->nodes[site->readers[r]].group;
        for (uint32_t n = 0; group != UL_NONE && n < block->node_count; n++)
            if (graph->nodes[block->nodes[n]].group == group &&
                mixes(inside, site, &graph->nodes[block->nodes[n]]))
                return false;
    }
    return true;
}

static bool has_good_maps(const struct inside *inside, struct site *site)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_type *type = &graph->values[site->value].type;
    if (!ul_maps_find(graph, site->value, &site->maps) ||
        !ul_type_same_dims(type, &graph->values[site->maps.large].type) ||
        !is_kept(inside, site->maps.large, site->last_place) || !is_apart(inside, site))
        return false;
    for (uint32_t m = 0; m < site->maps.count; m++) {
        const struct ul_node *node = &graph->nodes[site->maps.nodes[m]];
        const struct ul_value *made = &graph->values[node->outputs[0]];
        if (!ul_graph_is_root(inside->graph, node->parent) || !ul_maps_is_closed(node) ||
            made->storage != UL_DTYPE_NONE || !ul_type_same_dims(type, &made->type))
            return false;
        for (uint32_t i = 0; i < node->input_count; i++) {
            ul_value_id input = node->inputs[i];
            if (input != UL_NONE && !is_of_maps(inside, site, input) &&
                (!is_stored(inside, site->maps.nodes[m], input) ||
                 is_overwritten(inside, input, site->last_place)))
                return false;
        }
    }
    return true;
}

/* ---- What reads ---- */

/* The step of the node is a call of the target's library. */
static bool is_call(const struct inside *inside, ul_node_id id)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    uint32_t group = graph->nodes[id].group, count = 0;
    if (inside->options->is_call == NULL)
        return false;
    ul_node_id *nodes = UL_NEW_ARRAY(inside->scratch, ul_node_id, block->node_count);
    for (uint32_t n = 0; n < block->node_count; n++)
        if (block->nodes[n] == id ||
            (group != UL_NONE && graph->nodes[block->nodes[n]].group == group))
            nodes[count++] = block->nodes[n];
    return inside->options->is_call(inside->options->library, graph, nodes, count, inside->escapes,
                                    NULL);
}

/* Whether its kernel may compute the value for itself: a product, or a map over as many
 * elements. */
static bool is_served(const struct inside *inside, ul_node_id id, ul_value_id value)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_node *node = &graph->nodes[id];
    bool is_product = (ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0;
    bool is_direct = false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        is_direct = is_direct || node->inputs[i] == value;
        if (node->inputs[i] != UL_NONE && node->inputs[i] != value &&
            graph->values[node->inputs[i]].view.base == value)
            return false;
        if (is_product && node->inputs[i] == value && i > 1)
            return false;
    }
    uint32_t maker = graph->values[value].producer;
    bool is_alike = node->group != UL_NONE && node->group == graph->nodes[maker].group;
    if (!is_direct || is_alike || !ul_graph_is_root(inside->graph, node->parent) ||
        node->block_count > 0 || is_call(inside, id))
        return false;
    return is_product ||
           (ul_maps_is_map(node) &&
            ul_type_same_dims(&graph->values[node->outputs[0]].type, &graph->values[value].type));
}

/* Finds the readers. False: something that reads the value backwards needs it in memory, or no
 * product reads it. */
static bool find_readers(const struct inside *inside, struct site *site)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    bool multiplies = false;
    for (uint32_t n = 0; n < block->node_count; n++) {
        ul_node_id id = block->nodes[n];
        const struct ul_node *node = &graph->nodes[id];
        if (!ul_edit_is_backward(graph, node) || ul_node_is_view(graph, id) ||
            !ul_donate_reads(graph, id, site->value))
            continue;
        if (!is_served(inside, id, site->value))
            return false;
        UL_GROW(inside->scratch, site->readers, site->count, site->capacity);
        site->readers[site->count++] = id;
        site->last_place = n;
        multiplies = multiplies || (ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0;
    }
    return multiplies;
}

static bool find_site(const struct inside *inside, ul_node_id map, struct site *site)
{
    const struct ul_graph *graph = inside->graph;
    const struct ul_node *node = &graph->nodes[map];
    *site = (struct site){.value = UL_NONE};
    if (node->op == UL_OP_NONE || !ul_maps_is_map(node) ||
        !ul_graph_is_root(inside->graph, node->parent) || ul_edit_is_backward(graph, node))
        return false;
    site->value = node->outputs[0];
    const struct ul_value *value = &graph->values[site->value];
    return inside->escapes[site->value] && value->view.base == site->value &&
           find_readers(inside, site) && has_good_maps(inside, site);
}

/* ---- Copies ---- */

ul_node_id ul_inside_last(const struct ul_graph *graph, ul_node_id reader)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    ul_node_id last = reader;
    UL_ASSERT(graph->nodes[reader].group != UL_NONE);
    for (uint32_t n = 0; n < block->node_count; n++)
        if (graph->nodes[block->nodes[n]].group == graph->nodes[reader].group)
            last = block->nodes[n];
    return last;
}

/* The name by which the program compares the step with itself as it was before. */
static void name_whole(struct ul_graph *graph, ul_node_id reader)
{
    ul_node_id last = ul_inside_last(graph, reader);
    ul_node_set_int(graph, last, "ul_piece_of", (int64_t)last);
}

static void serve(struct ul_graph *graph, const struct site *site, ul_node_id reader)
{
    uint32_t first = graph->node_count;
    ul_value_id made = ul_maps_copy(graph, &site->maps, reader);
    UL_ASSERT(graph->node_count == first + site->maps.count);
    if (graph->nodes[reader].group == UL_NONE)
        graph->nodes[reader].group = ul_edit_last_group(graph) + 1;
    for (uint32_t n = first; n < graph->node_count; n++) {
        ul_value_id output = graph->nodes[n].outputs[0];
        ul_value_id from = graph->nodes[site->maps.nodes[n - first]].outputs[0];
        graph->nodes[n].group = graph->nodes[reader].group;
        graph->values[output].flags |= graph->values[from].flags & UL_VALUE_CHANNELS_LAST;
        graph->values[output].view = ul_view_own(graph, output);
    }
    for (uint32_t i = 0; i < graph->nodes[reader].input_count; i++)
        if (graph->nodes[reader].inputs[i] == site->value)
            graph->nodes[reader].inputs[i] = made;
    name_whole(graph, reader);
}

static struct inside inside_of(const struct ul_graph *graph, struct ul_arena *scratch,
                               const struct ul_passes_options *options)
{
    return (struct inside){.graph = graph,
                           .options = options,
                           .scratch = scratch,
                           .escapes = ul_graph_escapes(graph, scratch)};
}

void ul_inside_find(struct ul_arena *arena, const struct ul_graph *graph,
                    const struct ul_passes_options *options, struct ul_inside_sites *found)
{
    struct inside inside = inside_of(graph, arena, options);
    struct site site;
    *found = (struct ul_inside_sites){.count = 0};
    for (uint32_t n = 0; n < graph->node_count; n++) {
        if (!find_site(&inside, n, &site))
            continue;
        const char *name = ul_edit_name_node(graph, n);
        if (name == NULL)
            continue;
        UL_GROW(arena, found->sites, found->count, found->capacity);
        found->sites[found->count++] = (struct ul_inside_site){
            .name = name, .value = site.value, .readers = site.readers, .reader_count = site.count};
    }
}

enum ul_status ul_pass_inside(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    for (uint32_t i = 0; i < pass->options->inside_count; i++) {
        const char *name = pass->options->inside[i];
        struct inside inside = inside_of(graph, pass->scratch, pass->options);
        ul_node_id map = ul_edit_find_node(graph, name);
        struct site site;
        if (map == UL_NONE || !find_site(&inside, map, &site))
            return ul_diag_set(pass->diag, UL_USAGE,
                               "--inside %s: no node of this name makes what products of the "
                               "backward pass could compute as they pack it: a product that is a "
                               "call of a library cannot, nor can any what is made of several "
                               "large values, and what is inside already is not asked for twice",
                               ul_quote(pass->scratch, name));
        for (uint32_t r = 0; r < site.count; r++)
            serve(graph, &site, site.readers[r]);
    }
    return UL_OK;
}
