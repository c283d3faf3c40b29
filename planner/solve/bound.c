/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds from below the cost of every plan of a problem within a budget.
 *
 * Problem: a plan under a budget costs more than one without; how much of that is unavoidable?
 * Method: every step runs once, by an alternative that costs no less than its cheapest. The exact
 * searches (remat_exact.c, remat_backward.c) bound the additional cost of repeats, on the abstract
 * graph of a problem that is no harder: each step costs its cheapest alternative's time and takes
 * the minimum scratch of all. Where values may move to another space, copies replace repeats:
 * bound_transfers.c uses the same graph, in which persistent values that may move take nothing.
 * Where steps run on several resources, no plan takes less time than the work of one of them. Left
 * undone: repeats of such problems; problems whose graph may have more bytes than a plan needs
 * (values that several steps write, steps that make several values, regions); there only steps are
 * counted. */
#include "planner/model/optional.h"
#include "planner/model/problem_graph.h"
#include "planner/remat/remat.h"
#include "planner/solve/solve.h"
#include "planner/transfer/transfer.h"

#include <string.h>

enum { EXACT_WORK = 1 << 20, EXACT_STATES = 1 << 16 };

/* Adds those ids that are missing and, for values, not optional. */
static void ids_add(const struct ul_problem *problem, uint32_t *ids, uint32_t *count,
                    const uint32_t *others, uint32_t other_count)
{
    for (uint32_t i = 0; i < other_count; i++) {
        if (!problem->values[others[i]].optional && !ul_ids_have(ids, *count, others[i]))
            ids[(*count)++] = others[i];
    }
}

/* The least of all alternatives of a step: the values that they touch besides optional ones, which
 * must be the same; each takeover that one of them offers; the minimum of cost and scratch. */
struct relaxed {
    struct ul_plan_alternative alternative;
    struct ul_plan_substep substep;
    uint32_t *reads, *writes;
    struct ul_plan_in_place *in_place;
};

static void relaxed_init(struct ul_arena *arena, struct relaxed *r, const struct ul_plan_step *step)
{
    uint64_t reads = 0, writes = 0, in_place = 0;
    for (uint32_t a = 0; a < step->alternative_count; a++) {
        reads += step->alternatives[a].substeps->read_count;
        writes += step->alternatives[a].substeps->write_count;
        in_place += step->alternatives[a].substeps->in_place_count;
    }
    r->alternative = step->alternatives[0];
    r->alternative.substeps = &r->substep;
    r->substep = step->alternatives[0].substeps[0];
    r->substep.read_count = r->substep.write_count = r->substep.in_place_count = 0;
    r->substep.reads = r->reads = UL_NEW_ARRAY(arena, uint32_t, reads);
    r->substep.writes = r->writes = UL_NEW_ARRAY(arena, uint32_t, writes);
    r->substep.in_place = r->in_place = UL_NEW_ARRAY(arena, struct ul_plan_in_place, in_place);
}

/* False where the alternative touches other values than those before it. */
static bool relaxed_meet(const struct ul_problem *problem, struct relaxed *r,
                         const struct ul_plan_alternative *alternative, bool is_first)
{
    const struct ul_plan_substep *substep = alternative->substeps;
    struct ul_plan_substep before = r->substep;
    uint32_t reads = 0;
    ids_add(problem, r->reads, &r->substep.read_count, substep->reads, substep->read_count);
    ids_add(problem, r->writes, &r->substep.write_count, substep->writes, substep->write_count);
    for (uint32_t i = 0; i < substep->read_count; i++)
        reads += !problem->values[substep->reads[i]].optional;
    bool same = alternative->substep_count == 1 && substep->scratch_space == before.scratch_space &&
                reads == r->substep.read_count && substep->write_count == r->substep.write_count &&
                (is_first || (before.read_count == r->substep.read_count &&
                              before.write_count == r->substep.write_count));
    for (uint32_t i = 0; same && i < substep->in_place_count; i++)
        r->in_place[r->substep.in_place_count++] = substep->in_place[i];
    if (alternative->cost < r->alternative.cost)
        r->alternative.cost = alternative->cost;
    if (substep->scratch_bytes < r->substep.scratch_bytes)
        r->substep.scratch_bytes = substep->scratch_bytes;
    return same;
}

static bool reads_optional(const struct ul_problem *problem,
                           const struct ul_plan_alternative *alternative)
{
    bool found = false;
    for (uint32_t i = 0; i < alternative->substeps->read_count; i++)
        found = found || problem->values[alternative->substeps->reads[i]].optional;
    return found;
}

static bool step_relax(struct ul_arena *arena, const struct ul_problem *problem,
                       struct ul_plan_step *step)
{
    struct relaxed *relaxed;
    if (step->alternative_count == 1 && !reads_optional(problem, &step->alternatives[0]))
        return step->alternatives[0].substep_count == 1;
    relaxed = UL_NEW(arena, struct relaxed);
    relaxed_init(arena, relaxed, step);
    for (uint32_t a = 0; a < step->alternative_count; a++) {
        if (!relaxed_meet(problem, relaxed, &step->alternatives[a], a == 0))
            return false;
    }
    step->alternatives = &relaxed->alternative;
    step->alternative_count = 1;
    return true;
}

