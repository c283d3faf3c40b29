/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the gaps to use so that the live sum is within a limit.
 *
 * Method: while some position is beyond the limit, look at the gaps over the worst one (or the
 * first), and take the one that frees the most excess, over all positions, for the part of its
 * transfers' cost that is not hidden. At the end, gaps that others made needless are given back. */
#include "planner/transfer/transfer_internal.h"

#include <stdlib.h>
#include <string.h>

struct chooser {
    const struct ul_transfer_model *m;
    const struct ul_transfer_alternative *alternative;
    struct ul_arena scratch;
    struct ul_effort *effort;
    uint64_t limit_bytes, room_bytes;
    bool *chosen;
    bool *is_full;           /* by item: the room is not enough for it */
    uint64_t *live_bytes;    /* by position */
    uint64_t *stored_bytes;  /* by boundary: bytes in the other space */
    uint64_t *excess_before; /* by boundary: sum of the excess over the limit before it */
    uint32_t *beyond_before; /* by boundary: positions before it that exceed the limit */
    uint64_t random;
};

/* The boundaries between which the other space has a copy for this piece, both included. */
static void piece_stores(const struct chooser *c, const struct ul_transfer_piece *piece,
                         uint32_t *from, uint32_t *to)
{
    *from = piece->save_at < piece->begin ? piece->save_at : piece->begin;
    *to = piece->end;
    if (c->m->items[piece->item].is_home) {
        *from = 0;
        *to = c->m->count;
    }
}

static void store(struct chooser *c, uint32_t item, uint64_t size_bytes)
{
    const struct ul_transfer_item *of = &c->m->items[item];
    if (of->home != UL_PLAN_NONE) /* it is there anyway */
        return;
    for (uint32_t i = of->piece_first; i < of->piece_end; i++) {
        uint32_t from, to;
        if (c->m->pieces[i].item != item)
            continue;
        piece_stores(c, &c->m->pieces[i], &from, &to);
        for (uint32_t g = from; g <= to; g++)
            c->stored_bytes[g] += size_bytes; /* modulo 2^64: also less */
        if (of->is_home)
            return;
    }
}

static bool has_room(const struct chooser *c, uint32_t item)
{
    const struct ul_transfer_item *of = &c->m->items[item];
    bool has = true;
    if (of->home != UL_PLAN_NONE || c->room_bytes == UINT64_MAX)
        return true;
    for (uint32_t i = of->piece_first; i < of->piece_end && has; i++) {
        uint32_t from, to;
        if (c->m->pieces[i].item != item)
            continue;
        piece_stores(c, &c->m->pieces[i], &from, &to);
        for (uint32_t g = from; g <= to && has; g++)
            has = of->size_bytes <= c->room_bytes &&
                  c->stored_bytes[g] <= c->room_bytes - of->size_bytes;
    }
    return has;
}

/* Frees the bytes of an item (or takes them again, if they are given modulo 2^64). */
static void live_less(const struct ul_transfer_model *m, uint32_t item, uint64_t size_bytes,
                      uint64_t *live_bytes)
{
    for (uint32_t i = m->items[item].piece_first; i < m->items[item].piece_end; i++) {
        const struct ul_transfer_piece *piece = &m->pieces[i];
        for (uint32_t p = piece->begin; piece->item == item && p < piece->end; p++)
            live_bytes[p] -= size_bytes;
    }
}

uint64_t ul_transfer_floor(const struct ul_transfer_model *m)
{
    uint64_t floor_bytes = 0;
    uint64_t *live =
        ul_arena_copy(m->arena, m->live_bytes, (uint64_t)m->count * sizeof *m->live_bytes);
    for (uint32_t i = 0; i < m->item_count; i++)
        live_less(m, i, m->items[i].size_bytes, live);
    for (uint32_t p = 0; p < m->count; p++)
        floor_bytes = live[p] > floor_bytes ? live[p] : floor_bytes;
    return floor_bytes;
}

static void excess_sum(struct chooser *c)
{
    for (uint32_t p = 0; p < c->m->count; p++) {
        uint64_t excess = c->live_bytes[p] > c->limit_bytes ? c->live_bytes[p] - c->limit_bytes : 0;
        c->excess_before[p + 1] = ul_size_add_saturating(c->excess_before[p], excess);
        c->beyond_before[p + 1] = c->beyond_before[p] + (excess > 0);
    }
    c->effort->work += c->m->count;
}

/* The position that decides, or UL_PLAN_NONE where all are within the limit. */
static uint32_t position_choose(const struct chooser *c)
{
    uint32_t worst = UL_PLAN_NONE;
    uint64_t worst_bytes = c->limit_bytes;
    for (uint32_t p = 0; p < c->m->count; p++) {
        if (c->live_bytes[p] <= worst_bytes)
            continue;
        if (c->alternative->is_first)
            return p;
        worst = p;
        worst_bytes = c->live_bytes[p];
    }
    return worst;
}

/* How much of the excess an item frees, at most; sets whether it does so at the position. */
static double gain_of(const struct chooser *c, uint32_t item, uint32_t position, bool *is_over)
{
    const struct ul_transfer_item *of = &c->m->items[item];
    double gain = 0;
    for (uint32_t i = of->piece_first; i < of->piece_end; i++) {
        const struct ul_transfer_piece *piece = &c->m->pieces[i];
        if (piece->item != item)
            continue;
        double beyond = c->beyond_before[piece->end] - c->beyond_before[piece->begin];
        double excess = (double)(c->excess_before[piece->end] - c->excess_before[piece->begin]);
        double freed = (double)of->size_bytes * beyond;
        gain += freed < excess ? freed : excess;
        *is_over = *is_over || (piece->begin <= position && position < piece->end);
    }
    c->effort->work += of->piece_end - of->piece_first;
    return gain;
}

