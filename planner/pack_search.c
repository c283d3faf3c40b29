/* Exact packing within a capacity: depth-first search over canonical placements.
 *
 * Problem: is there a packing whose highest end is at most the capacity?
 *
 * Canonical form. Push every buffer of a packing down as far as it goes, jumps included, and sort
 * by (offset, rank): each buffer then lies exactly on its floor, the highest end among those
 * before it that it overlaps. So the search places buffers in that order, each on its floor.
 *
 * What follows from a buffer v going next, at offset o, for a buffer u that stays behind:
 *   - u's floor f is the least it can reach. If f < o (or f = o and u ranks before v), u cannot
 *     end on f, so something unplaced, itself at o or above, lies under it: u's offset is at
 *     least o plus the least size that overlaps u. That is its `lower` bound.
 *   - Some unplaced buffer at o or above must keep u from f, so o < f + size of u: candidates at
 *     or above the least such end are dominated.
 *   - The unplaced buffers of a section need their sizes' sum above the least offset that any
 *     of them can have. A section watches two that still have room for that; only when one is
 *     placed or pushed up does it look for others. The branch dies if there is none, and what
 *     cannot be the lowest goes above the least end of those that can.
 *   - Of equal buffers, the one with the smaller id goes first.
 *   - Where no unplaced buffer crosses from one section to the next, both sides are problems of
 *     their own: neither is searched again because the other failed. Ranks are made afresh from
 *     what remains there.
 *
 * Some rankings learn: sections that end branches are blamed, the blame decays, and after every
 * so much work the search starts again with the most blamed first (the weighted degrees of
 * Boussemart et al., ECAI 2004, on sections). They find, but seldom refute.
 *
 * An AND-OR search on an explicit stack, so that it can stop and resume. A frame owns the floors
 * and lower bounds of its buffers; what its children change is theirs.
 *
 * Source: the canonical order, dominance and sections follow M. Moffitt, "MiniMalloc: A
 * Lightweight Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023).
 * Left undone: pinned buffers. */
#include "planner/pack_search.h"

#include <string.h>

/* Columns of the buffers of a subproblem, in no particular order. */
struct elements {
    int32_t *id, *begin, *end, *size, *rank;
    int32_t *rise; /* the least size that overlaps it */
};
enum { ELEMENT_COLUMNS = 6 };
static const uint64_t first_restart_work = 50000;

struct frame {
    struct elements e;
    int32_t *floor, *lower;
    uint32_t count;
    int32_t *candidates; /* elements, best first */
    uint32_t candidate_count, next_candidate;
    int32_t least_end; /* of all, each on its floor: candidates lie below */
    int64_t tried_key; /* dive: floor and rank of the candidate tried last */
    uint32_t tries;
    bool placed;          /* the candidate before next_candidate is in place */
    int32_t at;           /* where it was among the elements */
    uint32_t placed_mark; /* placements before it */
    uint64_t pool_mark;   /* of the pool, before the placement */
    uint64_t split_mark;  /* of the pool, after the split */
    int32_t *child_floor, *child_lower;
    int32_t *parts; /* first elements of the children, part_count + 1 entries; split only */
    struct elements split;
    int32_t *split_floor, *split_lower;
    uint32_t part_count, next_part;
};

struct ul_pack_search {
    struct elements root;
    const struct ul_pack_sections *sections;
    int32_t capacity;
    uint32_t key;
    bool dive;
    enum ul_pack_outcome outcome;
    int32_t *rest;    /* per section: unplaced units */
    int32_t *links;   /* per section: unplaced buffers that go on into the next */
    int32_t *witness; /* per section: a buffer with room, perhaps placed since */
    int32_t *reach;   /* per buffer: least offset in the subproblem; out of reach once placed */
    int32_t *offset;  /* per buffer, or -1 */
    int32_t *trail;   /* placed buffers */
    uint32_t trail_count;
    struct frame *frames;
    int32_t *dive_floor[2], *dive_lower[2]; /* a dive's levels take turns */
    uint32_t depth;
    int32_t *pool;
    uint64_t pool_used, pool_capacity;
    int32_t *scratch_a, *scratch_b; /* per section, for ranks and rises */
    struct rank_key *keys, *keys_spare;
    double *blame; /* per section: branches that it has ended, late ones weighing more */
    double blame_step;
    uint32_t restarts;
    uint64_t restart_work, work_since; /* of a search that learns: until its next restart */
    uint32_t failures;                 /* since its last one */
    uint64_t root_mark;                /* of the pool, before the root frame */
};

