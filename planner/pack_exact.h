/* The exact packer's driver, as pack.c calls it. */
#ifndef UL_PACK_EXACT_H
#define UL_PACK_EXACT_H

#include "planner/pack_internal.h"

struct ul_pack_exact {
    uint64_t capacity_bytes; /* 0: minimise */
    uint64_t target_bytes;   /* nothing below is worth looking for */
    uint64_t work_limit;     /* element visits */
    double deadline_seconds; /* of the wall clock; 0: none */
    uint64_t arena_bytes;    /* in: the best known; out: the best found */
    uint64_t bound_bytes;    /* in and out: what is proven to be needed */
    uint64_t *offset_bytes;  /* out, if found */
    uint64_t work;           /* used so far */
    bool found;              /* something better than the best known */
    bool stopped_by_time;
};

/* Leaves pinned buffers alone: an instance with some is returned as it came. */
void ul_pack_exact(const struct ul_pack_problem *problem, struct ul_pack_exact *state);

#endif
