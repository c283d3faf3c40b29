/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what may move: gaps between the touches of values.
 *
 * A value that nothing touches for a while gives its bytes up if it is saved before and loaded
 * after. A persistent value is at home in the other space or not, as a whole; if it is, it is in
 * the arena from its first touch in a section to its last:
 *
 *     position      0    1    2    3    4    5
 *     a             w    r    .    .    r         a gap [2, 4): saved at boundary 1, behind the
 * write m, persistent .    .    .    rw   .    .    at home: idle in [0, 3) and [4, 6)
 *
 * No transfer is placed inside a loop, a branch or a step of several parts; so a value that is
 * touched in a loop or a branch does not move. */
#include "planner/model/timeline.h"
#include "planner/transfer/transfer_internal.h"

#include <stdlib.h>

struct touch {
    uint32_t position;
    bool writes;
};

struct maker {
    struct ul_transfer_model *m;
    struct touch *touches; /* by value and position */
    uint32_t *first;       /* by value: the first of them; value_count + 1 entries */
    bool *is_fixed;        /* by value: something speaks against moving it */
    bool has_entries;
};

static uint32_t region_of(const struct ul_problem *problem, const struct ul_plan_position *at)
{
    return at->kind == UL_PLAN_RUN ? problem->steps[at->step].region : at->region;
}

uint32_t ul_transfer_section(const struct ul_problem *problem, const struct ul_plan_position *at)
{
    return ul_region_entry(problem, region_of(problem, at));
}

static uint32_t region_at(const struct ul_transfer_model *m, uint32_t position)
{
    return region_of(m->problem, &m->runs->positions[position]);
}

/* The innermost region that both are in. */
static uint32_t region_of_both(const struct ul_problem *problem, uint32_t a, uint32_t b)
{
    while (a != b) {
        if (a > b)
            a = problem->regions[a].parent;
        else
            b = problem->regions[b].parent;
    }
    return a;
}

bool ul_transfer_is_open(const struct ul_problem *problem, const struct ul_plan *plan, uint32_t g)
{
    const struct ul_plan_position *at = &plan->positions[g];
    if (g == 0 || g == plan->position_count)
        return true;
    uint32_t section = ul_transfer_section(problem, at);
    if (ul_transfer_section(problem, at - 1) != section)
        return true;
    if (at->kind == UL_PLAN_RUN && at->substep > 0)
        return false;
    return region_of_both(problem, region_of(problem, at - 1), region_of(problem, at)) == section;
}

static void sections_make(struct ul_transfer_model *m)
{
    uint32_t regions = m->problem->region_count;
    m->section = UL_NEW_ARRAY(m->arena, uint32_t, m->count);
    m->section_first = UL_NEW_ARRAY(m->arena, uint32_t, regions);
    m->section_end = UL_NEW_ARRAY(m->arena, uint32_t, regions);
    for (uint32_t p = m->count; p-- > 0;) {
        m->section[p] = ul_transfer_section(m->problem, &m->runs->positions[p]);
        m->section_first[m->section[p]] = p;
    }
    for (uint32_t p = 0; p < m->count; p++)
        m->section_end[m->section[p]] = p + 1;
}

static void boundaries_make(struct ul_transfer_model *m)
{
    uint64_t count = (uint64_t)m->count + 1;
    m->time = UL_NEW_ARRAY(m->arena, uint64_t, count);
    m->next_open = UL_NEW_ARRAY(m->arena, uint32_t, count);
    m->last_open = UL_NEW_ARRAY(m->arena, uint32_t, count);
    for (uint32_t g = 0; g <= m->count; g++) {
        m->last_open[g] = ul_transfer_is_open(m->problem, m->runs, g) ? g : m->last_open[g - 1];
        if (g == m->count)
            break;
        m->time[g + 1] = m->time[g] + ul_plan_cost_at(m->problem, &m->runs->positions[g]);
    }
    for (uint32_t g = m->count + 1; g-- > 0;)
        m->next_open[g] = ul_transfer_is_open(m->problem, m->runs, g) ? g : m->next_open[g + 1];
}

/* ---- Touches ---- */

static void substep_count(struct maker *k, const struct ul_plan_substep *substep)
{
    for (uint32_t i = 0; i < substep->read_count; i++)
        k->first[substep->reads[i] + 1]++;
    for (uint32_t i = 0; i < substep->write_count; i++)
        k->first[substep->writes[i] + 1]++;
}

static void substep_note(struct maker *k, uint32_t *counts, uint32_t p,
                         const struct ul_plan_substep *substep)
{
    for (uint32_t i = 0; i < substep->read_count + substep->write_count; i++) {
        bool writes = i >= substep->read_count;
        uint32_t v = writes ? substep->writes[i - substep->read_count] : substep->reads[i];
        struct touch *touches = k->touches + k->first[v];
        if (counts[v] == 0 || touches[counts[v] - 1].position != p)
            touches[counts[v]++] = (struct touch){.position = p};
        touches[counts[v] - 1].writes = touches[counts[v] - 1].writes || writes;
    }
}

