/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: the order of a problem's steps, and the place of each live range; its independent
 * checker. */
#ifndef UL_PLANNER_MODEL_PLAN_H
#define UL_PLANNER_MODEL_PLAN_H

#include "planner/model/method.h"
#include "planner/model/problem.h"

/* What a budget bounds in addition to space 0; zeros: nothing. `reserved` are the bytes of space 0
 * and `beside` those of the spaces outside the plan's own. A process takes
 *
 *     while steps run      reserved - unread + reserved / page_share + beside + run - late
 *     before the first     start_page, where that much is reserved, + beside + start, and
 *     before any           load, where anything is in start_space
 *
 * and the largest of these counts. `late` is the part of `run` that appears only after the reserved
 * bytes are given back: `last`, but at most a quarter of what is reserved and touched beyond
 * `held`. */
struct ul_process_overhead {
    bool has_spaces; /* the spaces outside count too */
    uint64_t run_bytes;
    uint64_t last_bytes;   /* the part of run_bytes */
    uint64_t held_bytes;   /* of the reserved ones, never given back */
    uint64_t unread_bytes; /* of the reserved ones, never touched */
    uint64_t page_share;   /* one byte of page tables for this many; 0: none */
    uint32_t start_space;  /* 0: nothing starts */
    uint64_t start_bytes;
    uint64_t start_page_bytes;
    uint64_t load_bytes;
};

/* For method `keep`, which no budget changes: the results of the forward pass that a plan keeps;
 * everything else is recomputed after it. By step of the problem. */
struct ul_plan_kept {
    const bool *is_forward;
    const bool *is_kept; /* the step's results are kept */
};

struct ul_order_memo; /* planner/order/order.h */

/* Zeroed options are the defaults. */
struct ul_plan_options {
    enum ul_plan_pack pack; /* none: every range has its own bytes throughout, nothing in place */
    enum ul_plan_order order;
    enum ul_plan_remat remat;
    uint64_t alignment_bytes; /* 0: UL_PLAN_ALIGN_BYTES */
    uint64_t budget_bytes; /* of space 0, packed, in addition to its capacity, and of what a budget
                              bounds outside; 0: none */
    struct ul_process_overhead overhead;
    uint64_t below_bytes; /* for a ladder: bounded bytes below which rungs are searched; 0: below
                             the plan without a budget */
    bool finds_room; /* for a ladder: where nothing is within the budget for lack of room in another
                        space, searches how much would suffice */
    const struct ul_plan_kept *kept; /* where remat is UL_REMAT_KEEP */
    uint64_t seed;
    uint64_t work_limit;          /* counted search nodes; 0: the default */
    double time_limit_seconds;    /* 0: none */
    struct ul_order_memo *orders; /* found for this and other problems, or NULL */
};

enum ul_plan_kind {
    UL_PLAN_RUN,  /* a substep of a step, which may run more than once: a recomputation */
    UL_PLAN_COPY, /* a step of an engine: a value's bytes go from its own space to another, into a
                     new range there; or back, from the last range there into a new one here */
    UL_PLAN_WAIT  /* continues when `awaited`, of another stream, and everything before that is done
                   */
};

/* The words for positions in texts: "run", "save", "load", "wait". In plan_text.c. */
enum { UL_PLAN_WORD_COUNT = 4 };
const char *ul_plan_word(uint32_t word);
uint32_t ul_plan_word_of(enum ul_plan_kind kind, bool loads);

/* One position of the timeline. Positions of stream 0 run one after the other. A position of
 * another stream begins when all earlier ones of stream 0 and of its own stream are done, and runs
 * at the same time as what follows; all that it touches lives through the wait for it:
 *
 *     position   0    1       2    3    4
 *     stream 0   run          run  wait run
 *     stream 1        save x
 *     x          [-----------------)           nothing may write it at 2
 *     x, saved        [----------------- ...   nothing may touch it at 2
 *
 * A persistent value whose first transfer is a load is at home in the other space: its first range
 * is there at every position, loads copy from it, and saves copy back into it. Every entry, or the
 * root, begins without a copy in its own space, and ends after saving what it wrote. */
struct ul_plan_position {
    enum ul_plan_kind kind;
    uint32_t stream;      /* of a wait: 0 */
    uint32_t step;        /* run */
    uint32_t alternative; /* run */
    uint32_t substep;     /* run */
    uint32_t copy;        /* run: 0 the first time the step runs, 1 the first recomputation, ... */
    uint32_t value;       /* copy */
    uint32_t space;       /* copy: the other space, where it goes to or comes from */
    bool loads;           /* copy: comes from there */
    uint32_t awaited;     /* wait: an earlier position */
    uint32_t region;      /* copy, wait: the root, or the entry to which they belong */
};

