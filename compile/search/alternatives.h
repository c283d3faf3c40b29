/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of one model among which a budget may choose: other pieces, other layouts, light work
 * inside products. Only for the files that try them: alternatives.c, splits.c, layouts.c, inside.c,
 * the table of tries.c, and budget.c.
 *
 * An alternative is the graph with some regions laid out row-major (--row-major), some chains
 * computed in pieces (--split) and some light results computed by their readers (--inside), with
 * its program and its plan without a budget. What is tried does not depend on the budget, so that
 * there is one ladder for all. Ownership: the parts of an alternative live in its arena; texts and
 * what the ladder holds live in the compile's. The compile takes over the arenas of the alternative
 * that is picked and, for reports, of those with light work inside. */
#ifndef UL_COMPILE_VARIANTS_H
#define UL_COMPILE_VARIANTS_H

#include "compile/compile_internal.h"
#include "planner/model/effort.h"

enum { UL_MAX_ALTERNATIVES = 24 };

/* What distinguishes a program from the model's own. */
struct ul_alternative_form {
    struct ul_texts row_major, splits, inside;
};

struct ul_alternative {
    struct ul_arena arena;
    bool is_adopted; /* the compile has taken its arena over */
    struct ul_graph graph;
    struct ul_program *program;
    struct ul_plan plan; /* without a budget */
    struct ul_plan lean; /* where steps take the least scratch, whatever that costs */
    struct ul_process_overhead process; /* once its plans are merged */
    struct ul_alternative_form form;
};

struct ul_alternatives {
    struct ul_compile *compile;
    struct ul_plan_options planning; /* for plans without a budget */
    uint64_t budget_bytes;           /* where ladders are searched more closely */
    uint32_t count;
    struct ul_alternative *items;                     /* item 0 is the compile's own */
    uint64_t steps;                                   /* in all together */
    uint32_t front_count, front[UL_MAX_ALTERNATIVES]; /* those in pieces, the smallest first */
    struct ul_effort effort;                          /* the deadline of all */
};

/* alternatives.c */

/* Begins with the compile's own program and its plan without a budget. */
enum ul_status ul_alternatives_begin(struct ul_alternatives *alternatives,
                                     struct ul_compile *compile,
                                     const struct ul_plan *free_plan) UL_MUST_CHECK;
/* Makes an alternative's program the compile's, which owns its memory from then on. */
enum ul_status ul_alternatives_adopt(struct ul_alternatives *alternatives,
                                     uint32_t index) UL_MUST_CHECK;
void ul_alternatives_end(struct ul_alternatives *alternatives);
/* Leaves what remains of a time limit for the next part of the search; false: nothing remains. */
bool ul_alternatives_have_time(struct ul_alternatives *alternatives);
/* Builds and plans such a program. Adds none where it cannot be built, is known, or the search has
 * tried enough; any other error is a failure. With splits, or light work inside, the same regions
 * without them have been added before. */
enum ul_status ul_alternatives_try(struct ul_alternatives *alternatives,
                                   const struct ul_alternative_form *form) UL_MUST_CHECK;
/* Merges into the compile's ladder the plans of alternatives that no other equals in bytes and
 * cost; for the smallest, and for some spread evenly, also plans with recomputations. */
enum ul_status ul_alternatives_merge_front(struct ul_alternatives *alternatives) UL_MUST_CHECK;
/* Tries a program, while there is time, and merges its plans, including those with
 * recomputations. */
enum ul_status ul_alternatives_add(struct ul_alternatives *alternatives,
                                   const struct ul_alternative_form *form) UL_MUST_CHECK;

/* splits.c, inside.c, layouts.c: each tries some programs and merges them into the compile's
 * ladder. */
enum ul_status ul_alternatives_try_splits(struct ul_alternatives *alternatives) UL_MUST_CHECK;
enum ul_status ul_alternatives_try_inside(struct ul_alternatives *alternatives) UL_MUST_CHECK;
enum ul_status ul_alternatives_try_layouts(struct ul_alternatives *alternatives) UL_MUST_CHECK;

#endif
