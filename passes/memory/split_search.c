/* SPDX-License-Identifier: Apache-2.0 */
/* Splits that bring the live sum of a graph down to a target.
 *
 * Problem: which chains to split, along which axis, into how many pieces. Method: while the largest
 * live sum is above the target, the step at which it occurs needs a split. Every chain from one of
 * the steps before it to one of those after it, along every axis but the last, into ever more
 * pieces until that suffices, is built on a copy of the graph and measured: the sums at its pieces
 * must keep the target, those elsewhere must not grow. The one that costs least is taken:
 *
 *      live sum       ______                            target ---------
 *                 ___|      |____      ->      _ _ _  _ _ _ _ ____
 *                     L  ..  F                 pieces of the chain
 *
 * Networks repeat themselves, so what was chosen once is tried first where the steps around the
 * peak look the same. Where nothing helps since the steps around have been split already, those
 * splits are dropped for one that serves both. A chain may also begin or end inside a step, at a
 * neck, where less lies than the step makes: what is quantized there, and not any more after it.
 * Left undone: chains of more steps to either side; what recomputation would do; the scratch of
 * kernels. */
#include "ir/view.h"
#include "passes/memory/split.h"

#include <string.h>

enum {
    MAX_SIDE = 16,   /* steps of a chain to either side of the peak */
    MAX_PIECES = 64, /* of one split */
    MAX_SPLITS = 512
};
/* How many nodes one search may build, and how many nodes of graphs it may copy or walk over. */
#define MAX_VISITS ((uint64_t)40 * 1000 * 1000)

/* A split seen from the step at the peak. */
struct choice {
    uint32_t before, behind; /* how many steps with a kernel */
    uint32_t axis;
    int64_t piece_count;
    uint64_t extra_cost;
};

struct memory {
    uint64_t key;
    struct choice choice;
};

struct ul_split_search {
    struct ul_arena *arena;
    const struct ul_graph *whole;
    const struct ul_split_facts *facts;
    uint64_t visits;
    struct memory *memories;
    uint32_t memory_count, memory_capacity;
};

/* The graph with the splits so far, and its peak. */
struct state {
    struct ul_split_search *search;
    struct ul_arena arena;   /* of the graph */
    struct ul_arena scratch; /* reset after each try */
    struct ul_graph graph;
    uint64_t target_bytes, live_bytes;
    uint32_t first_count, last_count;
    ul_node_id firsts[MAX_SIDE + 1], lasts[MAX_SIDE + 1];   /* steps around the peak, beginning
                                                               with it */
    bool cuts_first[MAX_SIDE + 1], cuts_last[MAX_SIDE + 1]; /* the end lies within a step */
    const char **texts;
    uint32_t *begins; /* per text: the first node that it made */
    uint32_t text_count;
};

/* The account of a graph with pieces, by what the kernels of the whole allow. */
struct account {
    struct ul_steps steps;
    const struct ul_live *live;
    uint32_t peak; /* the step */
    uint64_t peak_bytes;
};

static struct account find_account(const struct ul_split_search *search,
                                   const struct ul_graph *graph, struct ul_arena *scratch)
{
    struct account account;
    struct ul_step_facts facts = {.graph = search->whole, .kernels = search->facts};
    ul_steps_init(&account.steps, graph, &facts, NULL, scratch);
    account.live = ul_steps_live(&account.steps);
    account.peak = ul_live_peak(account.live);
    account.peak_bytes = ul_live_bytes(account.live, account.peak);
    return account;
}

/* ---- One split on a copy ---- */

/* What the pieces, which are the nodes from `first` on, cost more than the steps that they replace;
 * a piece costs its share and one more step. */
