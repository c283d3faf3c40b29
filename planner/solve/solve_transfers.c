/* SPDX-License-Identifier: Apache-2.0 */
/* Solves an abstract graph whose values may wait in another space.
 *
 * Problem: within a budget, what is cheaper for each value: to keep it, to recompute it, or to copy
 * it away and back while steps run? Method: recomputation, with little work, gives sequences within
 * the budget and within larger ones; the published order and the best one run nothing twice. Values
 * move out of each sequence until it is within the budget (planner/transfer/). The cheapest wins,
 * counting waits. The graph becomes a problem with one step and one value a node, so that the
 * plan's timeline and its checker are those of programs. bound_transfers.c bounds the cost of all
 * schedules. */
#include "planner/model/timeline.h"
#include "planner/remat/remat.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "planner/transfer/transfer.h"

#include <string.h>

struct mover {
    struct ul_arena *arena;
    const struct ul_solve_graph *graph;
    struct ul_problem *problem; /* steps in the published order; values as nodes */
    const struct ul_plan_resource *engine;
    uint32_t *step_of; /* per node */
    uint64_t budget_bytes;
    struct ul_solve_result *result;
};

static void problem_make(struct mover *m)
{
    const struct ul_solve_graph *g = m->graph;
    m->problem = ul_problem_new(m->arena);
    m->step_of = UL_NEW_ARRAY(m->arena, uint32_t, g->node_count);
    m->engine = ul_problem_engine(m->problem, ul_problem_add_offload(m->problem, g->other), false);
    for (uint32_t v = 0; v < g->node_count; v++) {
        struct ul_plan_value value =
            ul_plan_value_make(g->names[v], UL_PLAN_ACTIVATIONS, g->size_bytes[v]);
        ul_problem_add_value(m->problem, &value);
    }
    for (uint32_t i = 0; i < g->node_count; i++) {
        uint32_t v = g->order[i];
        const struct ul_plan_substep substep = {.reads = g->inputs + g->input_first[v],
                                                .read_count =
                                                    g->input_first[v + 1] - g->input_first[v],
                                                .writes = &v,
                                                .write_count = 1};
        const struct ul_plan_alternative alternative = {
            .substeps = &substep, .substep_count = 1, .cost = g->cost[v]};
        m->step_of[v] =
            ul_problem_add_step(m->problem, &(struct ul_plan_step){.name = g->names[v],
                                                                   .alternatives = &alternative,
                                                                   .alternative_count = 1});
    }
}

/* Lets the checker decide on the positions found, with their ranges packed in any way. */
static enum ul_status positions_check(struct mover *m, struct ul_arena *scratch,
                                      const struct ul_transfer_search *job, struct ul_diag *diag)
{
    const struct ul_plan_options options = {.alignment_bytes = 1, .pack = UL_PACK_GREEDY};
    struct ul_plan plan = {.positions = job->positions,
                           .position_count = job->position_count,
                           .order_method = "",
                           .remat_method = ""};
    UL_TRY(ul_plan_complete(scratch, m->problem, &options, &plan, diag));
    ul_plan_judge(m->problem, 0, NULL, &plan);
    return ul_plan_check(scratch, m->problem, &plan, diag);
}

static void result_take(struct mover *m, struct ul_arena *scratch,
                        const struct ul_transfer_search *job, const char *method)
{
    struct ul_solve_result *r = m->result;
    struct ul_plan live = {
        .positions = job->positions, .position_count = job->position_count, .alignment_bytes = 1};
    ul_timeline_build(scratch, m->problem, UL_ALIAS_ALL, &live);
    ul_account_live(scratch, &live);
    r->positions =
        ul_arena_copy(m->arena, job->positions, job->position_count * sizeof *job->positions);
    r->position_count = job->position_count;
    r->order = UL_NEW_ARRAY(m->arena, uint32_t, job->position_count);
    r->order_count = 0;
    for (uint32_t p = 0; p < job->position_count; p++) {
        if (r->positions[p].kind == UL_PLAN_RUN)
            r->order[r->order_count++] = m->graph->order[r->positions[p].step];
    }
    r->peak_bytes = live.order_lower_bound_bytes;
    r->cost = job->cost;
    r->fits = true;
    bool moves = job->position_count > r->order_count;
    r->method = moves ? ul_arena_printf(m->arena, "%s; transfers", method) : method;
    r->positions = moves ? r->positions : NULL;
    r->position_count = moves ? r->position_count : 0;
}

/* Moves values out of a sequence of nodes until it is within the budget, if that is cheaper than
 * the best result so far. */
