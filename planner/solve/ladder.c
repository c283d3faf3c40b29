/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a ladder of plans with less and less memory at more and more cost, by other
 * implementations of steps and by running steps again.
 *
 * Problem: find the cheapest plan within a budget for the packed arena; a smaller budget must never
 * get a larger arena or a cheaper plan, though every method here is a heuristic. Method: the ladder
 * does not depend on the budget. Its rungs are limits on the live sum, from the peak of the plan
 * without a budget down to what one node of the abstract graph needs. For each, the search for
 * recomputations (remat.c) gives sequences, which get live ranges and offsets like any order; their
 * real bytes and cost decide. The front of all plans is the ladder:
 *
 *     reserved |x            the first rung is the plan without a budget; from the second on the
 *              |  x          arena falls and the cost rises strictly, and no rung costs less than
 *              |     x   .   the first. The first rung within a budget is the cheapest one.
 *              +---------- cost
 *
 * (A rewriting of the program may cost less than the first rung: without a budget none is tried.)
 * Where steps have alternatives, each rung is tried with the cheapest of those that fit, alone and
 * together with the bytes live at that step. Optional values (weights that one alternative wants in
 * a form of its own) take the same bytes at every position, so the sequence does not matter: each
 * is offered with fewer and fewer of them (ladder_levels.c). In a program that trains, the values
 * that smallest cuts keep (remat_cut.c) give further rungs. Where a space takes transfers, values
 * move there: out of the plan without a budget, and out of plans that recompute, so that each value
 * goes the cheaper way (planner/transfer/). For a budget, the interval of rungs around it is halved
 * and searched more closely. A loop, or an If, is one node of that graph. Where a limit leaves its
 * steps too little room, they are a problem of their own, whose solution is how the node runs them.
 * Left undone: the order of first runs is that of the plan without a budget, or the file's where no
 * other was named. */
#include "planner/model/effort.h"
#include "planner/model/problem_graph.h"
#include "planner/model/problem_part.h"
#include "planner/model/timeline.h"
#include "planner/remat/remat.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "planner/transfer/transfer.h"

#include <string.h>

/* ---- The front ---- */

uint64_t ul_rung_bytes(const struct ul_plan_rung *rung)
{
    return ul_plan_bounded_bytes(&rung->overhead, &rung->plan);
}

/* Where a rung with these bytes and that cost belongs, or `count` if another is as good. */
static bool rung_place(const struct ul_plan_ladder *ladder, const struct ul_plan_rung *rung,
                       uint32_t *place)
{
    uint32_t at = 0;
    while (at < ladder->count && ul_rung_bytes(&ladder->rungs[at]) > ul_rung_bytes(rung))
        at++;
    *place = at;
    if (ladder->count == 0)
        return true;
    bool is_other = rung->alternative != ladder->rungs[0].alternative;
    if (at == 0 || (!is_other && rung->plan.cost < ladder->rungs[0].plan.cost))
        return false;
    /* The rungs from `at` on are as small: one of them that costs no more makes this one
     * useless. */
    return at == ladder->count || ladder->rungs[at].plan.cost > rung->plan.cost;
}

/* Puts the rung in its place and drops those above that cost no less; the first stays. */
static void rung_add(struct ul_arena *arena, struct ul_plan_ladder *ladder,
                     const struct ul_plan_rung *rung)
{
    uint32_t at;
    if (!rung_place(ladder, rung, &at))
        return;
    uint32_t keep = at;
    while (keep > 1 && ladder->rungs[keep - 1].plan.cost >= rung->plan.cost)
        keep--;
    uint32_t rest = at;
    if (rest < ladder->count && ul_rung_bytes(&ladder->rungs[rest]) == ul_rung_bytes(rung))
        rest++; /* as small and more expensive */
    struct ul_plan_rung *rungs =
        UL_NEW_ARRAY(arena, struct ul_plan_rung, (uint64_t)ladder->count + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < keep; i++)
        rungs[count++] = ladder->rungs[i];
    rungs[count++] = *rung;
    for (uint32_t i = rest; i < ladder->count; i++)
        rungs[count++] = ladder->rungs[i];
    ladder->rungs = rungs;
    ladder->count = count;
}

void ul_ladder_merge(struct ul_arena *arena, struct ul_plan_ladder *ladder,
                     const struct ul_plan_ladder *other, uint32_t alternative)
{
    UL_ASSERT(ladder != other);
    for (uint32_t i = 0; i < other->count; i++) {
        struct ul_plan_rung rung = other->rungs[i];
        if (rung.plan.order_why_not != NULL || rung.plan.pack_why_not != NULL)
            continue;
        rung.alternative = alternative;
        rung_add(arena, ladder, &rung);
    }
}

void ul_ladder_pick(const struct ul_plan_ladder *ladder, uint64_t budget_bytes,
                    struct ul_plan_rung *rung)
{
    UL_ASSERT(ladder->count > 0);
    uint32_t at = 0;
    while (at + 1 < ladder->count && budget_bytes != 0 &&
           ul_rung_bytes(&ladder->rungs[at]) > budget_bytes)
        at++;
    *rung = ladder->rungs[at];
    rung->plan.smallest_budget_bytes = ul_rung_bytes(&ladder->rungs[ladder->count - 1]);
    if (budget_bytes == 0 || ul_rung_bytes(rung) <= budget_bytes)
        return;
    rung->plan.fits = false;
    if (ladder->remat_name != NULL)
        rung->plan.remat_method = ladder->remat_name;
    rung->plan.remat_why_not = ladder->why_not;
}

/* ---- Climbing down ---- */

/* One choice of an alternative for every step, and the graph of the remaining decisions. */
struct choice {
    uint32_t *alternatives;
    struct ul_problem_inside inside; /* how nodes of several steps run them */
    struct ul_problem_graph graph;
    uint32_t *orders[2]; /* of nodes: the base plan's and the file's */
    bool rewritten;      /* the graph is that of the rewriting by ul_ladder_values */
    uint32_t order_count;
    uint64_t misfit_bytes; /* no sequence is within this limit */
    bool *is_forward;      /* by node, in a program that trains; else NULL */
    const bool *is_kept;   /* by node, where the options say which values to keep; else NULL */
};

/* Bytes and costs between rungs; the lower bounds are inside. */
struct box {
    uint64_t min_bytes, end_bytes;
    uint64_t min_cost, end_cost;
};

/* A plan without transfers, from which values may move. */
struct source {
    const struct ul_plan_position *positions;
    uint32_t position_count;
    const char *remat_method;
};

/* Bytes that live in addition to those touched by the steps of a region that is one node. */
struct around {
    uint64_t persistent_bytes; /* in every plan */
    uint64_t spanning_bytes;   /* in the base plan, during the whole region */
    uint64_t peak_bytes;       /* of the region as a problem of its own, in the base plan's order */
};

struct climb {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    struct ul_plan_options options; /* for packing one rung */
    const struct ul_plan *base;
    const struct ul_plan_ladder *known; /* of other programs, or NULL */
    struct ul_plan_ladder *ladder;
    struct ul_diag *diag;
    struct ul_arena scratch;       /* for the whole climb */
    uint32_t *base_steps;          /* the base plan's order */
    struct ul_problem_trees trees; /* regions that are one node */
    struct around *around;         /* by tree */
    uint64_t **needs;              /* by step and alternative: bytes that it touches */
    uint64_t *beside; /* by step: bytes that live in the base plan in addition to these */
    struct ul_ladder_levels levels; /* of optional values */
    const bool *is_forward;         /* by step, in a program that trains; else NULL */
    uint64_t persistent_bytes,
        staying_bytes; /* staying: persistent bytes that no transfer may move */
    bool has_alternatives;
    bool is_asynchronous;   /* steps may run at the same time as others */
    bool keeps_values;      /* nothing is rewritten */
    struct box box;         /* what may become a rung */
    struct source *sources; /* of transfers, in addition to the base plan */
    uint32_t source_count;
    struct ul_remat_limits limits;
    uint64_t programs_work;  /* that integer programs may still do where they are named */
    const char *once;        /* the method of plans of the base order; NULL: none */
    uint64_t work_limit;     /* that the caller gave; 0: none */
    struct ul_effort effort; /* for a rung's searches, and the deadline of all */
};

/* The least bytes that a budget counts for a plan with these ranges: in other spaces, those that
 * always live. */
static uint64_t live_bytes(const struct climb *c, struct ul_arena *scratch,
                           const struct ul_plan *live)
{
    struct ul_plan min = *live;
    min.space_count = c->problem->space_count;
    min.reserved_bytes = UL_NEW_ARRAY(scratch, uint64_t, min.space_count);
    min.reserved_bytes[0] = live->order_lower_bound_bytes;
    for (uint32_t r = 0; r < live->range_count; r++) {
        const struct ul_plan_range *range = &live->ranges[r];
        bool always = range->value != UL_PLAN_NONE && c->problem->values[range->value].persistent;
        if (always && range->space != 0)
            min.reserved_bytes[range->space] += range->size_bytes;
    }
    ul_plan_sum_overhead(c->problem, &min);
    return ul_plan_bounded_bytes(&c->options.overhead, &min);
}

static bool is_beaten(const struct ul_plan_ladder *ladder, uint64_t bytes, uint64_t cost)
{
    for (uint32_t i = 0; i < ladder->count; i++) {
        const struct ul_plan_rung *rung = &ladder->rungs[i];
        if (ul_rung_bytes(rung) <= bytes && rung->plan.cost <= cost)
            return true;
    }
    return false;
}

