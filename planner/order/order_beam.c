/* SPDX-License-Identifier: Apache-2.0 */
/* A beam search over downsets, for cores too wide to search them all.
 *
 * Method: for each level (the number of nodes that have run), take the sets that stay below the
 * peak to beat, each once, by their live sum; the `width` best continue. Where a chain ends no
 * higher than it began, its first node is the only one tried (ul_order_sets_chain has the
 * reason). */
#include "planner/order/order_internal.h"

#include <string.h>

struct candidate {
    uint64_t key;
    uint64_t live_bytes;
    uint64_t hash;
    uint32_t parent; /* its index in its level */
    uint32_t node;
};

/* The words in which a level's sets differ are [low, high): on long cores a narrow band. */
struct level {
    uint64_t *set_words;
    uint64_t *live_bytes;
    uint64_t *hash;
    uint32_t count;
    uint32_t low, high;
};

struct beam {
    struct ul_order_sets sets;
    const struct ul_order_beam_options *options;
    struct level now, next;
    struct ul_order_ready *ready;
    struct candidate *candidates;
    uint32_t candidate_count, candidate_capacity;
    uint32_t *table; /* candidates by hash: index + 1 */
    uint32_t table_size;
    uint32_t *parents, *nodes; /* by level and index, for the way back */
    bool truncated;            /* a set was dropped because of the width */
};

static bool candidate_before(const struct candidate *a, const struct candidate *b)
{
    if (a->key != b->key)
        return a->key < b->key;
    return a->hash < b->hash;
}

static void table_grow(struct beam *b, struct ul_arena *scratch)
{
    b->table_size *= 2;
    b->table = UL_NEW_ARRAY(scratch, uint32_t, b->table_size);
    for (uint32_t i = 0; i < b->candidate_count; i++) {
        uint32_t at = (uint32_t)b->candidates[i].hash & (b->table_size - 1);
        while (b->table[at] != 0)
            at = (at + 1) & (b->table_size - 1);
        b->table[at] = i + 1;
    }
}

/* Sets with equal hashes are treated as equal: at worst one of them is lost. */
static void candidate_add(struct beam *b, struct ul_arena *scratch, uint32_t parent,
                          const struct ul_order_ready *ready)
{
    UL_ASSERT(b->table_size > b->candidate_count);
    uint64_t hash = b->now.hash[parent] ^ b->sets.keys[ready->node];
    uint32_t at = (uint32_t)hash & (b->table_size - 1);
    for (; b->table[at] != 0; at = (at + 1) & (b->table_size - 1)) {
        if (b->candidates[b->table[at] - 1].hash == hash)
            return;
    }
    UL_GROW(scratch, b->candidates, b->candidate_count, b->candidate_capacity);
    b->candidates[b->candidate_count++] = (struct candidate){.key = ready->step.after_bytes,
                                                             .live_bytes = ready->step.after_bytes,
                                                             .hash = hash,
                                                             .parent = parent,
                                                             .node = ready->node};
    b->table[at] = b->candidate_count;
    if (2 * b->candidate_count > b->table_size)
        table_grow(b, scratch);
}

static void set_expand(struct beam *b, struct ul_arena *scratch, uint32_t at)
{
    const uint64_t *set = b->now.set_words + (uint64_t)at * b->sets.words;
    uint64_t live = b->now.live_bytes[at];
    uint64_t max = b->options->upper_bytes - 1;
    struct ul_order_ready chain[UL_ORDER_CHAIN];
    uint32_t count = ul_order_sets_ready(&b->sets, set, live, b->ready);
    if (ul_order_sets_chain(&b->sets, set, live, max, b->ready, count, chain) > 0) {
        candidate_add(b, scratch, at, &chain[0]);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (b->ready[i].step.during_bytes <= max)
            candidate_add(b, scratch, at, &b->ready[i]);
    }
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate c = *a;
    *a = *b;
    *b = c;
}

/* Moves the first `kept` candidates to the front, in no order. */
static void candidates_select(struct candidate *c, uint32_t count, uint32_t kept)
{
    uint32_t low = 0;
    uint32_t high = count;
    while (high - low > 1) {
        swap(&c[low], &c[low + (high - low) / 2]);
        uint32_t middle = low;
        for (uint32_t i = low + 1; i < high; i++) {
            if (candidate_before(&c[i], &c[low]))
                swap(&c[i], &c[++middle]);
        }
        swap(&c[low], &c[middle]);
        if (middle == kept)
            return;
        if (middle > kept)
            high = middle;
        else
            low = middle + 1;
    }
}

