/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions shared by the files that place transfers.
 *
 * A boundary is a place between two positions of the runs: boundary g is before position g, and the
 * last one is after them all. A section is the positions of one entry, or all of them. */
#ifndef UL_TRANSFER_INTERNAL_H
#define UL_TRANSFER_INTERNAL_H

#include "planner/transfer/transfer.h"

/* The boundaries of a section between which the bytes of a value are free: before, it is saved,
 * unless its saved copy is current, and at the end it is loaded. */
struct ul_transfer_piece {
    uint32_t value, item;
    uint32_t section;
    uint32_t begin, end; /* boundaries */
    uint32_t save_at;    /* boundary after the last write before `begin` */
    uint32_t written;    /* that write's position and one more; 0: nothing wrote it */
    bool loads;          /* something touches it after `end` */
};

/* Something that is chosen as a whole: a gap between two touches of a value, or that a persistent
 * value is at home in the other space, with everything before and after its touches. */
struct ul_transfer_item {
    uint32_t value;
    uint32_t piece_first, piece_end;
    uint32_t home; /* the item that this one needs, or UL_PLAN_NONE */
    bool is_home;
    uint64_t size_bytes; /* with alignment */
    uint64_t cost;       /* of its transfers */
    uint64_t exposed;    /* at best, the part that no run can hide */
};

struct ul_transfer_model {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    const struct ul_plan *runs;
    uint32_t space;
    const struct ul_plan_resource *engines[2]; /* one saves, one loads; they may be the same */
    uint32_t count;                            /* positions */
    uint64_t *time;                            /* by boundary: cost of the runs before it */
    uint64_t *live_bytes;                      /* by position: the live sum of the runs */
    uint32_t *section;                         /* by position: its entry, or the root */
    uint32_t *section_first, *section_end;     /* by region that is a section: boundaries */
    uint32_t *next_open; /* by boundary: the next where transfers may be placed, or UL_PLAN_NONE */
    uint32_t *last_open; /* by boundary: the last one up to it, or UL_PLAN_NONE */
    struct ul_transfer_piece *pieces; /* by value and begin */
    uint32_t piece_count, piece_capacity;
    struct ul_transfer_item *items;
    uint32_t item_count, item_capacity;
};

/* How values are chosen, and how early they are loaded. */
struct ul_transfer_alternative {
    double cost_weight, exposed_weight;
    double lead;   /* a load begins this many times its cost before it is needed */
    double noise;  /* of scores, as a part */
    bool is_first; /* the first position beyond the limit decides, not the worst */
};

/* transfer_gaps.c */

/* The entry that a position belongs to, or the root. */
uint32_t ul_transfer_section(const struct ul_problem *problem, const struct ul_plan_position *at);
/* Whether another operation of its own section may be placed before position `g`. */
bool ul_transfer_is_open(const struct ul_problem *problem, const struct ul_plan *plan, uint32_t g);
void ul_transfer_model_make(struct ul_transfer_model *m);

/* transfer_choose.c */

/* The largest live sum when everything that may move has moved. */
uint64_t ul_transfer_floor(const struct ul_transfer_model *m);
/* Sets, by item, whether it is chosen; live_bytes, by position, is what remains. False where the
 * limit is not met within the room. */
bool ul_transfer_choose(const struct ul_transfer_model *m,
                        const struct ul_transfer_alternative *alternative, uint64_t limit_bytes,
                        uint64_t room_bytes, struct ul_effort *effort, bool *chosen,
                        uint64_t *live_bytes);

/* transfer_schedule.c */

/* The positions of runs and of the transfers of the chosen items. */
void ul_transfer_schedule(struct ul_arena *arena, const struct ul_transfer_model *m,
                          const struct ul_transfer_alternative *alternative, uint64_t limit_bytes,
                          const bool *chosen, const uint64_t *live_bytes, struct ul_plan *plan);

#endif
