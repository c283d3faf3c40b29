/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions shared by the files that place transfers.
 *
 * A boundary is a place between two positions of the runs: boundary g is before position g, and the
 * last one is after them all. A section is the positions of one entry, or all of them. */
#ifndef UL_TRANSFER_INTERNAL_H
#define UL_TRANSFER_INTERNAL_H

#include "planner/model/timeline.h"
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

/* transfer_overlap.c */

/* Positions that stay together. */
struct ul_overlap_item {
    uint32_t first, end; /* positions */
    uint32_t section;
    uint32_t stream;
    uint64_t cost;
    uint64_t tail; /* the longest chain of costs that begins with it */
    /* Where steps share the device: the time that its work takes on the whole device; whether it
     * may run at the same time as others, and not as others that count; whether it is chosen for
     * stream 1, and begins there only when nothing else is in flight. */
    uint64_t busy_cost;
    bool may_share, counts, is_second, is_alone;
    bool is_asynchronous;
    bool is_done; /* placed; if it still runs, not waited for */
    bool is_in_flight;
    uint64_t finish;     /* by the clock of its stream */
    uint32_t put, until; /* new positions: the first, and the wait or the last */
};

struct ul_overlap_result {
    struct ul_plan_position *positions;
    uint32_t position_count;
    uint32_t *moved_to; /* by old position: the new one */
    uint64_t cost, live_bytes;
};

/* A list scheduler. It schedules the items of one part; what is before it is settled, and what is
 * after it stays as it is. */
struct ul_overlap {
    const struct ul_problem *problem;
    const struct ul_plan *plan;              /* the old plan, with its ranges */
    const struct ul_plan_streaming *sharing; /* NULL: items of other resources are asynchronous */
    struct ul_arena scratch;
    uint64_t limit_bytes;
    struct ul_overlap_item *items;
    uint32_t item_count;
    uint32_t *item_of;           /* by position */
    struct ul_plan_list *before; /* by item: earlier ones that it depends on */
    uint32_t *given;             /* by item: how many of these hold for every try */
    bool has_copies;
    uint32_t horizon; /* how many items of stream 0 are candidates for the next one */
    uint32_t reach;   /* so many items before its place, at most, an asynchronous one begins */
    bool is_by_tail;  /* the longest tail goes first, not the first item */
    uint32_t part_first, part_end; /* items */
    uint32_t settled_count;        /* positions before the part */
    struct ul_overlap_result best;
    /* One try. */
    uint64_t clocks[UL_LIMIT_STREAMS];
    uint64_t parted, busy_cost; /* when the streams parted that share the device, and the work since
                                   then, of both */
    struct ul_plan_position *positions;
    uint32_t *moved_to; /* by position: its new one */
    uint32_t *new_item; /* by new position: its item on stream 0, or the first remaining one */
    uint32_t count;
    uint32_t first_left;           /* all items of the part before it are placed */
    struct ul_plan_list waiting;   /* asynchronous items that remain */
    struct ul_plan_list in_flight; /* in the order of their places */
    uint64_t work;
};

/* Makes the items of o->plan, all of them one part, with the plan as the best result, whose cost
 * the caller sets. False: nothing may run at the same time as something else. */
bool ul_overlap_make(struct ul_overlap *o);
void ul_overlap_result_init(struct ul_overlap *o, struct ul_overlap_result *result);
/* Schedules the part, within the limit, and keeps the result if it is better. */
void ul_overlap_try(struct ul_overlap *o, struct ul_effort *effort, struct ul_overlap_result *best);
/* Gives a plan the best result. */
void ul_overlap_adopt(const struct ul_overlap *o, struct ul_arena *arena, struct ul_plan *plan);

#endif
