/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the checker only. */
#ifndef UL_PLANNER_MODEL_CHECK_H
#define UL_PLANNER_MODEL_CHECK_H

#include "planner/model/plan.h"

struct ul_checker {
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    struct ul_arena *scratch;
    struct ul_diag *diag;
    uint32_t length;    /* positions, at least 1 */
    uint64_t *expected; /* by value: sum of keys of its writers so far, in file order */
    /* by step, and distinct read in order of substeps: the sum that it must see */
    uint64_t **wanted;
    uint64_t *content; /* by range */
    uint32_t *current; /* by value: its newest range in its own space, or UL_PLAN_NONE */
    uint32_t *begun;   /* by value: the first of its ranges that has not begun */
    uint32_t *until;   /* by position: the last one at whose time it may still run */
    uint32_t *entry;   /* by value: the only entry that touches it, or 0 */
    bool *is_read;     /* by value: some position reads it */
    uint32_t *away;    /* by value: the other space where it is at home, or UL_PLAN_NONE */
    uint32_t stream_count;
    /* by range and stream: the position after the last at whose time the stream may still use it */
    uint32_t *read_until, *written_until;
    uint32_t *first, *last;   /* by region: positions [first, last) */
    uint64_t bank_cost;       /* of moves to and from the banks of the plan */
    uint64_t least_bank_cost; /* of the cheapest alternatives, at the best rate */
};

#define FAIL(c, ...) return ul_diag_set((c)->diag, UL_MISMATCH, __VA_ARGS__)

/* check_banks.c */

/* Whether every range of space 0 is in a bank that has room for it and accepts it, and the cost of
 * moves is as in the plan; sets bank_cost and least_bank_cost, 0 where there are no banks. */
enum ul_status ul_checker_banks(struct ul_checker *c) UL_MUST_CHECK;

/* check_sums.c */

/* The alternative that costs least, the first of several, but of other bits where there is one. */
uint32_t ul_checker_cheapest(const struct ul_plan_step *step);

bool ul_checker_has(const uint32_t *ids, uint32_t count, uint32_t id);
/* Whether a persistent value may be at home in another space. */
bool ul_checker_may_leave(const struct ul_checker *c, uint32_t value);
/* The engine that saves to a space, or loads from there, or NULL. */
const struct ul_plan_resource *ul_checker_engine(const struct ul_checker *c, uint32_t space,
                                                 bool loads);
/* The entry around a region, or the root. */
uint32_t ul_checker_entry(const struct ul_checker *c, uint32_t region);
/* The size of a range, rounded up to the plan's alignment. */
uint64_t ul_checker_range_bytes(const struct ul_checker *c, uint32_t range);
/* The alignment of its offset. */
uint64_t ul_checker_range_alignment(const struct ul_checker *c, uint32_t range);
/* Checks the plan's claims about its bytes, cost and bound; its ranges are known to be well
 * formed. */
enum ul_status ul_checker_sums(const struct ul_checker *c) UL_MUST_CHECK;

#endif
