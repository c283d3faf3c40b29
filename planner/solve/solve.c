/* Order and recomputation of an abstract graph: the published order, heuristics, exact search,
 * and, where a budget is not met by order alone, recomputation. The best result wins. */
#include "planner/solve/solve.h"
#include "planner/order/order.h"
#include "planner/remat/remat.h"

#include <string.h>

static const uint64_t default_remat_work = 6000000000;
static const uint64_t smallest_work = 300000000;
enum { CLOCK_LOOKS = 1024 };                          /* the exact engines ask often */
static const uint64_t exact_work = (uint64_t)1 << 25; /* before the heuristics; 8 times it after */
static const uint32_t exact_states = (uint32_t)1 << 22;
static const uint64_t backward_work = (uint64_t)1 << 28;
static const uint32_t backward_states = (uint32_t)1 << 18;

struct solver {
    struct ul_arena *arena;
    const struct ul_solve_graph *graph;
    const struct ul_solve_options *options;
    struct ul_solve_result *result;
    double deadline_seconds;
    uint64_t order_bound_bytes; /* of every order without recomputation */
    uint64_t repeat_bound;      /* what repeats cost at least */
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
    r->optimal_within = NULL; /* a proof is of what it was made for */
}

/* An order of every node once: the smaller peak wins. */
static void order_offer(struct solver *s, const uint32_t *order, const char *method)
{
    uint64_t peak, cost;
    bool valid = ul_solve_replay(s->graph, order, s->graph->node_count, &peak, &cost);
    UL_ASSERT(valid);
    if (peak < s->result->peak_bytes)
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

static void orders_run(struct solver *s)
{
    struct ul_order_run run = {.graph = s->graph,
                               .method = s->options->order,
                               .seed = s->options->seed,
                               .work_limit = s->options->work_limit,
                               .deadline_seconds = s->deadline_seconds,
                               .enough_bytes = s->options->budget_bytes,
                               .lower_bytes = s->order_bound_bytes};
    ul_order_run(s->arena, &run);
    s->order_bound_bytes = run.lower_bytes;
    s->result->stopped_by_time = run.stopped_by_time;
    order_offer(s, run.order, run.method_name);
}

/* What a node needs by itself bounds every order and every recomputation. */
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
        s->result->base_cost += g->cost[v];
    }
    s->order_bound_bytes = s->result->lower_bound_bytes;
}

/* Integer programs improve on what the search found, and prove. */
static void remat_programs(struct solver *s, struct ul_remat *remat, const uint32_t *const *orders,
                           uint32_t order_count)
{
    static const struct ul_remat_effort max = {
        .work = 400000, .columns = 40000, .memory_bytes = (uint64_t)4 << 30, .cpu_seconds = 300};
    static const struct ul_remat_effort little = {
        .work = 8000, .columns = 8000, .memory_bytes = (uint64_t)1 << 30, .cpu_seconds = 30};
    enum ul_plan_remat method = s->options->remat;
    if (method == UL_REMAT_BEST || method == UL_REMAT_ILP)
        ul_remat_programs(remat, method == UL_REMAT_ILP ? &max : &little, orders, order_count);
}

/* Chains first, for the search to start from. */
static void remat_search(struct solver *s, struct ul_remat *remat, const uint32_t *const *orders,
                         uint32_t order_count)
{
    enum ul_plan_remat method = s->options->remat;
    if (method == UL_REMAT_BEST || method == UL_REMAT_CHAIN) {
        for (uint32_t i = 0; i < order_count; i++)
            ul_remat_chain(remat, orders[i]);
    }
    uint64_t cost = remat->cost;
    remat->method = method == UL_REMAT_ILP ? UL_REMAT_BEST : method;
    if (method != UL_REMAT_CHAIN)
        ul_remat_search(remat, orders, order_count);
    if (remat->cost < cost)
        remat->proven_within = NULL; /* it goes beyond that */
}

/* One of the exact engines, below what is known; true if that settles it. */
static bool remat_exact_run(struct solver *s, void (*engine)(struct ul_remat_exact *job),
                            const char *method, struct ul_remat_exact job)
{
    struct ul_solve_result *r = s->result;
    bool fits = r->peak_bytes <= s->options->budget_bytes;
    job.graph = s->graph;
    job.arena = s->arena;
    job.budget_bytes = s->options->budget_bytes;
    job.repeat_limit = fits ? r->cost - r->base_cost : UINT64_MAX;
    job.effort.deadline_seconds = s->deadline_seconds;
    job.effort.look_every = CLOCK_LOOKS;
    if (s->options->work_limit != 0)
        job.effort.work_limit = s->options->work_limit;
    engine(&job);
    r->stopped_by_time = r->stopped_by_time || job.effort.stopped_by_time;
    if (job.sequence != NULL) {
        uint64_t peak, cost;
        bool valid = ul_solve_replay(s->graph, job.sequence, job.count, &peak, &cost);
        UL_ASSERT(valid && peak <= job.budget_bytes && cost == r->base_cost + job.repeat_cost);
        sequence_keep(s, job.sequence, job.count, peak, cost, method);
    }
    s->misfit_proven = job.outcome == UL_REMAT_NONE_CHEAPER && !fits;
    if (job.repeat_bound > s->repeat_bound && !s->misfit_proven)
        s->repeat_bound = job.repeat_bound;
    return job.outcome == UL_REMAT_NONE_CHEAPER || job.outcome == UL_REMAT_OPTIMAL;
}

/* Over all orders and recomputations, from the end, which takes little where the memory is tight
 * late, and from the start; true if that settles it. */
