/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the method of recomputation that is named, or all in turn.
 *
 * Problem: exact methods settle small problems and take too long for large ones, and no search is
 * always the best. Method: the rows run in their turns; each method starts from the best so far,
 * and a proof ends it. A method that is named runs alone: where it does not apply or finds nothing,
 * why_not says so, and nothing replaces it. */
#include "planner/model/method.h"
#include "planner/remat/remat.h"

#include <string.h>

/* ---- How much each may do ---- */

#define POWER(exponent) ((uint64_t)1 << (exponent))
/* Work of the searches from the start, from the start again, and from the end; and numbers of
 * states. */
#define EXACT(work, more_work, states, backward, states_backward)                                  \
    .exact_work = POWER(work), .exact_more_work = POWER(more_work), .exact_states = POWER(states), \
    .backward_work = POWER(backward), .backward_states = POWER(states_backward)
#define PROGRAMS(most_work, most_nodes, most_columns, gib, seconds)                                \
    {                                                                                              \
        .work = (most_work), .nodes = (most_nodes), .columns = (most_columns),                     \
        .memory_bytes = (uint64_t)(gib) << 30, .cpu_seconds = (seconds)                            \
    }
#define NAMED_ON_A_RUNG PROGRAMS(8000, 2000, 20000, 2, 60)

const struct ul_remat_limits ul_remat_limits_alone = {.search_work = UL_WORK_GRAPH_REMAT,
                                                      EXACT(25, 28, 22, 28, 18),
                                                      .programs = PROGRAMS(8000, 2000, 8000, 1, 30),
                                                      .named_programs =
                                                          PROGRAMS(400000, 2000, 40000, 4, 300)};

const struct ul_remat_limits ul_remat_limits_rung = {EXACT(18, 24, 16, 18, 16),
                                                     .programs = PROGRAMS(1000, 100, 1000, 1, 30),
                                                     .named_programs = NAMED_ON_A_RUNG};

const struct ul_remat_limits ul_remat_limits_between = {
    EXACT(21, 25, 18, 21, 17), .programs = PROGRAMS(4000, 150, 4000, 1, 30),
    .named_programs = NAMED_ON_A_RUNG};

static void cap(uint64_t *limit, uint64_t work)
{
    *limit = work < *limit ? work : *limit;
}

void ul_remat_limits_cap(struct ul_remat_limits *limits, uint64_t work)
{
    enum { ITERATION = 256 };
    cap(&limits->exact_work, work);
    cap(&limits->exact_more_work, work);
    cap(&limits->backward_work, work);
    cap(&limits->programs.work, work / ITERATION + 1);
    cap(&limits->named_programs.work, work / ITERATION + 1);
}

/* ---- The turns ---- */

#define WORD(constant, name, ...) {UL_TURN_NONE, NULL},
#define ROW(constant, name, run, turns, ...) {turns, run},
static const struct {
    unsigned turns;
    ul_remat_method *run;
} rows[] = {UL_REMAT_METHODS(WORD, ROW)};
#undef ROW
#undef WORD

const char *ul_remat_found_by(struct ul_arena *arena, const struct ul_remat *remat)
{
    UL_ASSERT(remat->cost != UINT64_MAX && remat->found_how != NULL);
    return ul_arena_printf(arena, "%s: %s", ul_method_get(UL_METHOD_REMAT, remat->found_by)->name,
                           remat->found_how);
}

/* Runs one method; its name is noted for what it finds. */
static bool row_run(struct ul_remat *remat, uint32_t row, const struct ul_remat_orders *orders,
                    enum ul_method_turn turn)
{
    uint64_t before = remat->cost;
    bool settled = rows[row].run(remat, orders, turn);
    if (remat->cost < before)
        remat->found_by = (enum ul_plan_remat)row;
    return settled;
}

bool ul_remat_run_turn(struct ul_remat *remat, const struct ul_remat_orders *orders,
                       enum ul_method_turn turn)
{
    UL_ASSERT(turn != UL_TURN_NONE && orders->count > 0);
    for (uint32_t m = 0; m < UL_REMAT_COUNT; m++) {
        if ((rows[m].turns & turn) != 0 && row_run(remat, m, orders, turn))
            return true;
    }
    return false;
}

static void turns_run(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    for (unsigned turn = UL_TURN_FIRST; turn <= UL_TURN_LAST; turn *= 2) {
        if (ul_remat_run_turn(remat, orders, turn))
            return;
    }
}

void ul_remat_run(struct ul_remat *remat, const struct ul_remat_orders *orders)
{
    UL_ASSERT(remat->method < UL_REMAT_COUNT && orders->count > 0 && remat->limits != NULL);
    remat->why_not = NULL;
    if (remat->method == UL_REMAT_BEST)
        turns_run(remat, orders);
    else if (rows[remat->method].run != NULL)
        row_run(remat, remat->method, orders, UL_TURN_NONE);
    else
        remat->why_not = "the order needs more without recomputation";
    UL_ASSERT(remat->cost == UINT64_MAX || remat->count >= remat->graph->node_count);
}

/* Continues from the result in `from`. */
static void remat_continue(struct ul_remat *remat, const struct ul_remat *from)
{
    UL_ASSERT(from->cost != UINT64_MAX && from->count <= remat->capacity);
    memcpy(remat->sequence, from->sequence, from->count * sizeof *from->sequence);
    remat->count = from->count;
    remat->cost = from->cost;
    remat->found_by = from->found_by;
    remat->found_how = from->found_how;
    remat->proven_within = NULL;
}

/* For a program that trains: searches that continue from what is known of forward and backward
 * passes, in addition to those that start from nothing. */
static void rung_train(struct ul_remat *searched, struct ul_remat *cheaper,
                       const struct ul_remat_orders *orders)
{
    uint64_t work = cheaper->effort.work;
    ul_remat_run_turn(cheaper, orders, UL_TURN_START);
    cheaper->effort.work = work; /* the searches' work does not count here */
    if (cheaper->cost != ul_solve_base_cost(cheaper->graph))
        ul_remat_run_turn(cheaper, orders, UL_TURN_SEARCH);
    if (searched->cost < cheaper->cost)
        remat_continue(cheaper, searched);
}

/* Runs the turns of searches apart from the others, which continue from them. */
void ul_remat_run_rung(struct ul_remat *searched, struct ul_remat *cheaper,
                       const struct ul_remat_orders *orders)
{
    UL_ASSERT(searched->cost == UINT64_MAX && cheaper->cost == UINT64_MAX);
    bool settled = ul_remat_run_turn(cheaper, orders, UL_TURN_FIRST);
    bool trains = searched->is_forward != NULL;
    searched->misfit_proven = cheaper->misfit_proven;
    if (cheaper->misfit_proven)
        return;
    ul_remat_run_turn(searched, orders, UL_TURN_SEARCH);
    if (trains && !settled)
        rung_train(searched, cheaper, orders);
    else if (searched->cost < cheaper->cost)
        remat_continue(cheaper, searched);
    if (!settled && cheaper->cost != ul_solve_base_cost(cheaper->graph)) {
        if (!trains)
            ul_remat_run_turn(cheaper, orders, UL_TURN_START);
        ul_remat_run_turn(cheaper, orders, UL_TURN_AFTER);
    }
    if (cheaper->cost == searched->cost) {
        searched->proven_within = cheaper->proven_within;
        cheaper->cost = UINT64_MAX;
    }
}
