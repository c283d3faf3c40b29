/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the packer's files. A buffer is a stack of slabs, which are rectangles of time by bytes
 * that move together; it is one slab unless it has gaps. */
#ifndef UL_PACK_INTERNAL_H
#define UL_PACK_INTERNAL_H

#include <string.h>

#include "planner/model/effort.h"
#include "planner/model/method.h"
#include "planner/pack/pack.h"

struct ul_pack_slab {
    uint32_t begin, end; /* half-open */
    uint32_t buffer;
    uint64_t lower_bytes, upper_bytes; /* relative to the buffer's offset */
};

struct ul_pack_problem {
    struct ul_arena *arena; /* lives as long as one ul_pack_solve */
    const struct ul_pack_buffer *buffers;
    uint32_t buffer_count;
    struct ul_pack_slab *slabs; /* by (buffer, begin) */
    uint32_t *slab_first;       /* buffer_count + 1 entries */
    uint64_t *peak_bytes;       /* by buffer: largest live sum over its lifetime */
    uint64_t bound_bytes;       /* largest live sum, or the highest pinned end */
    uint32_t peak_time;         /* the first time with the largest live sum */
};

/* What the methods improve on: the best packing so far. */
struct ul_pack_job {
    struct ul_pack_problem *problem; /* a proof raises its bound */
    const struct ul_pack_options *options;
    struct ul_effort effort; /* for the methods that take long; work in visits of elements */
    uint64_t target_bytes;   /* a smaller arena is not worth looking for */
    uint64_t arena_bytes;    /* UINT64_MAX: there is none yet */
    bool has_dived;
    uint64_t *offset_bytes;
    const char *method;  /* the method that found it */
    const char *why_not; /* why the method that was named cannot be used, or NULL */
};

/* The rows of packing: each improves on the best packing, as far as the effort goes. `is_named`: it
 * runs alone, from the packing of first-fit, and reports its own result. */
typedef void ul_pack_method(struct ul_pack_job *job, bool is_named);
#define UL_PACK_NO_PROTOTYPE(...)
#define UL_PACK_PROTOTYPE(constant, name, run, ...) ul_pack_method run;
UL_PACK_METHODS(UL_PACK_NO_PROTOTYPE, UL_PACK_PROTOTYPE)
#undef UL_PACK_PROTOTYPE
#undef UL_PACK_NO_PROTOTYPE

/* The first part of the exact search: orders tried once at the bound, without backtracking. */
void ul_pack_dive(struct ul_pack_job *job);

/* A merge sort: stable by construction, and independent of the C library. */
#define UL_PACK_SORT(sort, type, is_before)                                                        \
    static void sort(type *items, type *spare, uint32_t count)                                     \
    {                                                                                              \
        for (uint32_t width = 1; width < count; width *= 2) {                                      \
            for (uint32_t at = 0; at < count; at += 2 * width) {                                   \
                uint32_t middle = at + width < count ? at + width : count;                         \
                uint32_t end = middle + width < count ? middle + width : count;                    \
                uint32_t i = at, j = middle;                                                       \
                for (uint32_t k = at; k < end; k++)                                                \
                    spare[k] = i < middle && (j == end || !is_before(&items[j], &items[i]))        \
                                   ? items[i++]                                                    \
                                   : items[j++];                                                   \
            }                                                                                      \
            memcpy(items, spare, sizeof *items *count);                                            \
        }                                                                                          \
    }

/* pack_edges.c */

/* An offset at which something begins or ends, and its data. */
struct ul_pack_edge {
    int64_t offset;
    uint64_t value;
};

/* Sorts by offset, stably. `spare` has room for as many. */
void ul_pack_edges_sort(struct ul_pack_edge *edges, struct ul_pack_edge *spare, uint32_t count);

/* Instances with more are not searched. */
enum { UL_PACK_EXACT_BUFFERS = 2000 };

enum ul_pack_outcome { UL_PACK_OPEN, UL_PACK_FOUND, UL_PACK_REFUTED };

/* pack_placed.c */

struct ul_pack_placed {
    const struct ul_pack_problem *problem;
    uint32_t *by_begin;   /* slabs sorted by begin */
    uint32_t *rank;       /* inverse of by_begin */
    uint32_t *latest_end; /* tree over ranks, of the placed slabs */
    uint32_t leaf_count;
    uint32_t *found; /* slabs, by begin */
    uint32_t found_count;
};

/* At first nothing is placed. The arrays are the arena's. */
void ul_pack_placed_init(struct ul_pack_placed *placed, struct ul_arena *arena,
                         const struct ul_pack_problem *problem);
void ul_pack_placed_add(struct ul_pack_placed *placed, uint32_t buffer);
void ul_pack_placed_remove(struct ul_pack_placed *placed, uint32_t buffer);
/* Finds the placed slabs that overlap the query's lifetime. */
void ul_pack_placed_find(struct ul_pack_placed *placed, const struct ul_pack_slab *query);

/* pack_repair.c */

struct ul_pack_repair;

/* The order in which buffers that are live at the peak are stacked from the bottom, where they
 * stay. */
enum ul_pack_anchor {
    UL_PACK_UNANCHORED,  /* they move like all others */
    UL_PACK_AS_STARTED,  /* as in the packing from which the repair starts */
    UL_PACK_BY_BEGIN,    /* those that begin first */
    UL_PACK_BY_END,      /* those that end last */
    UL_PACK_BY_LIFETIME, /* those that live longest */
    UL_PACK_ANCHORS
};

/* Starts from a packing of any height. */
struct ul_pack_repair *ul_pack_repair_new(struct ul_arena *arena,
                                          const struct ul_pack_problem *problem,
                                          uint64_t capacity_bytes, const uint64_t *start_bytes,
                                          enum ul_pack_anchor anchor);
/* Runs for about `work` element visits; adds the visits made to *used. REFUTED only means that this
 * repair cannot continue. */
enum ul_pack_outcome ul_pack_repair_run(struct ul_pack_repair *repair, uint64_t work,
                                        uint64_t *used);
/* Valid after FOUND. */
const uint64_t *ul_pack_repair_offsets(const struct ul_pack_repair *repair);

#endif
