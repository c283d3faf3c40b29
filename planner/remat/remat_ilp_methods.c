/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation by integer programs: chooses the orders of first runs, the size and the time of
 * programs.
 *
 * Every program must find less than the best known cost, so the result is never worse: first the
 * complete form with the order of first runs of the best sequence, then with the given orders.
 * Where the complete form is too large, or is not settled, programs are made for the repeats of the
 * best sequence and ever wider surroundings. */
#include "planner/order/ilp.h"
#include "planner/remat/remat.h"
#include "planner/remat/remat_stages.h"

#include <math.h>
#include <string.h>

struct programs {
    struct ul_remat *remat;
    const struct ul_remat_programs *limits;
    uint64_t work;
    uint32_t *own; /* the best sequence's order of first runs */
};

static void first_runs(const struct ul_remat *remat, uint32_t *order)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    bool *made = UL_NEW_ARRAY(&scratch, bool, remat->graph->node_count);
    uint32_t count = 0;
    for (uint32_t p = 0; p < remat->count; p++) {
        if (!made[remat->sequence[p]])
            order[count++] = remat->sequence[p];
        made[remat->sequence[p]] = true;
    }
    ul_arena_done(&scratch);
}

/* Solves one program; whether it found something cheaper. */
static bool program_run(struct programs *p, const uint32_t *order, uint32_t hint_radius,
                        bool *proven)
{
    struct ul_remat *remat = p->remat;
    struct ul_remat_hint hint = {remat->sequence, remat->count};
    double seconds = ul_deadline_left(remat->effort.deadline_seconds);
    *proven = false;
    if (seconds < 0 || p->work >= p->limits->work)
        return false;
    struct ul_ilp_limits limits = {.work = p->limits->work - p->work,
                                   .memory_bytes = p->limits->memory_bytes,
                                   .cpu_seconds = p->limits->cpu_seconds,
                                   .wall_seconds = seconds};
    struct ul_remat_ilp task = {.graph = remat->graph,
                                .order = order,
                                .budget_bytes = remat->budget_bytes,
                                .cutoff_cost = remat->cost,
                                .node_limit = p->limits->nodes,
                                .column_limit = p->limits->columns,
                                .hints = &hint,
                                .hint_count = hint_radius > 0 && remat->cost != UINT64_MAX,
                                .hint_radius = hint_radius,
                                .limits = &limits};
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    bool tried = ul_remat_ilp(&scratch, &task);
    remat->effort.stopped_by_time |= task.stopped_by_time;
    p->work = task.stopped_by_time ? p->limits->work : p->work + task.work;
    *proven = tried && task.proven;
    bool better = tried && task.sequence != NULL && task.count <= remat->capacity;
    if (better) {
        memcpy(remat->sequence, task.sequence, task.count * sizeof *task.sequence);
        remat->count = task.count;
        remat->cost = task.cost;
        remat->found_how = "integer program";
        remat->proven_within = NULL;
    }
    ul_arena_done(&scratch);
    return better;
}

/* Solves the complete form, until nothing is cheaper or there is no answer. */
static bool whole_run(struct programs *p, const uint32_t *order)
{
    bool proven = false;
    while (program_run(p, order, 0, &proven) && !proven)
        continue;
    return proven;
}

static void own_improve(struct programs *p)
{
    enum { RADIUS_MAX = 16, TURNS = 4 };
    struct ul_remat *remat = p->remat;
    bool proven;
    first_runs(remat, p->own);
    if (whole_run(p, p->own)) {
        remat->proven_within = ul_method_get(UL_METHOD_REMAT, UL_REMAT_ILP)->proves;
        return;
    }
    for (uint32_t radius = 1; radius <= RADIUS_MAX; radius *= 4) {
        for (uint32_t turn = 0; turn < TURNS && program_run(p, p->own, radius, &proven); turn++)
            first_runs(remat, p->own);
    }
}

/* Improves on the sequence in `remat`, whose deadline limits all programs. */
static void programs_run(struct ul_remat *remat, const struct ul_remat_programs *limits,
                         const struct ul_remat_orders *orders)
{
    UL_ASSERT(orders->count > 0);
    struct ul_arena scratch;
    if (limits->work < UL_ILP_BRANCH_WORK)
        return; /* a process for nothing */
    ul_arena_init(&scratch);
    struct programs p = {.remat = remat, .limits = limits};
    p.own = UL_NEW_ARRAY(&scratch, uint32_t, remat->graph->node_count);
    for (uint32_t i = 0; i < orders->count && remat->cost == UINT64_MAX; i++)
        whole_run(&p, orders->orders[i]);
    if (remat->cost != UINT64_MAX)
        own_improve(&p);
    for (uint32_t i = 0; i < orders->count; i++) {
        uint64_t cost = remat->cost;
        if (memcmp(orders->orders[i], p.own, remat->graph->node_count * sizeof *p.own) != 0)
            whole_run(&p, orders->orders[i]);
        if (remat->cost < cost)
            own_improve(&p);
    }
    remat->programs_work += p.work;
    ul_arena_done(&scratch);
}

/* Programs that are named start from what the searches find, and have to improve on it or prove
 * it. */
static void alone_run(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    uint64_t before = remat->cost;
    ul_remat_search(remat, orders);
    uint64_t start = remat->cost;
    programs_run(remat, &remat->limits->named_programs, orders);
    if (remat->cost == UINT64_MAX) {
        remat->why_not = "neither searches nor programs find anything within the limit";
    } else if (remat->cost == start && remat->proven_within == NULL && start < before) {
        remat->cost = UINT64_MAX; /* a search's result, not the programs' */
        remat->why_not = "its programs are too large, or not solved within their work";
    } else if (remat->cost == start) {
        remat->found_how = "integer program that proves a search's sequence";
    }
}

bool ul_remat_run_ilp(struct ul_remat *remat, const struct ul_remat_orders *orders,
                      enum ul_method_turn turn)
{
    UL_ASSERT(orders->count > 0 && remat->limits != NULL);
    if (turn == UL_TURN_NONE)
        alone_run(remat, orders);
    else
        programs_run(remat, &remat->limits->programs, orders);
    return false;
}