struct repeats {
    uint64_t cost;
    const char *method; /* or NULL where cost is 0 */
};

/* Persistent values are at home elsewhere as far as possible. */
static void base_leave(const struct ul_problem *problem, uint64_t alignment_bytes,
                       struct ul_solve_graph *graph)
{
    for (uint32_t v = 0; v < problem->value_count; v++) {
        const struct ul_plan_value *value = &problem->values[v];
        if (value->persistent && value->space == 0 && ul_value_may_move(value))
            graph->base_bytes -= ul_size_align_or_die(value->size_bytes, alignment_bytes);
    }
}

/* The least cost of copies and repeats, up to `limit`. */
static struct repeats transfers_bound(const struct ul_problem *problem,
                                      struct ul_solve_graph *graph, uint64_t alignment_bytes,
                                      uint64_t budget_bytes, uint64_t limit)
{
    uint64_t base_cost = ul_solve_base_cost(graph);
    struct repeats found = {.cost = 0};
    const struct ul_plan_resource *engine =
        ul_problem_engine(problem, ul_problem_other_space(problem), false);
    base_leave(problem, alignment_bytes, graph);
    const struct ul_bound_transfers job = {.graph = graph,
                                           .engine = engine,
                                           .alignment_bytes = alignment_bytes,
                                           .budget_bytes = budget_bytes,
                                           .known_cost = base_cost + limit};
    found.cost = ul_bound_transfers(&job, &found.method) - base_cost;
    return found;
}

/* The least cost of repeats, up to `limit`. */
static struct repeats repeats_bound(struct ul_arena *arena, const struct ul_problem *problem,
                                    uint64_t alignment_bytes, uint64_t budget_bytes, uint64_t limit)
{
    struct ul_problem relaxed = *problem;
    struct ul_problem_graph graph;
    relaxed.steps =
        ul_arena_copy(arena, problem->steps, problem->step_count * sizeof *problem->steps);
    for (uint32_t s = 0; s < relaxed.step_count; s++) {
        if (!step_relax(arena, problem, &relaxed.steps[s]))
            return (struct repeats){.cost = 0};
    }
    uint64_t optional_bytes = ul_optional_bound(arena, problem, alignment_bytes);
    if (optional_bytes >= budget_bytes)
        return (struct repeats){.cost = 0};
    ul_problem_graph_make(arena, &relaxed, alignment_bytes, UL_PROBLEM_GRAPH_REPEATABLE, NULL,
                          &graph);
    struct ul_remat_exact job = {.graph = &graph.graph,
                                 .arena = arena,
                                 .budget_bytes = budget_bytes - optional_bytes,
                                 .repeat_limit = limit,
                                 .state_limit = EXACT_STATES,
                                 .effort = {.work_limit = EXACT_WORK}};
    struct ul_remat_exact backwards = job;
    if (!graph.exact)
        return (struct repeats){.cost = 0};
    if (ul_problem_other_space(problem) != UL_PLAN_NONE)
        return transfers_bound(problem, &graph.graph, alignment_bytes, job.budget_bytes, limit);
    ul_remat_backward_run(&backwards);
    bool settled =
        backwards.outcome == UL_REMAT_NONE_CHEAPER || backwards.outcome == UL_REMAT_OPTIMAL;
    if (!settled)
        ul_remat_exact_run(&job);
    const struct ul_remat_exact *best =
        job.repeat_bound > backwards.repeat_bound ? &job : &backwards;
    return (struct repeats){.cost = best->repeat_bound, .method = best->bound_method};
}

void ul_bound_cost(const struct ul_problem *problem, uint64_t budget_bytes, struct ul_plan *plan)
{
    struct ul_arena scratch;
    UL_ASSERT(budget_bytes > 0);
    const uint64_t steps_cost = ul_problem_cost_bound(problem);
    plan->cost_bound = steps_cost;
    plan->cost_bound_method = NULL;
    UL_ASSERT(plan->cost_bound <= plan->cost);
    if (plan->fits && plan->cost > plan->cost_bound && !ul_problem_is_asynchronous(problem)) {
        ul_arena_init(&scratch);
        struct repeats repeats = repeats_bound(&scratch, problem, plan->alignment_bytes,
                                               budget_bytes, plan->cost - plan->cost_bound);
        plan->cost_bound += repeats.cost;
        plan->cost_bound_method = repeats.cost > 0 ? repeats.method : NULL;
        ul_arena_done(&scratch);
    }
    UL_ASSERT(plan->cost_bound <= plan->cost);
    UL_ASSERT((plan->cost_bound_method != NULL) == (plan->cost_bound > steps_cost));
    bool is_least = plan->fits && plan->cost == plan->cost_bound;
    plan->optimal = is_least && problem->base_cost == 0;
    if (is_least || !plan->fits)
        plan->optimal_within = NULL;
    if (is_least && !plan->optimal)
        plan->optimal_within = "programs with these splits and layouts";
}