struct rank_key {
    int64_t first, second, third;
    int32_t element;
    int32_t id;
};

static int32_t *pool_take(struct ul_pack_search *s, uint64_t count)
{
    int32_t *taken = s->pool + s->pool_used;
    s->pool_used += count;
    UL_ASSERT(s->pool_used <= s->pool_capacity);
    return taken;
}

static void elements_take(struct ul_pack_search *s, struct elements *e, uint32_t count)
{
    e->id = pool_take(s, count);
    e->begin = pool_take(s, count);
    e->end = pool_take(s, count);
    e->size = pool_take(s, count);
    e->rank = pool_take(s, count);
    e->rise = pool_take(s, count);
}

static struct elements elements_from(const struct elements *e, int32_t first)
{
    return (struct elements){e->id + first,   e->begin + first, e->end + first,
                             e->size + first, e->rank + first,  e->rise + first};
}

static void elements_swap(const struct elements *e, int32_t a, int32_t b)
{
    int32_t *const columns[ELEMENT_COLUMNS] = {e->id, e->begin, e->end, e->size, e->rank, e->rise};
    for (uint32_t i = 0; i < ELEMENT_COLUMNS; i++) {
        int32_t swap = columns[i][a];
        columns[i][a] = columns[i][b];
        columns[i][b] = swap;
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

static void keys_sort(struct rank_key *keys, struct rank_key *spare, uint32_t count)
{
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t at = 0; at < count; at += 2 * width) {
            uint32_t middle = at + width < count ? at + width : count;
            uint32_t end = middle + width < count ? middle + width : count;
            uint32_t i = at, j = middle;
            for (uint32_t k = at; k < end; k++)
                spare[k] = i < middle && (j == end || !key_before(&keys[j], &keys[i])) ? keys[i++]
                                                                                       : keys[j++];
        }
        memcpy(keys, spare, sizeof *keys * count);
    }
}

static int32_t largest_rest(const struct ul_pack_search *s, int32_t begin, int32_t end)
{
    int32_t most = 0;
    for (int32_t t = begin; t < end; t++)
        most = s->rest[t] > most ? s->rest[t] : most;
    return most;
}

/* Which of section total, lifetime and area count first, second and third. */
static const uint8_t key_parts[UL_PACK_KEYS][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                   {2, 0, 1}, {1, 2, 0}, {2, 1, 0}};

/* Whether a buffer takes the largest blame of its sections in this round, or their sum. Which one
 * finds the way, and how soon, varies so much that the learning rankings differ in this. */
static bool takes_largest(const struct ul_pack_search *s)
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
    double most = 0, sum = 0;
    for (int32_t t = begin; t < end; t++) {
        most = s->blame[t] > most ? s->blame[t] : most;
        sum += s->blame[t];
    }
    return (int64_t)((takes_largest(s) ? most : sum) / s->blame_step * 1048576.0);
}

static void ranks_make(struct ul_pack_search *s, const struct elements *e, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int64_t total = largest_rest(s, e->begin[i], e->end[i]);
        int64_t lifetime = e->end[i] - e->begin[i];
        int64_t size = e->size[i];
        struct rank_key *k = &s->keys[i];
        *k = (struct rank_key){.element = (int32_t)i, .id = e->id[i]};
        if (s->key >= UL_PACK_KEYS) {
            k->first = blame_of(s, e->begin[i], e->end[i]);
            k->second = total;
            k->third = lifetime * size;
            continue;
        }
        const int64_t parts[3] = {total, lifetime, lifetime * size};
        k->first = parts[key_parts[s->key][0]];
        k->second = parts[key_parts[s->key][1]];
        k->third = parts[key_parts[s->key][2]];
    }
    keys_sort(s->keys, s->keys_spare, count);
    for (uint32_t i = 0; i < count; i++)
        e->rank[s->keys[i].element] = (int32_t)i;
}

