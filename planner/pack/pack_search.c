/* SPDX-License-Identifier: Apache-2.0 */
/* Exact packing within a capacity: depth-first search over canonical placements.
 *
 * Problem: is there a packing whose highest end is at most the capacity?
 *
 * Canonical form. Push every buffer of a packing down as far as it goes, jumps included, and sort
 * by (offset, rank): each buffer then lies exactly on its floor, the highest end among those before
 * it that it overlaps. So the search places buffers in that order, each on its floor.
 *
 * If a buffer v goes next, at offset o, then for a buffer u that is not placed yet:
 *   - u's floor f is the lowest it can reach. If f < o (or f = o and u ranks before v), u cannot
 *     end on f, so an unplaced buffer at o or above must be under it: u's offset is at
 *     least o plus the minimum size that overlaps u. That is its `lower` bound.
 *   - Some unplaced buffer at o or above must keep u from f, so o < f + size of u: candidates at
 *     or above the lowest such end are dominated.
 *   - The unplaced buffers of a section need the sum of their sizes above the lowest offset that
 * any of them can have. A section watches two that still have room for that; only when one is
 *     placed or pushed up does it look for others. The branch fails if there is none, and buffers
 *     that cannot be the lowest go above the lowest end of those that can.
 *   - Among equal buffers, the one with the smaller id goes first.
 *   - Where no unplaced buffer crosses from one section to the next, both sides are separate
 *     problems: neither is searched again because the other failed. Ranks are made again from
 *     what remains there.
 *
 * Some rankings learn: sections that end branches are blamed, the blame decays, and from time to
 * time the search starts again with the most blamed first (the weighted degrees of Boussemart et
 * al., ECAI 2004, on sections). They find packings, but seldom refute.
 *
 * It is an AND-OR search on an explicit stack, so that it can stop and resume. All state is in flat
 * arrays; a trail of changes restores them. Buffers are numbered by their begin, so that the parts
 * of a cut are ranges.
 *
 * Source: the canonical order, dominance and sections follow M. Moffitt, "MiniMalloc: A Lightweight
 * Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023). Left undone: learning
 * more from a failure than the section where it occurred. */
#include "planner/pack/pack_search.h"

#include <string.h>

static const uint64_t first_restart_work = 50000;

/* A floor, and a reach, that no unplaced buffer has: those of placed ones. */
enum { PLACED = INT32_MAX / 2 };

struct change {
    uint32_t slot; /* of the values */
    int32_t old;
};

struct subproblem {
    uint32_t first, end; /* buffers, some of them placed */
    uint32_t count;      /* those that are not placed */
};

struct frame {
    struct subproblem subproblem;
    uint32_t low_first; /* in the list of low buffers; those before next_low are in order */
    uint32_t low_count, next_low;
    uint32_t tries;
    int32_t placed; /* buffer, or -1 */
    uint64_t trail_mark;
    uint32_t placed_mark, low_mark, subproblem_first;
    uint32_t subproblem_count, next_subproblem; /* children, if it was split */
};

struct ul_pack_search {
    struct ul_arena *arena;
    const struct ul_pack_sections *sections;
    int32_t capacity;
    uint32_t key;
    bool dive;
    enum ul_pack_outcome outcome;
    int32_t *values;  /* values that the trail restores: the four below */
    int32_t *floor;   /* by buffer */
    int32_t *reach;   /* by buffer: its least offset in the subproblem, at least its floor */
    int32_t *rank;    /* by buffer */
    int32_t *rise;    /* by buffer: the minimum size that overlaps it */
    int32_t *latest;  /* by buffer: its largest offset */
    int32_t *rest;    /* by section: unplaced units */
    int32_t *links;   /* by section: unplaced buffers that continue into the next */
    int32_t *witness; /* by section: two buffers with room, perhaps placed since */
    int32_t *offset;  /* by buffer, or -1 */
    int32_t *placed;  /* buffers, in the order of their placement */
    uint32_t placed_count;
    struct change *trail;
    uint32_t trail_count, trail_capacity;
    int64_t *low; /* by open frame: keys of the buffers whose floors are below every end */
    uint32_t low_count, low_capacity;
    struct subproblem *subproblems;
    uint32_t subproblem_count, subproblem_capacity;
    struct frame *frames;
    uint32_t depth;
    int32_t first, last;            /* sections to check: those of the buffers that changed */
    int32_t *scratch_a, *scratch_b; /* by section or buffer */
    struct rank_key *keys, *keys_spare;
    double *blame; /* by section: branches that it has ended, with late ones weighing more */
    double blame_step;
    uint32_t restarts, epoch_end;
    uint64_t work;
    uint64_t restart_work, work_since; /* of a search that learns: until its next restart */
    uint32_t failures;                 /* since its last one */
};

