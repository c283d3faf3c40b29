/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of one model that a budget may choose among: other pieces, other layouts, light work
 * inside products. For the files that try them alone: variants.c, splits.c, layouts.c, inside.c,
 * the table of tries.c, and budget.c.
 *
 * A variant is the graph with some regions laid out row-major (--row-major), some chains computed
 * in pieces (--split) and some light results computed by what reads them (--inside), its program,
 * and that one's plan without a budget. What is tried
 * does not depend on the budget, so that the ladder of all of them stays one ladder. Ownership:
 * what a variant is made of lives in its arena, texts and what the ladder holds in the compile's;
 * of those with light work inside, all that reports need. The compile takes over the variant that
 * is picked.
 */
#ifndef UL_COMPILE_VARIANTS_H
#define UL_COMPILE_VARIANTS_H

#include "compile/compile_internal.h"
#include "planner/model/effort.h"

enum { UL_MAX_VARIANTS = 24 };

/* What sets a program apart from the model's own. */
struct ul_variation {
    struct ul_texts row_major, splits, inside;
};

struct ul_variant {
    struct ul_arena own, *arena; /* `arena`: its own, or the compile's */
    bool is_adopted;             /* its own is the compile's */
    struct ul_graph graph;
    struct ul_program *program;
    struct ul_plan plan; /* without a budget */
    struct ul_plan lean; /* of steps that take the minimum of scratch, whatever that costs */
    struct ul_variation variation;
};

struct ul_variants {
    struct ul_compile *compile;
    struct ul_plan_options planning; /* without a budget */
    uint64_t budget_bytes;           /* that ladders look closer at */
    uint32_t count;
    struct ul_variant *items;                         /* item 0 is the compile's own */
    uint64_t steps;                                   /* of all together */
    struct ul_plan_beside processes[UL_MAX_VARIANTS]; /* of those whose plans are merged */
    uint32_t front_count, front[UL_MAX_VARIANTS];     /* of those in pieces, the smallest first */
    struct ul_effort effort;                          /* the deadline of all */
};

/* variants.c */

/* Begins with the compile's own program and its plan without a budget. */
enum ul_status ul_variants_begin(struct ul_variants *variants, struct ul_compile *compile,
                                 const struct ul_plan *free_plan) UL_MUST_CHECK;
/* Makes a variant's program the compile's, which has its memory from then on. */
enum ul_status ul_variants_adopt(struct ul_variants *variants, uint32_t index) UL_MUST_CHECK;
void ul_variants_end(struct ul_variants *variants);
/* Hands what is left of a time limit to the next part of the search; false: nothing is. */
bool ul_variants_have_time(struct ul_variants *variants);
/* Builds and plans such a program. Adds none where it cannot be built, is known, or the search has
 * tried enough; what else goes wrong is a failure. With splits, or light work inside, the same
 * regions without any have been added before. */
enum ul_status ul_variants_try(struct ul_variants *variants,
                               const struct ul_variation *variation) UL_MUST_CHECK;
/* Merges the plans of variants that no other equals in bytes and cost into the compile's ladder,
 * and for the smallest and some evenly between those with recomputations. */
enum ul_status ul_variants_merge_front(struct ul_variants *variants) UL_MUST_CHECK;
/* Merges the plans of a variant, those with recomputations as well. */
enum ul_status ul_variants_merge(struct ul_variants *variants, uint32_t index) UL_MUST_CHECK;

/* splits.c, inside.c, layouts.c: what may be tried, each merged into the compile's ladder. */
enum ul_status ul_variants_try_splits(struct ul_variants *variants) UL_MUST_CHECK;
enum ul_status ul_variants_try_inside(struct ul_variants *variants) UL_MUST_CHECK;
enum ul_status ul_variants_try_layouts(struct ul_variants *variants) UL_MUST_CHECK;

#endif