static uint64_t extra_cost(const struct ul_split_search *search, const struct ul_graph *graph,
                           const struct ul_graph *before)
{
    double cost = 0;
    for (uint32_t n = before->node_count; n < graph->node_count; n++) {
        int64_t origin = ul_node_get_int(&graph->nodes[n], "ul_piece_of", -1);
        if (origin < 0 || origin >= search->whole->node_count ||
            search->facts->node_costs[origin] == 0)
            continue;
        uint64_t part = ul_type_elements(&graph->values[graph->nodes[n].outputs[0]].type);
        ul_value_id output = search->whole->nodes[origin].outputs[0];
        uint64_t all = ul_type_elements(&search->whole->values[output].type);
        cost += (double)search->facts->node_costs[origin] * (double)part / (double)all +
                (double)search->facts->step_cost;
    }
    for (uint32_t n = 0; n < before->node_count; n++) {
        if (before->nodes[n].op != UL_OP_NONE && graph->nodes[n].op == UL_OP_NONE &&
            n < search->whole->node_count)
            cost -= (double)search->facts->node_costs[n];
    }
    return cost > 0 ? (uint64_t)cost : 0;
}

/* The sums at the pieces keep the target, and no other grows beyond the largest before. */
static bool keeps_target(struct state *state, const struct ul_graph *graph)
{
    struct account account = find_account(state->search, graph, &state->scratch);
    for (uint32_t n = state->graph.node_count; n < graph->node_count; n++) {
        uint32_t step = account.steps.step_of[n];
        if (step != UL_NONE && ul_live_bytes(account.live, step) > state->target_bytes)
            return false;
    }
    return account.peak_bytes <= state->live_bytes;
}

static const char *choice_text(const struct state *state, const struct choice *choice,
                               struct ul_arena *arena)
{
    const char *first = ul_edit_name_node(&state->graph, state->firsts[choice->before]);
    const char *last = ul_edit_name_node(&state->graph, state->lasts[choice->behind]);
    const char *axis =
        choice->axis == 0 ? "batch" : ul_arena_printf(arena, "%u", (unsigned)choice->axis);
    if (first == NULL || last == NULL)
        return NULL;
    return ul_arena_printf(arena, "%s..%s:%s:%lld", first, last, axis,
                           (long long)choice->piece_count);
}

/* Pieces that the target cannot compute count as too large: it may be able to compute those of
 * another size. */
static bool may_split(struct state *state, const struct ul_graph *graph)
{
    const struct ul_split_facts *facts = state->search->facts;
    return facts->may_split == NULL ||
           facts->may_split(facts->context, graph, state->graph.node_count);
}

enum verdict { IMPOSSIBLE, TOO_LARGE, GOOD };

/* Does not look further at what costs `max_cost` or more. */
static enum verdict measure(struct state *state, struct choice *choice, uint64_t max_cost)
{
    const char *text = choice_text(state, choice, &state->scratch);
    struct ul_passes_options options = {.splits = &text, .split_count = 1};
    struct ul_diag diag = {0};
    struct ul_graph copy;
    struct ul_pass pass = {
        .graph = &copy, .scratch = &state->scratch, .diag = &diag, .options = &options};
    if (text == NULL)
        return IMPOSSIBLE;
    ul_graph_copy(&copy, &state->scratch, &state->graph);
    enum ul_status status = ul_pass_split(&pass);
    state->search->visits += 3 * (uint64_t)state->graph.node_count +
                             20 * (uint64_t)(copy.node_count - state->graph.node_count);
    if (status != UL_OK)
        return IMPOSSIBLE;
    choice->extra_cost = extra_cost(state->search, &copy, &state->graph);
    if (!keeps_target(state, &copy))
        return TOO_LARGE;
    return choice->extra_cost >= max_cost || may_split(state, &copy) ? GOOD : TOO_LARGE;
}

/* ---- Around the peak ---- */

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

/* The latest ends of chains before the peak, as they are met. */
struct ring {
    ul_node_id nodes[MAX_SIDE + 1];
    bool cuts[MAX_SIDE + 1];
    uint32_t seen;
};

static void add_first(struct ring *ring, ul_node_id node, bool cuts)
{
    ring->cuts[ring->seen % (MAX_SIDE + 1)] = cuts;
    ring->nodes[ring->seen++ % (MAX_SIDE + 1)] = node;
}

static void add_last(struct state *state, ul_node_id node, bool cuts)
{
    if (state->last_count > MAX_SIDE)
        return;
    state->cuts_last[state->last_count] = cuts;
    state->lasts[state->last_count++] = node;
}

