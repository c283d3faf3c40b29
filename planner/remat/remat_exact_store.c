/* SPDX-License-Identifier: Apache-2.0 */
/* Stores the states that the exact search has met.
 *
 * Problem: among states that have run the same nodes, only those matter that no other beats by
 * holding more at no more cost; and the search wants the most promising one next. Method: a hash
 * table leads from the nodes that have run to a group, a list of blocks of resident sets with their
 * costs. It is searched from the newest on as long as that pays off (a state that an old one beats
 * only costs time). A binary heap holds the open states. */
#include "planner/model/problem.h"
#include "planner/remat/remat_exact.h"

#include <string.h>

enum { BLOCK_STATES = 32, MAX_LOOKED_AT = 1 << 15 };

struct block {
    struct block *older;
    uint32_t count;
    uint32_t state[BLOCK_STATES];
    uint64_t cost[BLOCK_STATES];
    uint64_t resident[]; /* BLOCK_STATES sets */
};

void exact_store_init(struct exact_store *store, struct ul_arena *arena, uint32_t words,
                      uint32_t state_limit)
{
    UL_ASSERT(words > 0 && state_limit > 0);
    uint64_t max = (uint64_t)state_limit + 1;
    *store = (struct exact_store){.arena = arena, .words = words, .state_limit = state_limit};
    store->resident = UL_NEW_ARRAY(arena, uint64_t, max * words);
    store->states = UL_NEW_ARRAY(arena, struct exact_state, max);
    store->open = UL_NEW_ARRAY(arena, struct exact_open, max);
}

static bool open_before(const struct exact_open *a, const struct exact_open *b)
{
    if (a->bound != b->bound)
        return a->bound < b->bound;
    if (a->done_count != b->done_count)
        return a->done_count > b->done_count;
    return a->state > b->state;
}

void exact_store_push(struct exact_store *store, uint32_t state)
{
    UL_ASSERT(state < store->state_count && store->open_count <= store->state_limit);
    struct exact_open entry = {.bound = store->states[state].bound, .state = state};
    entry.done_count = store->groups[store->states[state].group].done_count;
    uint32_t at = store->open_count++;
    while (at > 0 && open_before(&entry, &store->open[(at - 1) / 2])) {
        store->open[at] = store->open[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    store->open[at] = entry;
}

static struct exact_open open_pop(struct exact_store *store)
{
    struct exact_open top = store->open[0];
    struct exact_open last = store->open[--store->open_count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= store->open_count)
            break;
        if (child + 1 < store->open_count &&
            open_before(&store->open[child + 1], &store->open[child]))
            child++;
        if (!open_before(&store->open[child], &last))
            break;
        store->open[at] = store->open[child];
        at = child;
    }
    store->open[at] = last;
    return top;
}

uint32_t exact_store_pop(struct exact_store *store)
{
    while (store->open_count > 0) {
        uint32_t state = open_pop(store).state;
        if (!store->states[state].dominated)
            return state;
    }
    return UL_PLAN_NONE;
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

static void table_grow(struct exact_store *store)
{
    store->table_size = store->table_size == 0 ? 256 : store->table_size * 2;
    store->table = UL_NEW_ARRAY(store->arena, uint32_t, store->table_size);
    for (uint32_t i = 0; i < store->group_count; i++) {
        uint32_t at = (uint32_t)set_hash(store->groups[i].done, store->words);
        while (store->table[at & (store->table_size - 1)] != 0)
            at++;
        store->table[at & (store->table_size - 1)] = i + 1;
    }
}

/* The group of what has run `done`; makes it. */
static uint32_t group_get(struct exact_store *store, const uint64_t *done, uint32_t done_count)
{
    if (store->group_count * 2 >= store->table_size)
        table_grow(store);
    uint32_t at = (uint32_t)set_hash(done, store->words);
    size_t bytes = store->words * sizeof *done;
    for (;; at++) {
        uint32_t *entry = &store->table[at & (store->table_size - 1)];
        if (*entry != 0 && memcmp(store->groups[*entry - 1].done, done, bytes) != 0)
            continue;
        if (*entry == 0) {
            UL_GROW(store->arena, store->groups, store->group_count, store->group_capacity);
            struct exact_group *group = &store->groups[store->group_count++];
            group->done = ul_arena_copy(store->arena, done, bytes);
            group->done_count = done_count;
            *entry = store->group_count;
        }
        return *entry - 1;
    }
}

/* Removes entry `i` of a block; the newest entry of the group fills its place. */
static void entry_remove(struct exact_store *store, struct exact_group *group, struct block *block,
                         uint32_t i)
{
    struct block *newest = group->blocks;
    uint32_t last = --newest->count;
    store->states[block->state[i]].dominated = true;
    block->state[i] = newest->state[last];
    block->cost[i] = newest->cost[last];
    memmove(block->resident + (size_t)i * store->words,
            newest->resident + (size_t)last * store->words,
            store->words * sizeof *newest->resident);
    if (last == 0)
        group->blocks = newest->older;
}

/* Whether a known state of the group is as good; removes those that this one beats. */
static bool is_beaten(struct exact_store *store, struct exact_group *group,
                      const uint64_t *resident, uint64_t cost)
{
    uint32_t looked = 0;
    uint32_t words = store->words;
    for (struct block *block = group->blocks; block != NULL && looked < MAX_LOOKED_AT;) {
        struct block *older = block->older;
        for (uint32_t i = block->count; i-- > 0;) {
            const uint64_t *known = block->resident + (size_t)i * words;
            if (block->cost[i] <= cost && set_within(resident, known, words))
                return true;
            if (block->cost[i] >= cost && set_within(known, resident, words))
                entry_remove(store, group, block, i);
        }
        looked += BLOCK_STATES;
        block = older;
    }
    store->looked += looked;
    return false;
}

static void entry_add(struct exact_store *store, struct exact_group *group, uint32_t state,
                      const uint64_t *resident, uint64_t cost)
{
    uint32_t words = store->words;
    struct block *block = group->blocks;
    if (block == NULL || block->count == BLOCK_STATES) {
        uint64_t sets_bytes = (uint64_t)BLOCK_STATES * words * sizeof *resident;
        block = ul_arena_alloc(store->arena, sizeof *block + sets_bytes);
        block->older = group->blocks;
        group->blocks = block;
    }
    block->state[block->count] = state;
    block->cost[block->count] = cost;
    memcpy(block->resident + (size_t)block->count * words, resident, words * sizeof *resident);
    block->count++;
}

uint32_t exact_store_add(struct exact_store *store, const uint64_t *done, uint32_t done_count,
                         const uint64_t *resident, uint64_t cost)
{
    uint32_t at = group_get(store, done, done_count);
    struct exact_group *group = &store->groups[at];
    if (is_beaten(store, group, resident, cost))
        return UL_PLAN_NONE;
    UL_ASSERT(store->state_count <= store->state_limit);
    uint32_t state = store->state_count++;
    memcpy(store->resident + (size_t)state * store->words, resident,
           store->words * sizeof *resident);
    store->states[state] = (struct exact_state){.cost = cost, .group = at};
    entry_add(store, group, state, resident, cost);
    return state;
}
