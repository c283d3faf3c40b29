/* SPDX-License-Identifier: Apache-2.0 */
/* A program for a range of sizes: one list of steps and one plan, that of the largest sizes, with
 * formulas where programs of fixed sizes have numbers. A range whose programs do not all have the
 * same steps consists of pieces, each a root of the graph; a run is a run of the root whose piece
 * has its sizes.
 *
 * Invariants: a program of fixed sizes and this one, run with these sizes, have kernels of equal
 * text but for numbers, and equal numbers, so that they compute the same bits. A kernel may have
 * several forms, each for some points of its piece. Pieces have no point in common, and all points
 * of the range. */
#ifndef UL_CODEGEN_PROGRAM_SIZED_H
#define UL_CODEGEN_PROGRAM_SIZED_H

#include "codegen/program/formula.h"
#include "codegen/program/program.h"
#include "planner/pack/stacking.h"

/* A size that varies between `low` and `high`, by multiples of `step`, which divides what is
 * between them; or has some values. */
struct ul_program_size {
    const char *name;       /* as the model or an option has it; untrusted */
    const char *identifier; /* of C, unique among the sizes */
    int64_t low, high, step;
    uint32_t value_count;  /* of a set, which has pieces of one value; 0: it is a range */
    const int64_t *values; /* ascending */
};

/* How many values a size may have, and the one with a number, counted from the smallest on. */
static inline uint64_t ul_program_size_count(const struct ul_program_size *size)
{
    return size->value_count > 0 ? size->value_count
                                 : (uint64_t)((size->high - size->low) / size->step) + 1;
}
static inline int64_t ul_program_size_value(const struct ul_program_size *size, uint64_t number)
{
    return size->value_count > 0 ? size->values[number] : size->low + (int64_t)number * size->step;
}

/* Offsets that follow from sizes. */
struct ul_program_layout {
    struct ul_plan_stacking stacking;
    uint32_t *roots; /* by range of the plan: the root whose runs have it, for those that move */
    const struct ul_formula **bytes; /* likewise; NULL: as its table says */
    const uint64_t **tables; /* by range, and by point of the root's piece; NULL: as many as the
                                plan has */
    const uint32_t *point_counts; /* by root */
    uint64_t least_bytes;         /* what is reserved at the point that needs least */
};

/* Points of a piece are counted from its smallest sizes on; the last size's values run fastest. */
struct ul_program_sized {
    uint32_t size_count;
    const struct ul_program_size *sizes;
    const struct ul_program_size *const *pieces; /* by root: the part of each size's range */
    /* For each dimension of each input: the size that it is at every point, or UL_NONE. */
    const uint32_t *input_sizes;
    /* By value of the graph: formulas of its dims, then of its strides, rank of each; and of the
     * offset of its view in bytes. */
    const struct ul_formula *const **numbers;
    const struct ul_formula **offsets;
    const struct ul_program_layout *layout; /* NULL: offsets are those of the largest sizes */
};

#endif
