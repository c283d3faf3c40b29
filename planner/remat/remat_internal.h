/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files remat*.c: a walk that recomputes on demand, a profile of live bytes.
 *
 * Invariants: a sequence that leaves these files has been replayed (ul_solve_replay). Positions are
 * indexes into a sequence or an order; scores are logarithms. Ownership: everything lives in the
 * arena passed to _init. */
#ifndef UL_REMAT_INTERNAL_H
#define UL_REMAT_INTERNAL_H

#include "planner/remat/flow.h"
#include "planner/remat/remat.h"

/* live_tree.c: sums over positions with addition to a range and the maximum of one. */

struct ul_live_tree {
    uint32_t leaf_count; /* a power of two */
    int64_t *max;        /* by tree node: the maximum below it, without what is added above it */
    int64_t *added;      /* by tree node: added to all below it */
};
void ul_live_tree_init(struct ul_live_tree *live_tree, struct ul_arena *arena, uint32_t capacity);
void ul_live_tree_fill(struct ul_live_tree *live_tree, const int64_t *values, uint32_t count);
/* Both take [begin, end), which may be empty: then nothing is added, and the maximum is 0. */
void ul_live_tree_add(struct ul_live_tree *live_tree, uint32_t begin, uint32_t end, int64_t bytes);
int64_t ul_live_tree_max(const struct ul_live_tree *live_tree, uint32_t begin, uint32_t end);

/* remat_prune.c */

/* Removes repeats from a valid sequence within the budget wherever the earlier copy can be kept
 * instead, the most expensive first, and those that nothing reads. Returns the new count. */
uint32_t ul_remat_prune(const struct ul_solve_graph *graph, uint64_t budget_bytes,
                        uint32_t *sequence, uint32_t count);

/* remat_again.c */

/* The order, with missing values recomputed after position `border` when nodes of the backward pass
 * there read them. `is_there`: in, what is kept; out, that and what was recomputed. Values that may
 * not be recomputed and those without bytes always exist. Returns the count, at most 2 runs for
 * each node. */
uint32_t ul_remat_make_again(const struct ul_solve_graph *graph, const uint32_t *order,
                             const bool *is_forward, uint32_t border, bool *is_there,
                             uint32_t *sequence);

/* remat_cut_set.c */

/* The values of a forward pass that are kept, at a price of a byte. */
struct ul_cut_set {
    const struct ul_solve_graph *graph;
    const uint32_t *order;
    struct ul_arena *arena;
    bool *is_forward; /* by node */
    uint32_t border;  /* the position after the last of them that the backward pass reads */
    bool *is_kept;    /* by node, out */
    struct ul_flow flow;
    /* fixed by init */
    uint32_t *place;                 /* by node: its position in the order */
    uint32_t *kept_edge, *cost_edge; /* by node */
    bool *is_before;                 /* by node of the network */
    double cost_sum, bytes_sum;
};

enum { UL_CUT_DEAREST = 24 }; /* the largest exponent of a price; its negative is the smallest */

/* is_forward: by node; NULL: nodes before the place where most bytes wait. */
void ul_cut_set_init(struct ul_cut_set *set, struct ul_arena *arena,
                     const struct ul_solve_graph *graph, const uint32_t *order,
                     const bool *is_forward);
/* Sets is_kept for a byte's price of 2^price_exponent times the cost of all nodes divided by all
 * bytes; returns the bytes kept. A node's cost counts slope / (steps of the forward pass) more with
 * each place. */
uint64_t ul_cut_set_at(struct ul_cut_set *set, double price_exponent, double slope);

/* remat_walk.c */

/* How a walk scores a value that it may drop: weight + cost_power log cost - bytes_power log bytes
 * - distance_power log distance to the next use; the minimum is dropped. */
struct ul_walk_mode {
    double cost_power, bytes_power, distance_power;
    double target_before, target_after; /* fraction of the budget down to which it drops, before and
                                           after the order's peak */
};

struct ul_walk {
    const struct ul_solve_graph *graph;
    const uint32_t *order;
    uint64_t budget_bytes;
    uint64_t cost_limit; /* more expensive walks are given up */
    struct ul_walk_mode mode;
    double *weight; /* by node */
    /* out */
    uint32_t *sequence;
    uint32_t count, capacity;
    uint64_t cost;
    uint64_t work; /* counts up */
    /* fixed by init */
    uint32_t peak_position;
    uint32_t *use_first, *uses; /* by node: positions of its users in the order, ascending */
    double *log_cost, *log_bytes, *log_distance;
    /* of one run */
    uint64_t live_bytes;
    uint32_t now; /* position in the order */
    uint32_t *next_use;
    double *value; /* the score without the distance */
    uint8_t *state;
    uint32_t *locks;
    uint32_t *heap, *heap_at; /* values that may be dropped, lowest key first; heap_at: index + 1 */
    double *key;              /* a lower bound of the score, renewed when it comes to the top */
    uint32_t heap_count;
    uint32_t *frame_node, *frame_next;
    uint32_t *victims, *stack;
};

