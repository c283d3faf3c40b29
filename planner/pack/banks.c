/* SPDX-License-Identifier: Apache-2.0 */
/* Lays a plan out in the banks of space 0: chooses a memory for each chain of ranges.
 *
 * Problem: chains of ranges are rectangles of time by bytes. Each goes to one bank, which has its
 * own cost for moving bytes; in each bank the live sums and a packing stay within the capacity.
 *
 *     time        0   1   2   3
 *     fast        [a--)[c---)         b and c live together: only one has room
 *     slow            [b---)[d)
 *
 * Method: bank_choice.c assigns chains to banks by live sums, with a bound; the packer then finds
 * offsets bank by bank. Where a bank cannot be packed within its capacity, the choice is repeated
 * with a smaller one. With few chains all choices are tried, and each is packed where its live sums
 * fit. Left undone: order and recomputation ignore banks; chains are never cut, so a value that
 * takes over the bytes of another is in the same bank. */
#include "planner/model/timeline.h"
#include "planner/pack/bank_choice.h"
#include "planner/pack/placement.h"

#include <string.h>

struct layout {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    const struct ul_plan_options *options;
    struct ul_plan *plan;
    struct ul_placement all; /* every chain of space 0, in order of its first range */
    struct ul_bank_choice choice;
    uint64_t unit_bytes; /* where banks begin are multiples of it */
    struct ul_diag *diag;
};

/* One way to lay chains out, packed. */
struct packed {
    bool exists;
    uint32_t *banks;        /* by chain */
    uint64_t *offset_bytes; /* by chain, in its bank */
    uint64_t *size_bytes;   /* by bank */
    uint64_t cost;
    bool is_refused; /* a bank was not packed though its live sums fit */
    uint32_t overfull;
};

/* ---- Chains ---- */

static void items_make(struct layout *l)
{
    const struct ul_plan *plan = l->plan;
    const uint64_t *moved = ul_account_moved(l->arena, l->problem, plan);
    uint32_t count = l->all.buffer_count;
    l->choice.item_count = count;
    l->choice.items = UL_NEW_ARRAY(l->arena, struct ul_bank_item, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_pack_buffer *buffer = &l->all.buffers[i];
        struct ul_bank_item *item = &l->choice.items[i];
        *item = (struct ul_bank_item){.begin = buffer->begin,
                                      .end = buffer->end,
                                      .size_bytes = buffer->size_bytes,
                                      .is_weights = true};
        if (buffer->alignment_bytes > l->unit_bytes)
            l->unit_bytes = buffer->alignment_bytes;
        for (uint32_t r = l->all.heads[i]; r != UL_PLAN_NONE; r = l->all.next[r]) {
            uint32_t value = plan->ranges[r].value;
            item->moved_bytes = ul_size_add_saturating(item->moved_bytes, moved[r]);
            item->is_weights = item->is_weights && plan->ranges[r].class == UL_PLAN_WEIGHTS;
            item->is_first = item->is_first ||
                             (value != UL_PLAN_NONE && (l->problem->values[value].in_first_bank ||
                                                        l->problem->values[value].pinned));
        }
        if (l->options->pack == UL_PACK_NONE) {
            item->begin = 0;
            item->end = 1;
        }
    }
}

/* ---- Packing ---- */

/* Packs the chains of a bank; sets the bytes taken. */
static enum ul_status bank_pack(struct layout *l, uint32_t bank, uint64_t work_limit,
                                struct packed *packed)
{
    struct ul_placement one = l->all;
    one.holds_all = true;
    uint64_t capacity_bytes = l->problem->banks[bank].capacity_bytes;
    one.buffers = UL_NEW_ARRAY(l->arena, struct ul_pack_buffer, l->all.buffer_count);
    one.heads = UL_NEW_ARRAY(l->arena, uint32_t, l->all.buffer_count);
    one.buffer_count = 0;
    for (uint32_t i = 0; i < l->all.buffer_count; i++) {
        if (packed->banks[i] != bank)
            continue;
        one.buffers[one.buffer_count] = l->all.buffers[i];
        one.heads[one.buffer_count++] = i; /* of the chain */
    }
    struct ul_pack_options pack = {.work_limit = work_limit,
                                   .capacity_bytes = capacity_bytes,
                                   .time_limit_seconds = l->options->time_limit_seconds};
    struct ul_pack_result result;
    UL_TRY(ul_placement_pack(&one, l->options->pack, &pack, &result, l->diag));
    packed->size_bytes[bank] = 0;
    for (uint32_t i = 0; i < one.buffer_count; i++) {
        uint64_t end = one.buffers[i].offset_bytes + one.buffers[i].size_bytes;
        packed->offset_bytes[one.heads[i]] = one.buffers[i].offset_bytes;
        packed->size_bytes[bank] = end > packed->size_bytes[bank] ? end : packed->size_bytes[bank];
    }
    return UL_OK;
}