/* Whether a plan with these ranges and that cost could still be a rung. */
static bool is_promising(const struct climb *c, struct ul_arena *scratch,
                         const struct ul_plan *live)
{
    uint64_t bytes = live_bytes(c, scratch, live);
    return bytes < c->box.end_bytes && !is_beaten(c->ladder, bytes, live->cost) &&
           (c->known == NULL || !is_beaten(c->known, bytes, live->cost));
}

static bool is_in_box(const struct box *box, uint64_t bytes, uint64_t cost)
{
    return box->min_bytes <= bytes && bytes < box->end_bytes && box->min_cost <= cost &&
           cost < box->end_cost;
}

static uint64_t sequence_cost(const struct climb *c, const uint32_t *steps, uint32_t count,
                              const uint32_t *alternatives)
{
    uint64_t cost = 0;
    for (uint32_t i = 0; i < count; i++)
        cost += c->problem->steps[steps[i]].alternatives[alternatives[steps[i]]].cost;
    return cost;
}

/* The method that a plan reports after the named method was asked and ran each step once. */
static const char *once_name(const struct climb *c)
{
    return ul_arena_printf(c->arena, "%s: each step runs once",
                           ul_method_get(UL_METHOD_REMAT, c->options.remat)->name);
}

/* The report of the method that found the plan's sequence, or NULL. */
static void methods_note(struct climb *c, const struct ul_remat *found, bool again,
                         struct ul_plan *plan)
{
    plan->remat_method = c->once != NULL ? c->once : "none";
    if (found != NULL && again)
        plan->remat_method = ul_remat_found_by(c->arena, found);
    else if (found != NULL && c->options.remat != UL_REMAT_BEST)
        plan->remat_method = once_name(c);
    plan->order_method = c->base->order_method;
    plan->order_why_not = c->base->order_why_not;
    plan->orders_lower_bound_bytes = c->base->orders_lower_bound_bytes;
    /* A node of several steps runs what a search found for it. */
    if (found != NULL && found->proven_within != NULL && c->trees.count == 0 && !c->is_asynchronous)
        plan->optimal_within =
            ul_arena_printf(c->arena, "%s, by these implementations%s, graphs of %llu live bytes",
                            found->proven_within,
                            c->problem->base_cost != 0 ? ", with these splits and layouts" : "",
                            (unsigned long long)found->budget_bytes);
}

/* Packs a sequence with the positions of `plan`; where the sequence comes from a rewriting, a plan
 * that the checker refuses does not count. */
static enum ul_status sequence_pack(struct climb *c, struct ul_arena *scratch, bool is_rewritten,
                                    struct ul_plan *plan)
{
    UL_TRY(ul_plan_complete(scratch, c->problem, &c->options, plan, c->diag));
    ul_plan_judge(c->problem, 0, NULL, plan);
    enum ul_status status = ul_plan_check(scratch, c->problem, plan, c->diag);
    struct ul_plan_rung rung = {.plan = *plan, .overhead = c->options.overhead};
    uint32_t place;
    if (status == UL_MISMATCH && is_rewritten) {
        *c->diag = (struct ul_diag){.status = UL_OK};
        return UL_OK;
    }
    if (status == UL_OK && plan->fits && is_in_box(&c->box, ul_rung_bytes(&rung), plan->cost) &&
        rung_place(c->ladder, &rung, &place)) {
        rung.plan = ul_plan_keep(c->arena, c->problem, plan);
        rung_add(c->arena, c->ladder, &rung);
    }
    return status;
}

enum { OVERLAP_WORK = 1 << 18 }; /* for one sequence */

/* Packs a sequence of steps, run in these ways, and takes it into the ladder if it is good enough.
 */
static enum ul_status alternatives_offer(struct climb *c, const uint32_t *steps, uint32_t count,
                                         const uint32_t *alternatives, bool is_rewritten,
                                         const struct ul_remat *found)
{
    struct ul_arena scratch;
    struct ul_plan live = {.alignment_bytes = c->options.alignment_bytes};
    enum ul_status status = UL_OK;
    ul_arena_init(&scratch);
    ul_timeline_sequence(&scratch, c->problem, steps, count, alternatives, &live);
    struct ul_plan plan = live;
    ul_timeline_build(&scratch, c->problem, UL_ALIAS_ALL, &live);
    ul_account_live(&scratch, &live);
    live.cost = sequence_cost(c, steps, count, alternatives);
    if (c->is_asynchronous) { /* with no more bytes than one after the other */
        struct ul_effort effort = {.work_limit = OVERLAP_WORK};
        plan = (struct ul_plan){.alignment_bytes = live.alignment_bytes,
                                .positions = live.positions,
                                .position_count = live.position_count};
        ul_transfer_overlap(&scratch, c->problem, live.order_lower_bound_bytes, &effort, &plan);
        live.cost = plan.cost;
    }
    if (is_promising(c, &scratch, &live)) {
        methods_note(c, found, count > c->problem->step_count, &plan);
        status = sequence_pack(c, &scratch, is_rewritten, &plan);
    }
    ul_arena_done(&scratch);
    return status;
}

/* Only where a time limit was given; the rest of the time is for the packing. */
static bool is_late(struct climb *c)
{
    if (c->effort.deadline_seconds > 0) {
        c->options.time_limit_seconds = ul_deadline_left(c->effort.deadline_seconds);
        c->effort.stopped_by_time = c->effort.stopped_by_time || c->options.time_limit_seconds < 0;
    }
    return c->effort.stopped_by_time;
}

/* Offers a sequence with the optional values of every level: with fewer weights in forms of their
 * own it is smaller and slower. */
static enum ul_status sequence_offer(struct climb *c, const uint32_t *steps, uint32_t count,
                                     const struct choice *choice, const struct ul_remat *found)
{
    enum ul_status status = UL_OK;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint64_t size = c->problem->step_count * sizeof(uint32_t);
    uint32_t **tried = UL_NEW_ARRAY(&scratch, uint32_t *, c->levels.count);
    uint32_t tried_count = 0;
    for (uint32_t level = 0; level < c->levels.count && status == UL_OK; level++) {
        if (level > 0 && is_late(c))
            break;
        uint32_t *alternatives = UL_NEW_ARRAY(&scratch, uint32_t, c->problem->step_count);
        uint32_t same = 0;
        ul_ladder_level_map(c->problem, &c->levels, level, c->needs, choice->alternatives,
                            alternatives);
        while (same < tried_count && memcmp(tried[same], alternatives, size) != 0)
            same++;
        if (same < tried_count)
            continue;
        tried[tried_count++] = alternatives;
        status = alternatives_offer(c, steps, count, alternatives, choice->rewritten, found);
    }
    ul_arena_done(&scratch);
    return status;
}

/* ---- Orders of nodes ---- */

/* A node that is being listed: the next of its inputs, then of its users, to visit. */
struct visit {
    uint32_t node;
    uint32_t at;
    bool listed;
};

struct lister {
    const struct ul_problem_graph *graph;
    uint32_t *waits; /* by node: inputs that have not run */
    uint8_t *ran;
    struct visit *stack; /* a node is on it at most once */
    uint32_t depth;
    uint32_t *order;
    uint32_t count;
};

static void visit_push(struct lister *l, uint32_t node)
{
    if (l->ran[node])
        return;
    l->ran[node] = 1;
    uint32_t first = l->graph->graph.input_first[node];
    l->stack[l->depth++] = (struct visit){.node = node, .at = first};
}

/* Moves the visit on top one input or user further, or ends it. */
static void visit_step(struct lister *l)
{
    const struct ul_solve_graph *g = &l->graph->graph;
    struct visit *top = &l->stack[l->depth - 1];
    if (!top->listed && top->at < g->input_first[top->node + 1]) {
        visit_push(l, g->inputs[top->at++]);
    } else if (!top->listed) {
        l->order[l->count++] = top->node;
        top->listed = true;
        top->at = g->user_first[top->node];
    } else if (top->at < g->user_first[top->node + 1]) {
        uint32_t user = g->users[top->at++];
        bool is_step = l->graph->step_first[user] < l->graph->step_first[user + 1];
        bool is_rest = l->graph->run_of[user] != UL_PLAN_NONE;
        if (--l->waits[user] == 0 && (is_rest || (!is_step && g->size_bytes[user] == 0)))
            visit_push(l, user);
    } else {
        l->depth--;
    }
}

/* Runs a node, after the inputs that have not run (a hold, the start); then at once the nodes that
 * became ready and are a part of its run, or are not steps and have no bytes. */
static void node_list(struct lister *l, uint32_t node)
{
    visit_push(l, node);
    while (l->depth > 0)
        visit_step(l);
}

/* The nodes of an order of all steps, with each node that is not a step where it costs least. */
static uint32_t *order_nodes(struct ul_arena *arena, const struct ul_problem_graph *graph,
                             const uint32_t *steps, uint32_t step_count)
{
    uint32_t n = graph->graph.node_count;
    struct lister l = {.graph = graph};
    uint32_t *node_of = UL_NEW_ARRAY(arena, uint32_t, step_count);
    l.waits = UL_NEW_ARRAY(arena, uint32_t, n);
    l.ran = ul_arena_alloc(arena, n);
    l.stack = UL_NEW_ARRAY(arena, struct visit, n);
    l.order = UL_NEW_ARRAY(arena, uint32_t, n);
    for (uint32_t v = 0; v < n; v++) {
        l.waits[v] = graph->graph.input_first[v + 1] - graph->graph.input_first[v];
        for (uint32_t i = graph->step_first[v]; i < graph->step_first[v + 1]; i++)
            node_of[graph->steps[i]] = v;
    }
    for (uint32_t i = 0; i < step_count; i++)
        node_list(&l, node_of[steps[i]]);
    for (uint32_t v = 0; v < n; v++)
        node_list(&l, graph->graph.order[v]);
    UL_ASSERT(l.count == n);
    return l.order;
}

