/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of optional values: bounds and shares.
 *
 * All that a plan has are live together, through the whole plan. A value is divided evenly among
 * the steps that may read it, so that the shares of steps that read it never add up to more than
 * its bytes:
 *
 *     w, 12 bytes, may be read by 3 steps; a plan in which 2 of them do has 12 >= 2 * 4 */
#include "planner/model/optional.h"

/* Whether an earlier substep reads the value, or this one before its read number `read`. */
static bool is_read_before(const struct ul_plan_alternative *alternative, uint32_t substep,
                           uint32_t read)
{
    uint32_t value = alternative->substeps[substep].reads[read];
    for (uint32_t i = 0; i < substep; i++) {
        const struct ul_plan_substep *earlier = &alternative->substeps[i];
        if (ul_ids_have(earlier->reads, earlier->read_count, value))
            return true;
    }
    return ul_ids_have(alternative->substeps[substep].reads, read, value);
}

static bool reads(const struct ul_plan_alternative *alternative, uint32_t value)
{
    for (uint32_t i = 0; i < alternative->substep_count; i++) {
        const struct ul_plan_substep *substep = &alternative->substeps[i];
        if (ul_ids_have(substep->reads, substep->read_count, value))
            return true;
    }
    return false;
}

/* Counts the step for each optional value that it may read; `last` is 1 + the step for which a
 * value was counted last. */
static void step_count(const struct ul_problem *problem, uint32_t step, uint32_t *counts,
                       uint32_t *last)
{
    for (uint32_t a = 0; a < problem->steps[step].alternative_count; a++) {
        const struct ul_plan_alternative *alternative = &problem->steps[step].alternatives[a];
        for (uint32_t i = 0; i < alternative->substep_count; i++) {
            const struct ul_plan_substep *substep = &alternative->substeps[i];
            for (uint32_t k = 0; k < substep->read_count; k++) {
                uint32_t v = substep->reads[k];
                counts[v] += problem->values[v].optional && last[v] != step + 1;
                last[v] = step + 1;
            }
        }
    }
}

uint64_t *ul_optional_shares(struct ul_arena *arena, const struct ul_problem *problem,
                             uint64_t alignment_bytes, bool with_overhead)
{
    UL_ASSERT(alignment_bytes > 0);
    uint64_t *shares = UL_NEW_ARRAY(arena, uint64_t, problem->value_count);
    uint32_t *counts = UL_NEW_ARRAY(arena, uint32_t, problem->value_count);
    uint32_t *last = UL_NEW_ARRAY(arena, uint32_t, problem->value_count);
    for (uint32_t s = 0; s < problem->step_count; s++)
        step_count(problem, s, counts, last);
    for (uint32_t v = 0; v < problem->value_count; v++) {
        const struct ul_plan_value *value = &problem->values[v];
        bool counts_here =
            value->space == 0 || (with_overhead && problem->spaces[value->space].is_overhead);
        if (counts[v] > 0 && counts_here)
            shares[v] = ul_size_align_or_die(value->size_bytes, alignment_bytes) / counts[v];
    }
    return shares;
}

uint64_t ul_optional_need(const struct ul_plan_alternative *alternative, const uint64_t *shares)
{
    uint64_t need = 0;
    for (uint32_t i = 0; i < alternative->substep_count; i++) {
        const struct ul_plan_substep *substep = &alternative->substeps[i];
        for (uint32_t k = 0; k < substep->read_count; k++) {
            uint64_t share = shares[substep->reads[k]];
            need += share > 0 && !is_read_before(alternative, i, k) ? share : 0;
        }
    }
    return need;
}

uint64_t ul_optional_bound(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes)
{
    const uint64_t *shares = ul_optional_shares(arena, problem, alignment_bytes, false);
    uint64_t bound = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        uint64_t min = UINT64_MAX;
        for (uint32_t a = 0; a < problem->steps[s].alternative_count; a++) {
            uint64_t need = ul_optional_need(&problem->steps[s].alternatives[a], shares);
            min = need < min ? need : min;
        }
        bound += min;
    }
    return bound;
}

static bool covers(const struct ul_problem *problem, const struct ul_plan_alternative *a,
                   const struct ul_plan_alternative *b)
{
    for (uint32_t i = 0; i < b->substep_count; i++) {
        for (uint32_t k = 0; k < b->substeps[i].read_count; k++) {
            uint32_t value = b->substeps[i].reads[k];
            if (problem->values[value].optional && !reads(a, value))
                return false;
        }
    }
    return true;
}

bool ul_optional_is_alike(const struct ul_problem *problem, const struct ul_plan_alternative *a,
                          const struct ul_plan_alternative *b)
{
    return covers(problem, a, b) && covers(problem, b, a);
}
