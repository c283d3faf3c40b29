/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a graph as the planner sees them: what passes ask for the bytes that a
 * rewriting costs or saves.
 *
 * A step is a node that needs a kernel, or a group of nodes, which one kernel computes; nested
 * blocks are regions, with steps for what moves values over their edges. A value is a base;
 * weights, which are there whatever a pass does, are left out, and so is what never leaves its
 * group. For kernels that exist it is known what may be taken over (struct ul_step_facts);
 * elsewhere an elementwise node may store on an operand that the step reads only where it stores.
 * Ownership: all lives in the arena; the graph is borrowed. */
#ifndef UL_PASSES_STEPS_H
#define UL_PASSES_STEPS_H

#include "passes/passes_internal.h"
#include "planner/model/live.h"

/* Which bases may be taken over, by what the kernels of `graph` allow; holds for pieces of its
 * nodes as well. */
struct ul_step_facts {
    const struct ul_graph *graph;
    const struct ul_split_facts *kernels;
};

struct ul_graph_step {
    uint32_t node_count; /* 0: what a node with blocks does at their edges */
    bool is_call;        /* of the target's library, where that was asked for */
};

struct ul_step_ids {
    uint32_t *ids;
    uint32_t count, capacity;
};

struct ul_steps {
    const struct ul_graph *graph;
    const struct ul_step_facts *facts;      /* or NULL */
    const struct ul_passes_options *target; /* whose library is asked for its scratch; or NULL */
    struct ul_arena *arena;
    bool *escapes; /* per value: is it needed outside of its group? */
    uint32_t value_count, value_capacity, region_count, region_capacity, step_count, step_capacity;
    struct ul_plan_value *values;
    struct ul_plan_region *regions;
    struct ul_plan_substep *substeps; /* per step, as are these */
    uint32_t *region_of;
    struct ul_graph_step *steps;
    uint32_t *step_of;  /* per node: its step, or UL_NONE: a view, or removed */
    uint32_t *value_of; /* per base: the planner's value, or UL_NONE */
    /* What the step that was asked for last touches. */
    struct ul_step_ids reads, writes;
    struct ul_plan_in_place *options;
    uint32_t option_count, option_capacity;
    bool *at_store; /* per node of the step: computes an element where it is stored */
    uint32_t at_store_capacity;
};

struct ul_step_peaks {
    const struct ul_live *live;
    uint64_t peak_bytes, needy_bytes;
};

/* Nodes of one group, or a node alone: the end of the step that begins at nodes[begin]. */
uint32_t ul_steps_end(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count,
                      uint32_t begin);
/* steps.c */

/* Finds the steps of a graph with views: groups as the graph has them, or each node by itself where
 * there are none yet. */
void ul_steps_init(struct ul_steps *steps, const struct ul_graph *graph,
                   const struct ul_step_facts *facts, const struct ul_passes_options *target,
                   struct ul_arena *arena);
/* Counts no bytes for persistent values and for results of updates. A rewriting changes neither:
 * persistent values always live, and an update stores its result over its input. */
void ul_steps_drop_persistent(struct ul_steps *steps);
/* Bytes of values that the step reads or writes. */
uint64_t ul_steps_touched_bytes(const struct ul_steps *steps, uint32_t step);
/* The account of all steps as they are. */
struct ul_live *ul_steps_live(const struct ul_steps *steps);
/* Finds the account of all steps, the largest live sum and the bytes that the neediest step
 * touches, both among steps that are not left out. The former is the peak of a plan that keeps the
 * forward pass, the latter that of a plan that keeps almost nothing. */
struct ul_step_peaks ul_steps_find_peaks(const struct ul_steps *steps, const bool *is_left_out);
/* The largest live sum of a graph. */
uint64_t ul_steps_peak_bytes(const struct ul_graph *graph, struct ul_arena *scratch);

/* step_touches.c */

/* The planner's value of a base, made at its first use; UL_NONE: a weight. */
uint32_t ul_steps_value(struct ul_steps *steps, ul_value_id base);
/* What several nodes of one block touch that are one step, by steps->escapes; and what a copy of
 * values touches. The answers lie in `steps` until the next call. */
struct ul_plan_substep ul_steps_touch(struct ul_steps *steps, const ul_node_id *nodes,
                                      uint32_t count);
struct ul_plan_substep ul_steps_copy(struct ul_steps *steps, const ul_value_id *from,
                                     uint32_t from_count, const ul_value_id *to, uint32_t to_count);

#endif