/* Makes all rows of the next level full below `low` and empty from `high` on. */
static void level_limit(struct beam *b, uint32_t low, uint32_t high)
{
    struct level *level = &b->next;
    for (uint32_t i = 0; i < b->options->width; i++) {
        uint64_t *set = level->set_words + (uint64_t)i * b->sets.words;
        if (level->low < low)
            memset(set + level->low, 0xFF, (low - level->low) * sizeof *set);
        if (level->high > high)
            memset(set + high, 0, (level->high - high) * sizeof *set);
    }
    level->low = low;
    level->high = high;
}

static void candidate_keep(struct beam *b, const struct candidate *c, uint32_t depth, uint32_t i)
{
    UL_ASSERT(i < b->options->width);
    uint32_t words = b->sets.words;
    uint64_t place = (uint64_t)depth * b->options->width + i;
    uint64_t *set = b->next.set_words + (uint64_t)i * words;
    memcpy(set + b->next.low, b->now.set_words + (uint64_t)c->parent * words + b->next.low,
           (b->next.high - b->next.low) * sizeof *set);
    ul_bits_add(set, c->node);
    b->next.live_bytes[i] = c->live_bytes;
    b->next.hash[i] = c->hash;
    b->parents[place] = c->parent;
    b->nodes[place] = c->node;
}

static void level_keep(struct beam *b, uint32_t depth)
{
    uint32_t width = b->options->width;
    uint32_t low = b->sets.words;
    uint32_t high = b->now.high;
    if (b->candidate_count > width) {
        candidates_select(b->candidates, b->candidate_count, width);
        b->truncated = true;
    }
    b->next.count = b->candidate_count < width ? b->candidate_count : width;
    for (uint32_t i = 0; i < b->next.count; i++) {
        uint32_t word = b->candidates[i].node / 64;
        high = word + 1 > high ? word + 1 : high;
    }
    level_limit(b, b->now.low, high);
    for (uint32_t i = 0; i < b->next.count; i++) {
        candidate_keep(b, &b->candidates[i], depth, i);
        const uint64_t *set = b->next.set_words + (uint64_t)i * b->sets.words;
        uint32_t full = b->now.low;
        while (full < high && set[full] == UINT64_MAX)
            full++;
        low = full < low ? full : low;
    }
    struct level swapped = b->now;
    b->now = b->next;
    b->next = swapped;
    if (b->now.count > 0) {
        b->now.low = low;
        ul_order_sets_limit(&b->sets, low, high);
    }
    b->candidate_count = 0;
    memset(b->table, 0, b->table_size * sizeof *b->table);
}

static void level_init(const struct beam *b, struct ul_arena *scratch, struct level *level)
{
    level->set_words = UL_NEW_ARRAY(scratch, uint64_t, (uint64_t)b->sets.words * b->options->width);
    level->live_bytes = UL_NEW_ARRAY(scratch, uint64_t, b->options->width);
    level->hash = UL_NEW_ARRAY(scratch, uint64_t, b->options->width);
}

static void beam_init(struct beam *b, struct ul_arena *scratch, const struct ul_order_core *core)
{
    enum { FIRST_TABLE = 1024 };
    uint64_t cells = (uint64_t)core->node_count * b->options->width;
    ul_order_sets_init(scratch, core, &b->sets);
    level_init(b, scratch, &b->now);
    level_init(b, scratch, &b->next);
    b->ready = UL_NEW_ARRAY(scratch, struct ul_order_ready, core->node_count);
    b->parents = UL_NEW_ARRAY(scratch, uint32_t, cells);
    b->nodes = UL_NEW_ARRAY(scratch, uint32_t, cells);
    b->table_size = FIRST_TABLE;
    b->table = UL_NEW_ARRAY(scratch, uint32_t, b->table_size);
    b->now.live_bytes[0] = core->start_bytes;
    b->now.count = 1;
}

enum ul_order_outcome ul_order_beam(struct ul_arena *scratch, const struct ul_order_core *core,
                                    struct ul_effort *effort,
                                    const struct ul_order_beam_options *options, uint32_t *order)
{
    UL_ASSERT(options->width > 0);
    struct beam b = {.options = options};
    beam_init(&b, scratch, core);
    for (uint32_t depth = 0; depth < core->node_count; depth++) {
        uint64_t before = b.sets.work;
        for (uint32_t i = 0; i < b.now.count; i++)
            set_expand(&b, scratch, i);
        effort->work += b.sets.work - before + (uint64_t)b.now.count * (b.now.high - b.now.low);
        level_keep(&b, depth);
        if (b.now.count == 0)
            return b.truncated ? UL_ORDER_UNKNOWN : UL_ORDER_PROVEN;
        if (ul_effort_spent(effort))
            return UL_ORDER_UNKNOWN;
    }
    uint32_t at = 0;
    for (uint32_t depth = core->node_count; depth-- > 0;) {
        order[depth] = b.nodes[(uint64_t)depth * options->width + at];
        at = b.parents[(uint64_t)depth * options->width + at];
    }
    return UL_ORDER_IMPROVED;
}