/* `walk` has its graph, order and capacity set. */
void ul_walk_init(struct ul_walk *walk, struct ul_arena *arena);
/* One walk; false when it fails, which does not mean that the budget is infeasible. */
bool ul_walk_run(struct ul_walk *walk);

/* remat_schedule.c: a sequence that can be edited anywhere, with its live bytes always known.
 *
 * Steps are in slots in order of time, with empty slots between them. For each node, `touches` are
 * the slots that make (even) or read (odd) its value, ascending: slot * 2 + is_read. Between two
 * touches the value is live exactly if the later one reads. Edits are logged and can be undone. */

struct ul_touches {
    uint32_t *at;
    uint32_t count, capacity;
};

enum ul_edit_kind { UL_EDIT_INSERT, UL_EDIT_REMOVE, UL_EDIT_SHIFT };
struct ul_edit {
    enum ul_edit_kind kind;
    uint32_t slot;
    uint32_t other; /* the node removed, or the slot shifted to */
};

struct ul_schedule {
    const struct ul_solve_graph *graph;
    struct ul_arena *arena;
    int64_t budget_bytes;
    uint32_t slot_count;
    uint32_t block_shift;
    uint32_t *node_at;     /* by slot, or UL_PLAN_NONE */
    bool *shared;          /* by slot: its output takes over an input's bytes */
    int64_t *live;         /* by slot, without its block's; far below 0 in empty slots */
    int64_t *block_live;   /* by block: part of all of its slots */
    int64_t *block_max;    /* by block: the largest of `live` */
    int64_t *block_min;    /* by block with an excess: the smallest of `live` at its steps, */
    uint32_t *block_steps; /* and how many there are, where they were counted; else 0 */
    double *block_excess;  /* by block: sum over its slots of the excess over the budget */
    uint32_t over_count;   /* blocks with an excess */
    double excess;
    uint64_t cost;
    uint32_t step_count;
    struct ul_touches *touches; /* by node */
    uint32_t *run_count;        /* by node */
    uint32_t *repeated;         /* nodes that run more than once */
    uint32_t *repeated_at;      /* by node: its index there */
    uint32_t repeated_count;
    struct ul_edit *log;
    uint32_t log_count, log_capacity;
    uint32_t *spare; /* step_capacity entries */
    uint32_t step_capacity;
    uint64_t work; /* counts up */
};

/* Room for sequences of up to `step_capacity` steps; graph, arena and budget are set. */
void ul_schedule_init(struct ul_schedule *schedule, uint32_t step_capacity);
/* Spreads a valid sequence over the slots and clears the log. */
void ul_schedule_load(struct ul_schedule *schedule, const uint32_t *sequence, uint32_t count);
/* Returns the number of steps. */
uint32_t ul_schedule_store(const struct ul_schedule *schedule, uint32_t *sequence);
/* False, without a change, if an input was never made before. `slot` is empty. */
bool ul_schedule_insert(struct ul_schedule *schedule, uint32_t slot, uint32_t node);
/* False, without a change, if something reads what only this step makes, or the node would have no
 * run left. */
bool ul_schedule_remove(struct ul_schedule *schedule, uint32_t slot);
/* An empty slot directly before the step in *slot, which may be moved to make it; UL_PLAN_NONE if
 * there is none near. */
uint32_t ul_schedule_open(struct ul_schedule *schedule, uint32_t *slot);
/* The first touch of `node` at or after `slot`: an index into its touches, or their count. */
uint32_t ul_schedule_find(const struct ul_schedule *schedule, uint32_t node, uint32_t slot);
int64_t ul_schedule_max(const struct ul_schedule *schedule, uint32_t begin, uint32_t end);
/* Undoes the log down to `log_count` entries. */
void ul_schedule_undo(struct ul_schedule *schedule, uint32_t log_count);

/* remat_search.c */

/* How freely an annealing starts. */
struct ul_heat {
    double repeats;    /* the temperature, in costs of a repeat */
    double over_share; /* the fraction of states above the budget */
};
/* Anneals a complete sequence, order and repeats, from the one given, until `work` more is done. */
void ul_remat_anneal_sequence(struct ul_remat *remat, const uint32_t *sequence, uint32_t count,
                              struct ul_heat heat, uint64_t work, uint64_t *random);

/* remat_anneal.c */

/* Anneals the weights of `walk`, which ran at cost start_cost in its mode without any (UINT64_MAX:
 * it failed), until `work` more is done. */
void ul_remat_anneal(struct ul_remat *remat, struct ul_walk *walk, uint64_t start_cost,
                     uint64_t work, uint64_t *random);

/* remat_offer.c */

bool ul_remat_exhausted(struct ul_remat *remat);
/* Prunes a valid sequence (in place) and keeps it if it is the cheapest within the budget. */
void ul_remat_offer(struct ul_remat *remat, uint32_t *sequence, uint32_t count, const char *method);

#endif
