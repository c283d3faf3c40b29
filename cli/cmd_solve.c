/* SPDX-License-Identifier: Apache-2.0 */
/* ullage solve: order and recomputation alone, for an abstract graph (planner/README.md). */
#include "cli/cli.h"
#include "planner/model/effort.h"

#include <stdlib.h>

static double ratio(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0.0 : (double)part / (double)whole;
}

static double gap_of(const struct ul_solve_result *result, bool has_budget)
{
    if (has_budget && result->cost < result->cost_bound)
        return 0.0; /* nothing within the budget was found: the cost belongs to a plan that does not
                       fit */
    if (has_budget)
        return ratio(result->cost - result->cost_bound, result->base_cost);
    return ratio(result->peak_bytes - result->lower_bound_bytes, result->lower_bound_bytes);
}

static void put_number(struct ul_text *text, const char *key, uint64_t number)
{
    ul_text_printf(text, "  \"%s\": %llu,\n", key, (unsigned long long)number);
}

static void put_flag(struct ul_text *text, const char *key, bool flag)
{
    ul_text_printf(text, "  \"%s\": %s,\n", key, flag ? "true" : "false");
}

/* Writes the cost, its minimum, and what is proven about it, for a sequence or a plan. */
static void put_cost(struct ul_text *text, uint64_t cost, uint64_t base_cost, bool optimal)
{
    put_number(text, "cost", cost);
    put_number(text, "base_cost", base_cost);
    ul_text_printf(text, "  \"overhead\": %.9g,\n", ul_plan_overhead(cost, base_cost));
    put_flag(text, "optimal", optimal);
}

/* Writes what an exact method or a bound says about the cost. */
static void put_bound(struct ul_text *text, uint64_t cost_bound, const char *optimal_within)
{
    put_number(text, "cost_bound", cost_bound);
    ul_text_put(text, "  \"optimal_within\": ");
    if (optimal_within != NULL)
        ul_text_put_json(text, optimal_within);
    else
        ul_text_put(text, "null");
    ul_text_put(text, ",\n");
}

/* Writes all actions where values move, as lists: a run and its node; a save or load, its node and
 * its stream; a wait and the place in this list that it waits for. */
static void put_positions(struct ul_text *text, const struct ul_solve_graph *graph,
                          const struct ul_solve_result *result)
{
    if (result->positions == NULL)
        return;
    ul_text_put(text, "  \"positions\": [");
    for (uint32_t p = 0; p < result->position_count; p++) {
        const struct ul_plan_position *at = &result->positions[p];
        ul_text_printf(text, "%s[\"%s\", ", p > 0 ? ", " : "",
                       ul_plan_word(ul_plan_word_of(at->kind, at->loads)));
        if (at->kind == UL_PLAN_RUN)
            ul_text_printf(text, "%u]", graph->order[at->step]);
        else if (at->kind == UL_PLAN_WAIT)
            ul_text_printf(text, "%u]", at->awaited);
        else
            ul_text_printf(text, "%u, %u]", at->value, at->stream);
    }
    ul_text_put(text, "],\n");
}

static void put_json(struct ul_text *text, const struct ul_solve_graph *graph,
                     const struct ul_solve_result *result, bool has_budget, double seconds)
{
    ul_text_put(text, "{\n");
    put_number(text, "peak_bytes", result->peak_bytes);
    put_number(text, "order_peak_bytes", result->order_peak_bytes);
    put_number(text, "lower_bound_bytes", result->lower_bound_bytes);
    put_cost(text, result->cost, result->base_cost, result->optimal);
    put_number(text, "recomputes", result->recomputes);
    put_bound(text, result->cost_bound, result->optimal_within);
    ul_text_printf(text, "  \"gap\": %.9g,\n", gap_of(result, has_budget));
    put_flag(text, "fits", result->fits);
    put_flag(text, "proven", result->proven);
    put_number(text, "smallest_budget_bytes", result->smallest_budget_bytes);
    put_positions(text, graph, result);
    ul_text_put(text, "  \"method\": ");
    ul_text_put_json(text, result->method);
    ul_text_printf(text, ",\n  \"seconds\": %.3f,\n  \"order\": [", seconds);
    for (uint32_t i = 0; i < result->order_count; i++)
        ul_text_printf(text, "%s%u", i > 0 ? ", " : "", result->order[i]);
    ul_text_put(text, "]\n}\n");
}

