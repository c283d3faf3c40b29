/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: the order of a problem's steps, and where each live range lies; its independent checker.
 */
#ifndef UL_PLANNER_MODEL_PLAN_H
#define UL_PLANNER_MODEL_PLAN_H

#include "planner/model/method.h"
#include "planner/model/problem.h"

/* What a budget bounds beside space 0, where it bounds more than that; zeros: nothing. In a process
 * with so many bytes of space 0 reserved, and so many of the spaces that are beside, it is
 *
 *     while steps run      reserved - unread + reserved / page_share + beside + run - late
 *     before the first     start_page, where so much is reserved, + beside + start, and
 *     before any           load, where anything is in start_space
 *
 * whichever is most. Late is what of `run` comes only once the reserved bytes are given back:
 * `last`, but at most a quarter of what is reserved and touched beyond `held`. */
struct ul_plan_beside {
    bool has_spaces; /* the spaces that are beside count too */
    uint64_t run_bytes;
    uint64_t last_bytes;   /* of run_bytes */
    uint64_t held_bytes;   /* of the reserved ones, never given back */
    uint64_t unread_bytes; /* of the reserved ones, never touched */
    uint64_t page_share;   /* a byte of page tables for so many; 0: none */
    uint32_t start_space;  /* 0: nothing starts */
    uint64_t start_bytes;
    uint64_t start_page_bytes;
    uint64_t load_bytes;
};

/* What a plan keeps of a forward pass, for the method `keep`, which no budget changes: all else
 * that its steps make is made again behind it. Per step of the problem. */
struct ul_plan_kept {
    const bool *is_forward;
    const bool *is_kept; /* what the step makes */
};

struct ul_order_memo; /* planner/order/order.h */

/* Zeroed options are the defaults. */
struct ul_plan_options {
    enum ul_plan_pack pack; /* none: every range its own bytes for ever, nothing in place */
    enum ul_plan_order order;
    enum ul_plan_remat remat;
    uint64_t alignment_bytes; /* 0: UL_PLAN_ALIGN_BYTES */
    uint64_t budget_bytes;    /* of space 0, packed, beside its capacity, and of what is
                                 beside it; 0: none */
    struct ul_plan_beside beside;
    uint64_t below_bytes; /* of a ladder: what a budget bounds, of rungs that are looked for; 0: all
                             below the plan without a budget */
    bool finds_room; /* of a ladder: where nothing is within the budget for want of room in another
                        space, how much would do is looked for */
    const struct ul_plan_kept *kept; /* where remat is UL_REMAT_KEEP */
    uint64_t seed;
    uint64_t work_limit;          /* counted search nodes; 0: the default */
    double time_limit_seconds;    /* 0: none */
    struct ul_order_memo *orders; /* that were found for this and other problems, or NULL */
};

enum ul_plan_kind {
    UL_PLAN_RUN,  /* a substep of a step, which may run more than once: a recomputation */
    UL_PLAN_SAVE, /* copies a value's bytes from its own space to another, into a new range there */
    UL_PLAN_LOAD, /* copies them back, from the last range there into a new one of its own space */
    UL_PLAN_WAIT /* goes on when `awaited`, of another stream, is done, and all of it before that */
};

enum { UL_PLAN_KIND_COUNT = UL_PLAN_WAIT + 1 };
const char *ul_plan_kind_name(enum ul_plan_kind kind); /* "run", in plan_text.c */

/* One position of the timeline. Those of stream 0 follow each other. One of another stream begins
 * when all that stream 0 has before it is done, and all that its own stream has, and runs beside
 * what follows; all that it touches lives through the wait for it:
 *
 *     position   0    1       2    3    4
 *     stream 0   run          run  wait run
 *     stream 1        save x
 *     x          [-----------------)           nobody writes it at 2
 *     x, saved        [----------------- ...   nobody touches it at 2
 *
 * A persistent value of which the first transfer is a load is at home in the other space: its first
 * range lies there at every position, loads copy from it, and saves copy back into it. Every entry,
 * or the root, begins without a copy of its own space, and ends with what it wrote saved.
 */