static void take_firsts(struct state *state, const struct ring *ring)
{
    for (; state->first_count < ring->seen && state->first_count <= MAX_SIDE;
         state->first_count++) {
        uint32_t at = (ring->seen - 1 - state->first_count) % (MAX_SIDE + 1);
        state->firsts[state->first_count] = ring->nodes[at];
        state->cuts_first[state->first_count] = ring->cuts[at];
    }
}

/* Steps with a kernel in the same root just before and just behind that of `node`. */
static bool find_steps(struct state *state, ul_node_id node)
{
    const struct ul_graph *graph = &state->graph;
    const struct ul_block *block = &graph->blocks[ul_graph_root_of(graph, node)];
    struct ring ring = {.seen = 0};
    bool passed = false;
    state->first_count = state->last_count = 0;
    for (uint32_t begin = 0, end; begin < block->node_count; begin = end) {
        end = ul_steps_end(graph, block->nodes, block->node_count, begin);
        bool here = false;
        for (uint32_t n = begin; n < end; n++)
            here = here || block->nodes[n] == node;
        if (!has_kernel(graph, block->nodes + begin, end - begin))
            continue;
        uint32_t neck = ul_split_find_neck(graph, block->nodes, begin, end);
        if (!passed)
            add_first(&ring, block->nodes[begin], false);
        if (!passed && !here && neck != UL_NONE)
            add_first(&ring, block->nodes[neck + 1], true);
        passed = passed || here;
        if (passed && neck != UL_NONE)
            add_last(state, block->nodes[neck], true);
        if (passed)
            add_last(state, block->nodes[end - 1], false);
    }
    if (passed)
        take_firsts(state, &ring);
    return passed;
}

/* A hash of what the steps around the peak look like, and of the target. */
static uint64_t key_of(const struct state *state)
{
    uint64_t key = 14695981039346656037u ^ state->target_bytes;
    for (uint32_t i = 0; i < state->first_count + state->last_count; i++) {
        const struct ul_node *node =
            &state->graph.nodes[i < state->first_count ? state->firsts[i]
                                                       : state->lasts[i - state->first_count]];
        const struct ul_type *type = &state->graph.values[node->outputs[0]].type;
        key = (key ^ (uint64_t)node->op) * 1099511628211u;
        for (uint32_t d = 0; d < type->rank; d++)
            key = (key ^ (uint64_t)type->dims[d]) * 1099511628211u;
    }
    return key;
}

/* Tries ever more pieces, until they are small enough or cost more than what is known. */
static void try_axis(struct state *state, struct choice choice, int64_t extent, struct choice *best)
{
    for (choice.piece_count = 2; choice.piece_count <= extent && choice.piece_count <= MAX_PIECES;
         choice.piece_count *= 2) {
        uint64_t max_cost = best->piece_count > 0 ? best->extra_cost : UINT64_MAX;
        enum verdict verdict = measure(state, &choice, max_cost);
        bool dearer = choice.extra_cost >= max_cost;
        ul_arena_reset(&state->scratch);
        if (state->search->visits > MAX_VISITS || verdict == IMPOSSIBLE || dearer)
            return;
        if (verdict == GOOD) {
            *best = choice;
            /* Fewer pieces, if they will do: less is computed twice. */
            choice.piece_count -= choice.piece_count / 4;
            if (best->piece_count >= 4 && measure(state, &choice, best->extra_cost) == GOOD &&
                choice.extra_cost < best->extra_cost)
                *best = choice;
            ul_arena_reset(&state->scratch);
            return;
        }
    }
}

/* The bytes that exist whole while the pieces run: what the chain reads and what it makes. */
static uint64_t ends_bytes(const struct ul_graph *graph, const struct ul_split_chain *chain,
                           struct ul_arena *scratch)
{
    bool *seen = UL_NEW_ARRAY(scratch, bool, graph->value_count);
    uint64_t sum = 0;
    for (uint32_t n = 0; n < chain->node_count; n++) {
        const struct ul_node *node = &graph->nodes[chain->nodes[n]];
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] == UL_NONE)
                continue;
            ul_value_id base = graph->values[node->inputs[i]].view.base;
            const struct ul_value *value = &graph->values[base];
            bool inside = value->kind == UL_VALUE_NODE && chain->inside[value->producer];
            if (!inside && !seen[base] && value->kind != UL_VALUE_WEIGHT)
                sum += ul_value_bytes(graph, base);
            seen[base] = true;
        }
    }
    for (uint32_t i = 0; i < chain->output_count; i++)
        sum += ul_value_bytes(graph, chain->outputs[i]);
    return sum;
}

