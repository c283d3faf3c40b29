/* Which splits would lower the live sum.
 *
 * Problem: the step with the largest live sum is known; which chain around it, cut along which axis
 * into how many pieces, brings that sum down most for the least work? Method: every chain from one
 * of the steps before it to one of those behind it that can be copied at all, every axis but the
 * last, and ever more pieces while that helps, is built on a copy of the graph and measured by the
 * live sum that also decides layouts (live.c). What is left is the front of live sum against
 * elements computed; the caller plans those for real.
 * Left undone: chains of more steps to either side; the scratch of kernels. */
#include "passes/split.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_SIDE = 10, /* steps of a chain to either side */
    MOST_PIECES = 64,
    MOST_FOUND = 512,
    MOST_VISITS = 20 * 1000 * 1000 /* nodes of graphs that are copied or walked over */
};

struct suggest {
    struct ul_arena *keep;
    struct ul_arena scratch; /* reset after each try */
    const struct ul_graph *graph;
    uint64_t whole_bytes; /* live, without the split */
    uint64_t visits;
    uint32_t first_count, last_count;
    ul_node_id firsts[MOST_SIDE + 1], lasts[MOST_SIDE + 1]; /* the nearest first */
    struct ul_split_offer found[MOST_FOUND];
    uint32_t found_count;
};

static bool has_kernel(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count)
{
    for (uint32_t n = 0; n < count; n++) {
        if (graph->nodes[nodes[n]].block_count > 0)
            return false;
        if (!ul_node_is_view(graph, nodes[n]))
            return true;
    }
    return false;
}

/* Steps with a kernel in the main block that come just before and just behind that of `node`. */
static bool find_steps(struct suggest *s, ul_node_id node)
{
    const struct ul_block *block = &s->graph->blocks[0];
    ul_node_id ring[MOST_SIDE + 1];
    uint32_t seen = 0;
    bool passed = false;
    for (uint32_t begin = 0, end; begin < block->node_count; begin = end) {
        end = ul_split_step_end(s->graph, block->nodes, block->node_count, begin);
        bool here = false;
        for (uint32_t n = begin; n < end; n++)
            here = here || block->nodes[n] == node;
        if (!has_kernel(s->graph, block->nodes + begin, end - begin))
            continue;
        if (!passed)
            ring[seen++ % (MOST_SIDE + 1)] = block->nodes[begin];
        passed = passed || here;
        if (passed && s->last_count <= MOST_SIDE)
            s->lasts[s->last_count++] = block->nodes[end - 1];
    }
    for (; passed && s->first_count < seen && s->first_count <= MOST_SIDE; s->first_count++)
        s->firsts[s->first_count] = ring[(seen - 1 - s->first_count) % (MOST_SIDE + 1)];
    return passed;
}

static uint64_t live_bytes(const struct ul_graph *graph, struct ul_arena *scratch)
{
    struct ul_node_list order = ul_edit_all_nodes(graph, scratch);
    return ul_live_peak(graph, &order, scratch);
}

/* Elements that nodes which have a kernel compute. */
static uint64_t work_of(const struct ul_graph *graph)
{
    uint64_t work = 0;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (node->op == UL_OP_NONE || ul_node_is_view(graph, n))
            continue;
        for (uint32_t i = 0; i < node->output_count; i++)
            work += ul_type_elements(&graph->values[node->outputs[i]].type);
    }
    return work;
}

static struct ul_pass pass_of(struct suggest *s, struct ul_graph *graph, struct ul_diag *diag,
                              const struct ul_passes_options *options)
{
    return (struct ul_pass){
        .graph = graph, .scratch = &s->scratch, .diag = diag, .options = options};
}

/* Builds the split on a copy; false where it cannot be, or does not help. */
static bool measure(struct suggest *s, const char *text, struct ul_split_offer *offer)
{
    struct ul_graph copy;
    struct ul_diag diag = {0};
    struct ul_passes_options options = {.splits = &text, .split_count = 1};
    ul_graph_copy(&copy, &s->scratch, s->graph);
    struct ul_pass pass = pass_of(s, &copy, &diag, &options);
    s->visits += 3 * (uint64_t)s->graph->node_count;
    if (ul_pass_split(&pass) != UL_OK)
        return false;
    *offer = (struct ul_split_offer){.live_bytes = live_bytes(&copy, &s->scratch),
                                     .work = work_of(&copy)};
    return offer->live_bytes < s->whole_bytes;
}

