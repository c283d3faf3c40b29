/* SPDX-License-Identifier: Apache-2.0 */
/* What programs for several sizes must have in common, and the numbers in which they may differ. */
#ifndef UL_COMPILE_SIZES_WALK_H
#define UL_COMPILE_SIZES_WALK_H

#include "codegen/program/sized.h"

struct ul_compile;

/* Facts that two programs must share, as one number; and where the numbers begin that may differ.
 */
struct ul_size_mark {
    uint64_t hash;
    uint32_t number_begin;
    uint32_t root;    /* of the graph, or UL_NONE: several have it, so that its numbers are fixed */
    const char *node; /* or value, for messages */
};

/* In place of a number that nothing follows from: the stride of a dimension of one element. */
#define UL_SIZE_ANY INT64_MIN

/* A walk lists marks and numbers, or, with formulas, puts these where the numbers are. The first
 * marks are those of places, regions and values; then each step and each alternative of it has
 * one. */
struct ul_size_walk {
    struct ul_arena *arena;
    const struct ul_program *base; /* its constants are what the program's begin with */
    const struct ul_compile *base_compile, *compile; /* of the two */
    struct ul_size_mark *marks;
    uint32_t mark_count, mark_capacity;
    int64_t *numbers;
    uint32_t number_count, number_capacity;
    const struct ul_formula *const *formulas; /* NULL: numbers are listed */
};

/* Walks over the program as far as it has what `base` has. `sized` gets the formulas of values, if
 * there are formulas. */
void ul_size_walk(struct ul_size_walk *walk, struct ul_program *program,
                  struct ul_program_sized *sized);
/* The root that a step of the program belongs to; UL_NONE: none. */
uint32_t ul_size_root(const struct ul_program *program, uint32_t step);
/* The step of a program, or one of its alternatives, which belong to it as well; NULL: it has none.
 * 0 is the step itself. */
struct ul_program_step *ul_size_step(const struct ul_program *program, uint32_t step,
                                     uint32_t alternative);

#endif
