/* SPDX-License-Identifier: Apache-2.0 */
/* Where a plan does not fit its spaces: a size of each with which it would. The layout of one plan
 * gives a first size; but with it the planner may come to another plan, so each size is tried. */
#include "compile/trials/trial.h"
#include "planner/pack/placement.h"

#include <string.h>

struct sizes {
    uint64_t low;    /* does not suffice */
    uint64_t next;   /* to be tried; 0: no more */
    uint64_t proven; /* suffices; 0: none is known to */
};

/* The spaces as they were given, with another size of one. */
static struct ul_option_edits size_edits(struct ul_compile *compile, uint32_t bank, uint64_t bytes)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, "space");
    const struct ul_texts *said = &compile->options.spaces;
    struct ul_arena *arena = &compile->keep;
    struct ul_option_edits edits = {.count = 0};
    ul_option_edits_add(arena, &edits, row, NULL, false);
    for (uint32_t i = 0; i < said->count; i++) {
        const char *text = said->items[i], *more = strchr(text, ',');
        if (i == bank)
            text = ul_arena_printf(arena, "%.*s=%llu%s", (int)strcspn(text, "="), text,
                                   (unsigned long long)bytes, more != NULL ? more : "");
        ul_option_edits_add(arena, &edits, row, text, false);
    }
    return edits;
}

/* Chooses the size to try after this result: the middle between a size that suffices and one that
 * does not, or a larger size while none suffices. */
static void sizes_move(struct sizes *sizes, bool suffices, uint64_t unit)
{
    enum { WIDER = 4 };
    if (suffices)
        sizes->proven = sizes->next;
    else
        sizes->low = sizes->next;
    uint64_t step = sizes->proven > 0 ? (sizes->proven - sizes->low) / 2 : sizes->low / WIDER;
    sizes->next = ul_size_align_or_die(sizes->low + step + (step == 0), unit);
    if (sizes->next == sizes->proven)
        sizes->next -= unit; /* the middle is up to a unit higher */
    if (sizes->next <= sizes->low || sizes->next > UL_SPACE_MAX_BYTES)
        sizes->next = 0;
}

/* Tries the next size of each bank, all at once; false: there is none. */
static bool try_next(struct ul_compile *compile, struct sizes *sizes, uint32_t bank_count)
{
    struct ul_trial trials[UL_LIMIT_BANKS];
    uint32_t banks[UL_LIMIT_BANKS], count = 0;
    for (uint32_t b = 0; b < bank_count; b++) {
        if (sizes[b].next == 0)
            continue;
        banks[count] = b;
        trials[count++] = (struct ul_trial){.what = "a larger space",
                                            .edits = size_edits(compile, b, sizes[b].next)};
    }
    if (count > 0)
        ul_compile_try_all(compile, compile->model.path, trials, count);
    for (uint32_t i = 0; i < count; i++)
        sizes_move(&sizes[banks[i]], trials[i].result.status == UL_OK,
                   compile->plan.alignment_bytes);
    return count > 0;
}

enum ul_status ul_compile_suffice(struct ul_compile *compile)
{
    enum { SMALL_STEPS = 64, ROUNDS = 12, ROUNDS_LARGE = 3 };
    const struct ul_problem *problem = compile->program->problem;
    struct ul_plan_options planning = ul_compile_planning(compile);
    struct sizes sizes[UL_LIMIT_BANKS];
    uint64_t *capacity_bytes = compile->sufficient_bytes;
    if (problem->bank_count == 0 || compile->plan.bank_count > 0 || compile->is_trial ||
        compile->options.plan != NULL || strcmp(compile->model.path, "-") == 0)
        return UL_OK;
    UL_TRY(ul_banks_suffice(&compile->keep, problem, &planning, &compile->plan, capacity_bytes,
                            &compile->diag));
    for (uint32_t b = 0; b < problem->bank_count; b++) {
        uint64_t low = problem->banks[b].capacity_bytes;
        sizes[b] = (struct sizes){.low = low};
        if (capacity_bytes[b] > low) /* otherwise another layout of the plan would have done */
            sizes[b].next = ul_size_align_or_die(capacity_bytes[b], compile->plan.alignment_bytes);
    }
    /* A trial takes as long as the plan that did not fit. */
    uint32_t rounds = problem->step_count <= SMALL_STEPS ? ROUNDS : ROUNDS_LARGE;
    for (uint32_t i = 0; i < rounds && try_next(compile, sizes, problem->bank_count); i++)
        ;
    for (uint32_t b = 0; b < problem->bank_count; b++)
        capacity_bytes[b] = sizes[b].proven;
    return UL_OK;
}