/* Sets the kind, and the direction of a copy, from the word. */
void ul_plan_set_word(struct ul_plan_position *position, uint32_t word);

/* The bytes of one copy of a value, in the space where it resides, or of the scratch of one
 * position (value UL_PLAN_NONE). A range reserves size_bytes rounded up to the plan's alignment. */
struct ul_plan_range {
    uint32_t value;
    uint32_t copy;       /* among the value's ranges, in order of `begin` */
    uint32_t begin, end; /* positions */
    uint32_t space;
    uint32_t alias; /* range whose first bytes this one takes over at `begin`, or UL_PLAN_NONE */
    enum ul_plan_class class;
    uint64_t offset_bytes;
    uint64_t size_bytes;
};

/* The sum table of space 0: class_bytes[] are taken at peak_position, where each alias chain counts
 * once, as its newest member; reserved = all classes + alignment + holes. */
struct ul_plan_rows {
    uint64_t class_bytes[UL_PLAN_CLASS_COUNT];
    uint64_t alignment_bytes;
    uint64_t holes_bytes;
};

/* The begin of a bank of the problem in space 0, and its bytes: up to the highest end of a range in
 * it. Banks follow each other. */
struct ul_plan_bank_place {
    uint64_t begin_bytes, size_bytes;
};

struct ul_plan {
    struct ul_plan_position *positions;
    uint32_t position_count;
    /* Values in order of (value, copy), then scratch in order of position. */
    struct ul_plan_range *ranges;
    uint32_t range_count;
    uint32_t *value_ranges;   /* first range of each value; value_count + 1 entries */
    uint64_t *reserved_bytes; /* by space: the highest end of a range */
    uint32_t space_count;
    struct ul_plan_bank_place *banks; /* as the problem's; NULL: not laid out in them */
    uint32_t bank_count;
    uint64_t bank_cost;       /* the part of `cost` for moving bytes to and from banks */
    uint64_t bank_cost_bound; /* no layout of these ranges in the banks costs less */
    uint64_t overhead_bytes;  /* reserved in the spaces outside, plus the deepest stack */
    uint64_t alignment_bytes;
    struct ul_plan_rows rows;
    uint32_t peak_position;            /* the first with the largest padded live sum of space 0 */
    uint64_t order_lower_bound_bytes;  /* that sum: no packing of this order is smaller */
    uint64_t orders_lower_bound_bytes; /* a proven bound of that sum over all orders of every step
                                          once, by its cheapest alternative */
    uint64_t lower_bound_bytes;        /* over all orders, recomputations, packings */
    uint64_t cost;                     /* when stream 0 is done: without other streams, the
                                          sum; plus bank_cost */
    uint64_t base_cost;  /* the problem's; else every step once, by its cheapest alternative */
    bool fits;           /* budget and capacities hold */
    bool packing_proven; /* no packing of these ranges is smaller */
    uint64_t cost_bound; /* under a budget: no plan within it costs less; else 0 */
    /* the method that proved it to be more than every step once, or NULL */
    const char *cost_bound_method;
    bool optimal;               /* reserved_bytes[0] equals lower_bound_bytes, or, under a
                                   budget, the plan fits and costs no more than cost_bound */
    const char *optimal_within; /* what a narrower proof of the cost covers, or NULL */
    bool stopped_by_time;
    uint64_t smallest_budget_bytes; /* the smallest budget that the search found to work */
    uint64_t sufficient_room_bytes; /* where it does not fit: the room in another space with which a
                                       plan does; 0: none is known */
    uint64_t bounded_bytes;         /* the bytes that a budget bounds; 0: reserved_bytes[0] */
    const char *order_method;
    const char *remat_method;
    const char *pack_method;
    /* Why a method of order, recomputation or packing that was named cannot be used, or NULL. */
    const char *order_why_not;
    const char *remat_why_not;
    const char *pack_why_not;
};

/* Fills in the defaults of a zeroed options struct, for printing; solve does it itself. */
void ul_plan_options_resolve(struct ul_plan_options *options);

/* plan.c */

/* A copy of `plan` in `arena`, for a plan that outlives the arena that it was made in. */
struct ul_plan ul_plan_keep(struct ul_arena *arena, const struct ul_problem *problem,
                            const struct ul_plan *plan);
