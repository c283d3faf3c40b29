/* SPDX-License-Identifier: Apache-2.0 */
/* The methods of the planner, one row for each.
 *
 * Everything that knows a method by its name (options and their help, plans, reports) reads these
 * rows. So does the code that runs them: the named method, or, by default, all that join, of which
 * the best result wins. A method consists of its row here and the file with its function.
 *
 *     ROW(constant, name, run, turns, needs, proves)
 *         run     the function; order/order_internal.h, remat/remat.h and pack/pack_internal.h
 *                 have their types
 *         turns   when it joins where no method is named, or UL_TURN_NONE
 *         needs   what it applies to; NULL: anything
 *         proves  what a proof by it covers, or NULL
 *     WORD(constant, name, needs, proves)
 *         no method of its own: all that join (the first of a kind, which is the default), or none
 */
#ifndef UL_PLANNER_MODEL_METHOD_H
#define UL_PLANNER_MODEL_METHOD_H

#include <stdint.h>

/* Methods run in these turns, and within one in the order of their rows. */
enum ul_method_turn {
    UL_TURN_NONE = 0,
    UL_TURN_FIRST = 1,  /* cheap ones, or those that solve small problems at once */
    UL_TURN_START = 2,  /* finds a start for searches */
    UL_TURN_SEARCH = 4, /* of an order: in rounds that cost ever more */
    UL_TURN_AFTER = 8,  /* continues from what those found */
    UL_TURN_LAST = 16,  /* with the remaining work */
    /* of an order: makes one from nothing, which is kept if the method is named */
    UL_TURN_OWN = 32,
};

#define UL_ORDER_METHODS(WORD, ROW)                                                                \
    WORD(BEST, "best", NULL, "orders without recomputation")                                       \
    WORD(FILE, "file", NULL, NULL)                                                                 \
    ROW(GREEDY, "greedy", ul_order_run_greedy, UL_TURN_FIRST | UL_TURN_OWN, NULL, NULL)            \
    ROW(DFS, "dfs", ul_order_run_dfs, UL_TURN_FIRST | UL_TURN_OWN, NULL, NULL)                     \
    ROW(DP, "dp", ul_order_run_dp, UL_TURN_SEARCH, NULL, "orders without recomputation")           \
    ROW(BEAM, "beam", ul_order_run_beam, UL_TURN_SEARCH | UL_TURN_OWN, NULL, NULL)                 \
    ROW(ANNEAL, "anneal", ul_order_run_anneal, UL_TURN_SEARCH, NULL, NULL)                         \
    ROW(SEARCH, "search", ul_order_run_search, UL_TURN_SEARCH, NULL, NULL)                         \
    ROW(ILP, "ilp", ul_order_run_ilp, UL_TURN_NONE, "few steps", "orders without recomputation")

#define UL_REMAT_METHODS(WORD, ROW)                                                                \
    WORD(BEST, "best", NULL, "all orders and recomputations")                                      \
    WORD(NONE, "none", NULL, NULL)                                                                 \
    ROW(GREEDY, "greedy", ul_remat_run_greedy, UL_TURN_NONE, NULL, NULL)                           \
    ROW(SEARCH, "search", ul_remat_run_search, UL_TURN_SEARCH, NULL, NULL)                         \
    ROW(CHAIN, "chain", ul_remat_run_chain, UL_TURN_START,                                         \
        "blocks in a chain, each handing on one value, that are read again in the opposite order", \
        "checkpoints on the chain of blocks")                                                      \
    ROW(ILP, "ilp", ul_remat_run_ilp, UL_TURN_AFTER,                                               \
        "up to 2000 steps, and programs that are solved",                                          \
        "reduced ILP: first runs in this order, none again before backward, each node once "       \
        "between two first runs")                                                                  \
    ROW(EXACT, "exact", ul_remat_run_exact, UL_TURN_FIRST | UL_TURN_LAST,                          \
        "up to 1024 steps, and few ways to run them", "all orders and recomputations")             \
    ROW(CUT, "cut", ul_remat_run_cut, UL_TURN_START,                                               \
        "a forward pass, and a backward pass behind it", NULL)                                     \
    ROW(KEEP, "keep", ul_remat_run_keep, UL_TURN_NONE, "what is to be kept, as --checkpoint says", \
        NULL)

#define UL_PACK_METHODS(WORD, ROW)                                                                 \
    WORD(BEST, "best", NULL, "packings of this order")                                             \
    ROW(NONE, "none", ul_pack_run_greedy, UL_TURN_NONE, NULL, NULL)                                \
    ROW(GREEDY, "greedy", ul_pack_run_greedy, UL_TURN_FIRST, NULL, NULL)                           \
    ROW(REPAIR, "repair", ul_pack_run_repair, UL_TURN_AFTER, NULL, NULL)                           \
    ROW(EXACT, "exact", ul_pack_run_exact, UL_TURN_AFTER, "up to 2000 buffers",                    \
        "packings of this order")

#define UL_ORDER_CONSTANT(constant, ...) UL_ORDER_##constant,
#define UL_REMAT_CONSTANT(constant, ...) UL_REMAT_##constant,
#define UL_PACK_CONSTANT(constant, ...) UL_PACK_##constant,
enum ul_plan_order { UL_ORDER_METHODS(UL_ORDER_CONSTANT, UL_ORDER_CONSTANT) UL_ORDER_COUNT };
enum ul_plan_remat { UL_REMAT_METHODS(UL_REMAT_CONSTANT, UL_REMAT_CONSTANT) UL_REMAT_COUNT };
enum ul_plan_pack { UL_PACK_METHODS(UL_PACK_CONSTANT, UL_PACK_CONSTANT) UL_PACK_COUNT };
#undef UL_ORDER_CONSTANT
#undef UL_REMAT_CONSTANT
#undef UL_PACK_CONSTANT

enum ul_method_kind { UL_METHOD_ORDER, UL_METHOD_REMAT, UL_METHOD_PACK };

struct ul_method {
    const char *name;
    const char *needs, *proves; /* or NULL */
    const char *keeps_file; /* the text of a plan where a search for an order keeps the file's */
};

/* The row of a method, by its constant. */
const struct ul_method *ul_method_get(enum ul_method_kind kind, uint32_t constant);

#endif
