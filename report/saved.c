/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a plan.json for reports: everything is checked against its range here, since pictures and
 * tables are made from it without further checks. */
#include "report/saved.h"
#include "report/json_in.h"

#include <string.h>

/* so that sums and differences do not overflow */
static const uint64_t MAX_BYTES = (uint64_t)1 << 60;

/* A range must take over the bytes of one that ends where it begins; and sums must not overflow. */
static enum ul_status check_ranges(const struct ul_saved *saved, struct ul_arena *arena,
                                   struct ul_diag *diag)
{
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        if (range->begin > range->end || range->end > saved->step_count)
            return ul_diag_set(diag, UL_INVALID,
                               "\"ranges\": entry %u, %s, names steps that are not there", i,
                               ul_quote(arena, range->name));
        const struct ul_saved_range *older =
            range->alias < saved->range_count ? &saved->ranges[range->alias] : NULL;
        bool fits = older != NULL && older != range && older->space == range->space &&
                    older->begin <= range->begin && older->end == range->begin + 1;
        if (range->alias != UL_PLAN_NONE && !fits)
            return ul_diag_set(
                diag, UL_INVALID,
                "\"ranges\": entry %u, %s, takes over a range that does not end there", i,
                ul_quote(arena, range->name));
        total_bytes += range->size_bytes + saved->alignment_bytes;
        if (total_bytes > MAX_BYTES)
            return ul_diag_set(diag, UL_INVALID, "\"ranges\": \"size_bytes\" of all are no size");
    }
    return UL_OK;
}

/* Whether the readers are positions of the range, ascending. */
static bool has_good_readers(const struct ul_saved_range *range)
{
    for (uint32_t i = 0; i < range->readers_count; i++)
        if (range->readers[i] < range->begin || range->readers[i] >= range->end ||
            (i > 0 && range->readers[i] <= range->readers[i - 1]))
            return false;
    return true;
}

/* Checks that numbers which other places refer to exist. */
static enum ul_status check_numbers(const struct ul_saved *saved, struct ul_diag *diag)
{
    if (saved->alignment_bytes == 0 || saved->alignment_bytes > 1 << 30)
        return ul_diag_set(diag, UL_INVALID, "\"alignment_bytes\" is 0, or out of range");
    if (saved->peak_step >= saved->step_count && saved->peak_step > 0)
        return ul_diag_set(diag, UL_INVALID, "\"peak_step\" is %u of %u steps", saved->peak_step,
                           saved->step_count);
    for (uint32_t i = 0; i < saved->range_count; i++)
        if (!has_good_readers(&saved->ranges[i]))
            return ul_diag_set(diag, UL_INVALID,
                               "\"ranges\": \"readers\" %u is no ascending list of positions of "
                               "the range",
                               i);
    for (uint32_t i = 0; i < saved->blocker_count; i++)
        if (saved->blockers[i].step >= saved->step_count)
            return ul_diag_set(diag, UL_INVALID,
                               "\"blockers\": entry %u names a step that is not there", i);
    return UL_OK;
}

/* Savings follow from the sizes. A plan from before the process was compared says what it saves of
 * the buffer, and is shown like a newer one. */
static void find_savings(struct ul_saved *saved)
{
    bool of_buffer = ul_saved_bounds_buffer(saved) || saved->process_bytes == UINT64_MAX;
    for (uint32_t i = 0; i < saved->remedy_count; i++) {
        struct ul_saved_remedy *remedy = &saved->remedies[i];
        remedy->saved_bytes = of_buffer || remedy->process_of[0] != '\0'
                                  ? (int64_t)saved->reserved_bytes - (int64_t)remedy->reserved_bytes
                                  : (int64_t)saved->process_bytes - (int64_t)remedy->process_bytes;
    }
}

enum ul_status ul_saved_read(struct ul_arena *arena, const char *text, size_t length,
                             struct ul_saved *saved, struct ul_diag *diag)
{
    UL_TRY(ul_facts_read_text(arena, text, length, saved, diag));
    UL_TRY(check_numbers(saved, diag));
    UL_TRY(check_ranges(saved, arena, diag));
    find_savings(saved);
    return UL_OK;
}

bool ul_saved_bounds_buffer(const struct ul_saved *saved)
{
    return strcmp(saved->budget_of, "arena") == 0;
}

bool ul_saved_is_of_device(const struct ul_saved *saved)
{
    if (saved->process_of != NULL && saved->process_of[0] != '\0')
        return strcmp(saved->process_of, "device") == 0;
    return saved->cudnn != NULL && saved->cudnn[0] != '\0'; /* an older plan: its library */
}

const struct ul_saved_search *ul_saved_largest(const struct ul_saved *saved)
{
    return saved->has_max_batch ? &saved->max_batch : saved->has_max_dim ? &saved->max_dim : NULL;
}

const struct ul_saved_remedy *ul_saved_cheapest(const struct ul_saved *saved)
{
    const struct ul_saved_remedy *best = NULL;
    for (uint32_t i = 0; i < saved->remedy_count; i++) {
        const struct ul_saved_remedy *remedy = &saved->remedies[i];
        if (!remedy->applied && remedy->fits &&
            (best == NULL || remedy->extra_cost < best->extra_cost))
            best = remedy;
    }
    return best;
}