struct ul_plan_position {
    enum ul_plan_kind kind;
    uint32_t stream;      /* of a wait: 0 */
    uint32_t step;        /* run */
    uint32_t alternative; /* run */
    uint32_t substep;     /* run */
    uint32_t copy;        /* run: 0 the first time the step runs, 1 the first recomputation, ... */
    uint32_t value;       /* save, load */
    uint32_t space;       /* save: where to; load: where from */
    uint32_t awaited;     /* wait: an earlier position */
    uint32_t region;      /* save, load, wait: the root, or the entry that they belong to */
};

/* The bytes of one copy of a value, in the space where it resides, or of the scratch of one
 * position (value UL_PLAN_NONE). A range reserves size_bytes rounded up to the plan's alignment. */
struct ul_plan_range {
    uint32_t value;
    uint32_t copy;       /* of the value's ranges, in order of `begin` */
    uint32_t begin, end; /* positions */
    uint32_t space;
    uint32_t alias; /* range whose first bytes this one takes over at `begin`, or UL_PLAN_NONE */
    enum ul_plan_class class;
    uint64_t offset_bytes;
    uint64_t size_bytes;
};

/* The sum table of space 0: class_bytes[] are taken at peak_position, each alias chain counted
 * once, as its newest member there; reserved = all classes + alignment + holes. */
struct ul_plan_rows {
    uint64_t class_bytes[UL_PLAN_CLASS_COUNT];
    uint64_t alignment_bytes;
    uint64_t holes_bytes;
};

struct ul_plan {
    struct ul_plan_position *positions;
    uint32_t position_count;
    /* Values in order of (value, copy), then scratch in order of position. */
    struct ul_plan_range *ranges;
    uint32_t range_count;
    uint32_t *value_ranges;   /* first range of each value; value_count + 1 entries */
    uint64_t *reserved_bytes; /* per space: the highest end of a range */
    uint32_t space_count;
    uint64_t beside_bytes; /* reserved of the spaces that are beside, and the deepest stack */
    uint64_t alignment_bytes;
    struct ul_plan_rows rows;
    uint32_t peak_position;            /* first of the largest padded live sum of space 0 */
    uint64_t order_lower_bound_bytes;  /* that sum: no packing of this order is smaller */
    uint64_t orders_lower_bound_bytes; /* of that sum, over all orders of every step once, by its
                                          cheapest alternative, as far as it is proven */
    uint64_t lower_bound_bytes;        /* over all orders, recomputations, packings */
    uint64_t cost;                     /* when stream 0 is done: without others, the sum */
    uint64_t base_cost;                /* the problem's; else every step once, at its cheapest */
    bool fits;                         /* budget and capacities hold */
    bool packing_proven;               /* no packing of these ranges is smaller */
    uint64_t cost_bound;               /* under a budget: no plan within it costs less; else 0 */
    const char *cost_bound_method;     /* what proved of it more than every step once, or NULL */
    bool optimal;                      /* reserved_bytes[0] equals lower_bound_bytes, or, under a
                                          budget, the plan fits and costs no more than cost_bound */
    const char *optimal_within;        /* what a narrower proof of the cost covers, or NULL */
    bool stopped_by_time;
    uint64_t smallest_budget_bytes; /* the smallest one that the search met */
    uint64_t sufficient_room_bytes; /* where it does not fit: the room in another space with which
                                       a plan does; 0: none is known */
    uint64_t bounded_bytes;         /* what a budget bounds of it; 0: reserved_bytes[0] */
    const char *order_method;
    const char *remat_method;
    const char *pack_method;
    /* Why a method of order, recomputation or packing that was named does not serve, or NULL. */
    const char *order_why_not;
    const char *remat_why_not;
    const char *pack_why_not;
};

/* Fills a zeroed options struct's defaults in, for printing; solve does it by itself. */
void ul_plan_options_resolve(struct ul_plan_options *options);

/* plan.c */

/* A copy of `plan` in `arena`, for a plan that outlives the arena that it was made in. */
struct ul_plan ul_plan_keep(struct ul_arena *arena, const struct ul_problem *problem,
                            const struct ul_plan *plan);
/* How much more time a cost is than the base, as a part of the base; below 0: less. */
double ul_plan_overhead(uint64_t cost, uint64_t base_cost);
/* What space 0 may hold: a budget and the capacity, whichever is smaller; 0: as much as it takes.
 */