struct rank_key {
    int64_t first, second, third;
    int32_t id;
};

/* ---- The trail ---- */

static void value_set(struct ul_pack_search *s, const int32_t *at, int32_t value)
{
    uint32_t slot = (uint32_t)(at - s->values);
    UL_GROW(s->arena, s->trail, s->trail_count, s->trail_capacity);
    s->trail[s->trail_count++] = (struct change){slot, s->values[slot]};
    s->values[slot] = value;
}

static void trail_undo(struct ul_pack_search *s, uint64_t mark)
{
    while (s->trail_count > mark) {
        struct change change = s->trail[--s->trail_count];
        s->values[change.slot] = change.old;
    }
}

/* ---- Ranks and rises of a subproblem ---- */

static bool key_before(const struct rank_key *a, const struct rank_key *b)
{
    if (a->first != b->first)
        return a->first > b->first;
    if (a->second != b->second)
        return a->second > b->second;
    if (a->third != b->third)
        return a->third > b->third;
    return a->id < b->id;
}

UL_PACK_SORT(keys_sort, struct rank_key, key_before)

static int32_t largest_rest(const struct ul_pack_search *s, int32_t begin, int32_t end)
{
    int32_t max = 0;
    for (int32_t t = begin; t < end; t++)
        max = s->rest[t] > max ? s->rest[t] : max;
    return max;
}

