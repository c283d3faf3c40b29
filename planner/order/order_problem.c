/* SPDX-License-Identifier: Apache-2.0 */
/* Finds candidate orders for a problem's steps, by way of an abstract graph (problem_graph.c).
 *
 * Method: each order of the graph's nodes is offered, and judged by the true live sum of its steps,
 * so that no approximation of the graph can make a plan worse. The order of a method that is named
 * is not judged: it was asked for. */
#include "planner/model/effort.h"
#include "planner/model/method.h"
#include "planner/model/problem_graph.h"
#include "planner/model/problem_part.h"
#include "planner/model/timeline.h"
#include "planner/order/order.h"

#include <string.h>

/* Less than a search would get alone: most graphs are proven long before. */
enum { WORK_PER_NODE = 1 << 12 };

struct chooser {
    const struct ul_problem *problem;
    uint64_t alignment_bytes;
    const struct ul_problem_graph *graph;
    const struct ul_method *named; /* or NULL */
    struct ul_order_choice *choice;
    double deadline_seconds; /* half of a time limit is left to the packing */
    uint32_t depth;          /* of regions around the problem */
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

static void steps_offer(struct chooser *c, struct ul_arena *scratch, const uint32_t *steps,
                        const char *method)
{
    uint64_t bytes = live_sum_of(c, scratch, steps);
    bool is_own = c->named != NULL && method != c->named->keeps_file;
    if (is_own || bytes < c->choice->live_bytes) {
        c->choice->live_bytes = bytes;
        c->choice->method = method;
        c->choice->is_file = false;
        memcpy(c->choice->steps, steps, c->problem->step_count * sizeof *steps);
    }
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
    steps_offer(c, &scratch, steps, method);
    ul_arena_done(&scratch);
}

static void problem_order(struct ul_arena *arena, const struct ul_plan_options *options,
                          struct chooser *c);

/* Orders each region that is one node of the graph as a problem of its own; values that others
 * touch are its base. NULL: all keep the file's order. */
static const struct ul_problem_inside *order_inside(struct chooser *c, struct ul_arena *scratch,
                                                    const struct ul_plan_options *options)
{
    const struct ul_problem *problem = c->problem;
    struct ul_problem_trees trees;
    struct ul_problem_inside *inside = UL_NEW(scratch, struct ul_problem_inside);
    uint32_t *steps = UL_NEW_ARRAY(scratch, uint32_t, problem->step_count);
    const char *method = NULL;
    for (uint32_t s = 0; s < problem->step_count; s++)
        steps[s] = s;
    ul_problem_trees_find(scratch, problem, &trees);
    for (uint32_t t = 0; t < trees.count && c->depth < UL_PROBLEM_MAX_DEPTH; t++) {
        uint32_t first = trees.trees[t].first;
        struct ul_order_choice choice;
        const struct ul_problem *part = ul_problem_part_make(scratch, problem, &trees, t, NULL);
        struct ul_plan_options own = *options;
        own.work_limit = (options->work_limit != 0 ? options->work_limit : UL_WORK_ORDER) *
                             part->step_count / problem->step_count +
                         WORK_PER_NODE * (uint64_t)part->step_count;
        struct chooser inner = {.problem = part,
                                .deadline_seconds = c->deadline_seconds,
                                .depth = c->depth + 1,
                                .choice = &choice};
        problem_order(scratch, &own, &inner);
        c->choice->stopped_by_time = c->choice->stopped_by_time || choice.stopped_by_time;
        for (uint32_t i = 0; i < part->step_count; i++)
            steps[first + i] = first + choice.steps[i];
        method = choice.is_file ? method : choice.method;
    }
    *inside = (struct ul_problem_inside){steps, problem->step_count};
    if (method == NULL)
        return NULL;
    steps_offer(c, scratch, steps, method);
    return inside;
}

static void graph_search(struct chooser *c, struct ul_arena *scratch,
                         const struct ul_plan_options *options)
{
    struct ul_problem_graph graph;
    const struct ul_problem_inside *inside = order_inside(c, scratch, options);
    ul_problem_graph_make(scratch, c->problem, options->alignment_bytes, UL_PROBLEM_GRAPH_SEPARATE,
                          inside, &graph);
    c->graph = &graph;
    uint64_t work = UL_WORK_ORDER + (uint64_t)graph.graph.node_count * WORK_PER_NODE;
    struct ul_order_run run = {
        .graph = &graph.graph,
        .method = options->order,
        .effort = {.work_limit = options->work_limit != 0 ? options->work_limit : work,
                   .seed = options->seed,
                   .deadline_seconds = c->deadline_seconds}};
    ul_order_memo_run(options->orders, scratch, &run);
    if (run.why_not == NULL)
        candidate_offer(c, run.order, run.method_name);
    c->choice->stopped_by_time = c->choice->stopped_by_time || run.stopped_by_time;
    c->choice->why_not = run.why_not;
    if (graph.exact && run.lower_bytes > c->choice->orders_lower_bytes)
        c->choice->orders_lower_bytes = run.lower_bytes;
    UL_ASSERT(c->choice->orders_lower_bytes <= c->choice->live_bytes);
}

static void problem_order(struct ul_arena *arena, const struct ul_plan_options *options,
                          struct chooser *c)
{
    const struct ul_problem *problem = c->problem;
    struct ul_order_choice *choice = c->choice;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    c->alignment_bytes = options->alignment_bytes;
    if (options->order != UL_ORDER_BEST && options->order != UL_ORDER_FILE)
        c->named = ul_method_get(UL_METHOD_ORDER, options->order);
    choice->method = c->named == NULL ? "file" : c->named->keeps_file;
    choice->is_file = true;
    choice->why_not = NULL;
    choice->steps = UL_NEW_ARRAY(arena, uint32_t, problem->step_count);
    for (uint32_t s = 0; s < problem->step_count; s++)
        choice->steps[s] = s;
    choice->live_bytes = live_sum_of(c, &scratch, choice->steps);
    uint64_t bound = ul_account_bound(&scratch, problem, options->alignment_bytes);
    choice->orders_lower_bytes = bound;
    choice->stopped_by_time = false;
    if (options->order != UL_ORDER_FILE && (c->named != NULL || choice->live_bytes > bound))
        graph_search(c, &scratch, options);
    if (choice->why_not != NULL)
        choice->method = c->named->name;
    ul_arena_done(&scratch);
    UL_ASSERT(choice->method != NULL);
}

void ul_order_problem(struct ul_arena *arena, const struct ul_problem *problem,
                      const struct ul_plan_options *options, struct ul_order_choice *choice)
{
    struct chooser c = {.problem = problem,
                        .deadline_seconds = ul_deadline_after(options->time_limit_seconds / 2),
                        .choice = choice};
    problem_order(arena, options, &c);
}
