/* What every plan of a problem within a budget costs at least.
 *
 * Problem: a plan under a budget costs more than one without; how much of that has to be?
 * Method: every step runs once, by an alternative that costs no less than its cheapest. What
 * repeats have to cost beside that is bounded by the exact searches (remat_exact.c,
 * remat_backward.c) on the abstract graph of a problem that is no harder: each step costs its
 * cheapest alternative's time and takes the minimum scratch of all.
 * Left undone: problems whose graph may say more bytes than a plan needs (values that several
 * steps write, steps that make several values, regions); there steps alone are counted. */
#include "planner/model/problem_graph.h"
#include "planner/remat/remat.h"
#include "planner/solve/solve.h"

#include <string.h>

enum { EXACT_WORK = 1 << 20, EXACT_STATES = 1 << 16 };

/* Whether two ways to run a step differ in cost and scratch alone. */
static bool is_alike(const struct ul_plan_alternative *a, const struct ul_plan_alternative *b)
{
    const struct ul_plan_substep *x = a->substeps, *y = b->substeps;
    return a->substep_count == 1 && b->substep_count == 1 && x->read_count == y->read_count &&
           x->write_count == y->write_count && x->in_place_count == y->in_place_count &&
           x->scratch_space == y->scratch_space &&
           (x->read_count == 0 ||
            memcmp(x->reads, y->reads, x->read_count * sizeof *x->reads) == 0) &&
           (x->write_count == 0 ||
            memcmp(x->writes, y->writes, x->write_count * sizeof *x->writes) == 0) &&
           (x->in_place_count == 0 ||
            memcmp(x->in_place, y->in_place, x->in_place_count * sizeof *x->in_place) == 0);
}

/* Makes one alternative of a step's: the minimum cost and the minimum scratch of all. */
static bool step_relax(struct ul_arena *arena, struct ul_plan_step *step)
{
    struct ul_plan_alternative *relaxed = UL_NEW(arena, struct ul_plan_alternative);
    struct ul_plan_substep *substep = UL_NEW(arena, struct ul_plan_substep);
    *relaxed = step->alternatives[0];
    if (relaxed->substep_count != 1)
        return false;
    *substep = relaxed->substeps[0];
    relaxed->substeps = substep;
    for (uint32_t a = 1; a < step->alternative_count; a++) {
        const struct ul_plan_alternative *other = &step->alternatives[a];
        if (!is_alike(relaxed, other))
            return false;
        if (other->cost < relaxed->cost)
            relaxed->cost = other->cost;
        if (other->substeps->scratch_bytes < substep->scratch_bytes)
            substep->scratch_bytes = other->substeps->scratch_bytes;
    }
    step->alternatives = relaxed;
    step->alternative_count = 1;
    return true;
}

struct repeats {
    uint64_t cost;
    const char *method; /* or NULL where cost is 0 */
};

/* What repeats cost at least, for no more than `limit`. */
static struct repeats repeats_bound(struct ul_arena *arena, const struct ul_problem *problem,
                                    uint64_t alignment_bytes, uint64_t budget_bytes, uint64_t limit)
{
    struct ul_problem relaxed = *problem;
    struct ul_problem_graph graph;
    relaxed.steps =
        ul_arena_copy(arena, problem->steps, problem->step_count * sizeof *problem->steps);
    for (uint32_t s = 0; s < relaxed.step_count; s++) {
        if (!step_relax(arena, &relaxed.steps[s]))
            return (struct repeats){.cost = 0};
    }
    ul_problem_graph_make(arena, &relaxed, alignment_bytes, UL_PROBLEM_GRAPH_REPEATABLE, &graph);
    struct ul_remat_exact job = {.graph = &graph.graph,
                                 .arena = arena,
                                 .budget_bytes = budget_bytes,
                                 .repeat_limit = limit,
                                 .state_limit = EXACT_STATES,
                                 .effort = {.work_limit = EXACT_WORK}};
    struct ul_remat_exact backwards = job;
    if (!graph.exact)
        return (struct repeats){.cost = 0};
    ul_remat_backward_run(&backwards);
    bool settled =
        backwards.outcome == UL_REMAT_NONE_CHEAPER || backwards.outcome == UL_REMAT_OPTIMAL;
    if (!settled)
        ul_remat_exact_run(&job);
    const struct ul_remat_exact *best =
        job.repeat_bound > backwards.repeat_bound ? &job : &backwards;
    return (struct repeats){.cost = best->repeat_bound, .method = best->bound_method};
}

uint64_t ul_bound_steps(const struct ul_problem *problem)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        UL_ASSERT(step->alternative_count > 0);
        uint64_t min = step->alternatives[0].cost;
        for (uint32_t a = 1; a < step->alternative_count; a++)
            min = step->alternatives[a].cost < min ? step->alternatives[a].cost : min;
        sum += min;
    }
    return sum;
}

void ul_bound_cost(const struct ul_problem *problem, uint64_t budget_bytes, struct ul_plan *plan)
{
    struct ul_arena scratch;
    UL_ASSERT(budget_bytes > 0);
    plan->cost_bound = ul_bound_steps(problem);
    plan->cost_bound_method = NULL;
    UL_ASSERT(plan->cost_bound <= plan->cost);
    if (plan->fits && plan->cost > plan->cost_bound) {
        ul_arena_init(&scratch);
        struct repeats repeats = repeats_bound(&scratch, problem, plan->alignment_bytes,
                                               budget_bytes, plan->cost - plan->cost_bound);
        plan->cost_bound += repeats.cost;
        plan->cost_bound_method = repeats.cost > 0 ? repeats.method : NULL;
        ul_arena_done(&scratch);
    }
    UL_ASSERT(plan->cost_bound <= plan->cost);
    UL_ASSERT((plan->cost_bound_method != NULL) == (plan->cost_bound > ul_bound_steps(problem)));
    bool is_least = plan->fits && plan->cost == plan->cost_bound;
    plan->optimal = is_least && problem->base_cost == 0;
    if (is_least || !plan->fits)
        plan->optimal_within = NULL;
    if (is_least && !plan->optimal)
        plan->optimal_within = "programs with these splits";
}
