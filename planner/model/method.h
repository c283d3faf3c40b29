/* The methods of the planner: one row each.
 *
 * Whatever knows a method by its name (options and their help, plans, reports) reads these rows,
 * and whoever runs methods makes a table of functions of them: a method is its row here and the
 * file with its function.
 *
 *     ROW(constant, name, run, needs, proves)
 *         run     the function; order/order_internal.h, remat/remat.h and pack/pack_internal.h
 *                 say of which types
 *         needs   what it applies to, or NULL: anything
 *         proves  what a proof by it covers, or NULL
 *
 * The first row of a kind is the default: all methods of the kind, and the best result wins. */
#ifndef UL_PLANNER_MODEL_METHOD_H
#define UL_PLANNER_MODEL_METHOD_H

#include <stdint.h>

#define UL_ORDER_METHODS(ROW)                                                                      \
    ROW(BEST, "best", ul_order_run_best, NULL, "orders without recomputation")                     \
    ROW(FILE, "file", ul_order_run_file, NULL, NULL)                                               \
    ROW(GREEDY, "greedy", ul_order_run_greedy, NULL, NULL)                                         \
    ROW(DFS, "dfs", ul_order_run_dfs, NULL, NULL)                                                  \
    ROW(DP, "dp", ul_order_run_dp, NULL, "orders without recomputation")                           \
    ROW(BEAM, "beam", ul_order_run_beam, NULL, NULL)                                               \
    ROW(SEARCH, "search", ul_order_run_search, NULL, NULL)                                         \
    ROW(ILP, "ilp", ul_order_run_ilp, "few steps", "orders without recomputation")

#define UL_REMAT_METHODS(ROW)                                                                      \
    ROW(BEST, "best", ul_remat_run_best, NULL, "all orders and recomputations")                    \
    ROW(NONE, "none", ul_remat_run_none, NULL, NULL)                                               \
    ROW(GREEDY, "greedy", ul_remat_run_greedy, NULL, NULL)                                         \
    ROW(SEARCH, "search", ul_remat_run_search, NULL, NULL)                                         \
    ROW(CHAIN, "chain", ul_remat_run_chain,                                                        \
        "blocks in a chain, each handing on one value, that are read again in the opposite order", \
        "checkpoints on the chain of blocks")                                                      \
    ROW(ILP, "ilp", ul_remat_run_ilp, "up to 2000 steps, and programs that are solved",            \
        "reduced ILP: first runs in this order, none again before backward, each node once "       \
        "between two first runs")                                                                  \
    ROW(EXACT, "exact", ul_remat_run_exact, "up to 1024 steps, and few ways to run them",          \
        "all orders and recomputations")

#define UL_PACK_METHODS(ROW)                                                                       \
    ROW(BEST, "best", ul_pack_run_best, NULL, "packings of this order")                            \
    ROW(NONE, "none", ul_pack_run_greedy, NULL, NULL)                                              \
    ROW(GREEDY, "greedy", ul_pack_run_greedy, NULL, NULL)                                          \
    ROW(EXACT, "exact", ul_pack_run_exact, "up to 2000 buffers", "packings of this order")

#define UL_ORDER_CONSTANT(constant, ...) UL_ORDER_##constant,
#define UL_REMAT_CONSTANT(constant, ...) UL_REMAT_##constant,
#define UL_PACK_CONSTANT(constant, ...) UL_PACK_##constant,
enum ul_plan_order { UL_ORDER_METHODS(UL_ORDER_CONSTANT) UL_ORDER_COUNT };
enum ul_plan_remat { UL_REMAT_METHODS(UL_REMAT_CONSTANT) UL_REMAT_COUNT };
enum ul_plan_pack { UL_PACK_METHODS(UL_PACK_CONSTANT) UL_PACK_COUNT };
#undef UL_ORDER_CONSTANT
#undef UL_REMAT_CONSTANT
#undef UL_PACK_CONSTANT

enum ul_method_kind { UL_METHOD_ORDER, UL_METHOD_REMAT, UL_METHOD_PACK };

struct ul_method {
    const char *name;
    const char *needs, *proves; /* or NULL */
    const char *keeps_file;     /* what a plan says where an order is the file's after all */
};

/* The row of a method, by its constant. */
const struct ul_method *ul_method_get(enum ul_method_kind kind, uint32_t constant);

#endif
