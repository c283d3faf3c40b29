/* SPDX-License-Identifier: Apache-2.0 */
/* The memory planner: a problem goes in, a plan comes out; it knows no tensors and no ONNX.
 *
 * Invariants: ids are indexes into the problem's arrays and are dense. The order of the steps array
 * is the file order and must be a valid execution order. Positions are indexes into the plan's
 * order; a live range is half-open, [begin, end), in positions. Two ranges of one space whose
 * lifetimes and bytes both overlap are in one alias chain. The same problem and options give the
 * same plan, bit for bit, unless a time limit stopped the search (stopped_by_time). Ownership:
 * ul_problem_add_* copy their arguments into the problem's arena; names are borrowed and must
 * outlive the problem and its plans. A plan lives in the arena passed to solve. Units: bytes end in
 * _bytes; cost is in nanoseconds by convention, but any unit serves. Failure: a malformed problem
 * is UL_INVALID with text in the diag; not fitting a budget or a capacity is an answer (`fits` is
 * false), not a failure. */
#ifndef UL_PLANNER_MODEL_PROBLEM_H
#define UL_PLANNER_MODEL_PROBLEM_H

#include "base/base.h"

#define UL_PLAN_NONE UINT32_MAX
#define UL_PLAN_ALIGN_BYTES 64 /* default alignment of every range */

/* The class of a live range in the sum table; the planner only adds classes up. */
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
const char *ul_plan_class_name(enum ul_plan_class class); /* "weights", as reports say it */
bool ul_plan_class_accept(struct ul_scan *scan, enum ul_plan_class *class);

/* A value is a base buffer: the caller handles its views, and a use of a view is a use of the
 * value. It is live from the first position that writes it (from the start, if so flagged) through
 * the last that touches it (to the end, if so flagged). */
struct ul_plan_value {
    const char *name; /* for messages */
    uint64_t size_bytes;
    uint64_t alignment_bytes; /* power of two; 0 or less than the default: the default */
    enum ul_plan_class class;
    uint32_t space;       /* where steps touch it: index into spaces; 0 is the arena */
    uint32_t span_region; /* also live through this whole region, or UL_PLAN_NONE */
    bool persistent;      /* live at every position, same bytes in every run */
    bool optional; /* persistent, but only in a plan where a position reads it: one alternative of
                      steps needs it and another does not; never written */
    bool live_from_start; /* inputs */
    bool live_to_end;     /* outputs */
    bool pinned;          /* must be at pinned_offset_bytes */
    bool never_recompute; /* its producer has effects, or the caller wants it kept */
    bool stays;           /* no transfer moves it */
    bool in_first_bank;   /* where space 0 has banks, it is in the first */
    uint64_t pinned_offset_bytes;
};

/* `output` may take the first bytes of `input`, which must be at least as long, if no later
 * position needs `input`. The planner decides; the range of the output shows the decision. */
struct ul_plan_in_place {
    uint32_t output;
    uint32_t input;
};

/* One position on the timeline, with the values that are touched while it runs. Everything that a
 * substep touches is live together. A value both read and written is updated in place. */
struct ul_plan_substep {
    const uint32_t *reads;
    const uint32_t *writes;
    const struct ul_plan_in_place *in_place;
    uint32_t read_count;
    uint32_t write_count;
    uint32_t in_place_count;
    uint32_t scratch_space;
    uint64_t scratch_bytes; /* live only at this position; 0: none */
    uint64_t scratch_alignment_bytes;
    /* Bytes that it moves for each value that it reads, then for each that it writes, then for its
     * scratch. NULL: as many as these have, for scratch twice as many. */
    const uint64_t *traffic;
};

/* One way to run a step: an implementation, a layout, a split. Most have one substep; a split has
 * several, which run one after the other with nothing between them. */
struct ul_plan_alternative {
    const char *name; /* may be NULL */
    const struct ul_plan_substep *substeps;
    uint32_t substep_count;
    /* that runs it; one other than 0 may run it at the same time as other steps */
    uint32_t resource;
    uint64_t moved_bytes; /* by the resource; the time for them is in the cost */
    uint64_t cost;
    bool other_bits; /* its results have other last bits: it is chosen only for its bytes, and costs
                        no less than the cheapest alternative without */
    uint64_t stack_bytes; /* while it runs, in no space: the largest in a plan counts, with the
                             bytes outside */
};

/* Precedence follows from the values: in file order, a reader comes after every earlier writer of
 * what it reads, and a writer after every earlier reader of what it writes. Steps that only write
 * one value (the slices of a Concat) may run in any order. Predecessors add more. */