/* Whether the region is a loop or a branch, or in one. */
static bool is_repeated(const struct ul_problem *problem, uint32_t region)
{
    bool found = false;
    for (; region != UL_PLAN_NONE; region = problem->regions[region].parent)
        found = found || problem->regions[region].kind == UL_PLAN_LOOP ||
                problem->regions[region].kind == UL_PLAN_BRANCH;
    return found;
}

/* Fixed values are touched in a loop, or outside all entries where there are some, or, if they are
 * not persistent, in several; or nothing touches them, since a load says that a value is
 * elsewhere. */
static void fixed_mark(struct maker *k, const uint32_t *counts)
{
    const struct ul_transfer_model *m = k->m;
    const struct ul_problem *problem = m->problem;
    for (uint32_t v = 0; v < problem->value_count; v++) {
        const struct ul_plan_value *value = &problem->values[v];
        const struct touch *touches = k->touches + k->first[v];
        k->is_fixed[v] = value->space != 0 || counts[v] == 0 || value->size_bytes == 0 ||
                         value->pinned || !ul_value_may_move(value);
        for (uint32_t i = 0; i < counts[v] && !k->is_fixed[v]; i++) {
            uint32_t section = m->section[touches[i].position];
            bool crosses = !value->persistent && section != m->section[touches[0].position];
            k->is_fixed[v] = crosses || (k->has_entries && section == 0) ||
                             is_repeated(problem, region_at(m, touches[i].position));
        }
    }
}

static uint32_t *touches_make(struct maker *k)
{
    const struct ul_transfer_model *m = k->m;
    uint32_t values = m->problem->value_count;
    uint32_t *counts = UL_NEW_ARRAY(m->arena, uint32_t, values);
    k->first = UL_NEW_ARRAY(m->arena, uint32_t, (uint64_t)values + 1);
    k->is_fixed = UL_NEW_ARRAY(m->arena, bool, values);
    for (uint32_t p = 0; p < m->count; p++)
        substep_count(k, ul_substep_at(m->problem, &m->runs->positions[p]));
    for (uint32_t v = 0; v < values; v++)
        k->first[v + 1] += k->first[v];
    k->touches = UL_NEW_ARRAY(m->arena, struct touch, k->first[values]);
    for (uint32_t p = 0; p < m->count; p++)
        substep_note(k, counts, p, ul_substep_at(m->problem, &m->runs->positions[p]));
    return counts;
}

/* ---- Items ---- */

static void piece_add(struct ul_transfer_model *m, const struct ul_transfer_piece *piece)
{
    UL_GROW(m->arena, m->pieces, m->piece_count, m->piece_capacity);
    m->pieces[m->piece_count++] = *piece;
}

static uint32_t item_add(struct ul_transfer_model *m, uint32_t value, bool is_home, uint32_t home)
{
    uint64_t bytes = m->problem->values[value].size_bytes;
    UL_GROW(m->arena, m->items, m->item_count, m->item_capacity);
    m->items[m->item_count] = (struct ul_transfer_item){
        .value = value,
        .home = home,
        .is_home = is_home,
        .size_bytes = ul_size_align_or_die(bytes, m->runs->alignment_bytes)};
    return m->item_count++;
}

/* The cost of a piece's transfers, and the part of it that its time cannot hide. */
static void item_charge(struct ul_transfer_model *m, struct ul_transfer_item *item,
                        const struct ul_transfer_piece *piece, bool saves)
{
    uint64_t bytes = m->problem->values[item->value].size_bytes;
    uint64_t cost = (saves ? ul_resource_cost(m->engines[false], bytes) : 0) +
                    (piece->loads ? ul_resource_cost(m->engines[true], bytes) : 0);
    uint32_t from = saves ? piece->save_at : piece->begin;
    uint64_t hidden = m->time[piece->end] - m->time[from];
    item->cost = ul_size_add_saturating(item->cost, cost);
    item->exposed = ul_size_add_saturating(item->exposed, cost > hidden ? cost - hidden : 0);
}

/* Adds the gap between two touches of one copy, if transfers may be placed there. */
static void gap_add(struct maker *k, uint32_t value, const struct touch *from,
                    const struct touch *to, uint32_t written, uint32_t home)
{
    struct ul_transfer_model *m = k->m;
    uint32_t section = m->section[from->position];
    uint32_t begin = m->next_open[from->position + 1], end = m->last_open[to->position];
    if (m->section[to->position] != section || begin >= end)
        return;
    uint32_t item = item_add(m, value, false, home);
    uint32_t save_at = written > 0 ? m->next_open[written] : m->section_first[section];
    const struct ul_transfer_piece piece = {.value = value,
                                            .item = item,
                                            .section = section,
                                            .begin = begin,
                                            .end = end,
                                            .save_at = save_at < begin ? save_at : begin,
                                            .written = written,
                                            .loads = true};
    piece_add(m, &piece);
    item_charge(m, &m->items[item], &piece, home == UL_PLAN_NONE);
}

