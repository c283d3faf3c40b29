/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the steps of a problem's forward pass.
 *
 * Problem: a program that trains runs forward, then backward; methods that choose what is kept
 * between the two must know which step is which. Method: a value that is kept for the backward pass
 * has a class of its own (UL_PLAN_SAVED). A step that makes one is forward, and so are the earlier
 * steps whose results it reads. */
#include "planner/model/problem.h"

/* Marks what the step reads; or returns whether it writes what is marked. */
static bool step_touches(const struct ul_problem *problem, uint32_t step, bool *is_read, bool marks)
{
    const struct ul_plan_step *at = &problem->steps[step];
    bool any = false;
    for (uint32_t a = 0; a < at->alternative_count; a++) {
        for (uint32_t i = 0; i < at->alternatives[a].substep_count; i++) {
            const struct ul_plan_substep *substep = &at->alternatives[a].substeps[i];
            for (uint32_t r = 0; r < substep->read_count && marks; r++)
                is_read[substep->reads[r]] = true;
            for (uint32_t w = 0; w < substep->write_count; w++)
                any = any || is_read[substep->writes[w]];
        }
    }
    return any;
}

bool *ul_problem_find_forward(struct ul_arena *arena, const struct ul_problem *problem)
{
    bool *is_forward = UL_NEW_ARRAY(arena, bool, problem->step_count);
    bool *is_read = UL_NEW_ARRAY(arena, bool, problem->value_count);
    bool any = false;
    for (uint32_t v = 0; v < problem->value_count; v++)
        is_read[v] = problem->values[v].class == UL_PLAN_SAVED;
    for (uint32_t s = problem->step_count; s-- > 0;) {
        is_forward[s] = step_touches(problem, s, is_read, false);
        if (is_forward[s])
            step_touches(problem, s, is_read, true);
        any = any || is_forward[s];
    }
    return any ? is_forward : NULL;
}