/* ---- Choices of alternatives ---- */

/* The problem with one alternative for each step. */
static struct ul_problem problem_fix(struct climb *c, const uint32_t *alternatives)
{
    struct ul_problem fixed = *c->problem;
    fixed.steps = ul_arena_copy(&c->scratch, c->problem->steps,
                                c->problem->step_count * sizeof *c->problem->steps);
    for (uint32_t s = 0; s < fixed.step_count; s++) {
        fixed.steps[s].alternatives += alternatives[s];
        fixed.steps[s].alternative_count = 1;
    }
    return fixed;
}

/* A node is forward if all of its steps are, or those of the run that it is a part of. */
static void forward_mark(struct climb *c, struct choice *choice)
{
    const struct ul_problem_graph *graph = &choice->graph;
    uint32_t n = graph->graph.node_count;
    choice->is_forward = UL_NEW_ARRAY(&c->scratch, bool, n);
    for (uint32_t v = 0; v < n; v++) {
        choice->is_forward[v] = true;
        for (uint32_t i = graph->step_first[v]; i < graph->step_first[v + 1]; i++)
            choice->is_forward[v] = choice->is_forward[v] && c->is_forward[graph->steps[i]];
        if (graph->run_of[v] != UL_PLAN_NONE) /* which comes before it in file order */
            choice->is_forward[v] = choice->is_forward[graph->run_of[v]];
    }
}

static struct ul_problem_inside base_inside(const struct climb *c)
{
    return (struct ul_problem_inside){c->base_steps, c->problem->step_count};
}

/* The file's order is used in addition to that of the base plan, where they differ. */
static void orders_count(const struct climb *c, struct choice *choice)
{
    const struct ul_solve_graph *g = &choice->graph.graph;
    bool is_named = c->options.order != UL_ORDER_BEST && c->options.order != UL_ORDER_FILE;
    choice->orders[1] = g->order;
    bool same = memcmp(choice->orders[0], g->order, g->node_count * sizeof *g->order) == 0;
    choice->order_count = same || is_named ? 1 : 2;
}

static void choice_make(struct climb *c, uint32_t *alternatives,
                        const struct ul_problem_inside *inside, struct choice *choice)
{
    *choice = (struct choice){.alternatives = alternatives, .inside = *inside};
    struct ul_problem fixed = problem_fix(c, alternatives);
    struct ul_problem rewriting;
    choice->rewritten = !c->keeps_values && ul_ladder_values(&c->scratch, &fixed, &rewriting);
    ul_problem_graph_make(&c->scratch, choice->rewritten ? &rewriting : &fixed,
                          c->options.alignment_bytes, UL_PROBLEM_GRAPH_REPEATABLE, inside,
                          &choice->graph);
    choice->orders[0] =
        order_nodes(&c->scratch, &choice->graph, c->base_steps, c->problem->step_count);
    orders_count(c, choice);
    if (c->is_forward != NULL)
        forward_mark(c, choice);
}

/* The cheapest alternative that needs at most the limit together with the bytes live anyway (NULL:
 * none), or the one that needs least. */
static uint32_t alternative_within(const struct climb *c, uint32_t step, uint64_t limit_bytes,
                                   const uint64_t *beside)
{
    const struct ul_plan_step *at = &c->problem->steps[step];
    uint64_t other = beside != NULL ? beside[step] : c->persistent_bytes;
    uint32_t best = 0;
    bool best_fits = false;
    for (uint32_t a = 0; a < at->alternative_count; a++) {
        uint64_t need = c->needs[step][a] + other;
        bool fits = need <= limit_bytes;
        bool better = fits ? !best_fits || ul_alternative_is_cheaper(&at->alternatives[a],
                                                                     &at->alternatives[best])
                           : !best_fits && c->needs[step][a] < c->needs[step][best];
        if (a == 0 || better)
            best = a;
        best_fits = best_fits || fits;
    }
    return best;
}

/* False if the choice is the same as `before`. */
static bool choice_within(struct climb *c, uint64_t limit_bytes, const uint64_t *beside,
                          const struct choice *before, struct choice *choice)
{
    uint32_t count = c->problem->step_count;
    uint32_t *alternatives = UL_NEW_ARRAY(&c->scratch, uint32_t, count);
    for (uint32_t s = 0; s < count; s++)
        alternatives[s] = alternative_within(c, s, limit_bytes, beside);
    if (memcmp(alternatives, before->alternatives, count * sizeof *alternatives) == 0)
        return false;
    const struct ul_problem_inside inside = base_inside(c);
    choice_make(c, alternatives, &inside, choice);
    return true;
}

/* ---- Rungs ---- */

/* The bytes that one node and its inputs need, together with those that always live; takeovers are
 * assumed to happen. */
static uint64_t graph_floor(const struct ul_solve_graph *g)
{
    uint64_t max = 0;
    for (uint32_t v = 0; v < g->node_count; v++) {
        uint64_t need = g->size_bytes[v] + g->working_bytes[v];
        for (uint32_t i = g->input_first[v]; i < g->input_first[v + 1]; i++)
            need += g->size_bytes[g->inputs[i]];
        uint32_t in = g->in_place[v];
        if (in != UL_PLAN_NONE)
            need -= g->size_bytes[in] < g->size_bytes[v] ? g->size_bytes[in] : g->size_bytes[v];
        max = need > max ? need : max;
    }
    return g->base_bytes + max;
}

/* The smallest live sums reached by the searches, and by any method. */
struct reach {
    uint64_t searched_bytes, any_bytes;
};

static void reach_note(uint64_t *reached_bytes, uint64_t peak_bytes)
{
    *reached_bytes = peak_bytes < *reached_bytes ? peak_bytes : *reached_bytes;
}

/* Limits for the methods on a rung: no more than the caller allows each. */
static void limits_set(struct climb *c, const struct ul_remat_limits *limits)
{
    c->limits = *limits;
    if (c->work_limit != 0)
        ul_remat_limits_cap(&c->limits, c->work_limit);
}

static struct ul_remat remat_make(struct climb *c, struct ul_arena *scratch,
                                  const struct choice *choice, uint64_t limit_bytes)
{
    const struct ul_solve_graph *g = &choice->graph.graph;
    struct ul_remat_limits *limits = UL_NEW(scratch, struct ul_remat_limits);
    *limits = c->limits;
    if (limits->named_programs.work > c->programs_work)
        limits->named_programs.work = c->programs_work;
    struct ul_remat remat = {.graph = g,
                             .is_forward = choice->is_forward,
                             .is_kept = choice->is_kept,
                             .budget_bytes = limit_bytes,
                             .method = c->options.remat,
                             .limits = limits,
                             .keeps_order = c->options.order != UL_ORDER_BEST,
                             .effort = c->effort,
                             .capacity = g->node_count * 8 + 1000,
                             .cost = UINT64_MAX,
                             .smallest_peak_bytes = limit_bytes};
    remat.sequence = UL_NEW_ARRAY(scratch, uint32_t, remat.capacity);
    return remat;
}

/* Charges the work of the named method to the work of integer programs. */
static void programs_charge(struct climb *c, const struct ul_remat *remat)
{
    c->programs_work -=
        remat->programs_work < c->programs_work ? remat->programs_work : c->programs_work;
}

/* The steps of what a method found. */
static uint32_t *found_steps(struct ul_arena *arena, const struct choice *choice,
                             const struct ul_remat *found, uint32_t *count)
{
    uint32_t node_count = found->count;
    const uint32_t *nodes = ul_problem_graph_join_runs(arena, &choice->graph, found->budget_bytes,
                                                       found->sequence, &node_count);
    return ul_problem_graph_steps(arena, &choice->graph, nodes, node_count, count);
}

/* Offers what a method found, if anything; sets its peak, or UINT64_MAX. */
static enum ul_status found_offer(struct climb *c, struct ul_arena *scratch,
                                  const struct choice *choice, const struct ul_remat *found,
                                  uint64_t *peak_bytes)
{
    uint64_t cost;
    uint32_t count;
    *peak_bytes = UINT64_MAX;
    if (found->cost == UINT64_MAX)
        return UL_OK;
    bool valid = ul_solve_replay(found->graph, found->sequence, found->count, peak_bytes, &cost);
    UL_ASSERT(valid && *peak_bytes <= found->budget_bytes);
    uint32_t *steps = found_steps(scratch, choice, found, &count);
    return sequence_offer(c, steps, count, choice, found);
}

/* More work for searches that improve known schedules of training, and not less on large graphs. */
enum { TRAINING_WORK = UL_WORK_RUNG, TRAINING_STEP_WORK = 1 << 15 };

/* Recomputes until the live sum is within the limit, by the named method or by all. */
static enum ul_status choice_climb(struct climb *c, struct choice *choice, uint64_t limit_bytes,
                                   struct reach *reach)
{
    struct ul_arena scratch;
    uint64_t peak_bytes = UINT64_MAX;
    if (limit_bytes <= choice->misfit_bytes)
        return UL_OK;
    ul_arena_init(&scratch);
    const struct ul_remat_orders orders = {.orders = (const uint32_t *const *)choice->orders,
                                           .count = choice->order_count};
    struct ul_remat remat = remat_make(c, &scratch, choice, limit_bytes);
    struct ul_remat cheaper = remat_make(c, &scratch, choice, limit_bytes);
    if (choice->is_forward != NULL && c->work_limit == 0)
        cheaper.effort.work_limit =
            TRAINING_WORK + TRAINING_STEP_WORK * (uint64_t)c->problem->step_count;
    if (c->options.remat == UL_REMAT_BEST)
        ul_remat_run_rung(&remat, &cheaper, &orders);
    else
        ul_remat_run(&remat, &orders);
    bool is_named = c->options.remat != UL_REMAT_BEST;
    if (is_named)
        programs_charge(c, &remat);
    if (remat.misfit_proven)
        choice->misfit_bytes = limit_bytes;
    if (is_named && remat.why_not != NULL && c->ladder->why_not == NULL)
        c->ladder->why_not = remat.why_not;
    enum ul_status status = found_offer(c, &scratch, choice, &remat, &peak_bytes);
    reach_note(&reach->searched_bytes, peak_bytes);
    reach_note(&reach->any_bytes, peak_bytes);
    if (status == UL_OK)
        status = found_offer(c, &scratch, choice, &cheaper, &peak_bytes);
    reach_note(&reach->any_bytes, peak_bytes);
    ul_arena_done(&scratch);
    return status;
}