static const char *axis_name(struct suggest *s, uint32_t axis, uint32_t rank)
{
    if (axis == 0)
        return "batch";
    return axis + 2 == rank ? "rows" : ul_arena_printf(s->keep, "%u", (unsigned)axis);
}

/* Ever more pieces, as long as each step up brings the live sum down. */
static void try_axis(struct suggest *s, const char *ends, const char *axis, int64_t extent)
{
    uint64_t least = s->whole_bytes;
    for (int64_t count = 2; count <= extent && count <= MOST_PIECES; count *= 2) {
        struct ul_split_offer offer;
        const char *text = ul_arena_printf(s->keep, "%s:%s:%lld", ends, axis, (long long)count);
        if (s->found_count == MOST_FOUND || s->visits > MOST_VISITS)
            return;
        bool helps = measure(s, text, &offer) && offer.live_bytes < least;
        ul_arena_reset(&s->scratch);
        if (!helps)
            return;
        least = offer.live_bytes;
        offer.text = text;
        s->found[s->found_count++] = offer;
    }
}

static void try_chain(struct suggest *s, ul_node_id first, ul_node_id last)
{
    struct ul_diag diag = {0};
    struct ul_graph graph = *s->graph; /* only read */
    struct ul_passes_options options = {.split_count = 0};
    struct ul_pass pass = pass_of(s, &graph, &diag, &options);
    struct ul_split split = {.text = "", .first = first, .last = last};
    struct ul_split_chain chain;
    const char *from = ul_split_name_node(&graph, first);
    const char *to = ul_split_name_node(&graph, last);
    s->visits += 3 * (uint64_t)graph.node_count;
    bool found = from != NULL && to != NULL && ul_split_find_chain(&pass, &split, &chain) == UL_OK;
    if (!found) {
        ul_arena_reset(&s->scratch);
        return;
    }
    struct ul_type type = graph.values[chain.outputs[0]].type;
    ul_arena_reset(&s->scratch);
    const char *ends = ul_arena_printf(s->keep, "%s..%s", from, to);
    for (uint32_t axis = 0; axis + 1 < type.rank; axis++)
        try_axis(s, ends, axis_name(s, axis, type.rank), type.dims[axis]);
}

static int by_live(const void *a, const void *b)
{
    const struct ul_split_offer *x = a;
    const struct ul_split_offer *y = b;
    if (x->live_bytes != y->live_bytes)
        return x->live_bytes < y->live_bytes ? -1 : 1;
    if (x->work != y->work)
        return x->work < y->work ? -1 : 1;
    return strcmp(x->text, y->text);
}

/* The front; of a long one the two ends and what lies evenly between. */
static uint32_t choose(struct suggest *s, struct ul_split_offer *offers, uint32_t most)
{
    uint32_t front = 0;
    if (s->found_count > 0)
        qsort(s->found, s->found_count, sizeof *s->found, by_live);
    for (uint32_t i = 0; i < s->found_count; i++) {
        if (front == 0 || s->found[i].work < s->found[front - 1].work)
            s->found[front++] = s->found[i];
    }
    uint32_t count = front < most ? front : most;
    for (uint32_t i = 0; i < count; i++)
        offers[i] = s->found[count < 2 ? 0 : (uint64_t)i * (front - 1) / (count - 1)];
    return count;
}

uint32_t ul_splits_suggest(const struct ul_graph *graph, ul_node_id node, struct ul_arena *arena,
                           struct ul_split_offer *offers, uint32_t most)
{
    struct suggest *s = UL_NEW(arena, struct suggest);
    s->keep = arena;
    s->graph = graph;
    ul_arena_init(&s->scratch);
    s->whole_bytes = live_bytes(graph, &s->scratch);
    ul_arena_reset(&s->scratch);
    uint32_t count = 0;
    if (find_steps(s, node)) {
        for (uint32_t reach = 0; reach < s->first_count + s->last_count; reach++) {
            for (uint32_t f = 0; f <= reach && f < s->first_count; f++) {
                if (reach - f < s->last_count && s->visits <= MOST_VISITS)
                    try_chain(s, s->firsts[f], s->lasts[reach - f]);
            }
        }
        count = choose(s, offers, most);
    }
    ul_arena_done(&s->scratch);
    return count;
}