static void print_cost(uint64_t cost, uint64_t base_cost)
{
    double more = 100.0 * ul_plan_overhead(cost, base_cost);
    ul_cli_say(stdout, "cost         %llu (%.4f %% %s %llu)", (unsigned long long)cost,
               more < 0 ? -more : more, more < 0 ? "below" : "above",
               (unsigned long long)base_cost);
}

/* Prints what is proven about a result that fits; one that does not fit is no result. */
static void print_proof(bool fits, bool optimal, const char *optimal_within)
{
    bool within = fits && optimal_within != NULL;
    ul_cli_say(stdout, "%s%s%s\n", fits && optimal ? ", proven optimal" : "",
               within ? ", optimal within " : "", within ? optimal_within : "");
}

/* Prints what is copied to the other space and back, and which part of the cost is waiting. */
static void print_transfers(struct ul_arena *arena, const struct ul_solve_graph *graph,
                            const struct ul_solve_result *result)
{
    uint64_t bytes = 0, runs_cost = 0;
    uint32_t saves = 0, loads = 0;
    for (uint32_t p = 0; p < result->position_count; p++) {
        const struct ul_plan_position *at = &result->positions[p];
        bool saved = at->kind == UL_PLAN_COPY && !at->loads;
        saves += saved;
        loads += at->kind == UL_PLAN_COPY && at->loads;
        bytes += saved ? graph->size_bytes[at->value] : 0;
        runs_cost += at->kind == UL_PLAN_RUN ? graph->cost[graph->order[at->step]] : 0;
    }
    if (result->positions != NULL)
        ul_cli_say(stdout,
                   "transfers    %u saves of %s, %u loads; %llu of the cost is waited for\n", saves,
                   ul_size_exact(arena, bytes), loads,
                   (unsigned long long)(result->cost - runs_cost));
}

static void print_summary(struct ul_arena *arena, const struct ul_solve_graph *graph,
                          const struct ul_solve_result *result, double seconds)
{
    ul_cli_say(stdout, "peak         %s\n", ul_size_exact(arena, result->peak_bytes));
    ul_cli_say(stdout, "  of the published order %s, at least %s\n",
               ul_size_exact(arena, result->order_peak_bytes),
               ul_size_exact(arena, result->lower_bound_bytes));
    print_cost(result->cost, result->base_cost);
    if (result->bound_method != NULL)
        ul_cli_say(stdout, ", bound %llu by %s", (unsigned long long)result->cost_bound,
                   result->bound_method);
    ul_cli_say(stdout, ", %u of %u nodes recomputed\n", result->recomputes, graph->node_count);
    print_transfers(arena, graph, result);
    ul_cli_say(stdout, "method       %s, %.3f s%s", result->method, seconds,
               result->stopped_by_time ? ", stopped by the time limit" : "");
    print_proof(result->fits, result->optimal, result->optimal_within);
}

static enum ul_status read_graph(struct ul_cli_job *job, struct ul_solve_graph *graph)
{
    const char *path = job->files.items[0];
    struct ul_file file;
    UL_TRY(ul_file_map(&file, &job->compile.keep, path, &job->compile.diag));
    enum ul_status status = ul_solve_read_json(&job->compile.keep, (const char *)file.data,
                                               file.size_bytes, graph, &job->compile.diag);
    return ul_file_close(&file, path, status, &job->compile.diag);
}

/* Reads --budget in bytes, or --budget-fraction of the published order's peak, rounded down. */
static enum ul_status read_budget(struct ul_cli_job *job, const struct ul_solve_graph *graph,
                                  uint64_t *budget_bytes)
{
    double fraction = job->options.budget_fraction;
    *budget_bytes = job->compile.options.budget_bytes;
    if (!(fraction > 0))
        return UL_OK;
    if (fraction > 1e6 || *budget_bytes != 0)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--budget-fraction %g: expected a number above 0, such as 0.8, and no "
                           "--budget beside it",
                           fraction);
    uint64_t peak, cost;
    bool valid = ul_solve_replay(graph, graph->order, graph->node_count, &peak, &cost);
    UL_ASSERT(valid);
    *budget_bytes = (uint64_t)(fraction * (double)peak);
    *budget_bytes += *budget_bytes == 0;
    return UL_OK;
}

static enum ul_status check_space(struct ul_cli_job *job, bool has_budget)
{
    if (!has_budget)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--offload-budget and --offload-bandwidth: values leave for a budget: "
                           "give --budget SIZE");
    return UL_OK;
}

