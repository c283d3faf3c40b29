/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of planner/order: the form of a problem on which the engines of order work.
 *
 * A core is a set of nodes that run once each, one after the other, and values that nodes touch. A
 * value is live from the first node that touches it through the last, also before the first node if
 * it is OPEN and after the last if it STAYS. So an input of no cost that need not exist before its
 * first reader is a value without a maker, and time can be reversed: a reversed core is a core.
 *
 *     node          0   1   2   3   4
 *     a (OPEN)      r       r            [start, 2]
 *     b                 w   r       r    [1, 4]
 *     c (STAYS)                 w        [3, end]
 *
 * Nodes are numbered along a valid order. Values that are live all the time count as start_bytes,
 * and a value that only one node touches as that node's working_bytes. */
#ifndef UL_ORDER_INTERNAL_H
#define UL_ORDER_INTERNAL_H

#include "planner/model/effort.h"
#include "planner/model/graph.h"
#include "planner/model/method.h"

enum { UL_ORDER_OPEN = 1, UL_ORDER_STAYS = 2 };

struct ul_order_core {
    uint32_t node_count;
    uint32_t value_count;
    uint64_t start_bytes; /* live before the first node */
    uint32_t *nodes; /* by node: its number in the graph or core from which this core was made */
    uint64_t *working_bytes;
    uint32_t *pred_first; /* by node: what must have run, node_count + 1 entries */
    uint32_t *preds;
    uint32_t *touch_first; /* by node: values that it touches, node_count + 1 entries */
    uint32_t *touches;
    uint32_t *reuse_value; /* by node: its value takes over this one's bytes where it dies (in a
                              reversed core: begins), or UL_PLAN_NONE */
    uint64_t *reuse_bytes; /* how many */
    uint64_t *size_bytes;  /* by value */
    uint8_t *flags;        /* by value: UL_ORDER_OPEN, UL_ORDER_STAYS */
    bool reversed;
};

/* order_core.c */

/* The core of all of `graph`, along `order`, a valid order of all its nodes. Nodes that free
 * nothing and need nothing are left out: each is made by its first reader. */
void ul_order_core_make(struct ul_arena *arena, const struct ul_solve_graph *graph,
                        const uint32_t *order, struct ul_order_core *core);
/* Turns an order of the core's nodes into an order of the graph's. */
void ul_order_core_expand(struct ul_arena *scratch, const struct ul_solve_graph *graph,
                          const struct ul_order_core *core, const uint32_t *order,
                          uint32_t *graph_order);
/* Live bytes at each position of an order of the core's nodes: before it, and while it runs; either
 * array may be NULL. Returns the peak. */
uint64_t ul_order_core_peak(struct ul_arena *scratch, const struct ul_order_core *core,
                            const uint32_t *order, uint64_t *before_bytes, uint64_t *during_bytes);
/* The nodes at positions [begin, end) of an order as a core, with all others in place; start_bytes
 * is the live sum before `begin`. The slicer holds what all slices of one order share. */
struct ul_order_slicer {
    const struct ul_order_core *core;
    const uint32_t *order;
    uint32_t *place;        /* by node */
    uint32_t *first, *last; /* by value: positions of its touches; OPEN and STAYS are outside */
    uint32_t *local;        /* by value: its number in the slice that is being made */
};
void ul_order_slicer_init(struct ul_arena *arena, const struct ul_order_core *core,
                          const uint32_t *order, struct ul_order_slicer *slicer);
void ul_order_slice(struct ul_arena *arena, struct ul_order_slicer *slicer, uint32_t begin,
                    uint32_t end, uint64_t start_bytes, struct ul_order_core *slice);
/* The same core with time reversed: node v becomes node node_count - 1 - v. */
void ul_order_core_reverse(struct ul_arena *arena, const struct ul_order_core *core,
                           struct ul_order_core *reversed);

/* Links from a core's nodes and values to other nodes. */
struct ul_order_links {
    uint32_t *succ_first; /* by node: the nodes of which it is a pred, node_count + 1 entries */
    uint32_t *succs;
    uint32_t *value_first; /* by value: nodes that touch it, value_count + 1 entries */
    uint32_t *value_nodes;
};
void ul_order_links_make(struct ul_arena *arena, const struct ul_order_core *core,
                         struct ul_order_links *links);

/* order_sets.c: sets of nodes as bits, and the cost of a step from one. */

