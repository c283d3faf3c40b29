/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles: a large parameter is updated while its gradient is formed, one part of its rows after the
 * other, so that the gradient never exists whole.
 *
 *      dw = a^T b                      dw1 = (a^T)[0:r] b;   update rows 0 to r - 1 of w, m, v
 *      w, m, v = update(dw)            dw2 = (a^T)[r:2r] b;  update the next r
 *
 * Problem: where little of the forward pass is kept, the largest gradient is at the peak, with what
 * the call that forms it needs beside it. Method: products whose result one update alone reads are
 * computed in pieces with it (split.h), each as large as a part of the largest. A gradient that
 * lies far below the peak stays whole, since each tile costs a product of few rows and, on a
 * device, launches. The graph and the target alone decide which gradients are cut and into how many
 * tiles, so that sums are formed in the same order under every budget. A product that adds its
 * gradient to the sum over the runs of a step stays whole, since no gradient lies in memory. Left
 * undone: gradients that several products add up to (tied weights), or that wait for the norm of
 * all. */
#include "passes/memory/tiles.h"
#include "ir/op.h"
#include "ir/view.h"
#include "passes/memory/split.h"
#include "passes/shared/steps.h"

enum {
    MAX_WAY = 4,   /* nodes from the update to the product, which is the last one */
    MIN_ROWS = 64, /* of a tile: each has the product's other operand packed anew */
    /* Beside a whole gradient a part of the largest live sum stays free, and a part of what the
     * neediest step touches. These parts are larger where a tile costs no launch. */
    PEAK_PART = 2,
    LAUNCHED_PEAK_PART = 8,
    NEEDY_PART = 2,
    LAUNCHED_NEEDY_PART = 4
};

/* A product and the update that its result is for. */
struct site {
    ul_node_id product, update;
    uint64_t size_bytes; /* of the gradient */
};

struct tiles {
    struct ul_pass *pass;
    struct site *sites;
    uint32_t count, capacity;
    struct ul_steps steps;      /* before any cut; persistent values have no bytes */
    struct ul_step_peaks peaks; /* of steps that belong to no site */
};

/* The largest of the node's inputs that a node makes, or UL_NONE. */
static ul_value_id largest_made(const struct ul_graph *graph, const struct ul_node *node)
{
    ul_value_id largest = UL_NONE;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        if (input == UL_NONE || graph->values[input].kind != UL_VALUE_NODE)
            continue;
        if (largest == UL_NONE || ul_value_bytes(graph, input) > ul_value_bytes(graph, largest))
            largest = input;
    }
    return largest;
}

/* The product that the node's gradient comes from, or UL_NONE. */
static ul_node_id find_product(const struct ul_graph *graph, ul_node_id update)
{
    ul_node_id at = update;
    for (uint32_t way = 0; way < MAX_WAY; way++) {
        ul_value_id made = largest_made(graph, &graph->nodes[at]);
        if (made == UL_NONE)
            return UL_NONE;
        at = graph->values[made].producer;
        if ((ul_op_get(graph->nodes[at].op)->flags & UL_OP_MULTIPLIES) != 0)
            return at;
    }
    return UL_NONE;
}

/* Whether one step computes both, so that no gradient lies in memory. */
static bool are_fused(const struct ul_graph *graph, const struct site *site)
{
    uint32_t group = graph->nodes[site->update].group;
    return group != UL_NONE && graph->nodes[site->product].group == group;
}

/* Whether the product makes the whole gradient, rather than a tile of it (loss_tiles.c). */
static bool makes_whole(const struct ul_graph *graph, const struct site *site)
{
    ul_value_id product = graph->nodes[site->product].outputs[0];
    ul_value_id whole = graph->nodes[site->update].outputs[0];
    return ul_type_elements(&graph->values[product].type) ==
           ul_type_elements(&graph->values[whole].type);
}

/* Updates of trained parameters, and of sums of their gradients over a step's runs, by a product.
 */