/* The two least sizes of each section give each buffer the least that is not its own. */
static void rises_make(struct ul_pack_search *s, const struct elements *e, uint32_t count)
{
    int32_t *least = s->scratch_a;
    int32_t *second = s->scratch_b;
    int32_t first = INT32_MAX, last = 0;
    for (uint32_t i = 0; i < count; i++) {
        first = e->begin[i] < first ? e->begin[i] : first;
        last = e->end[i] > last ? e->end[i] : last;
    }
    for (int32_t t = first; t < last; t++)
        least[t] = second[t] = INT32_MAX / 2;
    const struct ul_pack_sections *in = s->sections;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = in->step_first[e->id[i]]; j < in->step_first[e->id[i] + 1]; j++) {
            int32_t size = in->step_size[j];
            for (int32_t t = in->step_begin[j]; t < in->step_end[j]; t++) {
                second[t] = size < least[t] ? least[t] : size < second[t] ? size : second[t];
                least[t] = size < least[t] ? size : least[t];
            }
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        int32_t rise = INT32_MAX / 2;
        for (uint32_t j = in->step_first[e->id[i]]; j < in->step_first[e->id[i] + 1]; j++) {
            int32_t size = in->step_size[j];
            for (int32_t t = in->step_begin[j]; t < in->step_end[j]; t++) {
                int32_t other = size == least[t] ? second[t] : least[t];
                rise = other < rise ? other : rise;
            }
        }
        e->rise[i] = rise;
    }
}

/* ---- Placing ---- */

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
    while (s->trail_count > mark) {
        int32_t id = s->trail[--s->trail_count];
        s->offset[id] = -1;
        rest_change(s, id, 1);
    }
}

static int32_t align_up(int32_t offset, int32_t alignment)
{
    return (offset + alignment - 1) / alignment * alignment;
}

/* The children's floors and lower bounds after the last element, `count`, goes to its floor.
 * Returns the largest end that is then certain. */
static int32_t floors_push(const struct frame *f, uint32_t count)
{
    int32_t *restrict floor = f->child_floor;
    int32_t *restrict lower = f->child_lower;
    const int32_t *restrict old_floor = f->floor;
    const int32_t *restrict old_lower = f->lower;
    uint32_t at = count;
    const int32_t *restrict begin = f->e.begin;
    const int32_t *restrict end = f->e.end;
    const int32_t *restrict size = f->e.size;
    const int32_t *restrict rank = f->e.rank;
    const int32_t *restrict rise = f->e.rise;
    int32_t o = f->floor[at], top = o + f->e.size[at];
    int32_t v_begin = begin[at], v_end = end[at], v_rank = rank[at];
    int32_t highest = 0;
    for (uint32_t i = 0; i < count; i++) {
        int32_t fl = old_floor[i];
        int32_t lo = old_lower[i];
        bool passed = (fl < o) | ((fl == o) & (rank[i] < v_rank));
        int32_t raised = o + rise[i];
        lo = (passed & (raised > lo)) ? raised : lo;
        bool overlaps = (begin[i] < v_end) & (end[i] > v_begin);
        fl = (overlaps & (top > fl)) ? top : fl;
        floor[i] = fl;
        lower[i] = lo;
        int32_t reached = (fl > lo ? fl : lo) + size[i];
        highest = reached > highest ? reached : highest;
    }
    return highest;
}

