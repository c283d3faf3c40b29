/* Candidate orders for a problem's steps, by way of an abstract graph (problem_graph.c).
 *
 * Method: whoever makes an order of the graph's nodes offers it; each candidate is judged by the
 * true live sum of its steps, so that no approximation of the graph can make a plan worse. */
#include "planner/planner_internal.h"
#include "planner/solve_internal.h"

#include <string.h>

/* ---- Candidates ---- */

struct chooser {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    uint64_t alignment_bytes;
    const struct ul_problem_graph *graph;
    struct ul_order_choice *choice;
};

static uint64_t live_sum_of(const struct chooser *c, struct ul_arena *scratch,
                            const uint32_t *steps)
{
    struct ul_plan plan;
    memset(&plan, 0, sizeof plan);
    plan.alignment_bytes = c->alignment_bytes;
    ul_timeline_positions(scratch, c->problem, steps, &plan);
    ul_timeline_build(scratch, c->problem, UL_ALIAS_ALL, &plan);
    ul_account_live(scratch, &plan);
    return plan.order_lower_bound_bytes;
}

/* `nodes` is an order of the graph. */
static void candidate_offer(struct chooser *c, const uint32_t *nodes, const char *method)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t count;
    const uint32_t *steps =
        ul_problem_graph_steps(&scratch, c->graph, nodes, c->graph->graph.node_count, &count);
    UL_ASSERT(count == c->problem->step_count);
    uint64_t bytes = live_sum_of(c, &scratch, steps);
    if (bytes < c->choice->live_bytes) {
        c->choice->live_bytes = bytes;
        c->choice->method = method;
        memcpy(c->choice->steps, steps, count * sizeof *steps);
    }
    ul_arena_done(&scratch);
}

static bool wants(const struct ul_plan_options *options, enum ul_plan_order order)
{
    return options->order == UL_ORDER_BEST || options->order == order;
}

static void searches_run(struct chooser *c, const struct ul_plan_options *options)
{
    enum { STATES = 1 << 16, LARGE = 1500, BEAM_WORK = 1 << 27 };
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    const struct ul_solve_graph *g = &c->graph->graph;
    uint32_t n = g->node_count;
    uint32_t *nodes = UL_NEW_ARRAY(&scratch, uint32_t, n);
    uint64_t peak, cost;
    bool valid = ul_solve_replay(g, g->order, n, &peak, &cost);
    UL_ASSERT(valid);
    uint64_t lower_bytes = 0;
    if (wants(options, UL_ORDER_DP) && n <= LARGE &&
        ul_order_downsets(&scratch, g, peak, STATES, &lower_bytes, nodes) == UL_ORDER_IMPROVED)
        candidate_offer(c, nodes, "search over downsets");
    uint64_t visits = (uint64_t)n * (n + g->input_first[n]) + 1;
    uint32_t width = BEAM_WORK / visits < 64 ? (uint32_t)(BEAM_WORK / visits) : 64;
    if (wants(options, UL_ORDER_BEAM) && width > 0 &&
        ul_order_beam(&scratch, g, width, peak, nodes))
        candidate_offer(c, nodes, "beam");
    ul_arena_done(&scratch);
}

void ul_order_problem(struct ul_arena *arena, const struct ul_problem *problem,
                      const struct ul_plan_options *options, struct ul_order_choice *choice)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct chooser c = {.arena = arena,
                        .problem = problem,
                        .alignment_bytes = options->alignment_bytes,
                        .choice = choice};
    choice->method = "file";
    choice->steps = UL_NEW_ARRAY(arena, uint32_t, problem->step_count);
    for (uint32_t s = 0; s < problem->step_count; s++)
        choice->steps[s] = s;
    choice->live_bytes = live_sum_of(&c, &scratch, choice->steps);
    uint64_t bound = ul_account_bound(&scratch, problem, options->alignment_bytes);
    if (options->order != UL_ORDER_FILE && choice->live_bytes > bound) {
        struct ul_problem_graph graph;
        ul_problem_graph_make(&scratch, problem, options->alignment_bytes,
                              UL_PROBLEM_GRAPH_SEPARATE, &graph);
        c.graph = &graph;
        uint32_t *nodes = UL_NEW_ARRAY(&scratch, uint32_t, graph.graph.node_count);
        if (wants(options, UL_ORDER_GREEDY)) {
            ul_order_greedy(&scratch, &graph.graph, nodes);
            candidate_offer(&c, nodes, "greedy");
        }
        if (wants(options, UL_ORDER_DFS)) {
            ul_order_depth_first(&scratch, &graph.graph, nodes);
            candidate_offer(&c, nodes, "depth-first");
        }
        if (choice->live_bytes > bound)
            searches_run(&c, options);
    }
    ul_arena_done(&scratch);
}