struct ul_order_mask {
    uint64_t bits;
    uint32_t word;
};

struct ul_order_sets {
    const struct ul_order_core *core;
    uint32_t words;       /* of a set */
    uint32_t low, high;   /* words that differ: below them all bits are set, from high on none */
    uint32_t *need_first; /* by node: masks of its preds */
    struct ul_order_mask *needs;
    uint32_t *value_first; /* by value: masks of the nodes that touch it */
    struct ul_order_mask *values;
    struct ul_order_links links;
    /* by node: no node from it on can run before the node of this number minus 1 */
    uint32_t *reach;
    uint64_t *keys; /* by node: its part of a set's hash */
    uint64_t *set;  /* for a chain */
    uint64_t work;  /* visits so far */
};
void ul_order_sets_init(struct ul_arena *arena, const struct ul_order_core *core,
                        struct ul_order_sets *sets);

struct ul_order_step {
    uint64_t during_bytes, after_bytes;
};

static inline bool ul_order_set_ready(const struct ul_order_sets *sets, const uint64_t *set,
                                      uint32_t node)
{
    for (uint32_t i = sets->need_first[node]; i < sets->need_first[node + 1]; i++) {
        if ((sets->needs[i].bits & ~set[sets->needs[i].word]) != 0)
            return false;
    }
    return true;
}

/* The step of a ready node, from a set whose live sum is `live_bytes`. */
static inline struct ul_order_step ul_order_set_step(const struct ul_order_sets *sets,
                                                     const uint64_t *set, uint64_t live_bytes,
                                                     uint32_t node)
{
    const struct ul_order_core *core = sets->core;
    uint64_t made = 0;
    uint64_t freed = 0;
    uint64_t taken = 0;
    for (uint32_t k = core->touch_first[node]; k < core->touch_first[node + 1]; k++) {
        uint32_t value = core->touches[k];
        bool born = (core->flags[value] & UL_ORDER_OPEN) != 0;
        bool dies = (core->flags[value] & UL_ORDER_STAYS) == 0;
        for (uint32_t i = sets->value_first[value]; i < sets->value_first[value + 1]; i++) {
            const struct ul_order_mask *mask = &sets->values[i];
            uint64_t self = mask->word == node / 64 ? (uint64_t)1 << (node % 64) : 0;
            born = born || (mask->bits & set[mask->word]) != 0;
            dies = dies && (mask->bits & ~set[mask->word] & ~self) == 0;
        }
        made += born ? 0 : core->size_bytes[value];
        freed += dies ? core->size_bytes[value] : 0;
        if (value == core->reuse_value[node] && (core->reversed ? !born : dies))
            taken = core->reuse_bytes[node];
    }
    return (struct ul_order_step){live_bytes + made + core->working_bytes[node] - taken,
                                  live_bytes + made - freed};
}

/* Promises that all later sets are full below word `low`, which never falls, and empty from word
 * `high` on. */
void ul_order_sets_limit(struct ul_order_sets *sets, uint32_t low, uint32_t high);

/* A node that may run next. */
struct ul_order_ready {
    struct ul_order_step step;
    uint32_t node;
};
/* Writes all of them into `ready` (room for every node); counts the visits. */
uint32_t ul_order_sets_ready(struct ul_order_sets *sets, const uint64_t *set, uint64_t live_bytes,
                             struct ul_order_ready *ready);
/* Dominance. The live sum f of sets is submodular. So if a chain of nodes (each but the first waits
 * for the one before it) can run within `max_bytes` and ends no higher than it began, having been
 * higher in between, then running it at once costs no order within max_bytes anything. Finds such a
 * chain that starts with one of `ready`; 0: none. */
enum { UL_ORDER_CHAIN = 24 };
uint32_t ul_order_sets_chain(struct ul_order_sets *sets, const uint64_t *set, uint64_t live_bytes,
                             uint64_t max_bytes, const struct ul_order_ready *ready,
                             uint32_t ready_count, struct ul_order_ready chain[UL_ORDER_CHAIN]);

/* order_greedy.c: near-linear time. */

/* Always takes the ready node that frees most and allocates least. */
void ul_order_greedy(struct ul_arena *scratch, const struct ul_order_core *core, uint32_t *order);
/* Runs each node as late as its first user allows. */
void ul_order_depth_first(struct ul_arena *scratch, const struct ul_order_core *core,
                          uint32_t *order);

/* order_downsets.c */