/* ---- Inside nodes of several steps ---- */

/* A problem whose trees are examined, with an order of its steps. */
struct whole {
    const struct ul_problem *problem;
    const struct ul_problem_trees *trees;
    const uint32_t *steps;
    const uint32_t *alternatives; /* of the parts; NULL: each has one */
    uint32_t depth;               /* trees around it */
};

static bool parts_fit(struct climb *c, struct ul_arena *scratch, const struct whole *whole,
                      const uint64_t *limits, struct ul_problem_inside *inside);

/* Bytes that always live in a part, and are not touched by the steps of a tree in it. */
static uint64_t bytes_around(const struct climb *c, const struct ul_problem *part,
                             const struct ul_problem_trees *trees, uint32_t tree)
{
    const struct ul_problem_tree *at = &trees->trees[tree];
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < part->value_count; v++)
        if (part->values[v].persistent && part->values[v].space == 0 &&
            (trees->touch_end[v] <= at->first || trees->touch_first[v] >= at->end))
            bytes += ul_size_align_or_die(part->values[v].size_bytes, c->options.alignment_bytes);
    return bytes;
}

/* Makes a tree's steps a choice of their own, in which trees run their steps so that they fit into
 * the limit, if such a way is found. */
static void part_make(struct climb *c, struct ul_arena *scratch, const struct whole *whole,
                      uint32_t tree, uint64_t limit_bytes, struct choice *choice,
                      struct whole *inner)
{
    struct ul_problem rewriting;
    struct ul_problem_trees *trees = UL_NEW(scratch, struct ul_problem_trees);
    const struct ul_problem_tree *at = &whole->trees->trees[tree];
    const struct ul_problem *part =
        ul_problem_part_make(scratch, whole->problem, whole->trees, tree, whole->alternatives);
    uint32_t count = part->step_count, next = 0;
    uint32_t *steps = UL_NEW_ARRAY(scratch, uint32_t, count);
    for (uint32_t i = 0; i < whole->problem->step_count; i++)
        if (whole->steps[i] >= at->first && whole->steps[i] < at->end)
            steps[next++] = whole->steps[i] - at->first;
    ul_problem_trees_find(scratch, part, trees);
    if (whole->depth + 1 >= UL_PROBLEM_MAX_DEPTH)
        trees->count = 0;
    uint64_t *limits = UL_NEW_ARRAY(scratch, uint64_t, trees->count);
    for (uint32_t t = 0; t < trees->count; t++) {
        uint64_t around = bytes_around(c, part, trees, t);
        limits[t] = limit_bytes > around ? limit_bytes - around : 0;
    }
    *choice = (struct choice){.inside = {steps, count}};
    *inner = (struct whole){part, trees, steps, NULL, whole->depth + 1};
    bool is_rewritten = parts_fit(c, scratch, inner, limits, &choice->inside);
    choice->rewritten = !c->keeps_values && ul_ladder_values(scratch, part, &rewriting);
    ul_problem_graph_make(scratch, choice->rewritten ? &rewriting : part,
                          c->options.alignment_bytes, UL_PROBLEM_GRAPH_REPEATABLE, &choice->inside,
                          &choice->graph);
    choice->rewritten = choice->rewritten || is_rewritten;
    choice->orders[0] = order_nodes(scratch, &choice->graph, steps, count);
    orders_count(c, choice);
}

static uint64_t part_peak(const struct choice *choice)
{
    const struct ul_solve_graph *g = &choice->graph.graph;
    uint64_t peak_bytes, cost;
    bool valid = ul_solve_replay(g, choice->orders[0], g->node_count, &peak_bytes, &cost);
    UL_ASSERT(valid);
    return peak_bytes;
}

/* The cheapest sequence of a part's steps found within the limit, with its share of the work of the
 * whole; or NULL. */
static uint32_t *part_search(struct climb *c, struct ul_arena *scratch, const struct choice *choice,
                             uint64_t limit_bytes, uint32_t *count)
{
    const struct ul_remat_orders orders = {.orders = (const uint32_t *const *)choice->orders,
                                           .count = choice->order_count};
    enum { LEAST_WORK = 1 << 14 };
    const struct ul_solve_graph *g = &choice->graph.graph;
    uint64_t work =
        LEAST_WORK + c->effort.work_limit / c->problem->step_count * choice->inside.count;
    if (part_peak(choice) <= limit_bytes)
        return ul_problem_graph_steps(scratch, &choice->graph, choice->orders[0], g->node_count,
                                      count);
    struct ul_remat remat = remat_make(c, scratch, choice, limit_bytes);
    struct ul_remat_limits limits = *remat.limits;
    ul_remat_limits_cap(&limits, work);
    remat.limits = &limits;
    remat.effort.work_limit = work;
    struct ul_remat cheaper = remat;
    cheaper.sequence = UL_NEW_ARRAY(scratch, uint32_t, cheaper.capacity);
    if (c->options.remat == UL_REMAT_BEST)
        ul_remat_run_rung(&remat, &cheaper, &orders);
    else
        ul_remat_run(&remat, &orders);
    if (c->options.remat != UL_REMAT_BEST)
        programs_charge(c, &remat);
    const struct ul_remat *found = cheaper.cost < remat.cost ? &cheaper : &remat;
    if (found->cost == UINT64_MAX)
        return NULL;
    return found_steps(scratch, choice, found, count);
}

/* Lets each tree whose steps do not fit into its limit run them in another way, if one is found.
 * Then `inside` gets all steps; at entry it has those of whole->steps. Returns whether
 * ul_ladder_values rewrote a part for that. */
static bool parts_fit(struct climb *c, struct ul_arena *scratch, const struct whole *whole,
                      const uint64_t *limits, struct ul_problem_inside *inside)
{
    uint32_t count = whole->problem->step_count, used = 0;
    uint64_t capacity = count;
    bool is_rewritten = false;
    uint32_t **found = UL_NEW_ARRAY(scratch, uint32_t *, whole->trees->count);
    uint32_t *found_count = UL_NEW_ARRAY(scratch, uint32_t, whole->trees->count);
    uint32_t *tree_of = UL_NEW_ARRAY(scratch, uint32_t, count);
    memset(tree_of, 0xFF, count * sizeof *tree_of);
    for (uint32_t t = 0; t < whole->trees->count; t++) {
        const struct ul_problem_tree *tree = &whole->trees->trees[t];
        struct choice part;
        struct whole inner;
        if (limits[t] == UINT64_MAX || is_late(c))
            continue;
        part_make(c, scratch, whole, t, limits[t], &part, &inner);
        found[t] = part_search(c, scratch, &part, limits[t], &found_count[t]);
        is_rewritten = is_rewritten || (found[t] != NULL && part.rewritten);
        capacity += found[t] != NULL ? found_count[t] : 0;
        for (uint32_t s = tree->first; found[t] != NULL && s < tree->end; s++)
            tree_of[s] = t;
    }
    uint32_t *steps = UL_NEW_ARRAY(scratch, uint32_t, capacity);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t t = tree_of[whole->steps[i]];
        if (t == UL_PLAN_NONE) {
            steps[used++] = whole->steps[i];
            continue;
        }
        for (uint32_t k = 0; k < found_count[t]; k++)
            steps[used++] = whole->trees->trees[t].first + found[t][k];
        i += whole->trees->trees[t].end - whole->trees->trees[t].first - 1;
    }
    *inside = (struct ul_problem_inside){steps, used};
    return is_rewritten;
}

static bool is_same_inside(const struct ul_problem_inside *a, const struct ul_problem_inside *b)
{
    return a->count == b->count && memcmp(a->steps, b->steps, a->count * sizeof *a->steps) == 0;
}

static struct whole baseline_unsplit(const struct climb *c, const struct choice *choice)
{
    return (struct whole){c->problem, &c->trees, c->base_steps, choice->alternatives, 0};
}

/* Lets the choice's trees fit into a limit, together with the bytes that always live, or also with
 * those that live then in the base plan. */
static void trees_fit(struct climb *c, struct choice *choice, uint64_t limit_bytes, bool is_beside)
{
    struct ul_arena scratch;
    struct ul_problem_inside inside = base_inside(c);
    bool is_rewritten = false, any = false;
    if (c->trees.count == 0 || c->options.remat == UL_REMAT_NONE)
        return;
    ul_arena_init(&scratch);
    uint64_t *limits = UL_NEW_ARRAY(&scratch, uint64_t, c->trees.count);
    for (uint32_t t = 0; t < c->trees.count; t++) {
        const struct around *around = &c->around[t];
        uint64_t other = is_beside ? around->spanning_bytes : around->persistent_bytes;
        bool fits = other <= limit_bytes && around->peak_bytes <= limit_bytes - other;
        limits[t] = fits ? UINT64_MAX : limit_bytes > other ? limit_bytes - other : 0;
        any = any || !fits;
    }
    const struct whole whole = baseline_unsplit(c, choice);
    if (any)
        is_rewritten = parts_fit(c, &scratch, &whole, limits, &inside);
    if (!is_same_inside(&inside, &choice->inside)) {
        inside.steps =
            ul_arena_copy(&c->scratch, inside.steps, inside.count * sizeof *inside.steps);
        choice_make(c, choice->alternatives, &inside, choice);
        choice->rewritten = choice->rewritten || is_rewritten;
    }
    ul_arena_done(&scratch);
}

