/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that run one after another in one buffer.
 *
 * Problem: what a plan keeps between its runs must have bytes of its own in all of them; everything
 * else may lie on everything else of other plans. Method: what is live at every position of every
 * plan goes to the bottom, one plan's behind the other's, and above it each plan has all the rest
 * to itself while it runs:
 *
 *     bytes
 *       |  runs of A   | runs of B |
 *       |              |  (room)   |     what other runs take beyond B's own
 *       |--------------+-----------|
 *       |       kept by B          |
 *       |       kept by A          |
 *       +--------------------------+--> time
 *
 * No packing of these plans' ranges together is smaller. A range that is live at all times cuts a
 * packing in two: what is above may move down by its size, what is below stays, and it goes to the
 * bottom; so all of them may lie there. What is left of two plans is never live together. So the
 * least is the sum of what is kept and the largest of what is left, and of a plan whose own packing
 * is the least nothing that is left gets smaller.
 *
 * In a plan, the others are values that always live (UL_PLAN_OTHERS): one for each of them, and one
 * for what their runs take beyond its own, so that its bytes add up. Left undone: weights that two
 * models have in common are kept twice. */
#include "planner/model/timeline.h"
#include "planner/solve/solve.h"

#include <stdlib.h>

/* A range that is live at all times, as it lay before. */
struct kept {
    uint64_t offset_bytes, size_bytes; /* up to a multiple of the alignment */
    uint64_t below_bytes;              /* of all those below it */
    uint64_t own_below_bytes;          /* and of those that are none of the others' */
    bool is_own;
};

struct layout {
    struct kept *kept; /* by offset */
    uint32_t kept_count;
    uint64_t own_bytes;
    uint64_t base_bytes; /* where its own begin */
    uint64_t top_bytes;  /* the end of all its ranges but the room */
};

static uint64_t padded(const struct ul_plan *plan, uint64_t size_bytes)
{
    return ul_size_align_or_die(size_bytes, plan->alignment_bytes);
}

static bool is_kept(const struct ul_plan_tenant *tenant, const struct ul_plan_range *range)
{
    return range->space == 0 && range->value != UL_PLAN_NONE &&
           tenant->problem->values[range->value].persistent;
}

/* A range may move by any multiple of the plan's alignment. */
static bool is_movable(const struct ul_plan_tenant *tenant, const struct ul_plan_range *range)
{
    const struct ul_plan_value *values = tenant->problem->values;
    return range->space != 0 || range->value == UL_PLAN_NONE ||
           (!values[range->value].pinned &&
            values[range->value].alignment_bytes <= tenant->plan->alignment_bytes);
}

static bool is_other(const struct ul_plan_range *range)
{
    return range->class == UL_PLAN_OTHERS;
}

static int kept_compare(const void *a, const void *b)
{
    const struct kept *x = a;
    const struct kept *y = b;
    if (x->offset_bytes != y->offset_bytes)
        return x->offset_bytes < y->offset_bytes ? -1 : 1;
    return x->size_bytes < y->size_bytes ? -1 : x->size_bytes > y->size_bytes;
}

static void layout_read(struct ul_arena *arena, const struct ul_plan_tenant *tenant,
                        struct layout *layout)
{
    const struct ul_plan *plan = tenant->plan;
    *layout = (struct layout){.kept = UL_NEW_ARRAY(arena, struct kept, plan->range_count)};
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        UL_ASSERT(is_movable(tenant, range));
        if (is_kept(tenant, range))
            layout->kept[layout->kept_count++] =
                (struct kept){.offset_bytes = range->offset_bytes,
                              .size_bytes = padded(plan, range->size_bytes),
                              .is_own = !is_other(range)};
    }
    if (layout->kept_count > 0)
        qsort(layout->kept, layout->kept_count, sizeof *layout->kept, kept_compare);
    uint64_t below_bytes = 0;
    for (uint32_t i = 0; i < layout->kept_count; i++) {
        struct kept *kept = &layout->kept[i];
        kept->below_bytes = below_bytes;
        kept->own_below_bytes = layout->own_bytes;
        below_bytes += kept->size_bytes;
        layout->own_bytes += kept->is_own ? kept->size_bytes : 0;
    }
}