/* Packs a choice; `exists` where every bank has room. */
static enum ul_status choice_pack(struct layout *l, const uint32_t *banks, uint64_t work_limit,
                                  struct packed *packed)
{
    uint32_t count = l->all.buffer_count, bank_count = l->problem->bank_count;
    packed->banks = ul_arena_copy(l->arena, banks, count * sizeof *banks);
    packed->offset_bytes = UL_NEW_ARRAY(l->arena, uint64_t, count);
    packed->size_bytes = UL_NEW_ARRAY(l->arena, uint64_t, bank_count);
    packed->cost = ul_bank_choice_cost(&l->choice, banks);
    packed->exists = true;
    for (uint32_t b = 0; b < bank_count && packed->exists; b++) {
        UL_TRY(bank_pack(l, b, work_limit, packed));
        packed->exists = packed->size_bytes[b] <= l->problem->banks[b].capacity_bytes;
        packed->overfull = b;
    }
    packed->is_refused = !packed->exists;
    return UL_OK;
}

/* ---- The search ---- */

/* Choices by live sums, until one is packed: a bank that is not gets ever less. */
static enum ul_status packed_find(struct layout *l, struct packed *best)
{
    enum { TRIES = 12, PART = 64 };
    const struct ul_plan_bank *banks = l->problem->banks;
    for (uint32_t try = 0; try < TRIES && !best->exists; try++) {
        if (!ul_bank_choice_find(&l->choice))
            return UL_OK;
        UL_TRY(choice_pack(l, l->choice.banks, l->options->work_limit, best));
        if (best->exists)
            return UL_OK;
        uint64_t *capacity = &l->choice.capacity_bytes[best->overfull];
        uint64_t over = best->size_bytes[best->overfull] - banks[best->overfull].capacity_bytes;
        uint64_t less = banks[best->overfull].capacity_bytes / PART;
        less = over > less ? over : less;
        *capacity -= less < *capacity ? less : *capacity;
    }
    return UL_OK;
}

struct leaf {
    struct layout *layout;
    struct packed *best;
    bool is_sure; /* no choice was refused that a better packer might take */
    uint32_t refused_count;
    enum ul_status status;
};

/* A choice whose live sums fit, of less cost than the best. */
static bool leaf_take(void *context, const uint32_t *banks)
{
    enum { LEAF_WORK = 1 << 16, MAX_REFUSED = 24 };
    struct leaf *leaf = context;
    struct packed packed = {.exists = false};
    if (leaf->status == UL_OK && leaf->refused_count++ < MAX_REFUSED)
        leaf->status = choice_pack(leaf->layout, banks, LEAF_WORK, &packed);
    if (!packed.exists)
        leaf->is_sure = false;
    if (packed.exists) {
        *leaf->best = packed;
        leaf->refused_count = 0;
    }
    return packed.exists;
}

/* All choices of a few chains, as far as bounds leave them. */
static enum ul_status packed_improve(struct layout *l, struct packed *best)
{
    enum { NODES = 1 << 18 };
    struct leaf leaf = {.layout = l, .best = best, .is_sure = true};
    for (uint32_t b = 0; b < l->problem->bank_count; b++)
        l->choice.capacity_bytes[b] = l->problem->banks[b].capacity_bytes;
    bool is_complete = ul_bank_choice_enumerate(&l->choice, best->exists ? best->cost : UINT64_MAX,
                                                NODES, leaf_take, &leaf);
    if (leaf.status == UL_OK && is_complete && leaf.is_sure && best->exists)
        l->choice.bound = best->cost;
    return leaf.status;
}

static enum ul_status layout_find(struct layout *l, struct packed *best)
{
    ul_placement_begin(&l->all, l->arena, l->problem, l->plan);
    ul_placement_take(&l->all, 0);
    l->unit_bytes = l->plan->alignment_bytes;
    l->choice.arena = l->arena;
    l->choice.plan_banks = l->problem->banks;
    l->choice.bank_count = l->problem->bank_count;
    l->choice.length = l->plan->position_count > 0 ? l->plan->position_count : 1;
    items_make(l);
    ul_bank_choice_begin(&l->choice);
    UL_TRY(packed_find(l, best));
    if (l->choice.is_hasty || (best->exists && best->cost == l->choice.bound))
        return UL_OK;
    return packed_improve(l, best);
}

/* ---- What of the plan follows ---- */