/* The same for buffers that narrow over time, or with alignments. */
static int32_t floors_push_general(const struct ul_pack_search *s, const struct frame *f,
                                   uint32_t count)
{
    const struct ul_pack_sections *in = s->sections;
    uint32_t at = count;
    int32_t o = f->floor[at], id = f->e.id[at];
    int32_t highest = 0;
    for (uint32_t i = 0; i < count; i++) {
        int32_t fl = f->floor[i];
        int32_t lo = f->lower[i];
        bool passed = fl < o || (fl == o && f->e.rank[i] < f->e.rank[at]);
        if (passed && o + f->e.rise[i] > lo)
            lo = o + f->e.rise[i];
        for (uint32_t j = in->step_first[id]; j < in->step_first[id + 1]; j++) {
            if (f->e.begin[i] < in->step_end[j] && f->e.end[i] > in->step_begin[j] &&
                o + in->step_size[j] > fl)
                fl = o + in->step_size[j];
        }
        fl = align_up(fl, in->alignment[f->e.id[i]]);
        f->child_floor[i] = fl;
        f->child_lower[i] = lo;
        int32_t reached = (fl > lo ? fl : lo) + f->e.size[i];
        highest = reached > highest ? reached : highest;
    }
    return highest;
}

static bool has_room(const struct ul_pack_search *s, int32_t id, int32_t room)
{
    return s->reach[id] <= room;
}

/* Remembers that section `t` has ended a branch; the later, the heavier. */
static bool section_blame(struct ul_pack_search *s, int32_t t)
{
    static const double growth = 1.005, largest = 1e200;
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

/* Raises what cannot lie lowest in section `t`: those without room, and all but `only` where it
 * is the only one with room. False if one no longer fits. */
static bool section_raise(struct ul_pack_search *s, int32_t t, int32_t room, int32_t only,
                          int32_t above, bool *raised)
{
    const struct ul_pack_sections *in = s->sections;
    for (uint32_t i = in->member_first[t]; i < in->member_first[t + 1]; i++) {
        int32_t id = (int32_t)in->members[i];
        if (s->reach[id] >= above || id == only || (only < 0 && s->reach[id] <= room))
            continue;
        s->reach[id] = above;
        if (above + in->size[id] > s->capacity)
            return section_blame(s, t);
        *raised = true;
    }
    return true;
}

/* Two unplaced buffers of section `t` that can still lie low enough for all of it to fit are
 * watched. Once they are not both left, the branch is dead if nothing else has room, and if
 * something has, the least of their ends pushes the others up. */
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

static bool sections_hold(struct ul_pack_search *s, const struct frame *f, uint32_t count)
{
    if (s->sections->member_first == NULL)
        return true;
    int32_t first = INT32_MAX, last = 0;
    for (uint32_t i = 0; i < count; i++) {
        int32_t floor = f->child_floor[i];
        int32_t lower = f->child_lower[i];
        s->reach[f->e.id[i]] = floor > lower ? floor : lower;
        first = f->e.begin[i] < first ? f->e.begin[i] : first;
        last = f->e.end[i] > last ? f->e.end[i] : last;
    }
    bool any = false;
    bool raised = true;
    while (raised) {
        raised = false;
        for (int32_t t = first; t < last; t++) {
            if (!section_holds(s, t, &raised))
                return false;
        }
        any = any || raised;
    }
    for (uint32_t i = 0; any && i < count; i++) {
        int32_t reach = s->reach[f->e.id[i]];
        if (reach > f->child_floor[i])
            f->child_lower[i] = reach;
    }
    return true;
}

/* ---- Frames ---- */

static void candidates_sort(const struct frame *f, int32_t *list, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        int32_t moving = list[i];
        uint32_t j = i;
        for (; j > 0 && (f->floor[list[j - 1]] > f->floor[moving] ||
                         (f->floor[list[j - 1]] == f->floor[moving] &&
                          f->e.rank[list[j - 1]] > f->e.rank[moving]));
             j--)
            list[j] = list[j - 1];
        list[j] = moving;
    }
}

static bool is_candidate(const struct ul_pack_search *s, const struct frame *f, uint32_t i)
{
    if (f->floor[i] >= f->least_end || f->floor[i] < f->lower[i])
        return false;
    uint32_t twin = s->sections->twin[f->e.id[i]];
    return twin == UL_PLAN_NONE || s->offset[twin] >= 0;
}