/* The rungs of one choice of alternatives below a limit, including those that cost nothing more. */
static enum ul_status rung_try(struct climb *c, struct choice *choice, uint64_t limit_bytes,
                               struct reach *reach)
{
    if (c->options.remat != UL_REMAT_NONE)
        return choice_climb(c, choice, limit_bytes, reach);
    uint64_t peak_bytes, cost;
    ul_solve_replay(&choice->graph.graph, choice->orders[0], choice->graph.graph.node_count,
                    &peak_bytes, &cost);
    reach_note(&reach->searched_bytes, peak_bytes);
    reach_note(&reach->any_bytes, peak_bytes);
    return sequence_offer(c, c->base_steps, c->problem->step_count, choice, NULL);
}

struct rungs {
    uint64_t top_bytes, floor_bytes;
    uint32_t count;
    struct reach reached;
    struct choice alone, beside; /* of alternatives */
};

static enum ul_status rung_climb(struct climb *c, struct rungs *r, uint64_t limit_bytes)
{
    struct choice made;
    if (c->has_alternatives && choice_within(c, limit_bytes, NULL, &r->alone, &made))
        r->alone = made;
    trees_fit(c, &r->alone, limit_bytes, false);
    UL_TRY(rung_try(c, &r->alone, limit_bytes, &r->reached));
    if (c->has_alternatives && choice_within(c, limit_bytes, c->beside, &r->beside, &made))
        r->beside = made;
    trees_fit(c, &r->beside, limit_bytes, true);
    if (c->has_alternatives || !is_same_inside(&r->alone.inside, &r->beside.inside))
        UL_TRY(rung_try(c, &r->beside, limit_bytes, &r->reached));
    return UL_OK;
}

/* Goes down in even steps from *reached_bytes, each from where the last one arrived; the steps get
 * shorter where nothing is found. */
static enum ul_status rungs_descend(struct climb *c, struct rungs *r, const uint64_t *reached_bytes)
{
    enum { SHORTEST = 4 };
    uint64_t room = r->top_bytes > r->floor_bytes ? r->top_bytes - r->floor_bytes : 0;
    uint64_t stride = room / r->count + 1;
    while (*reached_bytes > r->floor_bytes && stride > room / r->count / SHORTEST && !is_late(c)) {
        uint64_t before = *reached_bytes;
        uint64_t limit = before - r->floor_bytes > stride ? before - stride : r->floor_bytes;
        UL_TRY(rung_climb(c, r, limit));
        if (*reached_bytes == before)
            stride /= 2;
    }
    return UL_OK;
}

/* Goes from the peak of the base plan as far as searches get, and from there as far as any
 * method. */
static enum ul_status rungs_climb(struct climb *c, struct rungs *r)
{
    r->reached = (struct reach){r->top_bytes, r->top_bytes};
    UL_TRY(rungs_descend(c, r, &r->reached.searched_bytes));
    if (r->reached.any_bytes == r->reached.searched_bytes)
        return UL_OK;
    return rungs_descend(c, r, &r->reached.any_bytes);
}

/* Goes down by the values that smallest cuts keep, in a program that trains; this takes little
 * work, so the steps are finer. A budget then gets, or nearly gets, what these sets alone would
 * give. */
static enum ul_status cuts_climb(struct climb *c, const struct rungs *rungs)
{
    enum { FINER = 2 };
    enum ul_plan_remat method = c->options.remat;
    const char *why_not = c->ladder->why_not;
    struct rungs r = *rungs;
    if (r.alone.is_forward == NULL || method != UL_REMAT_BEST)
        return UL_OK;
    r.count *= FINER;
    c->options.remat = UL_REMAT_CUT;
    enum ul_status status = rungs_climb(c, &r);
    c->options.remat = method;
    c->ladder->why_not = why_not;
    return status;
}

/* ---- Transfers ---- */

/* How many of the bytes that a budget counts the other space may take. */
static uint64_t room_of(const struct ul_problem *problem)
{
    uint32_t space = ul_problem_other_space(problem);
    uint64_t capacity = space == UL_PLAN_NONE ? 0 : problem->spaces[space].capacity_bytes;
    return capacity == 0 ? UINT64_MAX : capacity;
}

static const char *transfers_name(struct climb *c, const struct source *source,
                                  const struct ul_transfer_search *job)
{
    uint32_t saves = 0, loads = 0;
    for (uint32_t p = 0; p < job->position_count; p++) {
        bool copies = job->positions[p].kind == UL_PLAN_COPY;
        saves += copies && !job->positions[p].loads;
        loads += copies && job->positions[p].loads;
    }
    if (saves + loads == 0)
        return source->remat_method;
    bool is_alone = strcmp(source->remat_method, "none") == 0;
    return ul_arena_printf(c->arena, "%s%stransfers: %u saves, %u loads",
                           is_alone ? "" : source->remat_method, is_alone ? "" : "; ", saves,
                           loads);
}

/* Offers the plan with its transfers; sets whether the other space holds it, as packed. */
static enum ul_status moved_offer(struct climb *c, struct ul_arena *scratch,
                                  const struct source *source, const struct ul_transfer_search *job,
                                  bool *is_held)
{
    struct ul_plan plan = {.alignment_bytes = c->options.alignment_bytes,
                           .positions = job->positions,
                           .position_count = job->position_count,
                           .order_method = c->base->order_method,
                           .order_why_not = c->base->order_why_not,
                           .orders_lower_bound_bytes = c->base->orders_lower_bound_bytes};
    struct ul_plan live = plan;
    ul_timeline_build(scratch, c->problem, UL_ALIAS_ALL, &live);
    ul_account_live(scratch, &live);
    live.cost = job->cost;
    if (!is_promising(c, scratch, &live))
        return UL_OK;
    plan.remat_method = transfers_name(c, source, job);
    plan.positions =
        ul_arena_copy(c->arena, job->positions, job->position_count * sizeof *job->positions);
    UL_TRY(sequence_pack(c, scratch, false, &plan));
    uint32_t space = ul_problem_other_space(c->problem);
    *is_held = space == UL_PLAN_NONE || plan.reserved_bytes[space] <= room_of(c->problem);
    return UL_OK;
}

/* Moves values out of a plan until its live sum is within the limit. */
static enum ul_status source_move(struct climb *c, const struct source *source,
                                  uint64_t limit_bytes)
{
    enum { TRIES = 3, SHARE = 8, WORK = 1 << 18, STEP_WORK = 256 };
    struct ul_arena scratch;
    struct ul_plan runs = {.alignment_bytes = c->options.alignment_bytes,
                           .position_count = source->position_count};
    enum ul_status status = UL_OK;
    bool is_held = false;
    ul_arena_init(&scratch);
    runs.positions = ul_arena_copy(&scratch, source->positions,
                                   source->position_count * sizeof *source->positions);
    ul_timeline_build(&scratch, c->problem, UL_ALIAS_ALL, &runs);
    ul_account_live(&scratch, &runs);
    struct ul_transfer_search job = {.problem = c->problem,
                                     .runs = &runs,
                                     .limit_bytes = limit_bytes,
                                     .room_bytes = room_of(c->problem)};
    /* The packed bytes take more room than the live bytes. */
    for (uint32_t i = 0; i < TRIES && status == UL_OK && !is_held; i++) {
        job.effort =
            (struct ul_effort){.work_limit = WORK + STEP_WORK * (uint64_t)runs.position_count,
                               .deadline_seconds = c->effort.deadline_seconds,
                               .seed = c->options.seed + 1};
        if (runs.order_lower_bound_bytes > limit_bytes || c->is_asynchronous)
            ul_transfer_place(&scratch, &job);
        is_held = true;
        if (job.positions == NULL)
            break;
        status = moved_offer(c, &scratch, source, &job, &is_held);
        job.room_bytes -= job.room_bytes / SHARE;
    }
    ul_arena_done(&scratch);
    return status;
}

/* Moves values out of the base plan, each step by the cheapest way that a limit leaves room for in
 * addition to the staying bytes. */
static enum ul_status base_move(struct climb *c, uint64_t limit_bytes)
{
    struct ul_plan runs = {.position_count = 0};
    struct source base = {.positions = c->base->positions,
                          .position_count = c->base->position_count,
                          .remat_method = c->base->remat_method};
    if (c->has_alternatives) {
        uint32_t count = c->problem->step_count;
        uint32_t *alternatives = UL_NEW_ARRAY(&c->scratch, uint32_t, count);
        uint64_t *beside = UL_NEW_ARRAY(&c->scratch, uint64_t, count);
        for (uint32_t s = 0; s < count; s++)
            beside[s] = c->staying_bytes;
        for (uint32_t s = 0; s < count; s++)
            alternatives[s] = alternative_within(c, s, limit_bytes, beside);
        ul_timeline_sequence(&c->scratch, c->problem, c->base_steps, count, alternatives, &runs);
        base.positions = runs.positions;
        base.position_count = runs.position_count;
    }
    return source_move(c, &base, limit_bytes);
}

static enum ul_status sources_move(struct climb *c, uint64_t limit_bytes)
{
    if (ul_problem_other_space(c->problem) == UL_PLAN_NONE && !c->is_asynchronous)
        return UL_OK;
    UL_TRY(base_move(c, limit_bytes));
    for (uint32_t i = 0; i < c->source_count && !is_late(c); i++)
        UL_TRY(source_move(c, &c->sources[i], limit_bytes));
    return UL_OK;
}