static void layout_store(const struct layout *l, const struct packed *packed)
{
    struct ul_plan *plan = l->plan;
    uint64_t begin_bytes = 0, counted = plan->rows.alignment_bytes;
    plan->bank_count = l->problem->bank_count;
    plan->banks = UL_NEW_ARRAY(l->arena, struct ul_plan_bank_place, plan->bank_count);
    plan->reserved_bytes[0] = 0;
    for (uint32_t b = 0; b < plan->bank_count; b++) {
        plan->banks[b].begin_bytes = begin_bytes;
        plan->banks[b].size_bytes = packed->size_bytes[b];
        if (packed->size_bytes[b] > 0)
            plan->reserved_bytes[0] = begin_bytes + packed->size_bytes[b];
        begin_bytes = ul_size_align_or_die(begin_bytes + packed->size_bytes[b], l->unit_bytes);
    }
    for (uint32_t i = 0; i < l->all.buffer_count; i++)
        for (uint32_t r = l->all.heads[i]; r != UL_PLAN_NONE; r = l->all.next[r])
            plan->ranges[r].offset_bytes =
                plan->banks[packed->banks[i]].begin_bytes + packed->offset_bytes[i];
    for (uint32_t c = 0; c < UL_PLAN_CLASS_COUNT; c++)
        counted += plan->rows.class_bytes[c];
    UL_ASSERT(plan->reserved_bytes[0] >= counted);
    plan->rows.holes_bytes = plan->reserved_bytes[0] - counted;
    plan->bank_cost = packed->cost;
    plan->bank_cost_bound = l->choice.bound;
    ul_account_cost(l->arena, l->problem, plan);
    plan->cost = ul_size_add_saturating(plan->cost, packed->cost);
    plan->optimal = plan->reserved_bytes[0] == plan->lower_bound_bytes;
    plan->packing_proven = plan->reserved_bytes[0] == plan->order_lower_bound_bytes;
}

enum ul_status ul_place_banks(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options, struct ul_plan *plan,
                              struct ul_diag *diag)
{
    struct layout l = {
        .arena = arena, .problem = problem, .options = options, .plan = plan, .diag = diag};
    struct packed best = {.exists = false};
    UL_ASSERT(problem->bank_count > 0 && plan->bank_count == 0);
    UL_TRY(layout_find(&l, &best));
    if (best.exists)
        layout_store(&l, &best);
    else
        plan->fits = false;
    return UL_OK;
}

/* With this capacity of one bank: the bytes taken of it, 0 where it does not suffice. */
static enum ul_status taken_with(const struct layout *from, uint32_t bank, uint64_t capacity_bytes,
                                 uint64_t *taken_bytes)
{
    struct layout l = *from;
    struct ul_problem problem = *from->problem;
    struct packed best = {.exists = false};
    struct ul_plan_bank *banks =
        ul_arena_copy(l.arena, problem.banks, problem.bank_count * sizeof *banks);
    banks[bank].capacity_bytes = capacity_bytes;
    problem.banks = banks;
    l.problem = &problem;
    l.choice.is_hasty = true;
    UL_TRY(layout_find(&l, &best));
    *taken_bytes = best.exists ? best.size_bytes[bank] : 0;
    return UL_OK;
}

/* The bytes taken without a limit, or somewhat more, suffice; halving finds less. */
static enum ul_status sufficient_find(const struct layout *l, uint32_t bank,
                                      uint64_t *capacity_bytes)
{
    enum { HALVINGS = 10, WIDER = 4 };
    uint64_t low = l->problem->banks[bank].capacity_bytes, taken, high;
    uint64_t unit = l->plan->alignment_bytes;
    UL_TRY(taken_with(l, bank, UINT64_MAX >> 8, &high));
    *capacity_bytes = 0;
    for (uint32_t i = 0; i < WIDER && high > 0 && *capacity_bytes == 0; i++) {
        UL_TRY(taken_with(l, bank, high, &taken));
        *capacity_bytes = taken > 0 ? high : 0;
        high = ul_size_align_or_die(high + high / WIDER, unit);
    }
    for (uint32_t i = 0; i < HALVINGS && low + unit < *capacity_bytes; i++) {
        uint64_t middle = ul_size_align_or_die(low + (*capacity_bytes - low) / 2, unit);
        UL_TRY(taken_with(l, bank, middle, &taken));
        if (taken > 0)
            *capacity_bytes = middle < *capacity_bytes ? middle : *capacity_bytes;
        else
            low = middle;
    }
    return UL_OK;
}

enum ul_status ul_banks_suffice(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, const struct ul_plan *plan,
                                uint64_t *capacity_bytes, struct ul_diag *diag)
{
    struct ul_plan copy = ul_plan_keep(arena, problem, plan);
    const struct layout l = {
        .arena = arena, .problem = problem, .options = options, .plan = &copy, .diag = diag};
    for (uint32_t b = 0; b < problem->bank_count; b++)
        UL_TRY(sufficient_find(&l, b, &capacity_bytes[b]));
    return UL_OK;
}
