/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the order with the smallest peak, by search over downsets.
 *
 * Problem: an order of all nodes of a core, each once, that minimises the largest live sum. Method:
 * a state is the set of nodes that have run (a downset); its live sum f does not depend on the
 * order that led to it. The search is best first by the largest sum on the path, deepest first
 * among equals, each set once: the first complete set is optimal, and the value of the next state
 * is at any time a lower bound for all orders. A chain that ends no higher than it began, within
 * the state's value, is run at once: the state then has only that successor (ul_order_sets_chain
 * has the reason). Left undone: the number of states is bounded by the caller. */
#include "planner/model/problem.h"
#include "planner/order/order_internal.h"

#include <string.h>

struct state {
    uint64_t peak_bytes; /* largest live sum on the path */
    uint64_t live_bytes;
    uint64_t hash;
    uint32_t parent;
    uint32_t node;
    uint32_t depth;
};

struct search {
    struct ul_order_sets sets;
    uint32_t words;
    uint64_t *set_words; /* by state */
    struct state *states;
    uint32_t state_count, state_limit;
    uint32_t *table; /* open addressing: state + 1 */
    uint32_t table_size;
    uint32_t *heap;
    uint32_t heap_count;
    struct ul_order_ready *ready; /* of the state that is being expanded */
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

static uint64_t *set_of(const struct search *s, uint32_t state)
{
    return s->set_words + (uint64_t)state * s->words;
}

/* The table's slot of the set of `state`: where it is, or where it would be. */
static uint32_t slot_find(const struct search *s, uint32_t state)
{
    uint32_t mask = s->table_size - 1;
    uint32_t at = (uint32_t)s->states[state].hash & mask;
    for (; s->table[at] != 0; at = (at + 1) & mask) {
        uint32_t known = s->table[at] - 1;
        if (s->states[known].hash == s->states[state].hash &&
            memcmp(set_of(s, known), set_of(s, state), s->words * sizeof(uint64_t)) == 0)
            break;
    }
    return at;
}

/* Writes the state after running `node` from `from` into the next free place. */
static void state_write(struct search *s, uint32_t from, uint32_t node, struct ul_order_step step)
{
    const struct state *before = &s->states[from];
    uint64_t *set = set_of(s, s->state_count);
    memcpy(set, set_of(s, from), s->words * sizeof *set);
    ul_bits_add(set, node);
    s->states[s->state_count] =
        (struct state){.peak_bytes = ul_size_max(before->peak_bytes, step.during_bytes),
                       .live_bytes = step.after_bytes,
                       .hash = before->hash ^ s->sets.keys[node],
                       .parent = from,
                       .node = node,
                       .depth = before->depth + 1};
}

/* Adds the state unless its set is known; a better path to a known one is taken (it is pushed
 * again, and the stale entry is skipped when popped). */
static void state_offer(struct search *s, uint32_t from, const struct ul_order_ready *ready)
{
    if (ready->step.during_bytes >= s->upper_bytes)
        return;
    state_write(s, from, ready->node, ready->step);
    uint32_t slot = slot_find(s, s->state_count);
    if (s->table[slot] != 0 &&
        s->states[s->table[slot] - 1].peak_bytes <= s->states[s->state_count].peak_bytes)
        return;
    s->table[slot] = s->state_count + 1;
    heap_push(s, s->state_count++);
}

static void state_expand(struct search *s, uint32_t from)
{
    struct ul_order_ready chain[UL_ORDER_CHAIN];
    const struct state *state = &s->states[from];
    uint32_t count = ul_order_sets_ready(&s->sets, set_of(s, from), state->live_bytes, s->ready);
    uint32_t length = ul_order_sets_chain(&s->sets, set_of(s, from), state->live_bytes,
                                          state->peak_bytes, s->ready, count, chain);
    for (uint32_t i = 0; i + 1 < length; i++) { /* intermediate states are not stored */
        state_write(s, from, chain[i].node, chain[i].step);
        from = s->state_count++;
    }
    if (length > 0)
        state_offer(s, from, &chain[length - 1]);
    for (uint32_t i = 0; i < count && length == 0; i++)
        state_offer(s, from, &s->ready[i]);
}

static void search_init(struct search *s, struct ul_arena *scratch)
{
    uint32_t n = s->sets.core->node_count;
    if (n < 24 && s->state_limit > 8u << n) /* a set may be reached by several paths */
        s->state_limit = 8u << n;
    uint64_t places = (uint64_t)s->state_limit + n + UL_ORDER_CHAIN;
    s->words = s->sets.words;
    for (s->table_size = 1024; s->table_size / 2 < places; s->table_size *= 2)
        continue;
    s->set_words = UL_NEW_ARRAY(scratch, uint64_t, places * s->words);
    s->states = UL_NEW_ARRAY(scratch, struct state, places);
    s->table = UL_NEW_ARRAY(scratch, uint32_t, s->table_size);
    s->heap = UL_NEW_ARRAY(scratch, uint32_t, places);
    s->ready = UL_NEW_ARRAY(scratch, struct ul_order_ready, n);
}

static void order_read(const struct search *s, uint32_t at, uint32_t *order)
{
    for (uint32_t i = s->sets.core->node_count; i-- > 0; at = s->states[at].parent)
        order[i] = s->states[at].node;
}

enum ul_order_outcome ul_order_downsets(struct ul_arena *scratch, const struct ul_order_core *core,
                                        struct ul_effort *effort, uint32_t state_limit,
                                        uint64_t upper_bytes, uint64_t *lower_bytes,
                                        uint32_t *order)
{
    /* Every state costs work: room for more states than there is work for would be wasted. */
    uint64_t max = effort->work_limit > effort->work ? effort->work_limit - effort->work : 1;
    if (max < state_limit)
        state_limit = (uint32_t)max;
    struct search s = {.state_limit = state_limit, .upper_bytes = upper_bytes};
    UL_ASSERT(state_limit > 0);
    ul_order_sets_init(scratch, core, &s.sets);
    search_init(&s, scratch);
    s.states[0] = (struct state){.peak_bytes = ul_size_max(*lower_bytes, core->start_bytes),
                                 .live_bytes = core->start_bytes,
                                 .parent = UL_PLAN_NONE};
    s.table[slot_find(&s, 0)] = 1;
    s.state_count = 1;
    heap_push(&s, 0);
    while (s.heap_count > 0 && s.states[s.heap[0]].peak_bytes < upper_bytes) {
        if (s.state_count >= s.state_limit || ul_effort_spent(effort))
            return UL_ORDER_UNKNOWN;
        uint32_t at = heap_pop(&s);
        *lower_bytes = ul_size_max(*lower_bytes, s.states[at].peak_bytes);
        if (s.states[at].depth == core->node_count) {
            order_read(&s, at, order);
            return UL_ORDER_IMPROVED;
        }
        uint64_t before = s.sets.work;
        if (s.table[slot_find(&s, at)] == at + 1)
            state_expand(&s, at);
        effort->work += s.sets.work - before;
    }
    *lower_bytes = ul_size_max(*lower_bytes, upper_bytes);
    return UL_ORDER_PROVEN;
}
