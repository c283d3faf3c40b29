/* A beam over downsets, for graphs too wide to search them all.
 *
 * Method: level by level (a level: the number of nodes that have run) the sets that stay below the
 * peak to beat, each once, by their live sum and then by the least that their next step needs;
 * the `width` best go on. A ready node that leaves no more alive than before goes alone. */
#include "planner/solve_internal.h"

#include <stdlib.h>
#include <string.h>

struct candidate {
    uint64_t live_bytes;
    uint64_t hash;
    uint32_t parent; /* in its level */
    uint32_t node;
};

struct beam {
    const struct ul_solve_graph *graph;
    uint32_t words, width;
    uint64_t *sets, *next_sets;
    uint64_t *live_bytes, *next_live_bytes;
    uint64_t *hash, *next_hash;
    uint64_t *keys; /* per node: its part of a set's hash */
    uint32_t count;
    struct candidate *candidates;
    uint32_t candidate_count, candidate_capacity;
    uint32_t *parents, *nodes; /* per level and place, for the way back */
    uint32_t *left, *ready;
    uint32_t ready_count;
    uint64_t upper_bytes;
};

static bool set_has(const uint64_t *set, uint32_t node)
{
    return (set[node / 64] >> (node % 64) & 1) != 0;
}

static void set_decode(struct beam *b, const uint64_t *set)
{
    const struct ul_solve_graph *g = b->graph;
    b->ready_count = 0;
    for (uint32_t v = 0; v < g->node_count; v++)
        b->left[v] = g->user_first[v + 1] - g->user_first[v];
    for (uint32_t v = 0; v < g->node_count; v++) {
        bool done = set_has(set, v);
        uint32_t waits = 0;
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++) {
            b->left[g->inputs[i]] -= done;
            waits += !done && !set_has(set, g->inputs[i]);
        }
        if (!done && waits == 0)
            b->ready[b->ready_count++] = v;
    }
}

static uint64_t live_after(const struct beam *b, uint64_t live_bytes, uint32_t node)
{
    const struct ul_solve_graph *g = b->graph;
    live_bytes += b->left[node] > 0 ? g->size_bytes[node] : 0;
    for (uint32_t i = g->input_first[node]; i < g->input_first[node + 1]; i++) {
        if (b->left[g->inputs[i]] == 1)
            live_bytes -= g->size_bytes[g->inputs[i]];
    }
    return live_bytes;
}

static void set_expand(struct beam *b, struct ul_arena *scratch, uint32_t at)
{
    uint64_t live = b->live_bytes[at];
    uint32_t first = b->candidate_count;
    set_decode(b, b->sets + (uint64_t)at * b->words);
    for (uint32_t i = 0; i < b->ready_count; i++) {
        uint32_t node = b->ready[i];
        if (live + b->graph->size_bytes[node] >= b->upper_bytes)
            continue;
        struct candidate next = {.live_bytes = live_after(b, live, node),
                                 .hash = b->hash[at] ^ b->keys[node],
                                 .parent = at,
                                 .node = node};
        if (next.live_bytes <= live)
            b->candidate_count = first;
        UL_GROW(scratch, b->candidates, b->candidate_count, b->candidate_capacity);
        b->candidates[b->candidate_count++] = next;
        if (next.live_bytes <= live)
            return;
    }
}

static int candidate_compare(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;
    if (x->live_bytes != y->live_bytes)
        return x->live_bytes < y->live_bytes ? -1 : 1;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->parent != y->parent)
        return x->parent < y->parent ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Equal sets have equal live sums and hashes, so they are neighbours. */
static void level_keep(struct beam *b, uint32_t level)
{
    if (b->candidate_count > 0)
        qsort(b->candidates, b->candidate_count, sizeof *b->candidates, candidate_compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < b->candidate_count && kept < b->width; i++) {
        const struct candidate *c = &b->candidates[i];
        if (i > 0 && c->hash == c[-1].hash && c->live_bytes == c[-1].live_bytes)
            continue;
        uint64_t *set = b->next_sets + (uint64_t)kept * b->words;
        memcpy(set, b->sets + (uint64_t)c->parent * b->words, b->words * sizeof *set);
        set[c->node / 64] |= (uint64_t)1 << (c->node % 64);
        b->next_live_bytes[kept] = c->live_bytes;
        b->next_hash[kept] = c->hash;
        b->parents[(uint64_t)level * b->width + kept] = c->parent;
        b->nodes[(uint64_t)level * b->width + kept++] = c->node;
    }
    b->count = kept;
    uint64_t *swap = b->sets;
    b->sets = b->next_sets;
    b->next_sets = swap;
    swap = b->live_bytes;
    b->live_bytes = b->next_live_bytes;
    b->next_live_bytes = swap;
    swap = b->hash;
    b->hash = b->next_hash;
    b->next_hash = swap;
}

static void beam_init(struct beam *b, struct ul_arena *scratch)
{
    uint32_t n = b->graph->node_count;
    uint64_t cells = (uint64_t)n * b->width;
    b->words = n / 64 + 1;
    b->sets = UL_NEW_ARRAY(scratch, uint64_t, (uint64_t)b->words * b->width);
    b->next_sets = UL_NEW_ARRAY(scratch, uint64_t, (uint64_t)b->words * b->width);
    b->live_bytes = UL_NEW_ARRAY(scratch, uint64_t, b->width);
    b->next_live_bytes = UL_NEW_ARRAY(scratch, uint64_t, b->width);
    b->hash = UL_NEW_ARRAY(scratch, uint64_t, b->width);
    b->next_hash = UL_NEW_ARRAY(scratch, uint64_t, b->width);
    b->parents = UL_NEW_ARRAY(scratch, uint32_t, cells);
    b->nodes = UL_NEW_ARRAY(scratch, uint32_t, cells);
    b->left = UL_NEW_ARRAY(scratch, uint32_t, n);
    b->ready = UL_NEW_ARRAY(scratch, uint32_t, n);
    b->keys = UL_NEW_ARRAY(scratch, uint64_t, n);
    for (uint32_t v = 0; v < n; v++) {
        uint64_t x = ((uint64_t)v + 1) * UINT64_C(0x9E3779B97F4A7C15);
        x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        b->keys[v] = x ^ (x >> 31);
    }
    b->count = 1;
}

bool ul_order_beam(struct ul_arena *scratch, const struct ul_solve_graph *graph, uint32_t width,
                   uint64_t upper_bytes, uint32_t *order)
{
    struct beam b = {.graph = graph, .width = width, .upper_bytes = upper_bytes};
    beam_init(&b, scratch);
    for (uint32_t level = 0; level < graph->node_count; level++) {
        b.candidate_count = 0;
        for (uint32_t i = 0; i < b.count; i++)
            set_expand(&b, scratch, i);
        level_keep(&b, level);
        if (b.count == 0)
            return false;
    }
    uint32_t at = 0;
    for (uint32_t level = graph->node_count; level-- > 0;) {
        order[level] = b.nodes[(uint64_t)level * width + at];
        at = b.parents[(uint64_t)level * width + at];
    }
    return true;
}