/* How many of them begin below. */
static uint32_t count_below(const struct layout *layout, uint64_t offset_bytes)
{
    uint32_t low = 0, high = layout->kept_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (layout->kept[middle].offset_bytes < offset_bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Of what is not kept, how far it is above the bottom without all that is. */
static uint64_t height_of(const struct layout *layout, const struct ul_plan_range *range)
{
    uint32_t below = count_below(layout, range->offset_bytes);
    if (range->size_bytes == 0) /* may lie anywhere, inside of others too */
        return 0;
    if (below == 0)
        return range->offset_bytes;
    const struct kept *last = &layout->kept[below - 1];
    UL_ASSERT(last->offset_bytes + last->size_bytes <= range->offset_bytes);
    return range->offset_bytes - last->below_bytes - last->size_bytes;
}

static uint64_t own_offset(const struct layout *layout, const struct ul_plan_range *range)
{
    uint32_t at = count_below(layout, range->offset_bytes);
    if (range->size_bytes == 0)
        return layout->base_bytes;
    while (layout->kept[at].size_bytes == 0)
        at++;
    UL_ASSERT(layout->kept[at].offset_bytes == range->offset_bytes && layout->kept[at].is_own);
    return layout->base_bytes + layout->kept[at].own_below_bytes;
}

static uint32_t tenant_of(const struct ul_plan_tenant *tenant, uint32_t count, uint32_t value)
{
    uint32_t t = 0;
    while (t < count && tenant->others[t] != value)
        t++;
    UL_ASSERT(t < count);
    return t;
}

static void move_ranges(struct ul_plan_tenant *tenants, uint32_t count, uint32_t self,
                        struct layout *layouts, uint64_t kept_bytes)
{
    struct ul_plan *plan = tenants[self].plan;
    struct layout *layout = &layouts[self];
    layout->top_bytes = kept_bytes;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        struct ul_plan_range *range = &plan->ranges[r];
        if (range->space != 0)
            continue;
        if (is_other(range)) {
            range->offset_bytes =
                layouts[tenant_of(&tenants[self], count, range->value)].base_bytes;
        } else if (is_kept(&tenants[self], range)) {
            range->offset_bytes = own_offset(layout, range);
        } else {
            range->offset_bytes = kept_bytes + height_of(layout, range);
            uint64_t end = range->offset_bytes + padded(plan, range->size_bytes);
            layout->top_bytes = end > layout->top_bytes ? end : layout->top_bytes;
        }
    }
}

/* Returns by how much the value grows; modulo 2^64. */
static uint64_t set_size(const struct ul_plan_tenant *tenant, uint32_t value, uint64_t size_bytes)
{
    struct ul_plan *plan = tenant->plan;
    struct ul_plan_range *range = &plan->ranges[plan->value_ranges[value]];
    UL_ASSERT(range->value == value &&
              plan->value_ranges[value] + 1 == plan->value_ranges[value + 1]);
    uint64_t before = padded(plan, range->size_bytes);
    tenant->problem->values[value].size_bytes = size_bytes;
    range->size_bytes = size_bytes;
    return padded(plan, size_bytes) - before;
}

static void sum_up(struct ul_arena *arena, const struct ul_plan_tenant *tenant,
                   uint64_t reserved_bytes, uint64_t growth_bytes)
{
    struct ul_plan *plan = tenant->plan;
    plan->reserved_bytes[0] = reserved_bytes;
    ul_account_live(arena, plan);
    uint64_t counted = plan->rows.alignment_bytes;
    for (uint32_t c = 0; c < UL_PLAN_CLASS_COUNT; c++)
        counted += plan->rows.class_bytes[c];
    UL_ASSERT(counted <= reserved_bytes);
    plan->rows.holes_bytes = reserved_bytes - counted;
    plan->lower_bound_bytes = ul_account_bound(arena, tenant->problem, plan->alignment_bytes);
    plan->orders_lower_bound_bytes += growth_bytes;
    plan->smallest_budget_bytes += growth_bytes;
    if (plan->cost_bound == 0)
        plan->optimal = reserved_bytes == plan->lower_bound_bytes;
}

uint64_t ul_plan_kept_bytes(const struct ul_problem *problem, const struct ul_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->space == 0 && range->value != UL_PLAN_NONE && !is_other(range) &&
            problem->values[range->value].persistent)
            bytes += padded(plan, range->size_bytes);
    }
    return bytes;
}

uint64_t ul_plan_share(struct ul_arena *arena, struct ul_plan_tenant *tenants, uint32_t count)
{
    struct layout *layouts = UL_NEW_ARRAY(arena, struct layout, count);
    uint64_t *growth = UL_NEW_ARRAY(arena, uint64_t, count);
    uint64_t kept_bytes = 0, shared_bytes = 0;
    UL_ASSERT(count > 0);
    for (uint32_t t = 0; t < count; t++) {
        UL_ASSERT(tenants[t].plan->alignment_bytes == tenants[0].plan->alignment_bytes);
        layout_read(arena, &tenants[t], &layouts[t]);
        layouts[t].base_bytes = kept_bytes;
        kept_bytes += layouts[t].own_bytes;
    }
    for (uint32_t t = 0; t < count; t++) {
        move_ranges(tenants, count, t, layouts, kept_bytes);
        uint64_t top = layouts[t].top_bytes;
        shared_bytes = top > shared_bytes ? top : shared_bytes;
    }
    for (uint32_t t = 0; t < count; t++) {
        const struct ul_plan_tenant *tenant = &tenants[t];
        struct ul_plan *plan = tenant->plan;
        for (uint32_t o = 0; o < count; o++)
            growth[t] +=
                set_size(tenant, tenant->others[o],
                         o == t ? shared_bytes - layouts[t].top_bytes : layouts[o].own_bytes);
        plan->ranges[plan->value_ranges[tenant->others[t]]].offset_bytes = layouts[t].top_bytes;
        sum_up(arena, tenant, shared_bytes, growth[t]);
    }
    return shared_bytes;
}