const struct ul_remedy_kind *ul_remedy_kind_find(const char *kind)
{
    static const struct ul_remedy_kind kinds[] = {
        {"reorder", "reorder", "Run the steps in another order."},
        {"reuse", "reuse", "Let values share bytes, one after the other."},
        {"in-place", "in-place", "Let results overwrite operands that nobody reads again."},
        {"views", "views", "Read values where they lie instead of copying them."},
        {"fuse", "fuse", "Compute neighbours in one step, so that nothing lies between them."},
        {"recompute", "recomputation", "Compute values again instead of keeping them."},
        {"split", "chains in pieces", "Compute chains of steps in pieces."},
        {"layout", "the model's layout", "Lay values out as in the model."},
        {"inside", "light work inside",
         "Compute light results where the backward pass reads them."},
        {"precision", "16-bit storage", "Store weights and activations in 16 bits."},
        {"quantize", "weights of few bits",
         "Store weights of products in few bits; verify with the same option says its error."},
        {"batch", "half that size", "Take a smaller batch."},
        {"dim", "dim", "Take a smaller dimension."},
        {"micro-batches", "micro-batches",
         "Run a step on parts of the batch, and add up gradients."},
        {"offload", "offload", "Keep what waits outside of this memory."},
        {"output", "fewer outputs", "Do not ask for an output that waits for the end."},
        {"optimizer", "smaller optimizer", "Train by an optimizer with less state."},
        {"checkpoint", "checkpoint", "Keep less of the forward pass."},
        {"clipping", "clipping", "Take the norm of gradients without keeping them all."},
        {"weights", "weights", "Leave weights out of the buffer."},
        {"threads", "threads", "Run on fewer threads, which have scratch each."},
        {"implementation", "other kernels", "Run steps by implementations with less scratch."},
        {"inputs and outputs", "inputs and outputs",
         "Leave inputs and outputs in buffers of the caller."},
        {"together", "these together", "Several of these together."},
        {"budget", "budget", "Plan for a budget: reorder, recompute and split as far as it asks."},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, kind) == 0)
            return &kinds[i];
    return NULL;
}

const char *ul_saved_option(const struct ul_saved *saved, const char *name)
{
    UL_ASSERT(name != NULL);
    for (uint32_t i = 0; i < saved->option_count; i++)
        if (strcmp(saved->options[i].name, name) == 0)
            return saved->options[i].value;
    return NULL;
}

bool ul_saved_has_option(const struct ul_saved *saved, const char *name, const char *value)
{
    UL_ASSERT(name != NULL && value != NULL);
    for (uint32_t i = 0; i < saved->option_count; i++)
        if (strcmp(saved->options[i].name, name) == 0 &&
            strcmp(saved->options[i].value, value) == 0)
            return true;
    return false;
}

const struct ul_saved_step *ul_saved_maker(const struct ul_saved *saved,
                                           const struct ul_saved_range *range)
{
    bool is_given = range->class == UL_PLAN_WEIGHTS || range->class == UL_PLAN_OPTIMIZER ||
                    range->class == UL_PLAN_INPUTS;
    return is_given || range->begin >= saved->step_count ? NULL : &saved->steps[range->begin];
}

const char *ul_saved_range_name(const struct ul_saved *saved, struct ul_arena *arena,
                                uint32_t range)
{
    UL_ASSERT(range < saved->range_count);
    const struct ul_saved_step *maker = ul_saved_maker(saved, &saved->ranges[range]);
    if (saved->ranges[range].value != UL_PLAN_NONE)
        return saved->ranges[range].name;
    return ul_arena_printf(arena, "(scratch) %s", maker != NULL ? maker->node : "");
}

uint32_t ul_saved_alive(const struct ul_saved *saved, struct ul_arena *arena, uint32_t **alive)
{
    bool *taken_over = UL_NEW_ARRAY(arena, bool, saved->range_count);
    uint32_t count = 0;
    *alive = UL_NEW_ARRAY(arena, uint32_t, saved->range_count);
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        if (range->alias != UL_PLAN_NONE && range->begin <= saved->peak_step)
            taken_over[range->alias] = true;
    }
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        if (range->space == 0 && range->begin <= saved->peak_step &&
            saved->peak_step < range->end && !taken_over[i])
            (*alive)[count++] = i;
    }
    UL_ASSERT(count <= saved->range_count);
    return count;
}

uint64_t *ul_saved_curves(const struct ul_saved *saved, struct ul_arena *arena,
                          uint64_t *curves[UL_SAVED_CURVES])
{
    uint32_t length = saved->step_count > 0 ? saved->step_count : 1;
    uint64_t *sums = UL_NEW_ARRAY(arena, uint64_t, length);
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
        curves[c] = UL_NEW_ARRAY(arena, uint64_t, (uint64_t)length + 1);
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        bool takes_over = range->alias != UL_PLAN_NONE;
        uint32_t begin = takes_over ? range->begin + 1 : range->begin;
        uint64_t padding = (saved->alignment_bytes - range->size_bytes % saved->alignment_bytes) %
                           saved->alignment_bytes;
        if (range->space != 0)
            continue;
        if (begin < range->end) {
            curves[range->class][begin] += range->size_bytes;
            curves[range->class][range->end] -= range->size_bytes;
            curves[UL_PLAN_CLASS_COUNT][begin] += padding;
            curves[UL_PLAN_CLASS_COUNT][range->end] -= padding;
        }
        if (!takes_over || range->begin >= length)
            continue;
        /* Where both are alive, the older one's bytes are of the newer one's class. */
        const struct ul_saved_range *older = &saved->ranges[range->alias];
        curves[older->class][range->begin] -= older->size_bytes;
        curves[older->class][range->begin + 1] += older->size_bytes;
        curves[range->class][range->begin] += older->size_bytes;
        curves[range->class][range->begin + 1] -= older->size_bytes;
    }
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
        for (uint32_t p = 0; p < length; p++) {
            curves[c][p] += p > 0 ? curves[c][p - 1] : 0;
            sums[p] += curves[c][p];
        }
    return sums;
}