struct ul_plan_step {
    const char *name; /* for messages */
    uint32_t region;  /* innermost region; 0 is the root */
    const struct ul_plan_alternative *alternatives;
    const uint32_t *predecessors;
    uint32_t alternative_count; /* at least 1 */
    uint32_t spare_count; /* alternatives after these, with the memory and cost of the first except
                             for more scratch: no plan is made with them, but a finished one takes
                             them where its scratch has room (ul_plan_take_spares) */
    uint32_t predecessor_count;
};

/* Regions form a tree over the timeline; region 0 is the root sequence. The steps of a region and
 * of all its descendants are contiguous in file order, and stay so in every plan.
 *   branch: a sequence; sibling branches of one If exclude each other in a run.
 *   loop:   its steps run repeatedly: a value touched both inside and outside of it (carried
 *           values are: they are initialised outside) lives through the whole loop.
 *   entry:  an entry point, whose parent is the root: a call runs its steps alone. How often and in
 *           which order the entries are called is open: a value touched inside and outside of one
 *           lives at every position; start and end of a value touched in one alone are that one's.
 */
enum ul_plan_region_kind { UL_PLAN_SEQUENCE, UL_PLAN_BRANCH, UL_PLAN_LOOP, UL_PLAN_ENTRY };
struct ul_plan_region {
    enum ul_plan_region_kind kind;
    uint32_t parent; /* less than its own id; UL_PLAN_NONE for region 0 */
};

struct ul_plan_space {
    const char *name;
    uint64_t capacity_bytes; /* for space 0 in addition to the budget, for others instead; 0:
                                unlimited */
    bool is_overhead; /* what something else keeps for the plan's steps, not bytes of the plan: a
                    budget may include it (struct ul_process_overhead) */
};

/* A resource does one thing after the other, at the same time as other resources. Row 0 runs steps
 * on stream 0.
 *   compute: runs steps.
 *   copy:    an engine that moves values to another space, to free their bytes, and back. The first
 *            row of a space does the saves, the last one the loads.
 *   link:    runs steps that move bytes between machines. */
enum ul_plan_resource_kind { UL_PLAN_COMPUTE, UL_PLAN_ENGINE, UL_PLAN_LINK };
struct ul_plan_resource {
    const char *name;
    enum ul_plan_resource_kind kind;
    uint32_t stream;       /* of the positions that it runs; above 0, except in row 0 */
    uint32_t space;        /* of an engine: the space that values move to */
    uint64_t bandwidth_mb; /* 10^6 bytes that it moves in a second, where cost is nanoseconds; 0:
                              bytes cost nothing */
    uint64_t latency_cost; /* for each operation, in addition to its bytes; in a row that computes,
                              for a wait */
};

/* A space where values may wait, with its engines. */
struct ul_plan_offload {
    const char *name;
    uint64_t capacity_bytes;
    uint64_t bandwidth_mb;
    uint64_t latency_cost;
    bool duplex; /* saves and loads run at the same time */
};

/* The memories of space 0, where there are several: every range is in one of them. The bytes that
 * substeps move cost time by their bank, in addition to the cost of alternatives. */
struct ul_plan_bank {
    const char *name;
    uint64_t capacity_bytes; /* above 0 */
    uint64_t bandwidth_mb;   /* 10^6 bytes moved in a second, where cost is nanoseconds; 0: they
                                cost nothing */
    bool weights;            /* it takes only weights */
};

struct ul_problem {
    struct ul_arena *arena;
    struct ul_plan_value *values;
    struct ul_plan_step *steps;
    struct ul_plan_region *regions;
    struct ul_plan_space *spaces;
    const struct ul_plan_bank *banks;
    uint32_t bank_count; /* 0: space 0 is one memory, whose bytes cost nothing */
    struct ul_plan_resource *resources;
    uint32_t value_count, value_capacity;
    uint32_t step_count, step_capacity;
    uint32_t region_count, region_capacity;
    uint32_t space_count, space_capacity;
    uint32_t resource_count, resource_capacity;
    uint64_t base_cost; /* the cost to which overhead refers, where this problem is a rewriting of
                           another (the other's base cost); 0: every step once by its cheapest
                           alternative */
};

/* problem.c */

/* An empty problem with the root region 0, the space 0, named "arena", and the resource 0. */
struct ul_problem *ul_problem_new(struct ul_arena *arena);
/* A value with the defaults: no flags, no span, space 0. */
struct ul_plan_value ul_plan_value_make(const char *name, enum ul_plan_class class,
                                        uint64_t size_bytes);
/* Each returns the new id. Arrays that belong to a step are copied. */
uint32_t ul_problem_add_value(struct ul_problem *problem, const struct ul_plan_value *value);
uint32_t ul_problem_add_step(struct ul_problem *problem, const struct ul_plan_step *step);
/* One for each alternative of a step. */
void ul_problem_set_stacks(struct ul_problem *problem, uint32_t step, const uint64_t *stack_bytes);
uint32_t ul_problem_add_region(struct ul_problem *problem, enum ul_plan_region_kind kind,
                               uint32_t parent);