static void try_chain(struct state *state, uint32_t before, uint32_t behind, struct choice *best)
{
    struct ul_diag diag = {0};
    struct ul_passes_options options = {.split_count = 0};
    struct ul_pass pass = {
        .graph = &state->graph, .scratch = &state->scratch, .diag = &diag, .options = &options};
    struct ul_split split = {
        .text = "", .first = state->firsts[before], .last = state->lasts[behind]};
    struct ul_split_chain chain;
    state->search->visits += 3 * (uint64_t)state->graph.node_count;
    struct ul_graph cut;
    if (state->cuts_first[before] || state->cuts_last[behind]) { /* other ends may be chosen */
        ul_graph_copy(&cut, &state->scratch, &state->graph);
        ul_split_cut_ends(&cut, &split);
        pass.graph = &cut;
    }
    bool found = ul_split_find_chain(&pass, &split, &chain) == UL_OK;
    /* A piece is not split again. */
    for (uint32_t n = 0; found && n < chain.node_count; n++)
        found = chain.nodes[n] < state->search->whole->node_count;
    found = found && ends_bytes(&state->graph, &chain, &state->scratch) <= state->target_bytes;
    struct ul_type type = {.rank = 0};
    if (found)
        type = state->graph.values[chain.outputs[0]].type;
    ul_arena_reset(&state->scratch);
    struct choice choice = {.before = before, .behind = behind};
    for (choice.axis = 0; choice.axis + 1 < type.rank; choice.axis++)
        try_axis(state, choice, type.dims[choice.axis], best);
}

/* The cheapest split that helps at `node`; piece_count 0: none. */
static struct choice find_choice(struct state *state, ul_node_id node)
{
    struct ul_split_search *search = state->search;
    struct choice best = {.piece_count = 0};
    if (!find_steps(state, node))
        return best;
    uint64_t key = key_of(state);
    for (uint32_t i = 0; i < search->memory_count; i++) {
        if (search->memories[i].key != key)
            continue;
        struct choice choice = search->memories[i].choice;
        bool good = choice.piece_count > 0 && measure(state, &choice, UINT64_MAX) == GOOD;
        ul_arena_reset(&state->scratch);
        if (good || choice.piece_count == 0)
            return choice; /* or none, as little as then */
    }
    uint32_t max = state->first_count + state->last_count;
    for (uint32_t reach = 0; reach < max; reach++) {
        for (uint32_t f = 0; f <= reach && f < state->first_count; f++) {
            if (reach - f < state->last_count && search->visits <= MAX_VISITS)
                try_chain(state, f, reach - f, &best);
        }
    }
    UL_GROW(search->arena, search->memories, search->memory_count, search->memory_capacity);
    search->memories[search->memory_count++] = (struct memory){.key = key, .choice = best};
    return best;
}

/* ---- From peak to peak ---- */

/* Builds the split; false: it cannot be built any more. */
static bool apply(struct state *state, const char *text)
{
    struct ul_passes_options options = {.splits = &text, .split_count = 1};
    struct ul_diag diag = {0};
    struct ul_pass pass = {
        .graph = &state->graph, .scratch = &state->scratch, .diag = &diag, .options = &options};
    state->begins[state->text_count] = state->graph.node_count;
    enum ul_status status = ul_pass_split(&pass);
    ul_arena_reset(&state->scratch);
    state->texts[state->text_count++] = text;
    return status == UL_OK;
}

