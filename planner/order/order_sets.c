/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of nodes as bits: the nodes for which a node waits and the nodes that touch a value are
 * masks, so that a step from a set costs a few words. */
#include "planner/order/order_internal.h"

#include <string.h>

/* Appends `node` to masks [first, *end). */
static void mask_add(struct ul_order_mask *masks, uint32_t first, uint32_t *end, uint32_t node)
{
    uint32_t word = node / 64;
    uint32_t i = *end;
    while (i > first && masks[i - 1].word != word)
        i--;
    if (i == first) {
        i = ++*end;
        masks[i - 1] = (struct ul_order_mask){.word = word};
    }
    masks[i - 1].bits |= (uint64_t)1 << (node % 64);
}

static void needs_make(struct ul_arena *arena, struct ul_order_sets *s)
{
    const struct ul_order_core *core = s->core;
    uint32_t n = core->node_count;
    s->need_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)n + 1);
    s->needs = UL_NEW_ARRAY(arena, struct ul_order_mask, core->pred_first[n]);
    for (uint32_t v = 0; v < n; v++) {
        s->need_first[v + 1] = s->need_first[v];
        for (uint32_t k = core->pred_first[v]; k < core->pred_first[v + 1]; k++)
            mask_add(s->needs, s->need_first[v], &s->need_first[v + 1], core->preds[k]);
    }
}

static void values_make(struct ul_arena *arena, struct ul_order_sets *s)
{
    const struct ul_order_core *core = s->core;
    const struct ul_order_links *links = &s->links;
    s->value_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)core->value_count + 1);
    s->values = UL_NEW_ARRAY(arena, struct ul_order_mask, core->touch_first[core->node_count]);
    for (uint32_t v = 0; v < core->value_count; v++) {
        s->value_first[v + 1] = s->value_first[v];
        for (uint32_t i = links->value_first[v]; i < links->value_first[v + 1]; i++)
            mask_add(s->values, s->value_first[v], &s->value_first[v + 1], links->value_nodes[i]);
    }
}

void ul_order_sets_init(struct ul_arena *arena, const struct ul_order_core *core,
                        struct ul_order_sets *sets)
{
    *sets = (struct ul_order_sets){.core = core, .words = core->node_count / 64 + 1};
    sets->high = sets->words;
    ul_order_links_make(arena, core, &sets->links);
    needs_make(arena, sets);
    values_make(arena, sets);
    sets->reach = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)core->node_count + 1);
    sets->reach[core->node_count] = UINT32_MAX;
    for (uint32_t v = core->node_count; v-- > 0;) {
        uint32_t last = 0;
        for (uint32_t k = core->pred_first[v]; k < core->pred_first[v + 1]; k++)
            last = core->preds[k] + 1 > last ? core->preds[k] + 1 : last;
        sets->reach[v] = last < sets->reach[v + 1] ? last : sets->reach[v + 1];
    }
    sets->set = UL_NEW_ARRAY(arena, uint64_t, sets->words);
    sets->keys = UL_NEW_ARRAY(arena, uint64_t, core->node_count);
    for (uint32_t v = 0; v < core->node_count; v++) {
        uint64_t x = ((uint64_t)v + 1) * UINT64_C(0x9E3779B97F4A7C15);
        x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
        sets->keys[v] = x ^ (x >> 31);
    }
}

void ul_order_sets_limit(struct ul_order_sets *sets, uint32_t low, uint32_t high)
{
    UL_ASSERT(low >= sets->low && high <= sets->words);
    for (uint32_t w = sets->low; w < low; w++)
        sets->set[w] = UINT64_MAX;
    for (uint32_t w = high; w < sets->high; w++)
        sets->set[w] = 0;
    sets->low = low;
    sets->high = high;
}

uint32_t ul_order_sets_ready(struct ul_order_sets *sets, const uint64_t *set, uint64_t live_bytes,
                             struct ul_order_ready *ready)
{
    uint32_t n = sets->core->node_count;
    uint32_t count = 0;
    uint32_t top = sets->high; /* words in use */
    while (top > sets->low && set[top - 1] == 0)
        top--;
    uint32_t done = top * 64 - (top > sets->low ? (uint32_t)__builtin_clzll(set[top - 1]) : 0);
    for (uint32_t w = sets->low; w * 64 < n && sets->reach[w * 64] <= done; w++) {
        for (uint64_t open = ~set[w]; open != 0; open &= open - 1) {
            uint32_t node = w * 64 + (uint32_t)__builtin_ctzll(open);
            if (node >= n || sets->reach[node] > done)
                break;
            sets->work++;
            if (ul_order_set_ready(sets, set, node))
                ready[count++] =
                    (struct ul_order_ready){ul_order_set_step(sets, set, live_bytes, node), node};
        }
    }
    sets->work += 4 * (uint64_t)count;
    UL_ASSERT(count <= n);
    return count;
}

/* The best node that only `node` has kept from running, now that sets->set is done. */
static bool chain_next(struct ul_order_sets *sets, uint64_t live_bytes, uint64_t max_bytes,
                       uint32_t node, struct ul_order_ready *next)
{
    bool found = false;
    for (uint32_t i = sets->links.succ_first[node]; i < sets->links.succ_first[node + 1]; i++) {
        uint32_t succ = sets->links.succs[i];
        sets->work++;
        if (!ul_order_set_ready(sets, sets->set, succ))
            continue;
        struct ul_order_step step = ul_order_set_step(sets, sets->set, live_bytes, succ);
        sets->work += 4;
        if (step.during_bytes > max_bytes || (found && step.after_bytes >= next->step.after_bytes))
            continue;
        *next = (struct ul_order_ready){step, succ};
        found = true;
    }
    return found;
}

static uint32_t chain_follow(struct ul_order_sets *sets, const uint64_t *set, uint64_t live_bytes,
                             uint64_t max_bytes, struct ul_order_ready chain[UL_ORDER_CHAIN])
{
    uint32_t count = 1;
    bool found = false;
    memcpy(sets->set + sets->low, set + sets->low, (sets->high - sets->low) * sizeof *set);
    while (count < UL_ORDER_CHAIN && !found) {
        const struct ul_order_ready *last = &chain[count - 1];
        ul_bits_add(sets->set, last->node);
        if (!chain_next(sets, last->step.after_bytes, max_bytes, last->node, &chain[count]))
            break;
        found = chain[count++].step.after_bytes <= live_bytes;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (chain[i].node / 64 >= sets->high)
            sets->set[chain[i].node / 64] = 0;
    }
    return found ? count : 0;
}

uint32_t ul_order_sets_chain(struct ul_order_sets *sets, const uint64_t *set, uint64_t live_bytes,
                             uint64_t max_bytes, const struct ul_order_ready *ready,
                             uint32_t ready_count, struct ul_order_ready chain[UL_ORDER_CHAIN])
{
    for (uint32_t i = 0; i < ready_count; i++) {
        chain[0] = ready[i];
        if (ready[i].step.after_bytes <= live_bytes && ready[i].step.during_bytes <= max_bytes)
            return 1;
    }
    for (uint32_t i = 0; i < ready_count; i++) {
        chain[0] = ready[i];
        uint32_t count = 0;
        if (ready[i].step.during_bytes <= max_bytes)
            count = chain_follow(sets, set, live_bytes, max_bytes, chain);
        if (count > 0)
            return count;
    }
    return 0;
}
