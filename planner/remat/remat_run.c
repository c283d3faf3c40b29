/* Which method of recomputation runs: the one that is named, or one after the other.
 *
 * Problem: exact methods settle small problems and take too long for large ones, and no search is
 * the best of all. Method: in turn an exact search with little work, checkpoints where the graph
 * is a chain, searches, integer programs, and the exact search again with more; each starts from
 * the best so far, and a proof ends the turn. A method that is named runs alone: where it does not
 * apply or finds nothing, why_not says so, and nothing takes its place. */
#include "planner/remat/remat.h"

#include "planner/model/method.h"

#include <string.h>

const struct ul_remat_limits ul_remat_limits_alone = {
    .search_work = 6000000000,
    .exact_work = (uint64_t)1 << 25,
    .exact_more_work = (uint64_t)1 << 28,
    .exact_states = (uint32_t)1 << 22,
    .backward_work = (uint64_t)1 << 28,
    .backward_states = (uint32_t)1 << 18,
    .programs = {.work = 8000,
                 .nodes = 2000,
                 .columns = 8000,
                 .memory_bytes = (uint64_t)1 << 30,
                 .cpu_seconds = 30},
    .named_programs = {.work = 400000,
                       .nodes = 2000,
                       .columns = 40000,
                       .memory_bytes = (uint64_t)4 << 30,
                       .cpu_seconds = 300},
};

const struct ul_remat_limits ul_remat_limits_rung = {
    .exact_work = (uint64_t)1 << 18,
    .exact_more_work = (uint64_t)1 << 24,
    .exact_states = (uint32_t)1 << 16,
    .backward_work = (uint64_t)1 << 18,
    .backward_states = (uint32_t)1 << 16,
    .programs = {.work = 1000,
                 .nodes = 100,
                 .columns = 1000,
                 .memory_bytes = (uint64_t)1 << 30,
                 .cpu_seconds = 30},
    .named_programs = {.work = 20000,
                       .nodes = 2000,
                       .columns = 20000,
                       .memory_bytes = (uint64_t)2 << 30,
                       .cpu_seconds = 60},
};

const struct ul_remat_limits ul_remat_limits_between = {
    .exact_work = (uint64_t)1 << 21,
    .exact_more_work = (uint64_t)1 << 25,
    .exact_states = (uint32_t)1 << 18,
    .backward_work = (uint64_t)1 << 21,
    .backward_states = (uint32_t)1 << 17,
    .programs = {.work = 4000,
                 .nodes = 150,
                 .columns = 4000,
                 .memory_bytes = (uint64_t)1 << 30,
                 .cpu_seconds = 30},
    .named_programs = {.work = 20000,
                       .nodes = 2000,
                       .columns = 20000,
                       .memory_bytes = (uint64_t)2 << 30,
                       .cpu_seconds = 60},
};

static void cap(uint64_t *limit, uint64_t work)
{
    *limit = work < *limit ? work : *limit;
}

void ul_remat_limits_cap(struct ul_remat_limits *limits, uint64_t work)
{
    enum { ITERATION = 256 };
    cap(&limits->exact_work, work);
    cap(&limits->exact_more_work, work);
    cap(&limits->backward_work, work);
    cap(&limits->programs.work, work / ITERATION + 1);
    cap(&limits->named_programs.work, work / ITERATION + 1);
}

void ul_remat_run_none(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    (void)orders;
    remat->why_not = "the order needs more without recomputation";
}

void ul_remat_run_chain(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    UL_ASSERT(orders->count > 0);
    bool is_chain = false;
    for (uint32_t i = 0; i < orders->count; i++)
        is_chain = ul_remat_chain(remat, orders->orders[i]) || is_chain;
    if (remat->cost == UINT64_MAX)
        remat->why_not = is_chain ? "no checkpoints on its chain of blocks are small enough"
                                  : "its graph is no chain of blocks that are read again in the "
                                    "opposite order";
}

/* The programs start from what the searches find, and have to improve on it or prove it. */
void ul_remat_run_ilp(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    UL_ASSERT(orders->count > 0);
    uint64_t before = remat->cost;
    ul_remat_search(remat, orders);
    uint64_t start = remat->cost;
    ul_remat_programs(remat, &remat->limits->named_programs, orders);
    if (remat->cost == UINT64_MAX) {
        remat->why_not = "neither searches nor programs find anything within the limit";
    } else if (remat->cost == start && remat->proven_within == NULL && start < before) {
        remat->cost = UINT64_MAX; /* a search's, not the programs' */
        remat->why_not = "its programs are too large, or not solved within their work";
    } else if (remat->cost == start) {
        remat->found_by = "integer program that proves a search's sequence";
    }
}

/* Checkpoints, searches and programs, which only try to find something cheaper. */
static void searches_run(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    for (uint32_t i = 0; i < orders->count; i++)
        ul_remat_chain(remat, orders->orders[i]);
    uint64_t cost = remat->cost;
    ul_remat_search(remat, orders);
    if (remat->cost < cost)
        remat->proven_within = NULL; /* it goes beyond that */
    ul_remat_programs(remat, &remat->limits->programs, orders);
}

void ul_remat_run_best(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    if (!remat->keeps_order && ul_remat_exact(remat, remat->limits->exact_work))
        return;
    searches_run(remat, orders);
    if (!remat->keeps_order)
        ul_remat_exact(remat, remat->limits->exact_more_work);
}

/* Goes on from what `from` holds. */
static void remat_continue(struct ul_remat *remat, const struct ul_remat *from)
{
    UL_ASSERT(from->cost != UINT64_MAX && from->count <= remat->capacity);
    memcpy(remat->sequence, from->sequence, from->count * sizeof *from->sequence);
    remat->count = from->count;
    remat->cost = from->cost;
    remat->found_by = from->found_by;
    remat->proven_within = NULL;
}

static uint64_t base_cost(const struct ul_solve_graph *graph)
{
    uint64_t sum = 0;
    for (uint32_t v = 0; v < graph->node_count; v++)
        sum += graph->cost[v];
    return sum;
}

void ul_remat_run_rung(struct ul_remat *searched, struct ul_remat *cheaper,
                       const struct ul_remat_orders *orders)
{
    UL_ASSERT(searched->cost == UINT64_MAX && cheaper->cost == UINT64_MAX);
    bool settled = !cheaper->keeps_order && ul_remat_exact(cheaper, cheaper->limits->exact_work);
    searched->misfit_proven = cheaper->misfit_proven;
    if (cheaper->misfit_proven)
        return;
    ul_remat_search(searched, orders);
    if (searched->cost < cheaper->cost)
        remat_continue(cheaper, searched);
    if (!settled && cheaper->cost != base_cost(cheaper->graph)) {
        for (uint32_t i = 0; i < orders->count; i++)
            ul_remat_chain(cheaper, orders->orders[i]);
        ul_remat_programs(cheaper, &cheaper->limits->programs, orders);
    }
    if (cheaper->cost == searched->cost) {
        searched->proven_within = cheaper->proven_within;
        cheaper->cost = UINT64_MAX;
    }
}

void ul_remat_run(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
#define RUN(constant, name, run, ...) run,
    static ul_remat_method *const methods[] = {UL_REMAT_METHODS(RUN)};
#undef RUN
    UL_ASSERT(remat->method < UL_REMAT_COUNT && orders->count > 0 && remat->limits != NULL);
    remat->why_not = NULL;
    methods[remat->method](remat, orders);
    UL_ASSERT(remat->cost == UINT64_MAX || remat->count >= remat->graph->node_count);
}
