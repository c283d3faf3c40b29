/* The memory planner: a problem goes in, a plan comes out; it knows no tensors and no ONNX.
 *
 * Invariants: ids are indexes into the problem's arrays and are dense. The order of the steps
 * array is the file order and must be a valid execution order. Positions are indexes into the
 * plan's order; a live range is half-open, [begin, end), in positions. Two ranges of one space
 * whose lifetimes and bytes both overlap are in one alias chain. The same problem and options
 * give the same plan, bit for bit, unless a time limit stopped the search (stopped_by_time).
 * Ownership: ul_problem_add_* copy what they are handed into the problem's arena; names are
 * borrowed and must outlive the problem and its plans. A plan lives in the arena passed to solve.
 * Units: bytes end in _bytes; cost is in nanoseconds by convention, but any unit serves.
 * Failure: a malformed problem is UL_INVALID with text in the diag; not fitting a budget or a
 * capacity is an answer (`fits` is false), not a failure.
 */
#ifndef UL_PLANNER_H
#define UL_PLANNER_H

#include "base/base.h"

#define UL_PLAN_NONE UINT32_MAX
#define UL_PLAN_ALIGN_BYTES 64 /* default alignment of every range */

/* ---- The problem ---- */

/* What a live range is counted as in the sum table; the planner only adds them up. */
enum ul_plan_class {
    UL_PLAN_WEIGHTS,
    UL_PLAN_OPTIMIZER,
    UL_PLAN_GRADIENTS,
    UL_PLAN_SAVED, /* activations kept for backward */
    UL_PLAN_ACTIVATIONS,
    UL_PLAN_SCRATCH,
    UL_PLAN_INPUTS,
    UL_PLAN_OUTPUTS
};
enum { UL_PLAN_CLASS_COUNT = UL_PLAN_OUTPUTS + 1 };

/* A value is a base buffer: views of it are the caller's affair, and a use of a view is a use of
 * the value. It is live from the first position that writes it (from the start, if so flagged)
 * through the last that touches it (to the end, if so flagged). */
struct ul_plan_value {
    const char *name; /* for messages */
    uint64_t size_bytes;
    uint64_t alignment_bytes; /* power of two; 0: the default; less than the default: the default */
    enum ul_plan_class class;
    uint32_t space;       /* index into spaces; 0 is the arena */
    uint32_t span_region; /* also live through this whole region, or UL_PLAN_NONE */
    bool persistent;      /* live at every position, same bytes in every run */
    bool live_from_start; /* inputs */
    bool live_to_end;     /* outputs */
    bool pinned;          /* must lie at pinned_offset_bytes */
    bool never_recompute; /* its producer has effects, or the caller wants it kept */
    uint64_t pinned_offset_bytes;
};

/* `output` may take the first bytes of `input`, which must be at least as long, if no later
 * position needs `input`. The planner decides; the range of the output says what was decided. */
struct ul_plan_in_place {
    uint32_t output;
    uint32_t input;
};

/* One position on the timeline: what is touched while it runs. Everything that a part touches is
 * live together. A value both read and written is updated where it lies. */
struct ul_plan_part {
    const uint32_t *reads;
    const uint32_t *writes;
    const struct ul_plan_in_place *in_place;
    uint32_t read_count;
    uint32_t write_count;
    uint32_t in_place_count;
    uint32_t scratch_space;
    uint64_t scratch_bytes; /* live at this position alone; 0: none */
    uint64_t scratch_alignment_bytes;
};

/* One way to run a step: an implementation, a layout, a split. Most have one part; a split has
 * several, run one after the other with nothing between them. */
struct ul_plan_alternative {
    const char *name; /* may be NULL */
    const struct ul_plan_part *parts;
    uint32_t part_count;
    uint64_t cost;
};

enum ul_plan_kind { UL_PLAN_COMPUTE, UL_PLAN_COPY, UL_PLAN_TRANSFER };

/* Precedence follows from the values: in file order, a reader comes after every earlier writer
 * of what it reads, and a writer after every earlier reader of what it writes. Steps that only
 * write one value (the slices of a Concat) are free among themselves. More goes in predecessors.
 */
struct ul_plan_step {
    const char *name; /* for messages */
    enum ul_plan_kind kind;
    uint32_t region; /* innermost region; 0 is the root */
    const struct ul_plan_alternative *alternatives;
    const uint32_t *predecessors;
    uint32_t alternative_count; /* at least 1 */
    uint32_t predecessor_count;
};