uint32_t ul_problem_add_space(struct ul_problem *problem, const char *name,
                              uint64_t capacity_bytes);
/* Copies the banks of space 0, and makes the sum of their capacities its capacity. */
void ul_problem_set_banks(struct ul_problem *problem, const struct ul_plan_bank *banks,
                          uint32_t bank_count);
uint32_t ul_problem_add_resource(struct ul_problem *problem,
                                 const struct ul_plan_resource *resource);
/* Adds the space, and an engine on stream 1, or one for saves there and one for loads on 2. Returns
 * the space. */
uint32_t ul_problem_add_offload(struct ul_problem *problem, const struct ul_plan_offload *offload);
/* The cost of moving that many bytes. */
uint64_t ul_resource_cost(const struct ul_plan_resource *resource, uint64_t size_bytes);
/* The engine that saves values to a space, or loads them from there; NULL: none does. */
const struct ul_plan_resource *ul_problem_engine(const struct ul_problem *problem, uint32_t space,
                                                 bool loads);
/* The space that values of space 0 are moved to, or UL_PLAN_NONE. */
uint32_t ul_problem_other_space(const struct ul_problem *problem);
/* The resource that runs steps on a stream. A stream without a row is like the first one that
 * computes on a stream other than 0; NULL: there is none. */
const struct ul_plan_resource *ul_problem_runner(const struct ul_problem *problem, uint32_t stream);
/* `step` must also come after `predecessor`, which has the smaller id. */
void ul_problem_add_predecessor(struct ul_problem *problem, uint32_t step, uint32_t predecessor);
/* The entry around a region, or the root. */
uint32_t ul_region_entry(const struct ul_problem *problem, uint32_t region);
/* By value, the only entry whose steps touch it, or 0; a persistent value belongs to no entry. */
uint32_t *ul_value_entries(struct ul_arena *arena, const struct ul_problem *problem);
/* Whether transfers may move the value to a space that takes them; a persistent value then lives
 * there between runs. */
bool ul_value_may_move(const struct ul_plan_value *value);
/* Whether `id` is among the ids, such as those of the values that a substep reads. */
bool ul_ids_have(const uint32_t *ids, uint32_t count, uint32_t id);
/* Whether the first costs less, or the same where the second has other bits. */
bool ul_alternative_is_cheaper(const struct ul_plan_alternative *first,
                               const struct ul_plan_alternative *second);
/* The alternative of minimum cost, the first of several; one with other bits only where there is no
 * other. */
uint32_t ul_step_cheapest(const struct ul_plan_step *step);
/* The cost of every step once by its cheapest alternative, one after the other. */
uint64_t ul_problem_min_cost(const struct ul_problem *problem);
/* The cost of moving that many bytes to and from a bank, rounded up. */
uint64_t ul_bank_cost(const struct ul_plan_bank *bank, uint64_t moved_bytes);
/* The cost of moving the bytes of these alternatives to and from the fastest bank; 0 where there
 * are no banks. */
uint64_t ul_problem_min_moving_cost(const struct ul_problem *problem);
/* The bytes that a substep moves for touch `index`: a read, a write after all reads, or, after
 * these, its scratch. */
uint64_t ul_substep_moves(const struct ul_problem *problem, const struct ul_plan_substep *substep,
                          uint32_t index);
/* The largest sum of steps that only one resource can run: no plan costs less. */
uint64_t ul_problem_cost_bound(const struct ul_problem *problem);
/* Whether steps may run on another resource than 0. */
bool ul_problem_is_asynchronous(const struct ul_problem *problem);
/* Checks that every id, size, alignment and region is in range, values are written before they are
 * read, and sums do not overflow: UL_INVALID with the name of the step or value otherwise. */
enum ul_status ul_problem_verify(const struct ul_problem *problem,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* forward.c */

/* By step, whether it belongs to the forward pass that makes the problem's kept activations; NULL
 * where there are none. */
bool *ul_problem_find_forward(struct ul_arena *arena, const struct ul_problem *problem);

/* problem_text.c: planner/README.md has the grammar. A printed problem is read back to a problem
 * that prints the same bytes. */

void ul_problem_print(struct ul_text *text, const struct ul_problem *problem);
/* Whether these bytes begin like a problem in text. */
bool ul_problem_is_text(const char *text, uint64_t size_bytes);
/* The problem has passed ul_problem_verify. UL_INVALID with the line or the object. */
enum ul_status ul_problem_parse(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                struct ul_problem **problem, struct ul_diag *diag) UL_MUST_CHECK;

#endif
