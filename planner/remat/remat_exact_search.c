/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the exact searches from the start and from the end: states are opened by their least
 * bound, until the cheapest schedule is found, or none is below the limit. */
#include "planner/remat/remat_exact.h"

void exact_draft_init(const struct exact_search *search, struct exact_draft *draft)
{
    UL_ASSERT(search->problem->words > 0);
    draft->done = UL_NEW_ARRAY(search->arena, uint64_t, search->problem->words);
    draft->resident = UL_NEW_ARRAY(search->arena, uint64_t, search->problem->words);
    draft->runs = UL_NEW_ARRAY(search->arena, uint16_t, search->problem->count + 1);
    draft->parent = UL_PLAN_NONE;
}

bool exact_search_is_over(struct exact_search *search)
{
    return search->store.state_count >= search->job->state_limit ||
           ul_effort_spent(&search->job->effort);
}

void exact_search_keep(struct exact_search *search, const struct exact_draft *draft)
{
    UL_ASSERT(draft->done_count <= search->problem->count && draft->cost <= draft->bound);
    uint32_t at = exact_store_add(&search->store, draft->done, draft->done_count, draft->resident,
                                  draft->cost);
    if (at == UL_PLAN_NONE)
        return;
    struct exact_state *state = &search->store.states[at];
    state->bound = draft->bound;
    state->parent = draft->parent;
    state->runs = search->run_count;
    state->run_count = (uint16_t)draft->run_count;
    for (uint32_t i = 0; i < draft->run_count; i++) {
        UL_GROW(search->arena, search->runs, search->run_count, search->run_capacity);
        search->runs[search->run_count++] = draft->runs[i];
    }
    if (draft->done_count < search->problem->count) {
        exact_store_push(&search->store, at);
    } else if (draft->cost < search->limit) {
        search->limit = draft->cost;
        search->best = at;
    }
}

/* Writes the runs that lead to the best state, as nodes of the graph; from the end they come last
 * first. */
static void sequence_write(struct exact_search *search, bool is_backwards)
{
    struct ul_remat_exact *job = search->job;
    uint32_t count = 0, written = 0;
    for (uint32_t at = search->best; at != UL_PLAN_NONE; at = search->store.states[at].parent)
        count += search->store.states[at].run_count;
    job->sequence = UL_NEW_ARRAY(job->arena, uint32_t, count);
    job->count = count;
    for (uint32_t at = search->best; at != UL_PLAN_NONE; at = search->store.states[at].parent) {
        const struct exact_state *state = &search->store.states[at];
        for (uint32_t i = state->run_count; i-- > 0; written++)
            job->sequence[is_backwards ? written : count - 1 - written] =
                search->problem->node[search->runs[state->runs + i]];
    }
    UL_ASSERT(written == count);
}

static void result_write(struct exact_search *search, uint64_t open_bound,
                         const struct exact_engine *engine)
{
    struct ul_remat_exact *job = search->job;
    bool finished = !exact_search_is_over(search);
    uint64_t bound = finished ? search->limit : open_bound;
    if (bound > job->repeat_bound) {
        job->repeat_bound = bound;
        job->bound_method = engine->name;
    }
    job->outcome = finished ? UL_REMAT_NONE_CHEAPER : UL_REMAT_UNKNOWN;
    if (search->best != UL_PLAN_NONE) {
        sequence_write(search, engine->is_backwards);
        job->repeat_cost = search->limit;
        job->outcome = finished ? UL_REMAT_OPTIMAL : UL_REMAT_IMPROVED;
    }
}

void exact_search_run(struct ul_remat_exact *job, const struct exact_problem *problem,
                      uint64_t limit, const struct exact_engine *engine)
{
    struct ul_arena scratch;
    UL_ASSERT(job->state_limit > 0 && problem->count > 0);
    ul_arena_init(&scratch);
    struct exact_search search = {
        .job = job, .problem = problem, .arena = &scratch, .limit = limit, .best = UL_PLAN_NONE};
    exact_store_init(&search.store, &scratch, problem->words, job->state_limit);
    void *state = engine->begin(&search);
    uint64_t open_bound = 0;
    while (!exact_search_is_over(&search)) {
        uint32_t at = exact_store_pop(&search.store);
        if (at == UL_PLAN_NONE || search.store.states[at].bound >= search.limit)
            break;
        open_bound = search.store.states[at].bound;
        engine->expand(state, at);
        job->effort.work += search.store.looked / 64;
        search.store.looked = 0;
    }
    result_write(&search, open_bound, engine);
    ul_arena_done(&scratch);
}