/* Regions form a tree over the timeline; region 0 is the root sequence. The steps of a region and
 * of all its descendants are contiguous in file order, and stay so in every plan.
 *   branch: a sequence whose sibling branches of one If exclude each other in a run.
 *   loop:   its steps run repeatedly: a value touched both inside and outside of it (carried
 *           values are: they are initialised outside) lives through the whole loop. */
enum ul_plan_region_kind { UL_PLAN_SEQUENCE, UL_PLAN_BRANCH, UL_PLAN_LOOP };
struct ul_plan_region {
    enum ul_plan_region_kind kind;
    uint32_t parent; /* less than its own id; UL_PLAN_NONE for region 0 */
};

struct ul_plan_space {
    const char *name;
    uint64_t capacity_bytes; /* 0: unlimited */
};

struct ul_problem {
    struct ul_arena *arena;
    struct ul_plan_value *values;
    struct ul_plan_step *steps;
    struct ul_plan_region *regions;
    struct ul_plan_space *spaces;
    uint32_t value_count, value_capacity;
    uint32_t step_count, step_capacity;
    uint32_t region_count, region_capacity;
    uint32_t space_count, space_capacity;
    uint64_t base_cost; /* what overhead refers to, where this problem is a rewriting of another
                           (the other's base cost); 0: every step once, its cheapest alternative */
};

/* problem.c */

/* An empty problem with the root region 0 and the space 0, named "arena". */
struct ul_problem *ul_problem_new(struct ul_arena *arena);
/* A value with the defaults: no flags, no span, space 0. */
struct ul_plan_value ul_plan_value_make(const char *name, enum ul_plan_class class,
                                        uint64_t size_bytes);
/* Each returns the new id. Arrays that hang on a step are copied. */
uint32_t ul_problem_add_value(struct ul_problem *problem, const struct ul_plan_value *value);
uint32_t ul_problem_add_step(struct ul_problem *problem, const struct ul_plan_step *step);
/* A step with one alternative of one part. */
uint32_t ul_problem_add_simple_step(struct ul_problem *problem, const char *name, uint32_t region,
                                    uint64_t cost, const struct ul_plan_part *part);
uint32_t ul_problem_add_region(struct ul_problem *problem, enum ul_plan_region_kind kind,
                               uint32_t parent);
uint32_t ul_problem_add_space(struct ul_problem *problem, const char *name,
                              uint64_t capacity_bytes);
/* `step` must also come after `predecessor`, which has the smaller id. */
void ul_problem_add_predecessor(struct ul_problem *problem, uint32_t step, uint32_t predecessor);
/* Whether `id` is among the ids, such as those of the values that a part reads. */
bool ul_ids_have(const uint32_t *ids, uint32_t count, uint32_t id);
/* Every id, size, alignment and region in range, values written before they are read, sums that
 * do not overflow: UL_INVALID with the name of the step or value otherwise. */