/* The space for waiting values and its engines, as the command line gives them. */
static void set_given(uint64_t given, uint64_t *number)
{
    *number = given != 0 ? given : *number;
}

static bool has_space(const struct ul_cli_job *job)
{
    return job->compile.options.offload_budget_bytes != 0 || job->options.offload_bandwidth_mb != 0;
}

static enum ul_status read_graph_space(struct ul_cli_job *job, bool has_budget,
                                       struct ul_solve_graph *graph)
{
    struct ul_plan_offload *space = UL_NEW(&job->compile.keep, struct ul_plan_offload);
    if (!has_space(job))
        return UL_OK;
    *space = graph->other != NULL ? *graph->other : (struct ul_plan_offload){.name = "other"};
    graph->other = space;
    set_given(job->compile.options.offload_budget_bytes, &space->capacity_bytes);
    set_given(job->options.offload_bandwidth_mb, &space->bandwidth_mb);
    return check_space(job, has_budget);
}

static enum ul_status read_problem_space(struct ul_cli_job *job, bool has_budget,
                                         const struct ul_problem *problem)
{
    if (!has_space(job))
        return UL_OK;
    bool found = false;
    for (uint32_t r = 0; r < problem->resource_count; r++) {
        struct ul_plan_resource *row = &problem->resources[r];
        if (row->kind != UL_PLAN_ENGINE)
            continue;
        set_given(job->compile.options.offload_budget_bytes,
                  &problem->spaces[row->space].capacity_bytes);
        set_given(job->options.offload_bandwidth_mb, &row->bandwidth_mb);
        found = true;
    }
    if (found)
        return check_space(job, has_budget);
    return ul_diag_set(
        &job->compile.diag, UL_USAGE,
        "--offload-budget and --offload-bandwidth are of a space that transfers, and "
        "this problem has none: plan --offload --print-problem writes one");
}

/* How many bytes the budget lacks, and whether that is proven. */
static enum ul_status misfit_bytes(struct ul_cli_job *job, const struct ul_solve_graph *graph,
                                   const struct ul_solve_result *result, uint64_t budget_bytes)
{
    struct ul_arena *keep = &job->compile.keep;
    const char *budget = ul_size_exact(keep, budget_bytes);
    const char *smallest = ul_size_exact(keep, result->smallest_budget_bytes);
    if (!result->proven)
        return ul_diag_set(&job->compile.diag, UL_NO_FIT,
                           "no schedule within %s was found (not proven); the smallest budget "
                           "known to work is %s",
                           budget, smallest);
    if (result->lower_bound_bytes <= budget_bytes)
        return ul_diag_set(&job->compile.diag, UL_NO_FIT,
                           "no schedule fits %s (proven over all orders and recomputations); the "
                           "smallest budget known to work is %s",
                           budget, smallest);
    return ul_diag_set(&job->compile.diag, UL_NO_FIT,
                       "no schedule fits %s (proven): node %u (%s) alone needs %s; the smallest "
                       "budget known to work is %s",
                       budget, result->largest_step,
                       ul_quote(keep, graph->names[result->largest_step]),
                       ul_size_exact(keep, result->lower_bound_bytes), smallest);
}

static enum ul_status misfit(struct ul_cli_job *job, const struct ul_solve_graph *graph,
                             const struct ul_solve_result *result, uint64_t budget_bytes)
{
    enum ul_plan_remat remat = job->compile.options.remat;
    if (result->order_why_not != NULL)
        return ul_diag_set(&job->compile.diag, UL_NO_FIT,
                           "--order %s: %s. Nothing else took its place.",
                           ul_method_get(UL_METHOD_ORDER, job->compile.options.order)->name,
                           result->order_why_not);
    if (!result->proven && remat != UL_REMAT_BEST && result->why_not != NULL)
        return ul_diag_set(&job->compile.diag, UL_NO_FIT,
                           "--remat %s: %s; no schedule within %s was found (not proven)",
                           ul_method_get(UL_METHOD_REMAT, remat)->name, result->why_not,
                           ul_size_exact(&job->compile.keep, budget_bytes));
    enum ul_status status = misfit_bytes(job, graph, result, budget_bytes);
    if (remat != UL_REMAT_BEST)
        ul_diag_prefix(&job->compile.diag,
                       ul_arena_printf(&job->compile.keep, "--remat %s",
                                       ul_method_get(UL_METHOD_REMAT, remat)->name));
    return status;
}

