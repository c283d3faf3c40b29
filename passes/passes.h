/* SPDX-License-Identifier: Apache-2.0 */
/* From the graph as it was loaded to a graph that can be lowered: known types, no needless nodes,
 * a view for every value, a group for every kernel.
 *
 * Invariants: passes run in the order of one table (passes.c); after each the graph is verified.
 * After the whole pipeline every type is static, every value has a view, and values at block edges
 * are dense: outputs of nested blocks and inputs of nodes with blocks lie densely in some base,
 * and the model's outputs own their bytes.
 * Ownership: the graph's arena keeps what a pass makes; `scratch` is reset after each pass.
 * Failure: what a model or an option does wrong is a status with a text; a pass that breaks the
 * graph is UL_INTERNAL.
 */
#ifndef UL_PASSES_H
#define UL_PASSES_H

#include "ir/graph.h"
#include "ir/training.h"
#include "ir/traits.h"

enum ul_pass_kind {
    UL_PASS_ANY,
    UL_PASS_INFERENCE,      /* changes what would be trained: not run for a training graph */
    UL_PASS_TRAINING,       /* run for a training graph alone */
    UL_PASS_CHANNELS_LAST,  /* for targets whose convolutions want channels innermost */
    UL_PASS_FILTERS_LAST,   /* the same for their weights, where the target does not pack them */
    UL_PASS_PRODUCTS_JOINED /* for targets that want few large products; not for training */
};

/* What a pass may rely on, and what it leaves true. */
enum ul_pass_fact {
    UL_FACT_TYPES = 1u << 0, /* every type is known */
    UL_FACT_VIEWS = 1u << 1, /* every value has a view */
    UL_FACT_GROUPS = 1u << 2 /* groups are set */
};

struct ul_pass_info {
    const char *name;
    const char *summary; /* one sentence */
    enum ul_pass_kind kind;
    bool required;  /* --no-pass is refused */
    uint32_t needs; /* facts */
    uint32_t keeps; /* facts that stay true */
    uint32_t makes; /* facts that become true */
};

#define UL_PASSES_ALL "all" /* for print_after */

/* Zeroed options are the defaults. */
struct ul_passes_options {
    const char *print_after; /* a pass or UL_PASSES_ALL: prints the graph to `dump` */
    const char *stop_after, *stop_before;
    const char *only;     /* runs this pass alone; the facts that it needs are taken to hold */
    const char *start_at; /* the first that runs; the facts that it needs are taken to hold */
    uint32_t disabled_count;
    const char *const *disabled; /* --no-pass */
    uint32_t split_count;
    const char *const *splits; /* --split: chains to compute in pieces, "FIRST..LAST:AXIS:COUNT" */
    uint32_t inside_count;
    const char *const *inside; /* --inside: maps that products compute while they pack operands */
    uint32_t row_major_count;
    const char *const *row_major; /* --row-major: regions that keep the layout of the model */
    uint32_t quantize_count;
    const char *const *quantize; /* --quantize: weights that become integers, "int4:PATTERN" */
    bool for_bytes; /* no program follows: made weights need not be the best ones, and of large
                       ones only the ends are made, with a mark that tells them apart */
    const struct ul_target_traits *traits; /* NULL: a target that wants nothing */
    enum ul_dtype precision; /* UL_F16, UL_BF16: f32 lies in memory in these 16 bits */
    /* Whether a group of nodes (in execution order) is one call of the target's library; `escapes`
     * says of each value whether something outside of the group needs it. A group that this one
     * would grow into must be a call as well. Sets `*scratch_bytes`, unless NULL, to what the call
     * wants beside its values. NULL: the target has no library. */
    bool (*is_call)(const void *library, const struct ul_graph *graph, const ul_node_id *nodes,
                    uint32_t count, const bool *escapes, uint64_t *scratch_bytes);
    /* Whether that call, with a kernel for what follows that moves so many bytes, takes less time
     * than one kernel of ours for both. NULL: always. */
    bool (*is_worth)(const void *library, const struct ul_graph *graph, const ul_node_id *nodes,
                     uint32_t count, const bool *escapes, uint64_t pass_bytes);
    const void *library;
    bool no_float; /* UL_UNSUPPORTED where a node cannot be computed with integers alone */
    struct ul_training *training; /* how the model learns; NULL: it does not */
    bool is_part;                 /* of a model that learns: only rows of UL_PASS_ANY run */
    FILE *dump;                   /* NULL: standard error */
};