uint64_t ul_plan_limit_bytes(const struct ul_problem *problem, uint64_t budget_bytes);
/* Sets beside_bytes, once positions and reserved_bytes are there. */
void ul_plan_sum_beside(const struct ul_problem *problem, struct ul_plan *plan);
/* What is late, as above. */
uint64_t ul_plan_late_bytes(const struct ul_plan_beside *beside, uint64_t reserved_bytes);
/* What a budget bounds of a plan, by what it reserves of the spaces; never falls with that. */
uint64_t ul_plan_bounded_bytes(const struct ul_plan_beside *beside, const struct ul_plan *plan);
/* The most that may be reserved of space 0 within a budget, with what `plan` has in the spaces
 * beside (NULL: nothing); 1 where that is nothing. */
uint64_t ul_plan_space_budget(const struct ul_plan_beside *beside, const struct ul_plan *plan,
                              uint64_t budget_bytes);
/* Sets `fits`: whether the budget (0: none; NULL: of space 0 alone) and the capacities of the
 * spaces hold, and methods that were named serve. */
void ul_plan_judge(const struct ul_problem *problem, uint64_t budget_bytes,
                   const struct ul_plan_beside *beside, struct ul_plan *plan);
/* UL_NO_FIT with why, where a method of order or packing that was named does not serve. */
enum ul_status ul_plan_require_methods(const struct ul_plan_options *options,
                                       const struct ul_plan *plan,
                                       struct ul_diag *diag) UL_MUST_CHECK;
/* Why the method of recomputation that was named does not serve: remat_why_not is not NULL. */
const char *ul_plan_remat_refusal(struct ul_arena *arena, const struct ul_plan_options *options,
                                  const struct ul_plan *plan);
/* Whether the positions are runs of stream 0 and nothing else. */
bool ul_plan_only_runs(const struct ul_plan *plan);
/* Whether some of its runs are on another stream. */
bool ul_plan_has_streams(const struct ul_plan *plan);
/* Whether values move to other spaces. */
bool ul_plan_has_transfers(const struct ul_plan *plan);
/* Fills value_ranges for ranges that were read. UL_INVALID: they are not in order. */
enum ul_status ul_plan_index_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                                    struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;
/* The range that holds `value` in its own space at `position` (the copy that a read there sees), or
 * NULL. Where a position rewrites a value into a fresh copy, that is the newer one. */
const struct ul_plan_range *ul_plan_find_range(const struct ul_problem *problem,
                                               const struct ul_plan *plan, uint32_t value,
                                               uint32_t position);

/* plan_text.c: planner/README.md has the grammar. What is printed is read back to a plan that
 * prints the same bytes; what else is read is the checker's to judge. UL_INVALID with the line. */

void ul_plan_print(struct ul_text *text, const struct ul_plan *plan);
/* Whether these bytes begin as a plan in text does. */
bool ul_plan_is_text(const char *text, uint64_t size_bytes);
enum ul_status ul_plan_parse(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                             const struct ul_problem *problem, struct ul_plan *plan,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* Positions alone, to which ul_plan_complete makes the rest. */
enum ul_status ul_positions_parse(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                  struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

/* beside.c */

/* Makes the ranges and sums of the spaces that are beside anew, as positions and problem say: what
 * lies there is no byte of the plan's own, and a plan may be written and kept without. */
void ul_plan_place_beside(struct ul_arena *arena, const struct ul_problem *problem,
                          struct ul_plan *plan);
/* Takes these ranges out, and leaves the sums. */
void ul_plan_drop_beside(struct ul_arena *arena, const struct ul_problem *problem,
                         struct ul_plan *plan);

/* check.c, check_sums.c: share no code with the rest of the folder, but names for messages. */

/* Replays the plan symbolically: every step runs, after what it needs, and finds the right value
 * in its bytes; nothing overlaps or exceeds its space; the sums add up. UL_MISMATCH otherwise,
 * with the position and the value. Accepts any plan, also an edited one. */
enum ul_status ul_plan_check(struct ul_arena *scratch, const struct ul_problem *problem,
                             const struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

#endif