/* Takes some of the existing rungs, from the largest on. */
static void sources_take(struct climb *c)
{
    enum { MOST = 6 };
    uint32_t rungs = c->ladder->count - 1;
    c->source_count = rungs < MOST ? rungs : MOST;
    c->sources = UL_NEW_ARRAY(&c->scratch, struct source, c->source_count);
    for (uint32_t i = 0; i < c->source_count; i++) {
        const struct ul_plan *plan =
            &c->ladder->rungs[1 + (uint64_t)i * rungs / c->source_count].plan;
        struct ul_plan runs = *plan;
        ul_transfer_only_runs(&c->scratch, &runs);
        c->sources[i] = (struct source){.positions = runs.positions,
                                        .position_count = runs.position_count,
                                        .remat_method = plan->remat_method};
    }
}

static bool has_rung_within(const struct ul_plan_ladder *ladder, uint64_t budget_bytes)
{
    return ul_rung_bytes(&ladder->rungs[ladder->count - 1]) <= budget_bytes;
}

/* Goes down in even steps to what one step needs, since the rest may be elsewhere, or until a rung
 * is small enough, if only that is asked. There are many plans to pack, several for each step down,
 * so each gets little work. */
static enum ul_status limits_move(struct climb *c, uint64_t top_bytes, uint32_t count,
                                  uint64_t enough_bytes)
{
    enum { PACK_SHARE = 8 };
    enum ul_status status = UL_OK;
    const uint64_t work_limit = c->options.work_limit;
    uint64_t floor_bytes = ul_account_bound(&c->scratch, c->problem, c->options.alignment_bytes);
    c->options.work_limit = work_limit / PACK_SHARE + 1;
    for (uint32_t i = 1; i <= count && status == UL_OK && !is_late(c); i++) {
        double part = (double)i / count * (double)(top_bytes - floor_bytes);
        if (floor_bytes < top_bytes && !has_rung_within(c->ladder, enough_bytes))
            status = sources_move(c, top_bytes - (uint64_t)part);
    }
    c->options.work_limit = work_limit;
    return status;
}

/* ---- How much room in the other space suffices ---- */

/* Whether transfers give a rung within the budget where the other space has this room, and how much
 * of it they take; also from the limits and plans that the climb then begins with. */
static enum ul_status room_try(struct climb *c, const struct rungs *r, uint64_t budget_bytes,
                               uint64_t room_bytes, uint64_t *taken_bytes)
{
    const struct climb before = *c;
    struct ul_problem problem = *c->problem;
    struct ul_plan_ladder ladder = {.count = 0};
    uint32_t space = ul_problem_other_space(&problem);
    problem.spaces =
        ul_arena_copy(&c->scratch, problem.spaces, problem.space_count * sizeof *problem.spaces);
    problem.spaces[space].capacity_bytes = room_bytes;
    rung_add(c->arena, &ladder, &c->ladder->rungs[0]);
    c->problem = &problem;
    c->ladder = &ladder;
    c->box = (struct box){.end_bytes = budget_bytes + 1, .end_cost = UINT64_MAX};
    enum ul_status status = limits_move(c, r->top_bytes, r->count, budget_bytes);
    const struct ul_plan_rung *last = &ladder.rungs[ladder.count - 1];
    bool found = has_rung_within(&ladder, budget_bytes);
    *taken_bytes = found ? last->plan.reserved_bytes[space] : UINT64_MAX;
    c->problem = before.problem;
    c->ladder = before.ladder;
    c->box = before.box;
    return status;
}

/* The least room known to suffice where the existing room does not; one unit of alignment less does
 * not suffice. 0 where no room suffices. */
static enum ul_status room_find(struct climb *c, const struct rungs *r, uint64_t budget_bytes,
                                uint64_t *room_bytes)
{
    enum { MORE = 8 };
    uint64_t unit = c->options.alignment_bytes, taken, low = room_of(c->problem);
    *room_bytes = 0;
    UL_TRY(room_try(c, r, budget_bytes, 0, &taken));
    if (taken == UINT64_MAX)
        return UL_OK;
    uint64_t high = taken > low ? taken : low + unit;
    /* The search that finds a rung with any room may miss it with that much. */
    for (uint32_t i = 0;; i++) {
        UL_TRY(room_try(c, r, budget_bytes, high, &taken));
        if (taken != UINT64_MAX || i == MORE)
            break;
        low = high;
        high = ul_size_align_or_die(high + high / MORE, unit);
    }
    if (taken == UINT64_MAX)
        return UL_OK;
    while (high - low > unit && !is_late(c)) {
        uint64_t middle = ul_size_align_or_die(low + (high - low) / 2, unit);
        middle = middle < high ? middle : high - unit;
        UL_TRY(room_try(c, r, budget_bytes, middle, &taken));
        low = taken == UINT64_MAX ? middle : low;
        high = taken == UINT64_MAX ? high : middle;
    }
    *room_bytes = high;
    return UL_OK;
}

static enum ul_status transfers_climb(struct climb *c, const struct rungs *r, uint64_t budget_bytes)
{
    bool moves = ul_problem_other_space(c->problem) != UL_PLAN_NONE;
    if (!moves && !c->is_asynchronous)
        return UL_OK;
    /* Steps that run at the same time may take more bytes than the runs alone. */
    uint64_t top_bytes = r->top_bytes;
    if (c->is_asynchronous && top_bytes < c->ladder->rungs[0].plan.order_lower_bound_bytes)
        top_bytes = c->ladder->rungs[0].plan.order_lower_bound_bytes;
    sources_take(c);
    UL_TRY(limits_move(c, top_bytes, r->count, 0));
    if (!moves || !c->options.finds_room || room_of(c->problem) == UINT64_MAX ||
        has_rung_within(c->ladder, budget_bytes))
        return UL_OK;
    return room_find(c, r, budget_bytes, &c->ladder->room_bytes);
}

/* ---- Between two rungs ---- */

/* The box between the rung that fits and the one before it, or empty where there is none. */
static struct box box_between(const struct ul_plan_ladder *ladder, uint64_t budget_bytes)
{
    uint32_t at = 0;
    while (at < ladder->count && ul_rung_bytes(&ladder->rungs[at]) > budget_bytes)
        at++;
    if (at == 0 || at == ladder->count)
        return (struct box){.min_bytes = 0};
    const struct ul_plan_rung *below = &ladder->rungs[at], *above = below - 1;
    return (struct box){.min_bytes = ul_rung_bytes(below) + 1,
                        .end_bytes = ul_rung_bytes(above),
                        .min_cost = above->plan.cost,
                        .end_cost = below->plan.cost};
}

/* Halves the interval between two rungs, on the side of the budget, and searches there with more
 * work. The limits tried, and the plans that may become a rung, depend only on the rungs around: a
 * plan in the box costs more than all that larger budgets get, and is larger than all that smaller
 * ones get. So the ladder stays monotone, though only a part of it is searched. */
static enum ul_status rungs_between(struct climb *c, struct rungs *r, uint64_t budget_bytes)
{
    enum { MAX_HALVINGS = 6, RUNGS_A_HALVING = 8 };
    uint32_t halvings = r->count / RUNGS_A_HALVING + 1;
    uint64_t passed_bytes = 0; /* nothing was found within this limit */
    halvings = halvings < MAX_HALVINGS ? halvings : MAX_HALVINGS;
    limits_set(c, &ul_remat_limits_between);
    for (uint32_t i = 0; i < halvings && !is_late(c); i++) {
        c->programs_work = c->limits.named_programs.work;
        uint32_t count = c->ladder->count;
        c->box = box_between(c->ladder, budget_bytes);
        if (c->box.min_bytes < passed_bytes)
            c->box.min_bytes = passed_bytes;
        if (c->box.end_bytes <= c->box.min_bytes + c->options.alignment_bytes)
            break;
        uint64_t limit = c->box.min_bytes + (c->box.end_bytes - c->box.min_bytes) / 2;
        uint64_t space_limit = ul_plan_space_budget(&c->options.overhead, c->base, limit);
        UL_TRY(rung_climb(c, r, space_limit));
        UL_TRY(sources_move(c, space_limit));
        if (c->ladder->count > count)
            continue;
        if (budget_bytes < limit)
            break;
        passed_bytes = limit;
    }
    return UL_OK;
}

/* ---- What the climb starts from ---- */

static void base_order(struct climb *c)
{
    uint32_t count = 0;
    c->base_steps = UL_NEW_ARRAY(&c->scratch, uint32_t, c->problem->step_count);
    for (uint32_t p = 0; p < c->base->position_count; p++) {
        if (c->base->positions[p].substep == 0)
            c->base_steps[count++] = c->base->positions[p].step;
    }
    UL_ASSERT(count == c->problem->step_count);
}

/* The largest live sum of the base plan while each step runs, less what the step touches. */
static void beside_make(struct climb *c)
{
    const struct ul_plan *base = c->base;
    const uint64_t *live_bytes = ul_account_live_sums(&c->scratch, base);
    c->beside = UL_NEW_ARRAY(&c->scratch, uint64_t, c->problem->step_count);
    for (uint32_t p = 0; p < base->position_count; p++) {
        uint64_t *max = &c->beside[base->positions[p].step];
        *max = live_bytes[p] > *max ? live_bytes[p] : *max;
    }
    for (uint32_t s = 0; s < c->problem->step_count; s++) {
        uint64_t touched = c->needs[s][ul_step_cheapest(&c->problem->steps[s])];
        c->beside[s] -= touched < c->beside[s] ? touched : c->beside[s];
    }
}