static void candidates_make(struct ul_pack_search *s, struct frame *f)
{
    f->least_end = INT32_MAX;
    for (uint32_t i = 0; i < f->count; i++) {
        int32_t end = f->floor[i] + f->e.size[i];
        f->least_end = end < f->least_end ? end : f->least_end;
    }
    if (s->dive)
        return;
    f->candidates = pool_take(s, f->count);
    for (uint32_t i = 0; i < f->count; i++) {
        if (is_candidate(s, f, i))
            f->candidates[f->candidate_count++] = (int32_t)i;
    }
    candidates_sort(f, f->candidates, f->candidate_count);
}

/* A dive seldom looks at a second candidate: it finds the next one instead of sorting them all.
 * -1: there is none after the one tried last. */
static int32_t candidate_find(const struct ul_pack_search *s, const struct frame *f)
{
    int64_t best_key = INT64_MAX;
    int32_t best = -1;
    for (uint32_t i = 0; i < f->count; i++) {
        int64_t key = ((int64_t)f->floor[i] << 32) + f->e.rank[i] + 1;
        if (key > f->tried_key && key < best_key && is_candidate(s, f, i)) {
            best_key = key;
            best = (int32_t)i;
        }
    }
    return best;
}

static void frame_push(struct ul_pack_search *s, struct elements e, uint32_t count, int32_t *floor,
                       int32_t *lower)
{
    struct frame *f = &s->frames[s->depth++];
    memset(f, 0, sizeof *f);
    f->e = e;
    f->count = count;
    f->floor = floor;
    f->lower = lower;
    candidates_make(s, f);
}

/* Cuts the elements that remain into the runs of sections that something still links. */
static void frame_split(struct ul_pack_search *s, struct frame *f)
{
    uint32_t count = f->count - 1;
    int32_t *part_of = s->scratch_a; /* per section */
    int32_t first = INT32_MAX, last = 0;
    for (uint32_t i = 0; i < count; i++) {
        first = f->e.begin[i] < first ? f->e.begin[i] : first;
        last = f->e.end[i] > last ? f->e.end[i] : last;
    }
    int32_t part = 0;
    for (int32_t t = first; t < last; t++) {
        part_of[t] = part;
        part += s->links[t] == 0;
    }
    int32_t *sizes = pool_take(s, (uint64_t)part + 2);
    memset(sizes, 0, sizeof *sizes * ((size_t)part + 2));
    for (uint32_t i = 0; i < count; i++)
        sizes[part_of[f->e.begin[i]] + 1]++;
    for (int32_t i = 0; i <= part; i++)
        sizes[i + 1] += sizes[i];
    elements_take(s, &f->split, count);
    f->split_floor = pool_take(s, count);
    f->split_lower = pool_take(s, count);
    int32_t *next = s->scratch_b;
    for (int32_t i = 0; i <= part; i++)
        next[i] = sizes[i];
    for (uint32_t i = 0; i < count; i++) {
        int32_t to = next[part_of[f->e.begin[i]]]++;
        f->split.id[to] = f->e.id[i];
        f->split.begin[to] = f->e.begin[i];
        f->split.end[to] = f->e.end[i];
        f->split.size[to] = f->e.size[i];
        f->split_floor[to] = f->child_floor[i];
        f->split_lower[to] = f->child_lower[i];
    }
    /* Sections without anything left make empty parts, which are dropped here. */
    f->parts = sizes;
    for (int32_t i = 0; i <= part; i++) {
        if (sizes[i + 1] > sizes[f->part_count])
            sizes[++f->part_count] = sizes[i + 1];
    }
    for (uint32_t i = 0; i < f->part_count; i++) {
        struct elements e = elements_from(&f->split, sizes[i]);
        uint32_t part_size = (uint32_t)(sizes[i + 1] - sizes[i]);
        ranks_make(s, &e, part_size);
        rises_make(s, &e, part_size);
    }
}

static void part_push(struct ul_pack_search *s, struct frame *f)
{
    int32_t first = f->parts[f->next_part];
    int32_t end = f->parts[++f->next_part];
    frame_push(s, elements_from(&f->split, first), (uint32_t)(end - first), f->split_floor + first,
               f->split_lower + first);
}