static enum ul_status solve_graph(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    struct ul_solve_graph graph;
    struct ul_solve_result result;
    double start = ul_clock_seconds();
    if (options->output != NULL)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "-o is for the plan of a problem in text; a graph's order is written "
                           "by --json");
    const struct ul_compile_options *given = &job->compile.options;
    if (given->align_bytes != 0 || given->pack != UL_PACK_BEST)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--align and --pack are for a problem in text: nothing of a graph is "
                           "packed");
    UL_TRY(read_graph(job, &graph));
    struct ul_solve_options solving = {.order = given->order,
                                       .remat = given->remat,
                                       .seed = given->seed,
                                       .time_limit_seconds = given->time_limit_seconds};
    UL_TRY(read_budget(job, &graph, &solving.budget_bytes));
    UL_TRY(read_graph_space(job, solving.budget_bytes != 0, &graph));
    UL_TRY(ul_solve_graph_run(&job->compile.keep, &graph, &solving, &result, &job->compile.diag));
    double seconds = ul_clock_seconds() - start;
    if (options->json != NULL) {
        struct ul_text text;
        ul_text_init(&text, &job->compile.keep);
        put_json(&text, &graph, &result, solving.budget_bytes != 0, seconds);
        UL_TRY(ul_file_write(options->json, text.data, text.length, &job->compile.diag));
    }
    if (!ul_cli_stdout_is_taken(job))
        print_summary(&job->compile.keep, &graph, &result, seconds);
    return result.fits ? UL_OK : misfit(job, &graph, &result, solving.budget_bytes);
}

/* ---- A problem in text ---- */

/* For a plan that fits: whether no packing of its ranges is smaller; otherwise: whether no plan
 * fits. */
static bool is_proven(const struct ul_plan *plan, uint64_t limit_bytes)
{
    return plan->fits ? plan->packing_proven : limit_bytes < plan->lower_bound_bytes;
}

static void put_plan_json(struct ul_text *text, const struct ul_plan *plan, uint64_t limit_bytes,
                          double seconds)
{
    ul_text_put(text, "{\n");
    put_number(text, "reserved_bytes", plan->reserved_bytes[0]);
    put_number(text, "order_lower_bound_bytes", plan->order_lower_bound_bytes);
    put_number(text, "orders_lower_bound_bytes", plan->orders_lower_bound_bytes);
    put_number(text, "lower_bound_bytes", plan->lower_bound_bytes);
    put_cost(text, plan->cost, plan->base_cost, plan->fits && plan->optimal);
    put_bound(text, plan->cost_bound, plan->optimal_within);
    put_flag(text, "fits", plan->fits);
    put_flag(text, "proven", is_proven(plan, limit_bytes));
    put_number(text, "smallest_budget_bytes", plan->smallest_budget_bytes);
    ul_text_put(text, "  \"method\": {\"order\": ");
    ul_text_put_json(text, plan->order_method);
    ul_text_put(text, ", \"remat\": ");
    ul_text_put_json(text, plan->remat_method);
    ul_text_put(text, ", \"pack\": ");
    ul_text_put_json(text, plan->pack_method);
    ul_text_printf(text, "},\n  \"seconds\": %.3f\n}\n", seconds);
}

static void print_plan_summary(struct ul_arena *arena, const struct ul_plan *plan, double seconds)
{
    ul_cli_say(stdout, "reserved     %s\n", ul_size_exact(arena, plan->reserved_bytes[0]));
    ul_cli_say(stdout, "  at least   %s\n", ul_size_exact(arena, plan->lower_bound_bytes));
    print_cost(plan->cost, plan->base_cost);
    if (plan->cost_bound > 0 && plan->fits)
        ul_cli_say(stdout, ", bound %llu%s%s", (unsigned long long)plan->cost_bound,
                   plan->cost_bound_method != NULL ? " by " : "",
                   plan->cost_bound_method != NULL ? plan->cost_bound_method : "");
    ul_cli_say(stdout, "\n");
    ul_cli_say(stdout, "method       order %s, recomputation %s, packing %s; %.3f s%s",
               plan->order_method, plan->remat_method, plan->pack_method, seconds,
               plan->stopped_by_time ? ", stopped by the time limit" : "");
    print_proof(plan->fits, plan->optimal, plan->optimal_within);
}