enum ul_status ul_problem_verify(const struct ul_problem *problem,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* ---- The plan ---- */

enum ul_plan_pack { UL_PACK_BEST, UL_PACK_NONE, UL_PACK_GREEDY, UL_PACK_EXACT };
enum ul_plan_order {
    UL_ORDER_BEST,
    UL_ORDER_FILE,
    UL_ORDER_GREEDY,
    UL_ORDER_DFS,
    UL_ORDER_DP,
    UL_ORDER_BEAM,
    UL_ORDER_SEARCH,
    UL_ORDER_ILP
};
enum ul_plan_remat {
    UL_REMAT_BEST,
    UL_REMAT_NONE,
    UL_REMAT_GREEDY,
    UL_REMAT_SEARCH,
    UL_REMAT_CHAIN,
    UL_REMAT_ILP
};

/* Zeroed options are the defaults. */
struct ul_plan_options {
    enum ul_plan_pack pack; /* none: every range its own bytes for ever, nothing in place */
    enum ul_plan_order order;
    enum ul_plan_remat remat;
    uint64_t alignment_bytes; /* 0: UL_PLAN_ALIGN_BYTES */
    uint64_t budget_bytes;    /* of space 0, packed; 0: none */
    uint64_t seed;
    uint64_t work_limit;       /* counted search nodes; 0: the default */
    double time_limit_seconds; /* 0: none */
};

/* One position of the timeline. A step may occur more than once: a recomputation. */
struct ul_plan_position {
    uint32_t step;
    uint32_t alternative;
    uint32_t part;
    uint32_t copy; /* 0 the first time the step runs, 1 the first recomputation, ... */
};

/* The bytes of one copy of a value, or of the scratch of one position (value UL_PLAN_NONE).
 * A range reserves size_bytes rounded up to the plan's alignment. */
struct ul_plan_range {
    uint32_t value;
    uint32_t copy;
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
    uint64_t alignment_bytes;
    struct ul_plan_rows rows;
    uint32_t peak_position;            /* first of the largest padded live sum of space 0 */
    uint64_t order_lower_bound_bytes;  /* that sum: no packing of this order is smaller */
    uint64_t orders_lower_bound_bytes; /* of that sum, over all orders of every step once, by its
                                          cheapest alternative, as far as it is proven */
    uint64_t lower_bound_bytes;        /* over all orders, recomputations, packings */
    uint64_t cost;                     /* sum over the positions */
    uint64_t base_cost;                /* the problem's; else every step once, at its cheapest */
    bool fits;                         /* budget and capacities hold */
    bool packing_proven;               /* no packing of these ranges is smaller */
    bool optimal;                      /* reserved_bytes[0] equals lower_bound_bytes */
    bool stopped_by_time;
    uint64_t smallest_budget_bytes; /* smallest reserved that the search saw */
    const char *order_method;
    const char *remat_method;
    const char *pack_method;
};

/* Fills a zeroed options struct's defaults in, for printing; solve does it by itself. */
void ul_plan_options_resolve(struct ul_plan_options *options);

/* plan.c */

/* Plans `problem`; the plan has passed ul_plan_check. UL_INVALID: a malformed problem. */
enum ul_status ul_plan_solve(struct ul_arena *arena, const struct ul_problem *problem,
                             const struct ul_plan_options *options, struct ul_plan *plan,
                             struct ul_diag *diag) UL_MUST_CHECK;
/* A copy of `plan` in `arena`, for a plan that outlives the arena that it was made in. */
struct ul_plan ul_plan_keep(struct ul_arena *arena, const struct ul_problem *problem,
                            const struct ul_plan *plan);
/* Sets `fits`: whether the budget (0: none) and the capacities of the spaces hold. */
void ul_plan_judge(const struct ul_problem *problem, uint64_t budget_bytes, struct ul_plan *plan);
/* The range that holds `value` at `position` (the copy that a read there sees), or NULL. Where a
 * position rewrites a value into a fresh copy, that is the newer one. */
const struct ul_plan_range *ul_plan_find_range(const struct ul_plan *plan, uint32_t value,
                                               uint32_t position);

/* ladder.c */

/* One plan of a ladder. Where the ladders of a program and of its rewritings are merged, `variant`
 * says whose plan it is. */
struct ul_plan_rung {
    struct ul_plan plan;
    uint32_t variant;
};

/* Plans of ever less memory and ever more cost. The first is the plan without a budget; from the
 * second on, reserved_bytes[0] falls and the cost rises with every rung. */
struct ul_plan_ladder {
    struct ul_plan_rung *rungs;
    uint32_t count;
};

/* The ladder of `problem`, whatever options->budget_bytes says: since it does not depend on a
 * budget, the first rung that fits one is monotone in it. `base` is what ul_plan_solve made without
 * a budget, or NULL. Each plan has passed ul_plan_check. */
enum ul_status ul_ladder_build(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, const struct ul_plan *base,
                               struct ul_plan_ladder *ladder, struct ul_diag *diag) UL_MUST_CHECK;
/* Takes over the rungs of `other`, as plans of `variant`, that are smaller than all that cost no
 * more, and drops those that became worse than one of them. */
void ul_ladder_merge(struct ul_arena *arena, struct ul_plan_ladder *ladder,
                     const struct ul_plan_ladder *other, uint32_t variant);
/* The cheapest rung within the budget (0: any), or, where none is, the smallest. Sets its
 * `smallest_budget_bytes`, and `fits` as far as the budget goes. */
void ul_ladder_pick(const struct ul_plan_ladder *ladder, uint64_t budget_bytes,
                    struct ul_plan_rung *rung);

/* check.c: shares no code with the rest of the folder. */

/* Replays the plan symbolically: every step runs, after what it needs, and finds the right value
 * in its bytes; nothing overlaps or exceeds its space; the sums add up. UL_MISMATCH otherwise,
 * with the position and the value. Accepts any plan, also an edited one. */
enum ul_status ul_plan_check(struct ul_arena *scratch, const struct ul_problem *problem,
                             const struct ul_plan *plan, struct ul_diag *diag) UL_MUST_CHECK;

/* ---- Packing alone ---- */

/* While in [begin, end) only the bytes [window_lower, window_upper) of the buffer are in use
 * (none if the two are equal): MiniMalloc's gaps. */
struct ul_pack_gap {
    uint32_t begin, end;
    uint64_t window_lower_bytes, window_upper_bytes;
};

struct ul_pack_buffer {
    uint32_t begin, end; /* half-open lifetime */
    uint64_t size_bytes;
    uint64_t alignment_bytes; /* power of two is not required here; 0 and 1: none */
    uint64_t offset_bytes;    /* in: where it is pinned; out: where it lies */
    bool pinned;
    const struct ul_pack_gap *gaps; /* disjoint, ascending, inside the lifetime */
    uint32_t gap_count;
};

struct ul_pack_options {
    enum ul_plan_pack method;
    uint64_t capacity_bytes;   /* 0: minimise; else the first packing within it ends the search */
    uint64_t work_limit;       /* counted placements; 0: the default */
    double time_limit_seconds; /* 0: none */
    uint64_t seed;
};

struct ul_pack_result {
    uint64_t arena_bytes;       /* highest end of a buffer */
    uint64_t lower_bound_bytes; /* of any packing */
    bool optimal;               /* arena_bytes is proven to be the least */
    bool fits;                  /* arena_bytes <= capacity, or no capacity */
    bool proven;                /* `fits` (or optimality, without a capacity) is not in doubt */
    bool stopped_by_time;
    uint64_t work;
    const char *method;
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
    bool has_end; /* the column `end`, inclusive, stands for `upper` */
    bool has_alignment;
    bool has_gaps;
};

/* UL_INVALID with the line that is wrong. */
enum ul_status ul_pack_read_csv(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                struct ul_pack_table *table, struct ul_diag *diag) UL_MUST_CHECK;
/* The same columns, and `offset`. */
void ul_pack_write_csv(struct ul_text *text, const struct ul_pack_table *table);

/* ---- Order and recomputation alone, on an abstract graph ---- */

/* Running node v costs `cost` and makes one value of size_bytes, live from that step through its
 * last consumer's before the next copy is made (its own step, if nobody reads it). Inputs and
 * output of a step are live together. */
struct ul_solve_graph {
    const char *name;
    uint32_t node_count;
    const char **names;
    uint64_t *size_bytes;
    uint64_t *cost;
    uint32_t *input_first; /* node_count + 1 entries */
    uint32_t *inputs;
    uint32_t *user_first; /* node_count + 1 entries */
    uint32_t *users;
    uint32_t *order; /* the published one */
    /* What only graphs made from a problem have; NULL and 0 elsewhere. */
    uint64_t *working_bytes; /* per node: live while it runs, and no longer */
    uint32_t *in_place;      /* per node: an input whose bytes the output takes over where no later
                                step reads that copy (the smaller of both sizes counts once), or
                                UL_PLAN_NONE */
    bool *run_once;          /* per node: may not be repeated */
    uint64_t base_bytes;     /* live throughout, part of every peak */
};

struct ul_solve_options {
    enum ul_plan_order order;
    enum ul_plan_remat remat;
    uint64_t budget_bytes; /* of the live sum; 0: none */
    uint64_t seed;
    uint64_t work_limit;       /* counted node visits; 0: the default */
    double time_limit_seconds; /* 0: none */
};

struct ul_solve_result {
    uint32_t *order; /* with repeats */
    uint32_t order_count;
    uint64_t peak_bytes;
    uint64_t order_peak_bytes;  /* of the published order */
    uint64_t lower_bound_bytes; /* over all orders and recomputations */
    uint64_t cost, base_cost, cost_bound;
    uint32_t recomputes;
    bool optimal;               /* over the full problem */
    const char *optimal_within; /* what a narrower proof covers, or NULL */
    bool fits;
    bool proven;                    /* a misfit is certain */
    uint64_t smallest_budget_bytes; /* the smallest peak seen */
    uint32_t largest_step;          /* the step that needs lower_bound_bytes */
    bool stopped_by_time;
    const char *method;
};

/* solve_json.c: planner/README.md has the format. UL_INVALID with what is wrong. */
enum ul_status ul_solve_read_json(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                  struct ul_solve_graph *graph, struct ul_diag *diag) UL_MUST_CHECK;

/* solve.c */

/* The best order and recomputations found; never worse than the published order. */
void ul_solve_run(struct ul_arena *arena, const struct ul_solve_graph *graph,
                  const struct ul_solve_options *options, struct ul_solve_result *result);
/* Replays a sequence by the definition: false if a step runs before its inputs were made. */
bool ul_solve_replay(const struct ul_solve_graph *graph, const uint32_t *sequence, uint32_t count,
                     uint64_t *peak_bytes, uint64_t *cost);

#endif