/* Which of section total, lifetime and area count first, second and third. */
static const uint8_t key_parts[UL_PACK_KEYS][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                   {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};

/* Whether a buffer takes the largest blame of its sections in this round, or their sum. Which one
 * finds a packing, and how soon, varies so much that the learning rankings differ in this. */
static bool uses_largest(const struct ul_pack_search *s)
{
    switch (s->key - UL_PACK_KEYS) {
    case 0:
        return false;
    case 1:
        return true;
    default:
        return s->restarts % 4 == 0;
    }
}

static int64_t blame_of(const struct ul_pack_search *s, int32_t begin, int32_t end)
{
    double max = 0, sum = 0;
    for (int32_t t = begin; t < end; t++) {
        max = s->blame[t] > max ? s->blame[t] : max;
        sum += s->blame[t];
    }
    return (int64_t)((uses_largest(s) ? max : sum) / s->blame_step * 1048576.0);
}

static void ranks_make(struct ul_pack_search *s, const struct subproblem *subproblem)
{
    const struct ul_pack_sections *in = s->sections;
    uint32_t count = 0;
    for (uint32_t b = subproblem->first; b < subproblem->end; b++) {
        if (s->offset[b] >= 0)
            continue;
        int64_t total = largest_rest(s, in->begin[b], in->end[b]);
        int64_t lifetime = in->end[b] - in->begin[b];
        int64_t size = in->size[b];
        struct rank_key *k = &s->keys[count++];
        *k = (struct rank_key){.id = (int32_t)b};
        if (s->key >= UL_PACK_KEYS) {
            k->first = blame_of(s, in->begin[b], in->end[b]);
            k->second = total;
            k->third = lifetime * size;
            continue;
        }
        const int64_t subproblems[3] = {total, lifetime, lifetime * size};
        k->first = subproblems[key_parts[s->key][0]];
        k->second = subproblems[key_parts[s->key][1]];
        k->third = subproblems[key_parts[s->key][2]];
    }
    keys_sort(s->keys, s->keys_spare, count);
    for (uint32_t i = 0; i < count; i++)
        value_set(s, &s->rank[s->keys[i].id], (int32_t)i);
    s->work += 4 * (uint64_t)count;
}

/* The two smallest sizes of each section give each buffer the minimum of the others. */
static void rises_make(struct ul_pack_search *s, const struct subproblem *subproblem)
{
    const struct ul_pack_sections *in = s->sections;
    int32_t *min = s->scratch_a;
    int32_t *second = s->scratch_b;
    for (uint32_t b = subproblem->first; b < subproblem->end; b++) {
        for (int32_t t = in->begin[b]; t < in->end[b]; t++)
            min[t] = second[t] = INT32_MAX / 4;
    }
    for (uint32_t b = subproblem->first; b < subproblem->end; b++) {
        for (uint32_t j = in->step_first[b]; j < in->step_first[b + 1] && s->offset[b] < 0; j++) {
            int32_t size = in->step_size[j];
            for (int32_t t = in->step_begin[j]; t < in->step_end[j]; t++) {
                second[t] = size < min[t] ? min[t] : size < second[t] ? size : second[t];
                min[t] = size < min[t] ? size : min[t];
            }
        }
    }
    for (uint32_t b = subproblem->first; b < subproblem->end; b++) {
        if (s->offset[b] >= 0)
            continue;
        int32_t rise = INT32_MAX / 4;
        for (uint32_t j = in->step_first[b]; j < in->step_first[b + 1]; j++) {
            int32_t size = in->step_size[j];
            for (int32_t t = in->step_begin[j]; t < in->step_end[j]; t++) {
                int32_t other = size == min[t] ? second[t] : min[t];
                rise = other < rise ? other : rise;
            }
        }
        value_set(s, &s->rise[b], rise);
    }
}

/* ---- Placing ---- */

/* Floor, rank and id in one number. */
static int64_t low_key(const struct ul_pack_search *s, uint32_t id)
{
    return ((int64_t)s->floor[id] << 32) | (int64_t)s->rank[id] << 16 | (int64_t)id;
}

static int32_t low_id(int64_t key)
{
    return (int32_t)(key & 0xffff);
}

static void rest_change(struct ul_pack_search *s, int32_t id, int32_t sign)
{
    const struct ul_pack_sections *in = s->sections;
    for (uint32_t j = in->step_first[id]; j < in->step_first[id + 1]; j++) {
        int32_t change = in->step_size[j] * sign;
        for (int32_t t = in->step_begin[j]; t < in->step_end[j]; t++)
            s->rest[t] += change;
    }
    for (int32_t t = in->begin[id]; t + 1 < in->end[id]; t++)
        s->links[t] += sign;
}

static void placements_undo(struct ul_pack_search *s, uint32_t mark)
{
    while (s->placed_count > mark) {
        int32_t id = s->placed[--s->placed_count];
        s->offset[id] = -1;
        rest_change(s, id, 1);
    }
}

static int32_t align_up(int32_t offset, int32_t alignment)
{
    return (offset + alignment - 1) / alignment * alignment;
}

/* False if the buffer no longer fits. */
static bool reach_raise(struct ul_pack_search *s, int32_t id, int32_t reach)
{
    if (reach > s->latest[id])
        return false;
    value_set(s, &s->reach[id], reach);
    const struct ul_pack_sections *in = s->sections;
    s->first = in->begin[id] < s->first ? in->begin[id] : s->first;
    s->last = in->end[id] > s->last ? in->end[id] : s->last;
    return true;
}

/* The highest end of `id`, at `offset`, in the sections of `other`. */
static int32_t end_under(const struct ul_pack_sections *in, int32_t id, int32_t offset,
                         int32_t other)
{
    int32_t size = 0;
    for (uint32_t j = in->step_first[id]; j < in->step_first[id + 1]; j++) {
        if (in->begin[other] < in->step_end[j] && in->end[other] > in->step_begin[j] &&
            in->step_size[j] > size)
            size = in->step_size[j];
    }
    return align_up(offset + size, in->alignment[other]);
}

/* Raises the buffers that overlap the one placed at `offset`. */
static bool floors_push(struct ul_pack_search *s, int32_t id, int32_t offset)
{
    const struct ul_pack_sections *in = s->sections;
    bool general = in->aligned || in->stepped;
    int32_t top = offset + in->size[id];
    for (uint32_t i = in->overlap_first[id]; i < in->overlap_first[id + 1]; i++) {
        int32_t other = in->overlaps[i];
        if (s->floor[other] >= top)
            continue;
        int32_t floor = general ? end_under(in, id, offset, other) : top;
        if (s->floor[other] >= floor)
            continue;
        value_set(s, &s->floor[other], floor);
        if (s->reach[other] < floor && !reach_raise(s, other, floor))
            return false;
    }
    s->work += (in->overlap_first[id + 1] - in->overlap_first[id]) / 2;
    return true;
}

/* Raises those that came before the buffer in the order of (floor, rank) and are skipped. */
static bool passed_raise(struct ul_pack_search *s, const struct frame *f, uint32_t passed,
                         int32_t offset)
{
    for (uint32_t i = 0; i < passed; i++) {
        int32_t id = low_id(s->low[f->low_first + i]);
        int32_t reach = offset + s->rise[id];
        if (reach > s->reach[id] && !reach_raise(s, id, reach))
            return false;
    }
    return true;
}

static bool has_room(const struct ul_pack_search *s, int32_t id, int32_t room)
{
    return s->reach[id] <= room;
}

/* Notes that section `t` has ended a branch; later ones weigh more. */
static bool section_blame(struct ul_pack_search *s, int32_t t)
{
    static const double growth = 1.008, largest = 1e200;
    s->blame[t] += s->blame_step;
    s->failures++;
    s->blame_step *= growth;
    if (s->blame_step > largest) {
        for (uint32_t i = 0; i < s->sections->section_count; i++)
            s->blame[i] /= largest;
        s->blame_step /= largest;
    }
    return false;
}

/* Raises buffers that cannot be the lowest in section `t`: those without room, and all but `only`
 * where it is the only one with room. False if one no longer fits. */
static bool section_raise(struct ul_pack_search *s, int32_t t, int32_t room, int32_t only,
                          int32_t above, bool *raised)
{
    const struct ul_pack_sections *in = s->sections;
    for (uint32_t i = in->member_first[t]; i < in->member_first[t + 1]; i++) {
        int32_t id = (int32_t)in->members[i];
        if (s->reach[id] >= above || id == only || (only < 0 && s->reach[id] <= room))
            continue;
        if (!reach_raise(s, id, above))
            return section_blame(s, t);
        *raised = true;
    }
    return true;
}

/* Watches two unplaced buffers of section `t` that can still be low enough for all of it to fit. If
 * one of them no longer can, the branch has failed unless others have room; if others have, the
 * lowest of their ends pushes the rest up. */
static bool section_holds(struct ul_pack_search *s, int32_t t, bool *raised)
{
    const struct ul_pack_sections *in = s->sections;
    int32_t room = s->capacity - s->rest[t];
    int32_t *watch = s->witness + 2 * (size_t)t;
    if (has_room(s, watch[0], room) && has_room(s, watch[1], room) && watch[0] != watch[1])
        return true;
    int32_t found = -1, other = -1;
    int32_t above = INT32_MAX;
    for (uint32_t i = in->member_first[t]; i < in->member_first[t + 1]; i++) {
        int32_t id = (int32_t)in->members[i];
        if (!has_room(s, id, room))
            continue;
        other = found;
        found = id;
        int32_t end = s->reach[id] + in->member_size[i];
        above = end < above ? end : above;
    }
    if (found < 0)
        return s->rest[t] == 0 || section_blame(s, t);
    if (other >= 0) {
        watch[0] = found;
        watch[1] = other;
    }
    return section_raise(s, t, room, other >= 0 ? -1 : found, above, raised);
}

static bool sections_hold(struct ul_pack_search *s)
{
    bool raised = true;
    while (raised) {
        raised = false;
        s->work += (uint64_t)(s->last - s->first) / 2;
        for (int32_t t = s->first; t < s->last; t++) {
            if (!section_holds(s, t, &raised))
                return false;
        }
    }
    return true;
}

/* ---- Frames ---- */

/* Moves the first of those from `at` on to the front: few are ever looked at, so sorting all would
 * not pay off. */
static void low_select(int64_t *low, uint32_t at, uint32_t count)
{
    uint32_t min = at;
    for (uint32_t i = at + 1; i < count; i++)
        min = low[i] < low[min] ? i : min;
    int64_t swap = low[at];
    low[at] = low[min];
    low[min] = swap;
}

/* The buffers whose floors are below every end, each on its floor: candidates, and those that they
 * skip. */
static void low_list(struct ul_pack_search *s, struct frame *f)
{
    const int32_t *size = s->sections->size;
    const int32_t *floor = s->floor;
    int32_t min_end = INT32_MAX;
    for (uint32_t b = f->subproblem.first; b < f->subproblem.end; b++) {
        int32_t end = floor[b] + size[b];
        min_end = end < min_end ? end : min_end;
    }
    f->low_first = s->low_count;
    while (s->low_capacity < s->low_count + f->subproblem.count)
        s->low = ul_arena_grow(s->arena, s->low, sizeof *s->low, s->low_count, &s->low_capacity);
    int64_t *low = s->low + s->low_count;
    uint32_t count = 0;
    for (uint32_t b = f->subproblem.first; b < f->subproblem.end; b++) {
        if (floor[b] < min_end && floor[b] < PLACED)
            low[count++] = low_key(s, b);
    }
    f->low_count = count;
    s->low_count += count;
    s->work += (f->subproblem.end - f->subproblem.first) / 2;
}

static bool is_candidate(const struct ul_pack_search *s, int32_t id)
{
    if (s->floor[id] < s->reach[id])
        return false;
    uint32_t twin = s->sections->twin[id];
    return twin == UL_PLAN_NONE || s->offset[twin] >= 0;
}

static void frame_push(struct ul_pack_search *s, struct subproblem subproblem)
{
    struct frame *f = &s->frames[s->depth++];
    *f = (struct frame){.subproblem = subproblem, .placed = -1};
    low_list(s, f);
}

static void subproblem_add(struct ul_pack_search *s, struct frame *f, struct subproblem subproblem)
{
    ranks_make(s, &subproblem);
    rises_make(s, &subproblem);
    UL_GROW(s->arena, s->subproblems, s->subproblem_count, s->subproblem_capacity);
    s->subproblems[s->subproblem_count++] = subproblem;
    f->subproblem_count++;
}

/* Cuts what remains into the runs of sections that something still links. */
static void frame_split(struct ul_pack_search *s, struct frame *f)
{
    const struct ul_pack_sections *in = s->sections;
    f->subproblem_first = s->subproblem_count;
    struct subproblem subproblem = {.first = f->subproblem.first};
    int32_t reached = 0; /* sections before it belong to the part */
    for (uint32_t b = f->subproblem.first; b < f->subproblem.end; b++) {
        if (s->offset[b] >= 0)
            continue;
        if (subproblem.count > 0 && in->begin[b] >= reached) {
            subproblem.end = b;
            subproblem_add(s, f, subproblem);
            subproblem = (struct subproblem){.first = b};
        }
        subproblem.count++;
        reached = in->end[b] > reached ? in->end[b] : reached;
    }
    subproblem.end = f->subproblem.end;
    subproblem_add(s, f, subproblem);
}

/* Whether nothing unplaced continues from some section of the buffer to the next. */
static bool is_cut(const struct ul_pack_search *s, int32_t id)
{
    const struct ul_pack_sections *in = s->sections;
    for (int32_t t = in->begin[id]; t + 1 < in->end[id]; t++) {
        if (s->links[t] == 0)
            return true;
    }
    return false;
}

/* False if what remains cannot fit. */
static bool candidate_place(struct ul_pack_search *s, struct frame *f, uint32_t index)
{
    int32_t id = low_id(s->low[f->low_first + index]);
    int32_t offset = s->floor[id];
    f->placed = id;
    f->trail_mark = s->trail_count;
    f->placed_mark = s->placed_count;
    f->low_mark = s->low_count;
    f->subproblem_first = s->subproblem_count;
    f->subproblem_count = f->next_subproblem = 0;
    s->offset[id] = offset;
    s->placed[s->placed_count++] = id;
    value_set(s, &s->floor[id], PLACED);
    value_set(s, &s->reach[id], PLACED);
    rest_change(s, id, -1);
    s->first = s->sections->begin[id];
    s->last = s->sections->end[id];
    s->work += (uint64_t)(s->last - s->first) / 2 + index / 2 + 8;
    return passed_raise(s, f, index, offset) && floors_push(s, id, offset) && sections_hold(s);
}

static void candidate_undo(struct ul_pack_search *s, struct frame *f)
{
    trail_undo(s, f->trail_mark);
    placements_undo(s, f->placed_mark);
    s->low_count = f->low_mark;
    s->subproblem_count = f->subproblem_first;
    f->placed = -1;
}

/* The top frame is solved: continues with the next part of the nearest frame that has one. Buffers
 * placed in the solved part stay. */
static void solved_pop(struct ul_pack_search *s)
{
    while (--s->depth > 0) {
        struct frame *parent = &s->frames[s->depth - 1];
        if (parent->next_subproblem < parent->subproblem_count) {
            s->low_count = parent->low_mark;
            s->subproblem_count = parent->subproblem_first + parent->subproblem_count;
            frame_push(s, s->subproblems[parent->subproblem_first + parent->next_subproblem++]);
            return;
        }
    }
    s->outcome = UL_PACK_FOUND;
}

/* The index of the next candidate, or low_count. */
static uint32_t candidate_next(struct ul_pack_search *s, struct frame *f)
{
    int64_t *low = s->low + f->low_first;
    for (; f->next_low < f->low_count; f->next_low++) {
        low_select(low, f->next_low, f->low_count);
        s->work += (f->low_count - f->next_low) / 4;
        if (is_candidate(s, low_id(low[f->next_low])))
            return f->next_low++;
    }
    return f->low_count;
}

static void search_step(struct ul_pack_search *s)
{
    UL_ASSERT(s->depth > 0);
    enum { DIVE_TRIES = 32 };
    struct frame *f = &s->frames[s->depth - 1];
    if (f->placed >= 0)
        candidate_undo(s, f);
    uint32_t index = candidate_next(s, f);
    if (index == f->low_count || (s->dive && f->tries++ == DIVE_TRIES)) {
        if (--s->depth == 0 || s->dive)
            s->outcome = UL_PACK_REFUTED;
        return;
    }
    if (!candidate_place(s, f, index))
        return;
    struct subproblem subproblem = f->subproblem;
    subproblem.count--;
    if (subproblem.count == 0) {
        solved_pop(s);
    } else if (!s->dive && is_cut(s, f->placed)) {
        frame_split(s, f);
        frame_push(s, s->subproblems[f->subproblem_first + f->next_subproblem++]);
    } else {
        frame_push(s, subproblem);
    }
}

static void root_push(struct ul_pack_search *s)
{
    frame_push(s, (struct subproblem){.end = s->sections->count, .count = s->sections->count});
}

/* Some ways of learning lead nowhere: after a number of restarts, which grows, all blame is
 * forgotten except for a little randomness, so that the next way differs. */
static void epoch_start(struct ul_pack_search *s)
{
    static const uint32_t first_epoch = 150;
    uint64_t state = s->epoch_end + 1;
    for (uint32_t t = 0; t < s->sections->section_count; t++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        s->blame[t] = (double)(state >> 40) / (double)(1 << 24) / 1024;
    }
    s->blame_step = 1;
    s->epoch_end += s->epoch_end / 4 + first_epoch;
}

/* Starts again from the root, ranked by the blame learned so far. */
static void search_restart(struct ul_pack_search *s)
{
    placements_undo(s, 0);
    trail_undo(s, 0);
    s->restarts++;
    s->work_since = 0;
    s->failures = 0;
    s->restart_work += s->restart_work / 512;
    if (s->restarts == s->epoch_end)
        epoch_start(s);
    s->depth = 0;
    s->low_count = s->subproblem_count = 0;
    ranks_make(s, &(struct subproblem){.end = s->sections->count});
    s->trail_count = 0; /* these ranks stay */
    root_push(s);
}

/* Some restart after a number of failures, others after an amount of work. */
static bool is_time_to_restart(const struct ul_pack_search *s)
{
    enum { FAILURES = 100 };
    if (s->key < UL_PACK_KEYS)
        return false;
    return s->key < UL_PACK_KEYS + 2 ? s->failures > FAILURES : s->work_since > s->restart_work;
}

enum ul_pack_outcome ul_pack_search_run(struct ul_pack_search *search, uint64_t work,
                                        uint64_t *used)
{
    uint64_t done = 0;
    while (search->outcome == UL_PACK_OPEN && done < work) {
        search->work = 0;
        search_step(search);
        done += search->work;
        search->work_since += search->work;
        if (search->outcome == UL_PACK_OPEN && is_time_to_restart(search))
            search_restart(search);
    }
    *used += done;
    return search->outcome;
}

const int32_t *ul_pack_search_offsets(const struct ul_pack_search *search)
{
    UL_ASSERT(search->outcome == UL_PACK_FOUND);
    return search->offset;
}

static void buffers_start(struct ul_pack_search *s)
{
    const struct ul_pack_sections *in = s->sections;
    for (uint32_t b = 0; b < in->count; b++) {
        s->offset[b] = -1;
        s->latest[b] = s->capacity - in->size[b];
        if (in->pin[b] >= 0) {
            /* Its floor is where it is pinned, and it may not rise. */
            if (in->pin[b] > s->latest[b])
                s->outcome = UL_PACK_REFUTED;
            s->floor[b] = s->reach[b] = s->latest[b] = in->pin[b];
        }
        if (s->latest[b] < 0)
            s->outcome = UL_PACK_REFUTED;
        rest_change(s, (int32_t)b, 1);
    }
    struct subproblem all = {.end = in->count, .count = in->count};
    ranks_make(s, &all);
    rises_make(s, &all);
    s->trail_count = 0;
}

struct ul_pack_search *ul_pack_search_new(struct ul_arena *arena,
                                          const struct ul_pack_sections *sections, int32_t capacity,
                                          uint32_t key, bool dive)
{
    UL_ASSERT(capacity > 0 && sections->count > 0);
    uint64_t n = sections->count;
    uint64_t m = sections->section_count;
    UL_ASSERT(n <= UINT16_MAX);
    struct ul_pack_search *s = UL_NEW(arena, struct ul_pack_search);
    s->arena = arena;
    s->sections = sections;
    s->capacity = capacity;
    s->key = key;
    s->dive = dive;
    s->values = UL_NEW_ARRAY(arena, int32_t, 4 * n);
    s->floor = s->values;
    s->reach = s->values + n;
    s->rank = s->values + 2 * n;
    s->rise = s->values + 3 * n;
    s->latest = UL_NEW_ARRAY(arena, int32_t, n);
    s->rest = UL_NEW_ARRAY(arena, int32_t, m);
    s->links = UL_NEW_ARRAY(arena, int32_t, m);
    s->witness = UL_NEW_ARRAY(arena, int32_t, 2 * m);
    s->scratch_a = UL_NEW_ARRAY(arena, int32_t, m + n);
    s->scratch_b = UL_NEW_ARRAY(arena, int32_t, m + n);
    s->offset = UL_NEW_ARRAY(arena, int32_t, n);
    s->placed = UL_NEW_ARRAY(arena, int32_t, n);
    s->keys = UL_NEW_ARRAY(arena, struct rank_key, n);
    s->keys_spare = UL_NEW_ARRAY(arena, struct rank_key, n);
    s->frames = UL_NEW_ARRAY(arena, struct frame, n + 1);
    s->blame = UL_NEW_ARRAY(arena, double, m);
    epoch_start(s);
    s->restart_work = first_restart_work;
    buffers_start(s);
    if (sections->bound > capacity)
        s->outcome = UL_PACK_REFUTED;
    if (s->outcome == UL_PACK_OPEN)
        root_push(s);
    return s;
}
