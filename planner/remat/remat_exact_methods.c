/* SPDX-License-Identifier: Apache-2.0 */
/* The exact searches for recomputation, as methods: they look below the best known cost, first from
 * the end, which takes little work where the memory is tight late, then from the start. */
#include "planner/remat/remat.h"

#include <string.h>

enum { CLOCK_LOOKS = 1024 }; /* the engines ask often */

/* Keeps what an engine found; its sequence is dropped where it is longer than there is room for. */
static void sequence_keep(struct ul_remat *remat, const struct ul_remat_exact *job,
                          const char *method)
{
    uint64_t peak, cost;
    bool valid = ul_solve_replay(remat->graph, job->sequence, job->count, &peak, &cost);
    UL_ASSERT(valid && peak <= job->budget_bytes && cost < remat->cost);
    if (job->count > remat->capacity)
        return;
    memcpy(remat->sequence, job->sequence, job->count * sizeof *job->sequence);
    remat->count = job->count;
    remat->cost = cost;
    remat->found_how = method;
    remat->proven_within = NULL;
    if (peak < remat->smallest_peak_bytes)
        remat->smallest_peak_bytes = peak;
}

/* Runs one engine; true if that settles it. */
static bool engine_run(struct ul_remat *remat, void (*engine)(struct ul_remat_exact *job),
                       const char *method, struct ul_remat_exact job)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    bool fits = remat->cost != UINT64_MAX;
    uint64_t base = ul_solve_base_cost(remat->graph);
    job.graph = remat->graph;
    job.arena = &scratch;
    job.budget_bytes = remat->budget_bytes;
    job.repeat_limit = fits ? remat->cost - base : UINT64_MAX;
    job.effort.deadline_seconds = remat->effort.deadline_seconds;
    job.effort.look_every = CLOCK_LOOKS;
    engine(&job);
    if (job.effort.stopped_by_time)
        remat->effort.stopped_by_time = true;
    if (job.sequence != NULL)
        sequence_keep(remat, &job, method);
    remat->misfit_proven = job.outcome == UL_REMAT_NONE_CHEAPER && !fits;
    if (job.repeat_bound > remat->repeat_bound && !remat->misfit_proven)
        remat->repeat_bound = job.repeat_bound;
    ul_arena_done(&scratch);
    if (remat->cost != UINT64_MAX && job.outcome != UL_REMAT_UNKNOWN &&
        job.outcome != UL_REMAT_IMPROVED)
        remat->proven_within = ul_method_get(UL_METHOD_REMAT, UL_REMAT_EXACT)->proves;
    return job.outcome == UL_REMAT_NONE_CHEAPER || job.outcome == UL_REMAT_OPTIMAL;
}

/* Runs both, the one from the start with that much work; true if that settles it. */
static bool engines_run(struct ul_remat *remat, uint64_t work_limit)
{
    const struct ul_remat_limits *limits = remat->limits;
    struct ul_remat_exact backward = {.state_limit = limits->backward_states,
                                      .effort = {.work_limit = limits->backward_work}};
    struct ul_remat_exact forward = {.state_limit = limits->exact_states,
                                     .effort = {.work_limit = work_limit}};
    UL_ASSERT(limits->exact_states > 0);
    return engine_run(remat, ul_remat_backward_run, "search over computed and resident, backwards",
                      backward) ||
           engine_run(remat, ul_remat_exact_run, "search over computed and resident", forward);
}

/* It does not run by itself where an order was named: it chooses its own. */
bool ul_remat_run_exact(struct ul_remat *remat, const struct ul_remat_orders *orders,
                        enum ul_method_turn turn)
{
    const struct ul_remat_limits *limits = remat->limits;
    (void)orders;
    if (turn != UL_TURN_NONE && remat->keeps_order)
        return false;
    bool is_first = turn == UL_TURN_FIRST;
    bool settled = engines_run(remat, is_first ? limits->exact_work : limits->exact_more_work);
    if (turn == UL_TURN_NONE && remat->cost == UINT64_MAX)
        remat->why_not = settled ? "no order and no recomputation is small enough"
                                 : "it finds nothing within its work, or the graph is too large";
    return settled;
}