/* How much more a cost is than the base, as a fraction of the base; negative: less. */
double ul_plan_overhead(uint64_t cost, uint64_t base_cost);
/* What space 0 may hold: a budget or the capacity, whichever is smaller; 0: no limit. */
uint64_t ul_plan_limit_bytes(const struct ul_problem *problem, uint64_t budget_bytes);
/* Sets beside_bytes, once positions and reserved_bytes are set. */
void ul_plan_sum_overhead(const struct ul_problem *problem, struct ul_plan *plan);
/* The late bytes, as above. */
uint64_t ul_plan_late_bytes(const struct ul_process_overhead *overhead, uint64_t reserved_bytes);
/* The bytes of a plan that a budget bounds, by what it reserves of the spaces; never falls as more
 * is reserved. */
uint64_t ul_plan_bounded_bytes(const struct ul_process_overhead *overhead,
                               const struct ul_plan *plan);
/* The most that may be reserved of space 0 within a budget, with what `plan` has in the spaces
 * outside (NULL: nothing); 1 where that is nothing. */
uint64_t ul_plan_space_budget(const struct ul_process_overhead *overhead,
                              const struct ul_plan *plan, uint64_t budget_bytes);
/* Sets `fits`: whether the budget (0: none; NULL: only of space 0) and the capacities of the spaces
 * hold, and named methods can be used. */
void ul_plan_judge(const struct ul_problem *problem, uint64_t budget_bytes,
                   const struct ul_process_overhead *overhead, struct ul_plan *plan);
/* UL_NO_FIT with the reason, where a method of order or packing that was named cannot be used. */
enum ul_status ul_plan_require_methods(const struct ul_plan_options *options,
                                       const struct ul_plan *plan,
                                       struct ul_diag *diag) UL_MUST_CHECK;
/* Why the named method of recomputation cannot be used: remat_why_not is not NULL. */
const char *ul_plan_remat_refusal(struct ul_arena *arena, const struct ul_plan_options *options,
                                  const struct ul_plan *plan);
/* The resource that performs a run or a copy. */
const struct ul_plan_resource *ul_plan_resource_at(const struct ul_problem *problem,
                                                   const struct ul_plan_position *at);
/* The cost of a run or a copy alone; the first substep has the whole cost of a step. */
uint64_t ul_plan_cost_at(const struct ul_problem *problem, const struct ul_plan_position *at);
/* The bank that holds [offset, offset + size), or UL_PLAN_NONE. */
uint32_t ul_plan_find_bank(const struct ul_plan *plan, uint64_t offset_bytes, uint64_t size_bytes);
/* Whether all positions are runs of stream 0. */
bool ul_plan_only_runs(const struct ul_plan *plan);
/* Whether some of its runs are on another stream. */
bool ul_plan_has_streams(const struct ul_plan *plan);
/* Whether values move to other spaces. */
bool ul_plan_has_transfers(const struct ul_plan *plan);
/* Fills value_ranges for ranges that were read. UL_INVALID: they are not in order. */
enum ul_status ul_plan_index_ranges(struct ul_arena *arena, const struct ul_problem *problem,
                                    struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;
/* The range that holds `value` in its own space at `position` (the copy that a read there sees), or
 * NULL. Where a position rewrites a value into a new copy, that is the newer one. */
const struct ul_plan_range *ul_plan_find_range(const struct ul_problem *problem,
                                               const struct ul_plan *plan, uint32_t value,
                                               uint32_t position);

/* plan_text.c: planner/README.md has the grammar. A printed plan is read back to a plan that prints
 * the same bytes; the checker judges any other. UL_INVALID with the line. */

void ul_plan_print(struct ul_text *text, const struct ul_plan *plan);
/* Whether these bytes begin like a plan in text. */
bool ul_plan_is_text(const char *text, uint64_t size_bytes);
enum ul_status ul_plan_parse(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                             const struct ul_problem *problem, struct ul_plan *plan,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* Reads only positions; ul_plan_complete makes the rest from them. */
enum ul_status ul_positions_parse(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                  struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

/* overhead.c */

/* Makes the ranges and sums of the spaces outside the plan's own from positions and problem: they
 * are not the plan's own bytes, and a plan may be written and kept without them. */
void ul_plan_place_overhead(struct ul_arena *arena, const struct ul_problem *problem,
                            struct ul_plan *plan);
/* Removes these ranges, and leaves the sums. */
void ul_plan_drop_overhead(struct ul_arena *arena, const struct ul_problem *problem,
                           struct ul_plan *plan);

/* check.c, check_sums.c: share no code with the rest of the folder, except names for messages. */

/* Replays the plan symbolically: every step runs after what it needs, and finds the right value in
 * its bytes; nothing overlaps or exceeds its space; the sums add up. UL_MISMATCH otherwise, with
 * the position and the value. Accepts any plan, even an edited one. */
enum ul_status ul_plan_check(struct ul_arena *scratch, const struct ul_problem *problem,
                             const struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

#endif