static bool is_cut(const struct ul_pack_search *s, int32_t id)
{
    const struct ul_pack_sections *in = s->sections;
    for (int32_t t = in->begin[id]; t + 1 < in->end[id]; t++) {
        if (s->links[t] == 0)
            return true;
    }
    return false;
}

static void placed_swap(const struct frame *f)
{
    int32_t last = (int32_t)f->count - 1;
    elements_swap(&f->e, f->at, last);
    int32_t swap = f->floor[f->at];
    f->floor[f->at] = f->floor[last];
    f->floor[last] = swap;
    swap = f->lower[f->at];
    f->lower[f->at] = f->lower[last];
    f->lower[last] = swap;
}

/* Puts the next candidate behind the others, which the children share, and in place. False if
 * what remains cannot fit. */
static bool candidate_place(struct ul_pack_search *s, struct frame *f, int32_t at)
{
    uint32_t count = f->count - 1;
    f->at = at;
    f->placed = true;
    f->placed_mark = s->trail_count;
    f->pool_mark = s->pool_used;
    f->part_count = f->next_part = 0;
    placed_swap(f);
    int32_t id = f->e.id[count];
    s->trail[s->trail_count++] = id;
    s->offset[id] = f->floor[count];
    s->reach[id] = INT32_MAX; /* no room anywhere, until it is among the unplaced again */
    rest_change(s, id, -1);
    if (s->dive) {
        f->child_floor = s->dive_floor[s->depth % 2];
        f->child_lower = s->dive_lower[s->depth % 2];
    } else {
        f->child_floor = pool_take(s, count);
        f->child_lower = pool_take(s, count);
    }
    bool general = s->sections->aligned || s->sections->stepped;
    int32_t highest = general ? floors_push_general(s, f, count) : floors_push(f, count);
    return highest <= s->capacity && sections_hold(s, f, count);
}

static void candidate_undo(struct ul_pack_search *s, struct frame *f)
{
    placements_undo(s, f->placed_mark);
    placed_swap(f);
    s->pool_used = f->pool_mark;
    f->placed = false;
}

/* The top frame is solved: goes on with the next part of the nearest frame that has one. */
static void solved_pop(struct ul_pack_search *s)
{
    while (--s->depth > 0) {
        struct frame *parent = &s->frames[s->depth - 1];
        if (parent->next_part < parent->part_count) {
            s->pool_used = parent->split_mark;
            part_push(s, parent);
            return;
        }
    }
    s->outcome = UL_PACK_FOUND;
}

/* The next candidate of the frame, or -1. */
static int32_t candidate_next(struct ul_pack_search *s, struct frame *f)
{
    enum { DIVE_TRIES = 32 };
    if (!s->dive)
        return f->next_candidate < f->candidate_count ? f->candidates[f->next_candidate++] : -1;
    int32_t at = f->tries++ < DIVE_TRIES ? candidate_find(s, f) : -1;
    if (at >= 0)
        f->tried_key = ((int64_t)f->floor[at] << 32) + f->e.rank[at] + 1;
    return at;
}

/* A dive's frame below the top is final: its floors have been reused. */
static void search_step(struct ul_pack_search *s)
{
    struct frame *f = &s->frames[s->depth - 1];
    if (f->placed)
        candidate_undo(s, f);
    int32_t at = candidate_next(s, f);
    if (at < 0) {
        if (--s->depth == 0 || s->dive)
            s->outcome = UL_PACK_REFUTED;
        return;
    }
    if (!candidate_place(s, f, at))
        return;
    if (f->count == 1) {
        solved_pop(s);
    } else if (!s->dive && is_cut(s, f->e.id[f->count - 1])) {
        frame_split(s, f);
        f->split_mark = s->pool_used;
        part_push(s, f);
    } else {
        frame_push(s, f->e, f->count - 1, f->child_floor, f->child_lower);
    }
}