/* passes.c */

/* The pipeline as a table; a name may occur more than once. */
const struct ul_pass_info *ul_passes_get(uint32_t index);
uint32_t ul_passes_count(void);
/* Runs the pipeline. UL_USAGE when an option names no pass. */
enum ul_status ul_passes_run(struct ul_graph *graph, struct ul_arena *scratch,
                             const struct ul_passes_options *options,
                             struct ul_diag *diag) UL_MUST_CHECK;

/* once.c: by what part of them constants may grow; and whether the graph has any that the pass may
 * make floats of. */
enum { UL_ONCE_PART = 32 };
bool ul_once_has_codes(const struct ul_graph *graph);

/* quantize.c: type `index` of those into which --quantize makes weights, with its bits; NULL after
 * the last. */
const char *ul_quantize_type(uint32_t index, uint32_t *bits);

/* layout.c */

/* What the pass lays out alike, and what a convolution passes to the model as it is. */
struct ul_layout_regions {
    uint32_t count;
    const char **names;  /* per region: for ul_passes_options.row_major; or NULL */
    uint32_t *of_values; /* per value: its region, or UL_NONE */
};
/* Takes a graph as it is before the pass. */
void ul_layout_find_regions(struct ul_arena *arena, const struct ul_graph *graph,
                            struct ul_layout_regions *regions);

/* inside.c: what products of the backward pass may compute as they pack it. */
struct ul_inside_site {
    const char *name;  /* for ul_passes_options.inside */
    ul_value_id value; /* which is then not kept for them */
    ul_node_id *readers;
    uint32_t reader_count;
};
struct ul_inside_sites {
    struct ul_inside_site *sites;
    uint32_t count, capacity;
};
/* Takes a graph as the pipeline leaves it. */
void ul_inside_find(struct ul_arena *arena, const struct ul_graph *graph,
                    const struct ul_passes_options *options, struct ul_inside_sites *found);
/* In a graph after the pass: the last node of the step that one of its readers belongs to. */
ul_node_id ul_inside_last(const struct ul_graph *graph, ul_node_id reader);

/* split_search.c: splits that bring the live sum (weights not counted) down to a target. */

/* What is known of the kernels of a graph. */
struct ul_split_facts {
    const uint64_t *node_costs; /* per node: the cost of the kernel whose last node it is, else 0 */
    uint64_t step_cost;         /* of running one more kernel */
    /* Output v may take over the bytes of inputs[first[v]] .. inputs[first[v + 1] - 1]. */
    const uint32_t *first;
    const ul_value_id *inputs;
    /* Whether the target may compute the pieces, which are the nodes of `graph` from `first_piece`
     * on; whether they have the bits of the whole is found out later. NULL: it may. */
    bool (*may_split)(void *context, const struct ul_graph *graph, ul_node_id first_piece);
    void *context;
};
struct ul_split_search;
/* Takes the graph as the pipeline leaves it. What is handed over must outlive the search, which
 * lives in `arena`. */
struct ul_split_search *ul_split_search_new(struct ul_arena *arena, const struct ul_graph *graph,
                                            const struct ul_split_facts *facts);
/* The live sum of the graph without splits. */
uint64_t ul_split_search_live_bytes(const struct ul_split_search *search);
/* Texts for ul_passes_options.splits that cost little; false when none were found. The work of all
 * calls together is bounded. */
bool ul_split_search_reach(struct ul_split_search *search, uint64_t target_bytes,
                           const char *const **texts, uint32_t *count);

#endif
