/* SPDX-License-Identifier: Apache-2.0 */
/* Orders and recomputes an abstract graph: the published order, heuristics, exact search, and,
 * where order alone does not meet a budget, recomputation. The best result wins. */
#include "planner/solve/solve.h"
#include "planner/order/order.h"
#include "planner/remat/remat.h"

#include <string.h>

static const uint64_t smallest_work = 300000000;

struct solver {
    struct ul_arena *arena;
    const struct ul_solve_graph *graph;
    const struct ul_solve_options *options;
    struct ul_solve_result *result;
    struct ul_effort effort;    /* the deadline and the seed of all methods */
    uint64_t order_bound_bytes; /* of every order without recomputation */
    uint64_t repeat_bound;      /* the least cost of repeats */
    bool misfit_proven;         /* over all orders and recomputations */
};

static void sequence_keep(struct solver *s, const uint32_t *sequence, uint32_t count,
                          uint64_t peak_bytes, uint64_t cost, const char *method)
{
    struct ul_solve_result *r = s->result;
    r->order = ul_arena_copy(s->arena, sequence, sizeof *sequence * count);
    r->order_count = count;
    r->peak_bytes = peak_bytes;
    r->cost = cost;
    r->method = method;
    r->optimal_within = NULL; /* a proof holds only for the result that it was made for */
}

/* Offers an order of every node once: the smaller peak wins, or the method that was named. */
static void order_offer(struct solver *s, const uint32_t *order, bool is_named, const char *method)
{
    uint64_t peak, cost;
    bool valid = ul_solve_replay(s->graph, order, s->graph->node_count, &peak, &cost);
    UL_ASSERT(valid);
    if (is_named || peak < s->result->peak_bytes)
        sequence_keep(s, order, s->graph->node_count, peak, cost, method);
}

/* Whether the order is as good as it needs to be. */
static bool settled(const struct solver *s)
{
    uint64_t enough = s->order_bound_bytes;
    if (s->options->budget_bytes > enough)
        enough = s->options->budget_bytes;
    return s->result->peak_bytes <= enough;
}

static bool order_is_named(const struct solver *s)
{
    return s->options->order != UL_ORDER_BEST && s->options->order != UL_ORDER_FILE;
}

static void orders_run(struct solver *s)
{
    struct ul_order_run run = {.graph = s->graph,
                               .method = s->options->order,
                               .effort = {.work_limit = s->options->work_limit,
                                          .deadline_seconds = s->effort.deadline_seconds,
                                          .seed = s->effort.seed},
                               .enough_bytes = s->options->budget_bytes,
                               .lower_bytes = s->order_bound_bytes};
    ul_order_run(s->arena, &run);
    s->order_bound_bytes = run.lower_bytes;
    s->result->stopped_by_time = run.stopped_by_time;
    s->result->order_why_not = run.why_not;
    if (run.why_not == NULL)
        order_offer(s, run.order, order_is_named(s), run.method_name);
    else
        s->result->method = ul_method_get(UL_METHOD_ORDER, s->options->order)->name;
}

/* The need of a single node bounds every order and every recomputation. */
static void bounds_make(struct solver *s)
{
    const struct ul_solve_graph *g = s->graph;
    for (uint32_t v = 0; v < g->node_count; v++) {
        uint64_t need = g->size_bytes[v];
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
            need += g->size_bytes[g->inputs[i]];
        if (need > s->result->lower_bound_bytes) {
            s->result->lower_bound_bytes = need;
            s->result->largest_step = v;
        }
    }
    s->result->base_cost = ul_solve_base_cost(g);
    s->order_bound_bytes = s->result->lower_bound_bytes;
}

/* Where the budget is proven to be too small: finds the next budget for which there is a
 * schedule. */
static void misfit_measure(struct solver *s)
{
    struct ul_solve_result *r = s->result;
    uint64_t low = s->options->budget_bytes, high = r->smallest_budget_bytes;
    for (uint32_t i = 0; i < 16 && high - low > high / 1000; i++) {
        struct ul_remat_exact job = {.graph = s->graph,
                                     .arena = s->arena,
                                     .budget_bytes = low + (high - low) / 2,
                                     .repeat_limit = UINT64_MAX,
                                     .state_limit = ul_remat_limits_alone.exact_states,
                                     .effort = {.work_limit = ul_remat_limits_alone.exact_work / 4,
                                                .deadline_seconds = s->effort.deadline_seconds}};
        ul_remat_exact_run(&job);
        uint64_t peak = UINT64_MAX, cost;
        bool found = job.sequence != NULL &&
                     ul_solve_replay(s->graph, job.sequence, job.count, &peak, &cost);
        if (!found && job.outcome != UL_REMAT_NONE_CHEAPER)
            break;
        low = found ? low : job.budget_bytes;
        high = found ? peak : high;
    }
    r->smallest_budget_bytes = high;
}

/* The orders to start from: that of minimum peak may need fewer repeats than the published one. An
 * order that was named is the only one. */
static struct ul_remat_orders orders_make(struct solver *s)
{
    const uint32_t **orders = UL_NEW_ARRAY(s->arena, const uint32_t *, 2);
    orders[0] = order_is_named(s) ? s->result->order : s->graph->order;
    orders[1] = s->result->order;
    bool two = !order_is_named(s) && s->result->peak_bytes < s->result->order_peak_bytes;
    return (struct ul_remat_orders){.orders = orders, .count = two ? 2 : 1};
}

