/* SPDX-License-Identifier: Apache-2.0 */
/* What a plan means: the program that it stands for, run on symbolic bytes.
 *
 * Memory is cells of 8 bytes; what a step writes to a cell is a hash of the step, the cell and all
 * that it reads. Before it reads, a step destroys the cells that it is about to write (but for an
 * output in place of an input, cell on cell) and its scratch; so a plan that lets two things share
 * bytes wrongly ends with other outputs. Loops run twice. The reference gives every value bytes of
 * its own and runs in file order. */
#ifndef UL_TESTS_PLANNER_ORACLE_H
#define UL_TESTS_PLANNER_ORACLE_H

#include "planner/model/plan.h"

struct oracle {
    const struct ul_problem *problem;
    struct ul_arena *arena;
    uint32_t *owner_first; /* per value: who writes it without reading it, in file order */
    uint32_t *owners;
    uint64_t **wanted; /* per value: its cells at the end of the reference run */
};

void oracle_init(struct oracle *oracle, struct ul_arena *arena, const struct ul_problem *problem);
/* Whether the plan is well formed, computes what the reference does, and keeps within the bytes,
 * the alignments and the places that it must. */
bool oracle_accepts(const struct oracle *oracle, const struct ul_plan *plan);

#endif
