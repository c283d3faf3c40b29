/* The order of the smallest peak, by search over downsets.
 *
 * Problem: an order of all nodes, each once, that makes the largest live sum least.
 * Method: a state is the set of nodes that have run (a downset); its live sum does not depend on
 * the order that led to it. Best first by the largest live sum on the way, deepest first among
 * equals, each set once: the first complete set is optimal, and the value of the state that is
 * due next is at any time a lower bound for all orders. A ready node that stays within that value
 * and leaves no more alive than before is run at once, alone: no order is worse for it.
 * Left undone: recomputation; the number of states is bounded by the caller. */
#include "planner/solve_internal.h"

#include <string.h>

struct state {
    uint64_t peak_bytes; /* largest live sum on the way */
    uint64_t live_bytes;
    uint32_t parent;
    uint32_t node;
    uint32_t depth;
};

struct search {
    const struct ul_solve_graph *graph;
    struct ul_arena *arena;
    uint32_t words; /* of a set */
    uint64_t *sets; /* per state */
    struct state *states;
    uint32_t state_count, state_limit;
    uint32_t *table; /* open addressing: state + 1 */
    uint32_t table_size;
    uint32_t *heap;
    uint32_t heap_count;
    uint32_t *waits, *left; /* of the state being expanded */
    uint32_t *ready;
    uint32_t ready_count;
    uint64_t upper_bytes;
};

