/* What the packer's files share. A buffer is a stack of pieces: rectangles of time by bytes that
 * move together; one piece, unless the buffer has gaps. */
#ifndef UL_PACK_INTERNAL_H
#define UL_PACK_INTERNAL_H

#include "planner/model/method.h"
#include "planner/pack/pack.h"

struct ul_pack_piece {
    uint32_t begin, end; /* half-open */
    uint32_t buffer;
    uint64_t lower_bytes, upper_bytes; /* relative to the buffer's offset */
};

struct ul_pack_problem {
    struct ul_arena *arena; /* lives as long as one ul_pack_solve */
    const struct ul_pack_buffer *buffers;
    uint32_t buffer_count;
    struct ul_pack_piece *pieces; /* by (buffer, begin) */
    uint32_t *piece_first;        /* buffer_count + 1 entries */
    uint64_t *peak_bytes;         /* per buffer: largest live sum over its lifetime */
    uint64_t bound_bytes;         /* largest live sum, or the highest pinned end */
    uint32_t peak_time;           /* when the live sum is largest, first */
};

/* What the methods that take their time share with the driver. */
struct ul_pack_effort {
    uint64_t capacity_bytes; /* 0: minimise */
    uint64_t target_bytes;   /* nothing below is worth looking for */
    uint64_t work_limit;     /* element visits */
    double deadline_seconds; /* of the wall clock; 0: none */
    uint64_t arena_bytes;    /* in: the best known; out: the best found */
    uint64_t bound_bytes;    /* in and out: what is proven to be needed */
    uint64_t *offset_bytes;  /* in and out: of that packing */
    uint64_t work;           /* used so far */
    bool found;              /* something better than the best known */
    bool stopped_by_time;
};

/* The best packing so far. */
struct ul_pack_best {
    uint64_t *offset_bytes;
    uint64_t *trial_bytes;
    uint64_t arena_bytes;
    uint64_t target_bytes; /* nothing below is worth looking for */
    uint32_t buffer_count;
    const char *method;
};

/* What a method of packing is given. */
struct ul_pack_job {
    struct ul_pack_problem *problem; /* its bound may rise */
    const struct ul_pack_options *options;
    double deadline_seconds;
    struct ul_pack_best *best;
    struct ul_pack_result *result; /* gets the work, and whether time stopped it */
};

/* The rows of packing: each improves on the best packing, as far as the effort goes. */
typedef void ul_pack_method(struct ul_pack_job *job);
#define UL_PACK_PROTOTYPE(constant, name, run, ...) ul_pack_method run;
UL_PACK_METHODS(UL_PACK_PROTOTYPE)
#undef UL_PACK_PROTOTYPE

enum ul_pack_outcome { UL_PACK_OPEN, UL_PACK_FOUND, UL_PACK_REFUTED };

/* pack_effort.c */

/* True if the work or the time has run out. */
bool ul_pack_exhausted(struct ul_pack_effort *effort);

/* pack_placed.c */

struct ul_pack_placed {
    const struct ul_pack_problem *problem;
    uint32_t *by_begin;   /* pieces sorted by begin */
    uint32_t *rank;       /* inverse of by_begin */
    uint32_t *latest_end; /* tree over ranks, of the placed pieces */
    uint32_t leaf_count;
    uint32_t *found; /* pieces, by begin */
    uint32_t found_count;
};

/* Nothing is placed at first. The arrays are the arena's. */
void ul_pack_placed_init(struct ul_pack_placed *placed, struct ul_arena *arena,
                         const struct ul_pack_problem *problem);
void ul_pack_placed_add(struct ul_pack_placed *placed, uint32_t buffer);
void ul_pack_placed_remove(struct ul_pack_placed *placed, uint32_t buffer);
/* The placed pieces that overlap the query's lifetime. */
void ul_pack_placed_find(struct ul_pack_placed *placed, const struct ul_pack_piece *query);

/* pack_greedy.c */

enum { UL_PACK_GREEDY_ORDERS = 6 };

/* First-fit in the given one of UL_PACK_GREEDY_ORDERS orders, pinned buffers first. Returns the
 * arena's size; adds the pairs of overlapping buffers that it looked at, which is what its time
 * grows with, to *work. */
uint64_t ul_pack_greedy(const struct ul_pack_problem *problem, uint32_t order,
                        uint64_t *offset_bytes, uint64_t *work);
const char *ul_pack_greedy_name(uint32_t order);

/* pack_repair.c */

struct ul_pack_repair;

/* From a packing of any height. */
struct ul_pack_repair *ul_pack_repair_new(struct ul_arena *arena,
                                          const struct ul_pack_problem *problem,
                                          uint64_t capacity_bytes, const uint64_t *start_bytes,
                                          bool anchored);
/* Goes on for about `work` element visits; adds what it used to *used. REFUTED means that this
 * repair cannot go on, no more. */
enum ul_pack_outcome ul_pack_repair_run(struct ul_pack_repair *repair, uint64_t work,
                                        uint64_t *used);
/* After FOUND. */
const uint64_t *ul_pack_repair_offsets(const struct ul_pack_repair *repair);

#endif