enum ul_order_outcome { UL_ORDER_UNKNOWN, UL_ORDER_PROVEN, UL_ORDER_IMPROVED };
/* Searches the sets of nodes that are done for the order with the smallest peak below
 * `upper_bytes`. Raises *lower_bytes to what is proven for every order of the core. PROVEN: nothing
 * is below upper_bytes; IMPROVED: `order` is optimal; UNKNOWN: out of states. */
enum ul_order_outcome ul_order_downsets(struct ul_arena *scratch, const struct ul_order_core *core,
                                        struct ul_effort *effort, uint32_t state_limit,
                                        uint64_t upper_bytes, uint64_t *lower_bytes,
                                        uint32_t *order);

/* order_ilp.c */

/* The same by integer programs, for small cores that are not reversed; `order` holds a valid one
 * before, and the best found after, even where the outcome is UNKNOWN. */
enum ul_order_outcome ul_order_ilp(struct ul_arena *scratch, const struct ul_order_core *core,
                                   struct ul_effort *effort, uint64_t upper_bytes,
                                   uint64_t *lower_bytes, uint32_t *order);

/* order_beam.c */

struct ul_order_beam_options {
    uint32_t width;
    uint64_t upper_bytes; /* the peak to stay below */
};
/* The order found among the `width` most promising sets of every size: IMPROVED if it is below the
 * bound; UNKNOWN if the effort is spent or sets were dropped because of the width; PROVEN if none
 * was (except that two sets with equal hashes count as one). */
enum ul_order_outcome ul_order_beam(struct ul_arena *scratch, const struct ul_order_core *core,
                                    struct ul_effort *effort,
                                    const struct ul_order_beam_options *options, uint32_t *order);

/* order_anneal.c */

/* Anneals `order` of a core that is not reversed, with the remaining work, by random numbers from
 * the seed; ends when it is within enough_bytes, or when the effort is spent. The resulting `order`
 * is no worse than before. */
void ul_order_anneal(const struct ul_order_core *core, struct ul_effort *effort,
                     uint64_t enough_bytes, uint64_t seed, uint32_t *order);

/* order_search.c */

/* Improves `order`, whose peak is *peak_bytes, at its peak, in windows that grow; ends when it is
 * within enough_bytes, when nothing helps, or when the effort is spent. */
void ul_order_windows(const struct ul_order_core *core, struct ul_effort *effort,
                      uint64_t enough_bytes, uint32_t *order, uint64_t *peak_bytes);

/* order_run.c: the parts of a graph between two waists, on which a method of order works. */

struct ul_order_part {
    struct ul_order_core core;
    uint32_t begin;            /* its first position */
    uint32_t *order;           /* the best, of the core's nodes */
    uint64_t first_peak_bytes; /* of the published order */
    uint64_t peak_bytes;
    uint64_t lower_bytes;
    const char *method;
    bool is_own;          /* the order is that of the method that was named */
    bool is_proven;       /* an exact method proved that nothing is below the remaining peak */
    bool backwards_fails; /* the last beam backwards found nothing */
};

struct ul_order_runner {
    struct ul_arena scratch;
    struct ul_order_run *run;
    struct ul_order_core core;
    struct ul_order_part *parts;
    uint32_t part_count, part_capacity;
    uint64_t lower_bytes; /* of all orders, so far */
    bool is_named;        /* only one method runs, with all of the effort */
};

/* order_methods.c */

/* The method's name of parts that keep the published order. */
extern const char ul_order_published[];
/* Whether a smaller peak of the part may be possible and useful. */
bool ul_order_is_open(const struct ul_order_runner *r, const struct ul_order_part *part);

/* The rows of orders: one round on a part, which improves its order as far as the effort goes, and
 * costs more than the round before. Cheap ones, which join first, have one round; the others have
 * one more after UL_ORDER_ROUNDS, with all that is left. False where no order of it is better. */
enum { UL_ORDER_ROUNDS = 5 };
typedef bool ul_order_method(struct ul_order_runner *r, struct ul_order_part *part, uint32_t round);
#define UL_ORDER_NO_PROTOTYPE(...)
#define UL_ORDER_PROTOTYPE(constant, name, run, ...) ul_order_method run;
UL_ORDER_METHODS(UL_ORDER_NO_PROTOTYPE, UL_ORDER_PROTOTYPE)
#undef UL_ORDER_PROTOTYPE
#undef UL_ORDER_NO_PROTOTYPE

#endif
