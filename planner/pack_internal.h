/* What the packer's files share. A buffer is a stack of pieces: rectangles of time by bytes that
 * move together; one piece, unless the buffer has gaps. */
#ifndef UL_PACK_INTERNAL_H
#define UL_PACK_INTERNAL_H

#include "planner/planner.h"

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
};

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

#endif