static enum ul_status write_plan(struct ul_cli_job *job, const struct ul_plan *plan,
                                 uint64_t limit_bytes, double seconds)
{
    const struct ul_cli_options *options = &job->options;
    struct ul_text text;
    if (options->output != NULL) {
        ul_text_init(&text, &job->compile.keep);
        ul_plan_print(&text, plan);
        UL_TRY(ul_file_write(options->output, text.data, text.length, &job->compile.diag));
    }
    if (options->json != NULL) {
        ul_text_init(&text, &job->compile.keep);
        put_plan_json(&text, plan, limit_bytes, seconds);
        UL_TRY(ul_file_write(options->json, text.data, text.length, &job->compile.diag));
    }
    if (!ul_cli_stdout_is_taken(job))
        print_plan_summary(&job->compile.keep, plan, seconds);
    return UL_OK;
}

static enum ul_status plan_misfit(struct ul_cli_job *job, const struct ul_problem *problem,
                                  const struct ul_plan *plan, uint64_t limit_bytes)
{
    struct ul_diag *diag = &job->compile.diag;
    struct ul_arena *keep = &job->compile.keep;
    struct ul_plan_options planning = ul_compile_planning(&job->compile);
    const char *limit = ul_size_exact(keep, limit_bytes);
    const char *smallest = ul_size_exact(keep, plan->smallest_budget_bytes);
    if (plan->remat_why_not != NULL)
        return ul_diag_set(diag, UL_NO_FIT,
                           "%s\nNo plan within %s was found; the smallest budget known to work is "
                           "%s",
                           ul_plan_remat_refusal(keep, &planning, plan), limit, smallest);
    for (uint32_t s = 1; s < problem->space_count; s++) {
        uint64_t capacity = problem->spaces[s].capacity_bytes;
        if (capacity != 0 && plan->reserved_bytes[s] > capacity)
            return ul_diag_set(diag, UL_NO_FIT, "space %u needs %s, and has %s", s,
                               ul_size_exact(keep, plan->reserved_bytes[s]),
                               ul_size_exact(keep, capacity));
    }
    UL_ASSERT(limit_bytes > 0 && plan->reserved_bytes[0] > limit_bytes);
    const char *room = "";
    if (plan->sufficient_room_bytes > 0)
        room = ul_arena_printf(keep, "; with --offload-budget %llu (%s) this one does",
                               (unsigned long long)plan->sufficient_room_bytes,
                               ul_size_format(keep, plan->sufficient_room_bytes));
    return ul_diag_set(diag, UL_NO_FIT,
                       "no plan within %s %s; the smallest budget known to work is %s%s", limit,
                       is_proven(plan, limit_bytes) ? "exists" : "was found", smallest, room);
}

static enum ul_status solve_problem(struct ul_cli_job *job, const struct ul_problem *problem)
{
    struct ul_compile *compile = &job->compile;
    struct ul_plan_options planning = ul_compile_planning(compile);
    struct ul_plan plan;
    double start = ul_clock_seconds();
    if (job->options.budget_fraction > 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--budget-fraction is of a graph's published order, which a problem "
                           "has not; give --budget");
    UL_TRY(
        read_problem_space(job, ul_plan_limit_bytes(problem, planning.budget_bytes) != 0, problem));
    UL_TRY(ul_plan_solve(&compile->keep, problem, &planning, &plan, &compile->diag));
    uint64_t limit = ul_plan_limit_bytes(problem, planning.budget_bytes);
    UL_TRY(write_plan(job, &plan, limit, ul_clock_seconds() - start));
    if (plan.fits)
        return UL_OK;
    UL_TRY(ul_plan_require_methods(&planning, &plan, &compile->diag));
    return plan_misfit(job, problem, &plan, limit);
}

static enum ul_status solve(struct ul_cli_job *job)
{
    struct ul_problem *problem;
    if (job->files.count != 1)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "give one graph or problem: ullage solve GRAPH.json");
    UL_TRY(ul_cli_read_problem(job, job->files.items[0], &problem));
    return problem != NULL ? solve_problem(job, problem) : solve_graph(job);
}

static const struct ul_cli_example examples[] = {
    {"Within 60 % of the published order's peak", "ullage solve graph.json --budget-fraction 0.6"},
    {"A problem that plan --print-problem wrote", "ullage solve problem.txt --budget 192KiB"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_solve = {
    .name = "solve",
    .arguments = "GRAPH.json|PROBLEM [--budget SIZE | --budget-fraction F] [options]",
    .summary = "Orders an abstract graph and recomputes within a budget of live bytes; or plans a "
               "problem that plan --print-problem wrote.",
    .group = "the planner alone",
    .endings = "",
    .examples = examples,
    .bit = UL_IN_SOLVE,
    .run = solve};