/* Counts bytes that live in the base plan while a tree runs, and are not touched by its steps. */
static void around_weigh(const struct climb *c, const struct ul_problem_tree *tree,
                         struct around *around)
{
    const struct ul_plan *base = c->base;
    uint32_t begin = UL_PLAN_NONE, end = 0;
    for (uint32_t p = 0; p < base->position_count; p++) {
        uint32_t s = base->positions[p].step;
        if (s < tree->first || s >= tree->end)
            continue;
        begin = begin == UL_PLAN_NONE ? p : begin;
        end = p + 1;
    }
    for (uint32_t r = 0; r < base->range_count; r++) {
        const struct ul_plan_range *range = &base->ranges[r];
        uint32_t v = range->value;
        if (range->space != 0 || v == UL_PLAN_NONE || range->begin > begin || range->end < end ||
            (c->trees.touch_first[v] < tree->end && c->trees.touch_end[v] > tree->first))
            continue;
        uint64_t bytes = ul_size_align_or_die(range->size_bytes, base->alignment_bytes);
        around->spanning_bytes += bytes;
        around->persistent_bytes += c->problem->values[v].persistent ? bytes : 0;
    }
}

static void trees_find(struct climb *c)
{
    ul_problem_trees_find(&c->scratch, c->problem, &c->trees);
    c->around = UL_NEW_ARRAY(&c->scratch, struct around, c->trees.count);
    for (uint32_t t = 0; t < c->trees.count; t++)
        around_weigh(c, &c->trees.trees[t], &c->around[t]);
}

/* The bytes that regions that are one node need in the base plan's order. */
static void trees_weigh(struct climb *c, const struct choice *choice)
{
    const struct whole whole = baseline_unsplit(c, choice);
    struct choice part;
    struct whole inner;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    for (uint32_t t = 0; t < c->trees.count; t++) {
        part_make(c, &scratch, &whole, t, UINT64_MAX, &part, &inner);
        c->around[t].peak_bytes = part_peak(&part);
    }
    ul_arena_done(&scratch);
}

/* The floor of a graph, where nodes of several steps may need only as much as one of their
 * steps. */
static uint64_t whole_floor(struct climb *c, struct ul_arena *scratch, const struct whole *whole,
                            const struct ul_problem_graph *graph)
{
    struct ul_solve_graph g = graph->graph;
    g.working_bytes =
        ul_arena_copy(scratch, g.working_bytes, g.node_count * sizeof *g.working_bytes);
    for (uint32_t v = 0, t = 0; v < g.node_count && t < whole->trees->count; v++) {
        uint32_t first = graph->step_first[v];
        struct choice part;
        struct whole inner;
        if (first == graph->step_first[v + 1] || graph->steps[first] < whole->trees->trees[t].first)
            continue; /* nodes keep the file order */
        part_make(c, scratch, whole, t++, UINT64_MAX, &part, &inner);
        uint64_t floor_bytes = whole_floor(c, scratch, &inner, &part.graph);
        floor_bytes -= part.graph.graph.base_bytes; /* bytes that always live are counted outside */
        if (floor_bytes < g.working_bytes[v])
            g.working_bytes[v] = floor_bytes;
    }
    return graph_floor(&g);
}

static uint64_t choice_floor(struct climb *c, const struct choice *choice)
{
    const struct whole whole = baseline_unsplit(c, choice);
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint64_t floor_bytes = whole_floor(c, &scratch, &whole, &choice->graph);
    ul_arena_done(&scratch);
    return floor_bytes;
}

/* Fewer rungs for larger problems: the work of a walk grows with the steps. */
static uint32_t rung_count(const struct ul_problem *problem)
{
    enum { MAX = 48, MIN = 6, STEPS = 24000 };
    uint32_t count = problem->step_count == 0 ? MAX : STEPS / problem->step_count;
    return count > MAX ? MAX : count < MIN ? MIN : count;
}

static void climb_prepare(struct climb *c, struct rungs *r)
{
    const struct ul_problem *problem = c->problem;
    uint32_t *cheapest = UL_NEW_ARRAY(&c->scratch, uint32_t, problem->step_count);
    uint32_t *min = UL_NEW_ARRAY(&c->scratch, uint32_t, problem->step_count);
    struct choice smallest;
    uint64_t cost;
    base_order(c);
    if (c->is_forward == NULL)
        c->is_forward = ul_problem_find_forward(&c->scratch, problem);
    c->needs = ul_account_needs(&c->scratch, problem, c->options.alignment_bytes);
    ul_ladder_levels_make(&c->scratch, problem, c->options.alignment_bytes, &c->levels);
    beside_make(c);
    for (uint32_t v = 0; v < problem->value_count; v++) {
        const struct ul_plan_value *value = &problem->values[v];
        bool is_there = c->base->value_ranges[v] < c->base->value_ranges[v + 1];
        if (!value->persistent || !is_there || value->space != 0)
            continue;
        uint64_t bytes = ul_size_align_or_die(value->size_bytes, c->options.alignment_bytes);
        c->persistent_bytes += bytes;
        c->staying_bytes += ul_value_may_move(value) ? 0 : bytes;
    }
    for (uint32_t s = 0; s < problem->step_count; s++) {
        cheapest[s] = ul_step_cheapest(&problem->steps[s]);
        min[s] = alternative_within(c, s, 0, NULL);
        c->has_alternatives = c->has_alternatives || problem->steps[s].alternative_count > 1;
    }
    trees_find(c);
    const struct ul_problem_inside inside = base_inside(c);
    choice_make(c, cheapest, &inside, &r->alone);
    r->beside = r->alone;
    smallest = r->alone;
    trees_weigh(c, &r->alone);
    if (c->has_alternatives)
        choice_make(c, min, &inside, &smallest);
    const struct ul_solve_graph *g = &r->alone.graph.graph;
    bool valid = ul_solve_replay(g, r->alone.orders[0], g->node_count, &r->top_bytes, &cost);
    UL_ASSERT(valid);
    r->floor_bytes = choice_floor(c, &smallest);
    r->count = rung_count(problem);
}

/* Lets the climb begin further down, with the same distance between two rungs. */
static void rungs_begin_below(struct climb *c, struct rungs *r, uint64_t bytes)
{
    uint64_t limit = ul_plan_space_budget(&c->options.overhead, c->base, bytes);
    if (limit >= r->top_bytes || r->top_bytes <= r->floor_bytes)
        return;
    uint64_t room = limit > r->floor_bytes ? limit - r->floor_bytes : 0;
    double part = (double)room / (double)(r->top_bytes - r->floor_bytes);
    r->count = (uint32_t)(part * r->count) + 1;
    r->top_bytes = r->floor_bytes + room;
}

/* Asks whether the named method can do anything for the program. Where it can, plans in which
 * nothing runs twice name it too, since no other method may take its place. */
static bool is_served(struct climb *c, const struct choice *choice, uint64_t top_bytes,
                      const char **why_not)
{
    struct ul_remat remat = remat_make(c, &c->scratch, choice, top_bytes);
    ul_remat_run(&remat, &(struct ul_remat_orders){
                             .orders = (const uint32_t *const *)choice->orders, .count = 1});
    programs_charge(c, &remat);
    *why_not = remat.why_not;
    if (remat.cost == UINT64_MAX)
        return false;
    c->once = once_name(c);
    return true;
}

/* Offers the base plan with fewer and fewer optional values. */
static enum ul_status base_offer(struct climb *c, const struct choice *choice, uint64_t top_bytes)
{
    const char *why_not;
    bool is_named = c->options.remat != UL_REMAT_BEST && c->options.remat != UL_REMAT_NONE;
    if (c->levels.count < 2 || (is_named && !is_served(c, choice, top_bytes, &why_not)))
        return UL_OK;
    return sequence_offer(c, c->base_steps, c->problem->step_count, choice, NULL);
}

/* For the packing of a rung, where the caller gave no limit. */
enum { PACK_WORK = 1 << 24 };

static enum ul_status climb_run(struct climb *c, uint64_t budget_bytes)
{
    enum { STEP_WORK = 1 << 12, SMALL = 400, RUNGS = 2 /* as many as most programs get */ };
    struct rungs r = {.count = 0};
    climb_prepare(c, &r);
    if (c->options.below_bytes != 0)
        rungs_begin_below(c, &r, c->options.below_bytes);
    c->box = (struct box){.end_bytes = UINT64_MAX, .end_cost = UINT64_MAX};
    c->effort.work_limit = c->options.work_limit;
    uint32_t count = c->problem->step_count;
    if (c->effort.work_limit == 0)
        c->effort.work_limit = (uint64_t)UL_WORK_RUNG * SMALL / (count < SMALL ? SMALL : count) +
                               STEP_WORK * (uint64_t)count;
    if (c->options.work_limit == 0)
        c->options.work_limit = PACK_WORK;
    limits_set(c, &ul_remat_limits_rung);
    c->programs_work = RUNGS * c->limits.named_programs.work;
    UL_TRY(base_offer(c, &r.alone, r.top_bytes));
    const struct rungs top = r;
    UL_TRY(rungs_climb(c, &r));
    UL_TRY(cuts_climb(c, &top));
    UL_TRY(transfers_climb(c, &top, budget_bytes));
    return budget_bytes == 0 ? UL_OK : rungs_between(c, &r, budget_bytes);
}