static void find_sites(struct tiles *tiles)
{
    const struct ul_graph *graph = tiles->pass->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    for (uint32_t i = 0; i < block->output_count; i++) {
        const struct ul_value *output = &graph->values[block->outputs[i]];
        if (output->donor == UL_NONE ||
            (graph->values[output->donor].flags & (UL_VALUE_TRAINED | UL_VALUE_GRADIENT)) == 0)
            continue;
        struct site site = {.update = output->producer};
        site.product = find_product(graph, site.update);
        site.size_bytes = ul_value_bytes(graph, block->outputs[i]);
        if (site.product == UL_NONE || ul_node_is_view(graph, site.update) ||
            !makes_whole(graph, &site) || are_fused(graph, &site))
            continue;
        UL_GROW(tiles->pass->scratch, tiles->sites, tiles->count, tiles->capacity);
        tiles->sites[tiles->count++] = site;
    }
}

/* Where something else adds to the gradient, the product's operands would have to stay until that
 * is there. */
static bool is_sum(const struct tiles *tiles, const struct ul_split_chain *chain,
                   const struct site *site)
{
    const struct ul_graph *graph = tiles->pass->graph;
    uint32_t n = 0;
    while (chain->nodes[n] != site->product)
        n++;
    for (n++; n < chain->node_count; n++) {
        const struct ul_node *node = &graph->nodes[chain->nodes[n]];
        if ((ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0)
            return true;
        for (uint32_t i = 0; i < node->input_count; i++) {
            const struct ul_value *read =
                node->inputs[i] == UL_NONE ? NULL : &graph->values[node->inputs[i]];
            if (read != NULL && read->kind == UL_VALUE_NODE && !chain->inside[read->producer] &&
                ul_value_bytes(graph, node->inputs[i]) >= site->size_bytes)
                return true;
        }
    }
    return false;
}

/* Whether a node from the product to the update overwrites what a node of the chain reads before
 * the update: the parts come where the update does, after it. */
static bool is_overwritten(const struct tiles *tiles, const struct ul_split_chain *chain,
                           const struct site *site)
{
    const struct ul_graph *graph = tiles->pass->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    uint32_t at = 0;
    while (block->nodes[at] != chain->nodes[0])
        at++;
    for (bool is_last = false; !is_last; at++) {
        const struct ul_node *node = &graph->nodes[block->nodes[at]];
        is_last = block->nodes[at] == site->update;
        for (uint32_t i = 0; i < node->output_count; i++) {
            ul_value_id donor = graph->values[node->outputs[i]].donor;
            for (uint32_t n = 0; donor != UL_NONE && n < chain->node_count; n++) {
                if (chain->nodes[n] != site->update &&
                    ul_donate_reads(graph, chain->nodes[n], donor))
                    return true;
            }
        }
    }
    return false;
}

/* Finds the chain from `split->first` on; false where the rows' own rules do not allow it. `rule`:
 * what a part takes of the product's operands. */
static bool find_chain(const struct tiles *tiles, const struct ul_split *split,
                       const struct site *site, struct ul_split_chain *chain,
                       struct ul_split_rule *rule)
{
    struct ul_pass pass = *tiles->pass;
    struct ul_diag why_not = {0};
    struct ul_split_needed needed;
    pass.diag = &why_not;
    if (ul_split_find_chain(&pass, split, chain) != UL_OK ||
        ul_split_set_axis(&pass, chain) != UL_OK || is_sum(tiles, chain, site) ||
        is_overwritten(tiles, chain, site))
        return false;
    ul_split_needed_init(&pass, chain, &needed);
    return ul_split_find_needed(&pass, 0, 1, &needed) == UL_OK &&
           ul_split_apply_rule(pass.graph, &needed, site->product, pass.scratch, rule);
}

/* How many tiles there are, of at least so many bytes and rows. */
static int64_t count_pieces(const struct ul_graph *graph, const struct site *site,
                            uint64_t tile_bytes)
{
    const struct ul_type *type = &graph->values[graph->nodes[site->update].outputs[0]].type;
    uint64_t most = type->rank == 0 ? 1 : (uint64_t)type->dims[0] / MIN_ROWS;
    uint64_t count = (site->size_bytes + tile_bytes - 1) / tile_bytes;
    return (int64_t)(count < most ? count : most);
}

/* Finds the peaks among steps that no cut changes. No gradient is cut here. */
static void find_peaks(struct tiles *tiles)
{
    const struct ul_steps *steps = &tiles->steps;
    ul_steps_init(&tiles->steps, tiles->pass->graph, NULL, NULL, tiles->pass->scratch);
    ul_steps_drop_persistent(&tiles->steps);
    bool *is_of_site = UL_NEW_ARRAY(tiles->pass->scratch, bool, steps->step_count);
    for (uint32_t i = 0; i < tiles->count; i++) {
        UL_ASSERT(steps->step_of[tiles->sites[i].product] != UL_NONE);
        is_of_site[steps->step_of[tiles->sites[i].product]] = true;
        is_of_site[steps->step_of[tiles->sites[i].update]] = true;
    }
    tiles->peaks = ul_steps_find_peaks(steps, is_of_site);
}

/* Whether a whole gradient raises no plan. Its live sum must be below the peak of a plan that keeps
 * the forward pass. What its steps touch must be below what the neediest step touches, which is
 * the peak of a plan that keeps almost nothing. */
static bool may_stay_whole(const struct tiles *tiles, const struct site *site)
{
    uint32_t steps[] = {tiles->steps.step_of[site->product], tiles->steps.step_of[site->update]};
    bool launches = tiles->pass->traits->steps_cost;
    uint64_t peak_part = launches ? LAUNCHED_PEAK_PART : PEAK_PART;
    uint64_t needy_part = launches ? LAUNCHED_NEEDY_PART : NEEDY_PART;
    uint64_t most_bytes = tiles->peaks.peak_bytes - tiles->peaks.peak_bytes / peak_part;
    uint64_t most_touched_bytes = tiles->peaks.needy_bytes - tiles->peaks.needy_bytes / needy_part;
    for (uint32_t i = 0; i < 2; i++) {
        if (ul_live_bytes(tiles->peaks.live, steps[i]) > most_bytes ||
            ul_steps_touched_bytes(&tiles->steps, steps[i]) > most_touched_bytes)
            return false;
    }
    return true;
}

static enum ul_status cut(struct tiles *tiles, const struct site *site, uint64_t tile_bytes)
{
    struct ul_graph *graph = tiles->pass->graph;
    struct ul_split_chain chain, longer;
    struct ul_split_rule rule;
    struct ul_split split = {.text = "tiles",
                             .first = site->product,
                             .last = site->update,
                             .axis = "0",
                             .defines = true,
                             .piece_count = count_pieces(graph, site, tile_bytes)};
    if (split.piece_count < 2 || !find_chain(tiles, &split, site, &chain, &rule))
        return UL_OK;
    bool stays_whole = may_stay_whole(tiles, site);
    for (uint32_t i = 0; i < 2; i++) {
        ul_value_id whole = graph->nodes[site->product].inputs[i];
        if (rule.inputs[i].axis == UL_NONE)
            continue;
        split.first = ul_tiles_own_operand(graph, site->product, i);
        if (split.first == site->product)
            continue;
        if (find_chain(tiles, &split, site, &longer, &rule))
            return stays_whole ? UL_OK : ul_split_build(tiles->pass, &longer);
        ul_tiles_drop_operand(graph, site->product, i, split.first, whole);
        break;
    }
    if (stays_whole)
        return UL_OK;
    split.first = site->product;
    bool is_found = find_chain(tiles, &split, site, &chain, &rule);
    UL_ASSERT(is_found);
    return ul_split_build(tiles->pass, &chain);
}

enum ul_status ul_pass_tiles(struct ul_pass *pass)
{
    struct tiles tiles = {.pass = pass};
    uint64_t largest_bytes = 0;
    if (pass->traits->tile_count == 0)
        return UL_OK;
    UL_ASSERT(pass->traits->tile_bytes > 0);
    find_sites(&tiles);
    for (uint32_t i = 0; i < tiles.count; i++)
        largest_bytes =
            tiles.sites[i].size_bytes > largest_bytes ? tiles.sites[i].size_bytes : largest_bytes;
    uint64_t tile_bytes = largest_bytes / pass->traits->tile_count;
    tile_bytes = tile_bytes < pass->traits->tile_bytes ? pass->traits->tile_bytes : tile_bytes;
    find_peaks(&tiles);
    for (uint32_t i = 0; i < tiles.count; i++)
        UL_TRY(cut(&tiles, &tiles.sites[i], tile_bytes));
    return UL_OK;
}