/* Some piece of the split is among the nearest steps around the peak. */
static bool is_near(const struct state *state, uint32_t split, uint32_t side)
{
    uint32_t begin = state->begins[split];
    uint32_t end =
        split + 1 < state->text_count ? state->begins[split + 1] : state->graph.node_count;
    for (uint32_t i = 0; i < state->first_count && i <= side; i++) {
        if (begin <= state->firsts[i] && state->firsts[i] < end)
            return true;
    }
    for (uint32_t i = 0; i < state->last_count && i <= side; i++) {
        if (begin <= state->lasts[i] && state->lasts[i] < end)
            return true;
    }
    return false;
}

/* Where nothing helps because of splits nearby, drops those in favour of one that serves both.
 * False: there are none. */
static bool drop_near(struct state *state, uint32_t side)
{
    const char **texts = UL_NEW_ARRAY(state->search->arena, const char *, MAX_SPLITS);
    uint32_t count = 0;
    uint32_t before = state->text_count;
    for (uint32_t i = 0; i < before; i++) {
        if (!is_near(state, i, side))
            texts[count++] = state->texts[i];
    }
    if (count == before)
        return false;
    ul_arena_done(&state->arena);
    ul_arena_init(&state->arena);
    ul_graph_copy(&state->graph, &state->arena, state->search->whole);
    state->search->visits += 3 * (uint64_t)state->graph.node_count;
    state->text_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!apply(state, texts[i]))
            return false;
    }
    return true;
}

/* The node at the peak, which is noted; UL_NONE once the target is reached. */
static ul_node_id find_peak(struct state *state)
{
    struct account account = find_account(state->search, &state->graph, &state->scratch);
    ul_node_id node = UL_NONE;
    state->live_bytes = account.peak_bytes;
    for (uint32_t n = 0; state->live_bytes > state->target_bytes && n < state->graph.node_count;
         n++) {
        if (account.steps.step_of[n] == account.peak)
            node = n;
    }
    ul_arena_reset(&state->scratch);
    return node;
}

/* Adds one split that brings the sum at `node` to the target. */
static bool fix_peak(struct state *state, ul_node_id node)
{
    if (node >= state->search->whole->node_count || state->text_count == MAX_SPLITS)
        return false; /* a piece is not split again */
    struct choice choice = find_choice(state, node);
    for (uint32_t side = 1; choice.piece_count == 0 && side <= MAX_SIDE; side *= 2) {
        if (!drop_near(state, side))
            continue;
        (void)find_peak(state); /* for the largest sum; the one at `node` has to fall first */
        choice = find_choice(state, node);
    }
    return choice.piece_count > 0 &&
           apply(state, choice_text(state, &choice, state->search->arena));
}

bool ul_split_search_reach(struct ul_split_search *search, uint64_t target_bytes,
                           const char *const **texts, uint32_t *count)
{
    struct state *state = UL_NEW(search->arena, struct state);
    uint32_t turns = 0;
    state->search = search;
    state->target_bytes = target_bytes;
    state->texts = UL_NEW_ARRAY(search->arena, const char *, MAX_SPLITS);
    state->begins = UL_NEW_ARRAY(search->arena, uint32_t, MAX_SPLITS);
    ul_arena_init(&state->arena);
    ul_arena_init(&state->scratch);
    ul_graph_copy(&state->graph, &state->arena, search->whole);
    ul_node_id node = find_peak(state);
    while (state->live_bytes > target_bytes && turns++ < 2 * MAX_SPLITS &&
           search->visits <= MAX_VISITS && fix_peak(state, node))
        node = find_peak(state);
    ul_arena_done(&state->scratch);
    ul_arena_done(&state->arena);
    *texts = state->texts;
    *count = state->text_count;
    return state->live_bytes <= target_bytes;
}

uint64_t ul_split_search_live_bytes(const struct ul_split_search *search)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint64_t bytes = find_account(search, search->whole, &scratch).peak_bytes;
    ul_arena_done(&scratch);
    return bytes;
}

struct ul_split_search *ul_split_search_new(struct ul_arena *arena, const struct ul_graph *graph,
                                            const struct ul_split_facts *facts)
{
    struct ul_split_search *search = UL_NEW(arena, struct ul_split_search);
    *search = (struct ul_split_search){.arena = arena, .whole = graph, .facts = facts};
    return search;
}