static enum ul_status sequence_move(struct mover *m, const uint32_t *nodes, uint32_t count,
                                    const char *method, struct ul_diag *diag)
{
    struct ul_arena scratch;
    struct ul_plan runs = {.alignment_bytes = 1};
    enum ul_status status = UL_OK;
    uint64_t capacity = m->graph->other->capacity_bytes;
    ul_arena_init(&scratch);
    uint32_t *steps = UL_NEW_ARRAY(&scratch, uint32_t, count);
    for (uint32_t i = 0; i < count; i++)
        steps[i] = m->step_of[nodes[i]];
    ul_timeline_sequence(&scratch, m->problem, steps, count, NULL, &runs);
    ul_timeline_build(&scratch, m->problem, UL_ALIAS_ALL, &runs);
    struct ul_transfer_search job = {.problem = m->problem,
                                     .runs = &runs,
                                     .limit_bytes = m->budget_bytes,
                                     .room_bytes = capacity == 0 ? UINT64_MAX : capacity,
                                     .effort = {.work_limit = 1 << 22, .seed = 1}};
    ul_transfer_place(&scratch, &job);
    if (capacity == 0 && job.floor_bytes < m->result->smallest_budget_bytes)
        m->result->smallest_budget_bytes = job.floor_bytes;
    if (job.positions != NULL && (!m->result->fits || job.cost < m->result->cost)) {
        status = positions_check(m, &scratch, &job, diag);
        if (status == UL_OK)
            result_take(m, &scratch, &job, method);
    }
    ul_arena_done(&scratch);
    return status;
}

/* Sequences within larger budgets repeat less, and have more to move. */
static enum ul_status repeats_move(struct mover *m, const struct ul_solve_options *options,
                                   struct ul_diag *diag)
{
    static const double parts[] = {1, 1.2, 1.5, 2, 3};
    enum { WORK = 1 << 20 };
    struct ul_solve_graph alone = *m->graph;
    alone.other = NULL;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct ul_solve_options larger = *options;
        struct ul_solve_result found;
        double bytes = (double)m->budget_bytes * parts[i];
        bool is_least = m->result->fits && m->result->cost == m->result->base_cost;
        if (is_least || bytes >= (double)m->result->order_peak_bytes)
            break;
        larger.budget_bytes = (uint64_t)bytes;
        larger.remat = options->remat == UL_REMAT_BEST ? UL_REMAT_SEARCH : options->remat;
        larger.work_limit = options->work_limit != 0 ? options->work_limit : WORK;
        ul_solve_run(m->arena, &alone, &larger, &found);
        if (found.fits)
            UL_TRY(sequence_move(m, found.order, found.order_count, found.method, diag));
    }
    return UL_OK;
}

enum ul_status ul_solve_graph_run(struct ul_arena *arena, const struct ul_solve_graph *graph,
                                  const struct ul_solve_options *options,
                                  struct ul_solve_result *result, struct ul_diag *diag)
{
    struct mover m = {
        .arena = arena, .graph = graph, .budget_bytes = options->budget_bytes, .result = result};
    struct ul_solve_options orders = *options;
    bool moves = graph->other != NULL && options->budget_bytes != 0;
    if (moves)
        orders.remat = UL_REMAT_NONE;
    ul_solve_run(arena, graph, &orders, result);
    if (!moves)
        return UL_OK;
    /* A bound for repeats alone does not hold where values move. */
    result->cost_bound = result->base_cost;
    if (result->peak_bytes > options->budget_bytes) {
        problem_make(&m);
        const uint32_t *order =
            ul_arena_copy(arena, result->order, result->order_count * sizeof *result->order);
        UL_TRY(sequence_move(&m, graph->order, graph->node_count, "file: published order", diag));
        UL_TRY(sequence_move(&m, order, graph->node_count, "another order", diag));
        if (options->remat != UL_REMAT_NONE && options->budget_bytes >= result->lower_bound_bytes)
            UL_TRY(repeats_move(&m, options, diag));
    }
    if (result->fits && result->cost > result->base_cost)
        result->cost_bound =
            ul_bound_transfers(&(struct ul_bound_transfers){.graph = graph,
                                                            .engine = m.engine,
                                                            .alignment_bytes = 1,
                                                            .budget_bytes = options->budget_bytes,
                                                            .known_cost = result->cost},
                               &result->bound_method);
    result->recomputes = result->order_count - graph->node_count;
    result->optimal = result->fits && result->cost == result->cost_bound;
    result->optimal_within = NULL;
    result->proven = result->fits || options->budget_bytes < result->lower_bound_bytes;
    if (result->peak_bytes < result->smallest_budget_bytes)
        result->smallest_budget_bytes = result->peak_bytes;
    return UL_OK;
}