/* Among the gaps over the position, the one with the largest score; the gap of a value at home
 * brings its home item along. */
static uint32_t item_choose(struct chooser *c, uint32_t position)
{
    uint32_t best = UL_PLAN_NONE;
    double best_score = 0;
    for (uint32_t i = 0; i < c->m->item_count; i++) {
        const struct ul_transfer_item *item = &c->m->items[i];
        bool brings = item->home != UL_PLAN_NONE && !c->chosen[item->home];
        bool is_over = false;
        if (c->chosen[i] || c->is_full[i] || (brings && c->is_full[item->home]))
            continue;
        double gain = gain_of(c, i, position, &is_over);
        if (!is_over)
            continue;
        double cost = (double)item->cost * c->alternative->cost_weight +
                      (double)item->exposed * c->alternative->exposed_weight + 1;
        if (brings) {
            const struct ul_transfer_item *home = &c->m->items[item->home];
            gain += gain_of(c, item->home, position, &is_over);
            cost += (double)home->cost * c->alternative->cost_weight +
                    (double)home->exposed * c->alternative->exposed_weight;
        }
        double score = gain / cost;
        if (c->alternative->noise > 0)
            score *= 1 + c->alternative->noise * ul_seed_unit(&c->random);
        if (best == UL_PLAN_NONE || score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best;
}

static void item_take(struct chooser *c, uint32_t item)
{
    c->chosen[item] = true;
    store(c, item, c->m->items[item].size_bytes);
    live_less(c->m, item, c->m->items[item].size_bytes, c->live_bytes);
}

/* Whether everything is within the limit also without the item. */
static bool is_needless(const struct chooser *c, uint32_t item)
{
    const struct ul_transfer_item *of = &c->m->items[item];
    for (uint32_t i = of->piece_first; i < of->piece_end; i++) {
        const struct ul_transfer_piece *piece = &c->m->pieces[i];
        for (uint32_t p = piece->begin; piece->item == item && p < piece->end; p++) {
            if (c->live_bytes[p] + of->size_bytes > c->limit_bytes)
                return false;
        }
    }
    return true;
}

static void needless_drop(struct chooser *c)
{
    const struct ul_transfer_model *m = c->m;
    uint32_t *dependents = UL_NEW_ARRAY(&c->scratch, uint32_t, m->item_count);
    for (uint32_t i = 0; i < m->item_count; i++) {
        if (c->chosen[i] && m->items[i].home != UL_PLAN_NONE)
            dependents[m->items[i].home]++;
    }
    /* A gap of a value at home comes after the home item. */
    for (uint32_t i = m->item_count; i-- > 0;) {
        const struct ul_transfer_item *item = &m->items[i];
        if (!c->chosen[i] || dependents[i] > 0 || !is_needless(c, i))
            continue;
        c->chosen[i] = false;
        store(c, i, (uint64_t)0 - item->size_bytes);
        live_less(m, i, (uint64_t)0 - item->size_bytes, c->live_bytes);
        if (item->home != UL_PLAN_NONE)
            dependents[item->home]--;
    }
}

static bool choose(struct chooser *c)
{
    for (uint32_t worst; (worst = position_choose(c)) != UL_PLAN_NONE;) {
        excess_sum(c);
        uint32_t item = item_choose(c, worst);
        if (item == UL_PLAN_NONE)
            return false;
        uint32_t home = c->m->items[item].home;
        if (home != UL_PLAN_NONE && !c->chosen[home]) {
            c->is_full[home] = !has_room(c, home);
            if (c->is_full[home])
                continue;
            item_take(c, home);
        }
        c->is_full[item] = !has_room(c, item);
        if (!c->is_full[item])
            item_take(c, item);
    }
    needless_drop(c);
    return true;
}

bool ul_transfer_choose(const struct ul_transfer_model *m,
                        const struct ul_transfer_alternative *alternative, uint64_t limit_bytes,
                        uint64_t room_bytes, struct ul_effort *effort, bool *chosen,
                        uint64_t *live_bytes)
{
    struct chooser c = {.m = m,
                        .alternative = alternative,
                        .effort = effort,
                        .limit_bytes = limit_bytes,
                        .room_bytes = room_bytes,
                        .chosen = chosen,
                        .live_bytes = live_bytes,
                        .random = effort->seed};
    uint64_t boundaries = (uint64_t)m->count + 1;
    ul_arena_init(&c.scratch);
    c.is_full = UL_NEW_ARRAY(&c.scratch, bool, m->item_count);
    c.stored_bytes = UL_NEW_ARRAY(&c.scratch, uint64_t, boundaries);
    c.excess_before = UL_NEW_ARRAY(&c.scratch, uint64_t, boundaries);
    c.beyond_before = UL_NEW_ARRAY(&c.scratch, uint32_t, boundaries);
    memset(chosen, 0, m->item_count * sizeof *chosen);
    memcpy(live_bytes, m->live_bytes, m->count * sizeof *live_bytes);
    bool fits = choose(&c);
    effort->seed = c.random;
    ul_arena_done(&c.scratch);
    return fits;
}