static bool remat_exact(struct solver *s, uint64_t work_limit)
{
    struct ul_remat_exact backward = {.state_limit = backward_states,
                                      .effort = {.work_limit = backward_work}};
    struct ul_remat_exact forward = {.state_limit = exact_states,
                                     .effort = {.work_limit = work_limit}};
    if (s->options->remat != UL_REMAT_BEST || s->options->order != UL_ORDER_BEST)
        return false;
    return remat_exact_run(s, ul_remat_backward_run, "search over computed and resident, backwards",
                           backward) ||
           remat_exact_run(s, ul_remat_exact_run, "search over computed and resident", forward);
}

/* Where the budget is proven to be too small: how far up a schedule is found. */
static void misfit_measure(struct solver *s)
{
    struct ul_solve_result *r = s->result;
    uint64_t low = s->options->budget_bytes, high = r->peak_bytes;
    for (uint32_t i = 0; i < 16 && high - low > high / 1000; i++) {
        struct ul_remat_exact job = {.graph = s->graph,
                                     .arena = s->arena,
                                     .budget_bytes = low + (high - low) / 2,
                                     .repeat_limit = UINT64_MAX,
                                     .state_limit = exact_states,
                                     .effort = {.work_limit = exact_work / 4,
                                                .deadline_seconds = s->deadline_seconds,
                                                .look_every = CLOCK_LOOKS}};
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

/* Where one step needs more than the budget: what recomputation gets to, down to the bound. */
static void smallest_measure(struct solver *s)
{
    struct ul_solve_result *r = s->result;
    uint32_t n = s->graph->node_count;
    struct ul_remat remat = {
        .graph = s->graph,
        .budget_bytes = r->lower_bound_bytes,
        .seed = s->options->seed,
        .effort = {.work_limit = smallest_work, .deadline_seconds = s->deadline_seconds},
        .capacity = n * 8 + 1000,
        .cost = UINT64_MAX,
        .smallest_peak_bytes = r->peak_bytes};
    remat.sequence = UL_NEW_ARRAY(s->arena, uint32_t, remat.capacity);
    const uint32_t *const orders[] = {s->graph->order, r->order};
    ul_remat_search(&remat, orders, r->peak_bytes < r->order_peak_bytes ? 2 : 1);
    r->smallest_budget_bytes = remat.smallest_peak_bytes;
    r->stopped_by_time = r->stopped_by_time || remat.effort.stopped_by_time;
}

static void remat_run(struct solver *s)
{
    struct ul_solve_result *r = s->result;
    uint32_t n = s->graph->node_count;
    /* The order of the least peak may need fewer repeats than the published one. */
    const uint32_t *const orders[] = {s->graph->order, r->order};
    uint32_t order_count = r->peak_bytes < r->order_peak_bytes ? 2 : 1;
    if (remat_exact(s, exact_work)) {
        if (s->misfit_proven)
            misfit_measure(s);
        return;
    }
    struct ul_remat remat = {
        .graph = s->graph,
        .budget_bytes = s->options->budget_bytes,
        .seed = s->options->seed,
        .effort = {.work_limit = s->options->work_limit, .deadline_seconds = s->deadline_seconds},
        .capacity = n * 8 + 1000,
        .cost = UINT64_MAX,
        .smallest_peak_bytes = r->peak_bytes};
    remat.sequence = UL_NEW_ARRAY(s->arena, uint32_t, remat.capacity);
    if (remat.effort.work_limit == 0)
        remat.effort.work_limit = default_remat_work;
    if (r->peak_bytes <= remat.budget_bytes && r->order_count <= remat.capacity) {
        memcpy(remat.sequence, r->order, sizeof *r->order * r->order_count);
        remat.count = r->order_count;
        remat.cost = r->cost;
        remat.found_by = r->method;
    }
    remat_search(s, &remat, orders, order_count);
    remat_programs(s, &remat, orders, order_count);
    r->stopped_by_time = r->stopped_by_time || remat.effort.stopped_by_time;
    r->smallest_budget_bytes = remat.smallest_peak_bytes;
    if (remat.cost == UINT64_MAX) {
        remat_exact(s, exact_work << 3);
        return;
    }
    uint64_t peak, cost;
    bool valid = ul_solve_replay(s->graph, remat.sequence, remat.count, &peak, &cost);
    UL_ASSERT(valid);
    sequence_keep(s, remat.sequence, remat.count, peak, cost, remat.found_by);
    r->optimal_within = remat.proven_within;
    remat_exact(s, exact_work << 3);
}

static void verdict_make(struct solver *s)
{
    struct ul_solve_result *r = s->result;
    uint64_t budget = s->options->budget_bytes;
    r->recomputes = r->order_count - s->graph->node_count;
    r->cost_bound = r->base_cost + s->repeat_bound;
    r->fits = budget == 0 || r->peak_bytes <= budget;
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
    s.deadline_seconds = ul_deadline_after(options->time_limit_seconds);
    result->peak_bytes = UINT64_MAX;
    result->smallest_budget_bytes = UINT64_MAX;
    order_offer(&s, graph->order, "published order");
    result->order_peak_bytes = result->peak_bytes;
    bounds_make(&s);
    if (options->order != UL_ORDER_FILE && !settled(&s))
        orders_run(&s);
    uint64_t budget = options->budget_bytes;
    if (budget != 0 && result->peak_bytes > budget && options->remat != UL_REMAT_NONE) {
        if (budget < result->lower_bound_bytes)
            smallest_measure(&s);
        else
            remat_run(&s);
    }
    verdict_make(&s);
}