static bool state_before(const struct search *s, uint32_t a, uint32_t b)
{
    const struct state *x = &s->states[a];
    const struct state *y = &s->states[b];
    if (x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes;
    if (x->depth != y->depth)
        return x->depth > y->depth;
    if (x->live_bytes != y->live_bytes)
        return x->live_bytes < y->live_bytes;
    return a < b;
}

static void heap_push(struct search *s, uint32_t state)
{
    uint32_t at = s->heap_count++;
    while (at > 0 && state_before(s, state, s->heap[(at - 1) / 2])) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = state;
}

static uint32_t heap_pop(struct search *s)
{
    uint32_t top = s->heap[0];
    uint32_t last = s->heap[--s->heap_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= s->heap_count)
            break;
        if (child + 1 < s->heap_count && state_before(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (!state_before(s, s->heap[child], last))
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return top;
}

static uint64_t set_hash(const uint64_t *set, uint32_t words)
{
    uint64_t hash = UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = 0; i < words; i++) {
        hash ^= set[i];
        hash *= UINT64_C(0xBF58476D1CE4E5B9);
        hash ^= hash >> 29;
    }
    return hash;
}

/* Adds the set in the next free place unless it is known; a better way to a known one is taken
 * over while it waits (it is pushed again, and the stale entry is skipped when popped). */
static void state_offer(struct search *s, const struct state *state)
{
    const uint64_t *set = s->sets + (uint64_t)s->state_count * s->words;
    uint32_t mask = s->table_size - 1;
    uint32_t at = (uint32_t)set_hash(set, s->words) & mask;
    for (; s->table[at] != 0; at = (at + 1) & mask) {
        uint32_t known = s->table[at] - 1;
        if (memcmp(s->sets + (uint64_t)known * s->words, set, s->words * sizeof *set) != 0)
            continue;
        if (s->states[known].peak_bytes <= state->peak_bytes)
            return;
        break;
    }
    s->states[s->state_count] = *state;
    s->table[at] = s->state_count + 1;
    heap_push(s, s->state_count++);
}

static bool set_has(const uint64_t *set, uint32_t node)
{
    return (set[node / 64] >> (node % 64) & 1) != 0;
}

static void state_decode(struct search *s, uint32_t state)
{
    const struct ul_solve_graph *g = s->graph;
    const uint64_t *set = s->sets + (uint64_t)state * s->words;
    s->ready_count = 0;
    for (uint32_t v = 0; v < g->node_count; v++) {
        s->waits[v] = 0;
        s->left[v] = g->user_first[v + 1] - g->user_first[v];
    }
    for (uint32_t v = 0; v < g->node_count; v++) {
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
            if (set_has(set, v))
                s->left[g->inputs[i]]--;
            else
                s->waits[v] += !set_has(set, g->inputs[i]);
        }
        if (!set_has(set, v) && s->waits[v] == 0)
            s->ready[s->ready_count++] = v;
    }
}

static struct state successor(const struct search *s, uint32_t from, uint32_t node)
{
    const struct ul_solve_graph *g = s->graph;
    const struct state *state = &s->states[from];
    struct state next = {.parent = from, .node = node, .depth = state->depth + 1};
    uint64_t during = state->live_bytes + g->size_bytes[node];
    next.peak_bytes = during > state->peak_bytes ? during : state->peak_bytes;
    next.live_bytes = s->left[node] > 0 ? during : state->live_bytes;
    for (uint32_t i = g->input_first[node]; i < g->input_first[node + 1]; i++) {
        if (s->left[g->inputs[i]] == 1)
            next.live_bytes -= g->size_bytes[g->inputs[i]];
    }
    return next;
}

static void successor_add(struct search *s, const struct state *next)
{
    if (next->peak_bytes >= s->upper_bytes)
        return;
    uint64_t *set = s->sets + (uint64_t)s->state_count * s->words;
    memcpy(set, s->sets + (uint64_t)next->parent * s->words, s->words * sizeof *set);
    set[next->node / 64] |= (uint64_t)1 << (next->node % 64);
    state_offer(s, next);
}

static void state_expand(struct search *s, uint32_t from)
{
    state_decode(s, from);
    for (uint32_t i = 0; i < s->ready_count; i++) {
        struct state next = successor(s, from, s->ready[i]);
        if (next.peak_bytes == s->states[from].peak_bytes &&
            next.live_bytes <= s->states[from].live_bytes) {
            successor_add(s, &next);
            return;
        }
    }
    for (uint32_t i = 0; i < s->ready_count && s->state_count < s->state_limit; i++) {
        struct state next = successor(s, from, s->ready[i]);
        successor_add(s, &next);
    }
}

static void search_init(struct search *s)
{
    uint32_t n = s->graph->node_count;
    s->words = n / 64 + 1;
    for (s->table_size = 1024; s->table_size < 2 * s->state_limit; s->table_size *= 2)
        continue;
    s->sets = UL_NEW_ARRAY(s->arena, uint64_t, ((uint64_t)s->state_limit + 1) * s->words);
    s->states = UL_NEW_ARRAY(s->arena, struct state, (uint64_t)s->state_limit + 1);
    s->table = UL_NEW_ARRAY(s->arena, uint32_t, s->table_size);
    s->heap = UL_NEW_ARRAY(s->arena, uint32_t, (uint64_t)s->state_limit + 1);
    s->waits = UL_NEW_ARRAY(s->arena, uint32_t, n);
    s->left = UL_NEW_ARRAY(s->arena, uint32_t, n);
    s->ready = UL_NEW_ARRAY(s->arena, uint32_t, n);
}

/* Whether a better way to the same set has been found since `state` was pushed. */
static bool is_stale(const struct search *s, uint32_t state)
{
    const uint64_t *set = s->sets + (uint64_t)state * s->words;
    uint32_t mask = s->table_size - 1;
    uint32_t at = (uint32_t)set_hash(set, s->words) & mask;
    while (memcmp(s->sets + (uint64_t)(s->table[at] - 1) * s->words, set, s->words * sizeof *set) !=
           0)
        at = (at + 1) & mask;
    return s->table[at] != state + 1;
}

enum ul_order_outcome ul_order_downsets(struct ul_arena *scratch,
                                        const struct ul_solve_graph *graph, uint64_t upper_bytes,
                                        uint32_t state_limit, uint64_t *lower_bytes,
                                        uint32_t *order)
{
    struct search s = {
        .graph = graph, .arena = scratch, .state_limit = state_limit, .upper_bytes = upper_bytes};
    search_init(&s);
    s.states[0] = (struct state){.peak_bytes = *lower_bytes, .parent = UL_PLAN_NONE};
    s.table[(uint32_t)set_hash(s.sets, s.words) & (s.table_size - 1)] = 1;
    s.state_count = 1;
    heap_push(&s, 0);
    while (s.heap_count > 0 && s.state_count < s.state_limit) {
        uint32_t at = heap_pop(&s);
        if (s.states[at].peak_bytes > *lower_bytes)
            *lower_bytes = s.states[at].peak_bytes;
        if (s.states[at].depth == graph->node_count) {
            for (uint32_t i = graph->node_count; i-- > 0; at = s.states[at].parent)
                order[i] = s.states[at].node;
            return UL_ORDER_IMPROVED;
        }
        if (!is_stale(&s, at))
            state_expand(&s, at);
    }
    if (s.heap_count > 0)
        return UL_ORDER_UNKNOWN;
    *lower_bytes = upper_bytes;
    return UL_ORDER_PROVEN;
}