static struct ul_remat remat_make(struct solver *s, uint64_t budget_bytes, uint64_t work_limit)
{
    struct ul_remat remat = {.graph = s->graph,
                             .budget_bytes = budget_bytes,
                             .method = s->options->remat,
                             .keeps_order = s->options->order != UL_ORDER_BEST,
                             .effort = {.work_limit = work_limit,
                                        .deadline_seconds = s->effort.deadline_seconds,
                                        .seed = s->effort.seed},
                             .capacity = s->graph->node_count * 8 + 1000,
                             .cost = UINT64_MAX,
                             .smallest_peak_bytes = s->result->peak_bytes};
    remat.sequence = UL_NEW_ARRAY(s->arena, uint32_t, remat.capacity);
    return remat;
}

/* Where one step needs more than the budget: the smallest peak that recomputation reaches, down to
 * the bound. */
static void smallest_measure(struct solver *s)
{
    struct ul_solve_result *r = s->result;
    struct ul_remat remat = remat_make(s, r->lower_bound_bytes, smallest_work);
    struct ul_remat_orders orders = orders_make(s);
    remat.limits = &ul_remat_limits_alone;
    ul_remat_run_turn(&remat, &orders, UL_TURN_SEARCH);
    r->smallest_budget_bytes = remat.smallest_peak_bytes;
    r->stopped_by_time = r->stopped_by_time || remat.effort.stopped_by_time;
}

static void remat_run(struct solver *s)
{
    struct ul_solve_result *r = s->result;
    struct ul_remat_limits limits = ul_remat_limits_alone;
    if (s->options->work_limit != 0)
        limits.search_work = limits.exact_work = limits.exact_more_work = limits.backward_work =
            s->options->work_limit;
    struct ul_remat remat = remat_make(s, s->options->budget_bytes, limits.search_work);
    struct ul_remat_orders orders = orders_make(s);
    remat.limits = &limits;
    ul_remat_run(&remat, &orders);
    s->repeat_bound = remat.repeat_bound;
    s->misfit_proven = remat.misfit_proven;
    r->stopped_by_time = r->stopped_by_time || remat.effort.stopped_by_time;
    r->smallest_budget_bytes = remat.smallest_peak_bytes;
    r->why_not = remat.why_not;
    if (remat.misfit_proven && remat.method == UL_REMAT_BEST)
        misfit_measure(s);
    if (remat.cost == UINT64_MAX)
        return;
    uint64_t peak, cost;
    bool valid = ul_solve_replay(s->graph, remat.sequence, remat.count, &peak, &cost);
    UL_ASSERT(valid && peak <= s->options->budget_bytes);
    sequence_keep(s, remat.sequence, remat.count, peak, cost, ul_remat_found_by(s->arena, &remat));
    r->optimal_within = remat.proven_within;
}

static void verdict_make(struct solver *s)
{
    struct ul_solve_result *r = s->result;
    uint64_t budget = s->options->budget_bytes;
    r->recomputes = r->order_count - s->graph->node_count;
    r->cost_bound = r->base_cost + s->repeat_bound;
    r->fits = (budget == 0 || r->peak_bytes <= budget) && r->order_why_not == NULL;
    r->proven = r->fits || budget < r->lower_bound_bytes || s->misfit_proven;
    if (budget == 0) {
        r->optimal = r->peak_bytes == r->lower_bound_bytes;
        if (r->peak_bytes == s->order_bound_bytes && !r->optimal)
            r->optimal_within = "orders without recomputation";
    } else {
        r->optimal = r->fits && r->cost == r->cost_bound;
        if (r->optimal)
            r->optimal_within = NULL;
    }
    if (r->peak_bytes < r->smallest_budget_bytes)
        r->smallest_budget_bytes = r->peak_bytes;
}

void ul_solve_run(struct ul_arena *arena, const struct ul_solve_graph *graph,
                  const struct ul_solve_options *options, struct ul_solve_result *result)
{
    struct solver s = {.arena = arena, .graph = graph, .options = options, .result = result};
    memset(result, 0, sizeof *result);
    s.effort = (struct ul_effort){
        .deadline_seconds = ul_deadline_after(options->time_limit_seconds), .seed = options->seed};
    result->peak_bytes = UINT64_MAX;
    result->smallest_budget_bytes = UINT64_MAX;
    order_offer(&s, graph->order, false, "file: published order");
    result->order_peak_bytes = result->peak_bytes;
    bounds_make(&s);
    if (order_is_named(&s) || (options->order == UL_ORDER_BEST && !settled(&s)))
        orders_run(&s);
    uint64_t budget = options->budget_bytes;
    if (budget != 0 && result->peak_bytes > budget && options->remat != UL_REMAT_NONE) {
        if (options->remat != UL_REMAT_BEST)
            result->method = ul_method_get(UL_METHOD_REMAT, options->remat)->name;
        if (budget < result->lower_bound_bytes)
            smallest_measure(&s);
        else
            remat_run(&s);
    }
    verdict_make(&s);
    UL_ASSERT(result->lower_bound_bytes <= result->peak_bytes);
}