/* Where options say which values are kept, values move only out of that plan. */
static enum ul_status kept_climb(struct climb *c)
{
    const struct source kept = {.positions = c->base->positions,
                                .position_count = c->base->position_count,
                                .remat_method = c->base->remat_method};
    uint64_t top_bytes = c->base->order_lower_bound_bytes;
    uint64_t floor_bytes = ul_account_bound(&c->scratch, c->problem, c->options.alignment_bytes);
    uint32_t count = rung_count(c->problem);
    c->box = (struct box){.end_bytes = UINT64_MAX, .end_cost = UINT64_MAX};
    if (c->options.work_limit == 0)
        c->options.work_limit = PACK_WORK;
    for (uint32_t i = 1; i <= count && floor_bytes < top_bytes && !is_late(c); i++) {
        double part = (double)i / count * (double)(top_bytes - floor_bytes);
        UL_TRY(source_move(c, &kept, top_bytes - (uint64_t)part));
    }
    return UL_OK;
}

/* The plan with the runs one after the other, where the first plan runs steps at the same time. */
static enum ul_status base_make(struct climb *c, const struct ul_plan *first, struct ul_plan *base)
{
    *base = *first;
    if (ul_plan_only_runs(first))
        return UL_OK;
    ul_transfer_only_runs(c->arena, base);
    return ul_plan_complete(c->arena, c->problem, &c->options, base, c->diag);
}

const char *ul_ladder_refusal(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options, struct ul_plan *plan)
{
    struct ul_plan base;
    struct ul_diag diag = {.status = UL_OK};
    struct climb c = {
        .arena = arena, .problem = problem, .options = *options, .base = &base, .diag = &diag};
    c.effort.seed = options->seed;
    struct rungs r = {.count = 0};
    if (options->remat == UL_REMAT_BEST || options->remat == UL_REMAT_NONE ||
        problem->step_count == 0)
        return NULL;
    ul_plan_options_resolve(&c.options);
    enum ul_status status = base_make(&c, plan, &base);
    UL_ASSERT(status == UL_OK);
    ul_arena_init(&c.scratch);
    climb_prepare(&c, &r);
    limits_set(&c, &ul_remat_limits_rung);
    c.effort.work_limit = 1 << 24;
    c.programs_work = c.limits.named_programs.work;
    const char *why_not;
    bool serves = is_served(&c, &r.alone, r.top_bytes, &why_not);
    if (serves)
        plan->remat_method = c.once;
    ul_arena_done(&c.scratch);
    return serves ? NULL : why_not;
}

/* Marks the nodes of a choice whose values are to be kept. */
static const bool *keep_mark(struct climb *c, const struct choice *choice)
{
    const struct ul_problem_graph *graph = &choice->graph;
    bool *is_kept = UL_NEW_ARRAY(&c->scratch, bool, graph->graph.node_count);
    for (uint32_t v = 0; v < graph->graph.node_count; v++)
        for (uint32_t i = graph->step_first[v]; i < graph->step_first[v + 1]; i++)
            is_kept[v] = is_kept[v] || c->options.kept->is_kept[graph->steps[i]];
    for (uint32_t v = 0; v < graph->graph.node_count; v++)
        if (graph->run_of[v] != UL_PLAN_NONE)
            is_kept[v] = is_kept[graph->run_of[v]];
    return is_kept;
}

/* The plan that the method `keep` makes from the base order. */
static enum ul_status keep_plan(struct climb *c, struct choice *choice, struct ul_plan *plan)
{
    uint32_t count;
    choice->is_kept = keep_mark(c, choice);
    struct ul_remat remat = remat_make(c, &c->scratch, choice, UINT64_MAX);
    ul_remat_run(&remat, &(struct ul_remat_orders){
                             .orders = (const uint32_t *const *)choice->orders, .count = 1});
    UL_ASSERT(remat.cost != UINT64_MAX);
    uint32_t *steps =
        ul_problem_graph_steps(&c->scratch, &choice->graph, remat.sequence, remat.count, &count);
    *plan = (struct ul_plan){.alignment_bytes = c->options.alignment_bytes};
    ul_timeline_sequence(c->arena, c->problem, steps, count, choice->alternatives, plan);
    methods_note(c, &remat, count > c->problem->step_count, plan);
    UL_TRY(ul_plan_complete(c->arena, c->problem, &c->options, plan, c->diag));
    ul_plan_judge(c->problem, 0, NULL, plan);
    return ul_plan_check(c->arena, c->problem, plan, c->diag);
}

enum ul_status ul_ladder_keep(struct ul_arena *arena, const struct ul_problem *problem,
                              const struct ul_plan_options *options, struct ul_plan *plan,
                              struct ul_diag *diag)
{
    const struct ul_plan base = *plan;
    struct climb c = {
        .arena = arena, .problem = problem, .options = *options, .base = &base, .diag = diag};
    struct rungs r = {.count = 0};
    UL_ASSERT(options->kept != NULL && options->pack != UL_PACK_NONE);
    c.is_forward = options->kept->is_forward;
    ul_plan_options_resolve(&c.options);
    ul_arena_init(&c.scratch);
    climb_prepare(&c, &r);
    limits_set(&c, &ul_remat_limits_rung);
    enum ul_status status = keep_plan(&c, &r.alone, plan);
    if (status == UL_MISMATCH && r.alone.rewritten) { /* values are as the program has them */
        *diag = (struct ul_diag){.status = UL_OK};
        c.keeps_values = true;
        choice_make(&c, r.alone.alternatives, &r.alone.inside, &r.alone);
        status = keep_plan(&c, &r.alone, plan);
    }
    ul_arena_done(&c.scratch);
    return status;
}

enum ul_status ul_ladder_spread(struct ul_arena *arena, const struct ul_problem *problem,
                                const struct ul_plan_options *options, const struct ul_plan *base,
                                const struct ul_plan_ladder *known, struct ul_plan_ladder *ladder,
                                struct ul_diag *diag)
{
    struct climb c = {
        .arena = arena, .problem = problem, .known = known, .ladder = ladder, .diag = diag};
    struct ul_plan_rung first = {.plan = *base, .overhead = options->overhead};
    struct choice choice = {.rewritten = false};
    enum ul_status status = UL_OK;
    c.options = *options;
    c.base = base;
    c.box = (struct box){.end_bytes = UINT64_MAX, .end_cost = UINT64_MAX};
    ul_plan_options_resolve(&c.options);
    c.effort.deadline_seconds = ul_deadline_after(c.options.time_limit_seconds);
    if (c.options.work_limit == 0)
        c.options.work_limit = PACK_WORK;
    *ladder = (struct ul_plan_ladder){.count = 0};
    ul_arena_init(&c.scratch);
    status = ul_plan_check(&c.scratch, problem, base, diag);
    if (status != UL_OK) {
        ul_arena_done(&c.scratch);
        return status;
    }
    c.once = base->remat_method;
    rung_add(arena, ladder, &first);
    ul_ladder_levels_make(&c.scratch, problem, c.options.alignment_bytes, &c.levels);
    if (c.levels.count > 1 && c.options.pack != UL_PACK_NONE) {
        c.needs = ul_account_needs(&c.scratch, problem, c.options.alignment_bytes);
        base_order(&c);
        choice.alternatives = UL_NEW_ARRAY(&c.scratch, uint32_t, problem->step_count);
        for (uint32_t p = 0; p < base->position_count; p++)
            choice.alternatives[base->positions[p].step] = base->positions[p].alternative;
        status = sequence_offer(&c, c.base_steps, problem->step_count, &choice, NULL);
    }
    ul_arena_done(&c.scratch);
    return status;
}

enum ul_status ul_ladder_build(struct ul_arena *arena, const struct ul_problem *problem,
                               const struct ul_plan_options *options, const struct ul_plan *base,
                               struct ul_plan_ladder *ladder, struct ul_diag *diag)
{
    struct climb c = {.arena = arena, .problem = problem, .ladder = ladder, .diag = diag};
    struct ul_plan_rung first = {.alternative = 0, .overhead = options->overhead};
    c.options = *options;
    c.effort.seed = options->seed;
    c.options.budget_bytes = 0;
    ul_plan_options_resolve(&c.options);
    c.work_limit = options->work_limit;
    *ladder = (struct ul_plan_ladder){.count = 0};
    if (c.options.remat != UL_REMAT_BEST && c.options.remat != UL_REMAT_NONE)
        ladder->remat_name = ul_method_get(UL_METHOD_REMAT, c.options.remat)->name;
    if (base != NULL)
        first.plan = *base;
    else
        UL_TRY(ul_plan_without_budget(arena, problem, &c.options, &first.plan, diag));
    rung_add(arena, ladder, &first);
    bool keeps = c.options.remat == UL_REMAT_KEEP && c.options.kept != NULL;
    bool is_fixed = keeps && ul_problem_other_space(problem) == UL_PLAN_NONE;
    if (c.options.pack == UL_PACK_NONE || is_fixed || problem->step_count == 0)
        return UL_OK;
    c.effort.deadline_seconds = ul_deadline_after(c.options.time_limit_seconds);
    struct ul_plan base_plan;
    UL_TRY(base_make(&c, &first.plan, &base_plan));
    c.base = &base_plan;
    c.is_asynchronous = ul_problem_is_asynchronous(problem);
    ul_arena_init(&c.scratch);
    enum ul_status status = keeps ? kept_climb(&c) : climb_run(&c, options->budget_bytes);
    ul_arena_done(&c.scratch);
    if (ladder->remat_name != NULL && ladder->why_not == NULL && !keeps)
        ladder->why_not = ul_ladder_refusal(arena, problem, &c.options, &first.plan);
    if (ladder->remat_name != NULL && ladder->why_not == NULL && !keeps)
        ladder->why_not = "it finds nothing within the limit";
    for (uint32_t i = 0; i < ladder->count && c.effort.stopped_by_time; i++)
        ladder->rungs[i].plan.stopped_by_time = true;
    return status;
}
