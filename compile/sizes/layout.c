/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets that follow from sizes: the order of the plan's ranges, and a formula for the bytes of
 * each. */
#include "compile/compile_internal.h"
#include "compile/sizes/fit.h"
#include "compile/sizes/sizes.h"

#include <inttypes.h>

/* What the bytes of a range are of: the number of a value or, behind all values, of a slot of
 * steps. */
static uint32_t owner_of(const struct ul_size_instances *instances,
                         const struct ul_plan_range *range)
{
    const struct ul_compile *compile = instances->compile;
    if (range->value != UL_PLAN_NONE)
        return range->value;
    const struct ul_plan_position *at = &compile->plan.positions[range->begin];
    uint32_t slot = 0;
    while (instances->slots[slot].step != at->step ||
           instances->slots[slot].alternative != at->alternative)
        slot++;
    return compile->program->problem->value_count + slot;
}

/* Whether an instance has sizes of a root's piece. */
static bool is_at(const struct ul_size_instances *instances, uint32_t root, uint32_t instance)
{
    return ul_size_piece_has(instances->compile->pieces->items[root], instances->size_count,
                             instances->items[instance].point);
}

/* Finds the formula of a range's bytes or, where there is none, as where kernels of several forms
 * have scratch, makes a table of them. */
static void find_bytes(const struct ul_size_instances *instances, struct ul_fit *const *fits,
                       struct ul_program_layout *layout, uint32_t range)
{
    const struct ul_compile *compile = instances->compile;
    const struct ul_plan_range *of = &compile->plan.ranges[range];
    uint32_t owner = owner_of(instances, of), count = 0;
    uint32_t root = ul_size_root(compile->program, compile->plan.positions[of->begin].step);
    int64_t *values = UL_NEW_ARRAY(instances->arena, int64_t, instances->count);
    UL_ASSERT(root < compile->pieces->count);
    layout->roots[range] = root;
    for (uint32_t i = 0; i < instances->count; i++)
        if (is_at(instances, root, i))
            values[count++] = (int64_t)instances->items[i].bytes[owner];
    const struct ul_formula *formula = ul_fit_find(fits[root], values, false);
    if (formula != NULL) {
        layout->bytes[range] = formula;
        return;
    }
    uint64_t *table = UL_NEW_ARRAY(instances->arena, uint64_t, count);
    for (uint32_t i = 0; i < count; i++)
        table[i] = (uint64_t)values[i];
    layout->tables[range] = table;
}

/* The bytes of all ranges at a point of a root's piece, aligned: those of other roots have none. */
static void eval_bytes(const struct ul_size_instances *instances,
                       const struct ul_program_layout *layout, uint32_t root, uint32_t instance,
                       uint32_t point, uint64_t *bytes)
{
    const struct ul_plan *plan = &instances->compile->plan;
    for (uint32_t i = 0; i < plan->range_count; i++) {
        int64_t value = (int64_t)plan->ranges[i].size_bytes;
        if (layout->stacking.slots[i] != UL_PLAN_NONE && layout->roots[i] != root)
            value = 0;
        else if (layout->bytes[i] != NULL)
            UL_ASSERT(ul_formula_eval(layout->bytes[i], instances->items[instance].point, &value));
        else if (layout->tables[i] != NULL)
            value = (int64_t)layout->tables[i][point];
        UL_ASSERT(value >= 0 && (uint64_t)value <= plan->ranges[i].size_bytes);
        bytes[i] = ul_size_align_or_die((uint64_t)value, plan->alignment_bytes);
    }
}

/* Finds the bytes that the sizes which need least reserve, and counts the points of each root. */
static void weigh(const struct ul_size_instances *instances, struct ul_program_layout *layout)
{
    const struct ul_plan *plan = &instances->compile->plan;
    struct ul_arena *keep = instances->arena;
    uint32_t roots = instances->compile->pieces->count;
    uint32_t *counts = UL_NEW_ARRAY(keep, uint32_t, roots);
    uint64_t *bytes = UL_NEW_ARRAY(keep, uint64_t, plan->range_count);
    uint64_t *offsets = UL_NEW_ARRAY(keep, uint64_t, layout->stacking.slot_count);
    layout->least_bytes = UINT64_MAX;
    for (uint32_t r = 0; r < roots; r++)
        for (uint32_t i = 0; i < instances->count; i++) {
            if (!is_at(instances, r, i))
                continue;
            eval_bytes(instances, layout, r, i, counts[r]++, bytes);
            uint64_t reserved = ul_plan_unstack(&layout->stacking, plan, bytes, offsets);
            layout->least_bytes = reserved < layout->least_bytes ? reserved : layout->least_bytes;
            UL_ASSERT(reserved <= plan->reserved_bytes[0]);
        }
    layout->point_counts = counts;
}

enum ul_status ul_size_lay_out(struct ul_size_instances *instances, struct ul_fit *const *fits,
                               struct ul_program_layout **out)
{
    struct ul_compile *compile = instances->compile;
    const struct ul_plan *plan = &compile->plan;
    const struct ul_problem *problem = compile->program->problem;
    struct ul_arena *keep = instances->arena;
    struct ul_program_layout *layout = UL_NEW(keep, struct ul_program_layout);
    UL_TRY(ul_plan_stack(keep, problem, plan, &layout->stacking, &compile->diag));
    UL_TRY(ul_plan_check_stacking(keep, problem, plan, &layout->stacking, &compile->diag));
    for (uint32_t s = 0; s < layout->stacking.slot_count; s++)
        if (layout->stacking.alignments[s] > plan->alignment_bytes)
            return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                               "--offsets sizes: a value wants a multiple of %" PRIu64
                               " bytes, and the plan has multiples of %" PRIu64
                               ": leave it out, or give --align %" PRIu64,
                               layout->stacking.alignments[s], plan->alignment_bytes,
                               layout->stacking.alignments[s]);
    layout->roots = UL_NEW_ARRAY(keep, uint32_t, plan->range_count);
    layout->bytes = UL_NEW_ARRAY(keep, const struct ul_formula *, plan->range_count);
    layout->tables = UL_NEW_ARRAY(keep, const uint64_t *, plan->range_count);
    for (uint32_t i = 0; i < plan->range_count; i++)
        if (layout->stacking.slots[i] != UL_PLAN_NONE)
            find_bytes(instances, fits, layout, i);
    weigh(instances, layout);
    *out = layout;
    return UL_OK;
}