static bool is_one_copy(const struct ul_plan *runs, uint32_t value, uint32_t from, uint32_t to)
{
    for (uint32_t r = runs->value_ranges[value]; r < runs->value_ranges[value + 1]; r++) {
        if (runs->ranges[r].space == 0 && runs->ranges[r].begin <= from && to < runs->ranges[r].end)
            return true;
    }
    return false;
}

static void gaps_add(struct maker *k, uint32_t value, uint32_t count, uint32_t home)
{
    const struct touch *touches = k->touches + k->first[value];
    uint32_t written = 0;
    for (uint32_t i = 0; i < count; i++) {
        written = touches[i].writes ? touches[i].position + 1 : written;
        if (i + 1 < count &&
            is_one_copy(k->m->runs, value, touches[i].position, touches[i + 1].position))
            gap_add(k, value, &touches[i], &touches[i + 1], written, home);
    }
}

/* Adds a section of a value at home: idle before the first of these touches, and after the last. */
static void home_section(struct maker *k, uint32_t item, uint32_t section,
                         const struct touch *touches, uint32_t count)
{
    struct ul_transfer_model *m = k->m;
    struct ul_transfer_piece piece = {.value = m->items[item].value,
                                      .item = item,
                                      .section = section,
                                      .begin = m->section_first[section],
                                      .end = m->section_end[section],
                                      .save_at = m->section_first[section],
                                      .loads = count > 0};
    if (count > 0)
        piece.end = m->last_open[touches[0].position];
    piece_add(m, &piece);
    item_charge(m, &m->items[item], &piece, false);
    for (uint32_t i = 0; i < count; i++)
        piece.written = touches[i].writes ? touches[i].position + 1 : piece.written;
    if (count == 0)
        return;
    piece.begin = m->next_open[touches[count - 1].position + 1];
    piece.end = m->section_end[section];
    piece.save_at = piece.written > 0 ? m->next_open[piece.written] : piece.begin;
    piece.loads = false;
    piece_add(m, &piece);
    item_charge(m, &m->items[item], &piece, piece.written > 0);
}

static void home_add(struct maker *k, uint32_t value, uint32_t count)
{
    struct ul_transfer_model *m = k->m;
    const struct touch *touches = k->touches + k->first[value];
    uint32_t item = item_add(m, value, true, UL_PLAN_NONE);
    m->items[item].piece_first = m->piece_count;
    for (uint32_t r = 0; r < m->problem->region_count; r++) {
        uint32_t from = 0;
        if (m->section_end[r] == 0 || (k->has_entries && r == 0))
            continue;
        while (from < count && m->section[touches[from].position] != r)
            from++;
        uint32_t end = from;
        while (end < count && m->section[touches[end].position] == r)
            end++;
        home_section(k, item, r, touches + from, end - from);
    }
    gaps_add(k, value, count, item);
}

static int piece_compare(const void *a, const void *b)
{
    const struct ul_transfer_piece *x = a;
    const struct ul_transfer_piece *y = b;
    if (x->value != y->value)
        return x->value < y->value ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Sorts pieces by value and begin, whatever item they belong to; an item then knows where to
 * look. */
static void pieces_sort(struct ul_transfer_model *m)
{
    if (m->piece_count > 0)
        qsort(m->pieces, m->piece_count, sizeof *m->pieces, piece_compare);
    for (uint32_t i = 0; i < m->item_count; i++)
        m->items[i].piece_first = UL_PLAN_NONE;
    for (uint32_t i = 0; i < m->piece_count; i++) {
        struct ul_transfer_item *item = &m->items[m->pieces[i].item];
        item->piece_first = item->piece_first == UL_PLAN_NONE ? i : item->piece_first;
        item->piece_end = i + 1;
    }
}

void ul_transfer_model_make(struct ul_transfer_model *m)
{
    struct maker k = {.m = m};
    m->count = m->runs->position_count;
    for (int loads = 0; loads < 2; loads++)
        m->engines[loads] = ul_problem_engine(m->problem, m->space, loads != 0);
    UL_ASSERT(m->space != UL_PLAN_NONE && m->count > 0);
    sections_make(m);
    boundaries_make(m);
    m->live_bytes = ul_account_live_sums(m->arena, m->runs);
    for (uint32_t p = 0; p < m->count; p++)
        k.has_entries = k.has_entries || m->section[p] != 0;
    uint32_t *counts = touches_make(&k);
    fixed_mark(&k, counts);
    for (uint32_t v = 0; v < m->problem->value_count; v++) {
        if (k.is_fixed[v])
            continue;
        if (m->problem->values[v].persistent)
            home_add(&k, v, counts[v]);
        else
            gaps_add(&k, v, counts[v], UL_PLAN_NONE);
    }
    pieces_sort(m);
}