static void root_push(struct ul_pack_search *s)
{
    uint32_t n = s->sections->count;
    int32_t *floor = pool_take(s, n);
    int32_t *lower = pool_take(s, n);
    memset(floor, 0, n * sizeof *floor);
    memset(lower, 0, n * sizeof *lower);
    frame_push(s, s->root, n, floor, lower);
}

/* Starts again from the root, ranked by the blame learned so far. The swaps that open frames have
 * made among the root's elements do no harm: their order has no meaning. */
static void search_restart(struct ul_pack_search *s)
{
    placements_undo(s, 0);
    s->restarts++;
    s->work_since = 0;
    s->failures = 0;
    s->restart_work += s->restart_work / 512;
    s->depth = 0;
    s->pool_used = s->root_mark;
    ranks_make(s, &s->root, s->sections->count);
    root_push(s);
}

/* Some after so many failures, others after so much work. */
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
        uint64_t visits = search->frames[search->depth - 1].count + 8;
        done += visits;
        search->work_since += visits;
        search_step(search);
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

static void columns_fill(struct ul_pack_search *s, const struct elements *e)
{
    const struct ul_pack_sections *in = s->sections;
    for (uint32_t b = 0; b < in->count; b++) {
        e->id[b] = (int32_t)b;
        e->begin[b] = in->begin[b];
        e->end[b] = in->end[b];
        e->size[b] = in->size[b];
        s->offset[b] = -1;
        rest_change(s, (int32_t)b, 1);
    }
    ranks_make(s, e, in->count);
    rises_make(s, e, in->count);
}

struct ul_pack_search *ul_pack_search_new(struct ul_arena *arena,
                                          const struct ul_pack_sections *sections, int32_t capacity,
                                          uint32_t key, bool dive)
{
    enum { COLUMNS_PER_LEVEL = ELEMENT_COLUMNS + 6 };
    uint64_t n = sections->count;
    uint64_t m = sections->section_count;
    struct ul_pack_search *s = UL_NEW(arena, struct ul_pack_search);
    s->sections = sections;
    s->capacity = capacity;
    s->key = key;
    s->dive = dive;
    s->rest = UL_NEW_ARRAY(arena, int32_t, m);
    s->links = UL_NEW_ARRAY(arena, int32_t, m);
    s->witness = UL_NEW_ARRAY(arena, int32_t, 2 * m);
    s->scratch_a = UL_NEW_ARRAY(arena, int32_t, m + n + 2);
    s->scratch_b = UL_NEW_ARRAY(arena, int32_t, m + n + 2);
    s->reach = UL_NEW_ARRAY(arena, int32_t, n);
    s->offset = UL_NEW_ARRAY(arena, int32_t, n);
    s->trail = UL_NEW_ARRAY(arena, int32_t, n);
    s->keys = UL_NEW_ARRAY(arena, struct rank_key, n);
    s->keys_spare = UL_NEW_ARRAY(arena, struct rank_key, n);
    s->frames = UL_NEW_ARRAY(arena, struct frame, n + 1);
    /* A level's columns shrink by one element each time; a dive reuses two sets of floors. */
    s->pool_capacity = dive ? n * (ELEMENT_COLUMNS + 8) : (n + 2) * (n + 2) / 2 * COLUMNS_PER_LEVEL;
    s->pool_capacity += 16 * (n + 2) + m;
    s->pool = UL_NEW_ARRAY(arena, int32_t, s->pool_capacity);
    s->blame = UL_NEW_ARRAY(arena, double, m);
    s->blame_step = 1;
    s->restart_work = first_restart_work;
    elements_take(s, &s->root, (uint32_t)n);
    columns_fill(s, &s->root);
    for (uint32_t i = 0; i < 2 && dive; i++) {
        s->dive_floor[i] = pool_take(s, n);
        s->dive_lower[i] = pool_take(s, n);
    }
    s->root_mark = s->pool_used;
    root_push(s);
    for (uint64_t b = 0; b < n; b++) {
        if (sections->size[b] > capacity)
            s->outcome = UL_PACK_REFUTED;
    }
    if (sections->bound > capacity)
        s->outcome = UL_PACK_REFUTED;
    return s;
}
