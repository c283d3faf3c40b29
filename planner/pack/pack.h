/* SPDX-License-Identifier: Apache-2.0 */
/* Packing alone: offsets for rectangles of time by bytes. */
#ifndef UL_PLANNER_PACK_PACK_H
#define UL_PLANNER_PACK_PACK_H

#include "planner/model/plan.h"

/* During [begin, end) only the bytes [window_lower, window_upper) of the buffer are in use (none if
 * the two are equal): MiniMalloc's gaps. */
struct ul_pack_gap {
    uint32_t begin, end;
    uint64_t window_lower_bytes, window_upper_bytes;
};

struct ul_pack_buffer {
    uint32_t begin, end; /* half-open lifetime */
    uint64_t size_bytes;
    uint64_t alignment_bytes; /* need not be a power of two here; 0 and 1: none */
    uint64_t offset_bytes;    /* in: where it is pinned; out: its place */
    bool pinned;
    const struct ul_pack_gap *gaps; /* disjoint, ascending, inside the lifetime */
    uint32_t gap_count;
};

struct ul_pack_options {
    enum ul_plan_pack method;
    uint64_t capacity_bytes;   /* 0: minimise; else the first packing within it ends the search */
    uint64_t work_limit;       /* counted placements; 0: the default */
    double time_limit_seconds; /* 0: none */
};

struct ul_pack_result {
    uint64_t arena_bytes;       /* highest end of a buffer */
    uint64_t lower_bound_bytes; /* of any packing */
    bool optimal;               /* arena_bytes is proven to be the minimum */
    bool fits;                  /* arena_bytes <= capacity, or no capacity */
    bool proven;                /* `fits` (or optimality, without a capacity) is proven */
    bool stopped_by_time;
    uint64_t work;
    const char *method;
    const char *why_not; /* why the method that was named cannot be used, or NULL */
};

/* pack.c */

/* Sets offset_bytes of every buffer. Pinned buffers that collide are UL_INVALID. */
enum ul_status ul_pack_solve(struct ul_arena *arena, struct ul_pack_buffer *buffers,
                             uint32_t buffer_count, const struct ul_pack_options *options,
                             struct ul_pack_result *result, struct ul_diag *diag) UL_MUST_CHECK;

/* csv.c */

/* A problem as a table: MiniMalloc's CSV. */
struct ul_pack_table {
    struct ul_pack_buffer *buffers;
    const char **ids;
    uint32_t count;
    bool has_end; /* the column `end`, inclusive, replaces `upper` */
    bool has_alignment;
    bool has_gaps;
};

/* UL_INVALID with the line that is wrong. */
enum ul_status ul_pack_read_csv(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                struct ul_pack_table *table, struct ul_diag *diag) UL_MUST_CHECK;
/* The same columns, and `offset`. */
void ul_pack_write_csv(struct ul_text *text, const struct ul_pack_table *table);

#endif
