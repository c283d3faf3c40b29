/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes that options leave open within a range, and pieces of these ranges. */
#ifndef UL_COMPILE_OPTIONS_SIZE_LIST_H
#define UL_COMPILE_OPTIONS_SIZE_LIST_H

#include "codegen/program/sized.h"

struct ul_compile;

/* Pieces have no point in common, and all points of the range; the last one has the largest. */
struct ul_size_pieces {
    uint32_t count, size_count;
    const struct ul_program_size **items; /* by piece: its part of the range of each size */
};

/* The sizes that options leave open; NULL and 0: none. */
void ul_size_list(struct ul_compile *compile, struct ul_program_size **sizes, uint32_t *count);
/* Sets the options of a compile to a point. */
void ul_size_set(struct ul_compile *compile, const int64_t *point);
bool ul_size_piece_has(const struct ul_program_size *piece, uint32_t size_count,
                       const int64_t *point);
/* Writes to `nearest` the point of a piece that is nearest to another one in each size. */
void ul_size_piece_nearest(const struct ul_program_size *piece, uint32_t size_count,
                           const int64_t *point, int64_t *nearest);

#endif
