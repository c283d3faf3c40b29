/* SPDX-License-Identifier: Apache-2.0 */
/* A program whose every value that waits for a later reader is offloaded meanwhile, however little
 * that is worth: by a plan that is made here from the one without a budget, and checked.
 *
 *     run            a         b         c    ...   d         e         f
 *     value x        written                                            read
 *     stream 1            save x .....                    load x .....
 *                                   wait                           wait
 *
 * What is kept from run to run is in the other space between runs: loaded before its first reader,
 * saved after its last one.
 *
 * usage: compile_offload MODEL.onnx PROGRAM PLAN.json [beside] [OPTION=VALUE | OPTION ...]
 * prints how many transfers there are, and the bytes of both spaces. With `beside` every other step
 * is one of a second stream, which the planner begins as early, and waits for as late, as it can.
 */
#include "codegen/program/program.h"
#include "compile/compile_internal.h"
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"
#include "planner/transfer/transfer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { APART = 2 }; /* runs beside which a transfer is under way, at least */

static void require(enum ul_status status, const struct ul_compile *compile)
{
    if (status == UL_OK)
        return;
    fprintf(stderr, "compile_offload: %s\n", compile->diag.text);
    exit(1);
}

/* A transfer begins after run `begin` and is waited for before run `end`. */
struct move {
    bool loads;
    uint32_t value, begin, end;
    uint32_t position; /* in the new plan */
    bool is_first;     /* before all runs, whatever `begin` is */
};

struct moves {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    const struct ul_plan *plan;
    struct move *items;
    uint32_t count, capacity;
};

static void add_move(struct moves *moves, struct move move)
{
    UL_GROW(moves->arena, moves->items, moves->count, moves->capacity);
    moves->items[moves->count++] = move;
}

static bool touches(const struct moves *moves, uint32_t p, uint32_t value)
{
    const struct ul_plan_position *at = &moves->plan->positions[p];
    const struct ul_plan_substep *substep =
        &moves->problem->steps[at->step].alternatives[at->alternative].substeps[at->substep];
    return ul_ids_have(substep->reads, substep->read_count, value) ||
           ul_ids_have(substep->writes, substep->write_count, value);
}

/* Out between two touches that are far enough apart. */
static void add_gap(struct moves *moves, uint32_t value, uint32_t before, uint32_t behind)
{
    if (behind - before < 2 * APART)
        return;
    add_move(moves, (struct move){false, value, before, before + APART, 0, false});
    add_move(moves, (struct move){true, value, behind - APART, behind, 0, false});
}

static void add_value(struct moves *moves, uint32_t value)
{
    const struct ul_plan_value *info = &moves->problem->values[value];
    uint32_t count = moves->plan->position_count, first = UL_PLAN_NONE, last = 0;
    if (info->space != 0 || info->stays || info->optional || info->pinned || info->size_bytes == 0)
        return;
    for (uint32_t p = 0; p < count; p++) {
        if (!touches(moves, p, value))
            continue;
        if (first == UL_PLAN_NONE)
            first = p;
        else if (!info->persistent)
            add_gap(moves, value, last, p);
        last = p;
    }
    if (!info->persistent || first == UL_PLAN_NONE)
        return;
    add_move(moves, (struct move){true, value, first < APART ? 0 : first - APART, first, 0,
                                  first < APART});
    add_move(moves, (struct move){false, value, last, last + APART < count ? last + APART : count,
                                  0, false});
}

static uint32_t stream_of(const struct moves *moves, const struct move *move)
{
    return ul_problem_engine(moves->problem, UL_PROGRAM_OFFLOAD, move->loads)->stream;
}

/* The positions with the transfers between them. */
static void weave(struct moves *moves, struct ul_plan *woven)
{
    const struct ul_plan *plan = moves->plan;
    uint32_t count = 0, runs = plan->position_count;
    woven->positions =
        UL_NEW_ARRAY(moves->arena, struct ul_plan_position, (uint64_t)runs + 2 * moves->count);
    for (uint32_t p = 0; p <= runs; p++) {
        for (uint32_t i = 0; p == 0 && i < moves->count; i++) {
            struct move *move = &moves->items[i];
            if (!move->is_first)
                continue;
            move->position = count;
            woven->positions[count++] = (struct ul_plan_position){.kind = UL_PLAN_COPY,
                                                                  .loads = move->loads,
                                                                  .stream = stream_of(moves, move),
                                                                  .value = move->value,
                                                                  .space = UL_PROGRAM_OFFLOAD};
        }
        for (uint32_t i = 0; i < moves->count; i++) {
            if (moves->items[i].end == p)
                woven->positions[count++] = (struct ul_plan_position){
                    .kind = UL_PLAN_WAIT, .awaited = moves->items[i].position};
        }
        if (p == runs)
            break;
        woven->positions[count++] = plan->positions[p];
        for (uint32_t i = 0; i < moves->count; i++) {
            struct move *move = &moves->items[i];
            if (move->begin != p || move->is_first)
                continue;
            move->position = count;
            woven->positions[count++] = (struct ul_plan_position){.kind = UL_PLAN_COPY,
                                                                  .loads = move->loads,
                                                                  .stream = stream_of(moves, move),
                                                                  .value = move->value,
                                                                  .space = UL_PROGRAM_OFFLOAD};
        }
    }
    woven->position_count = count;
}

/* Values move on other streams than the second one. Returns how many steps it has then. */
static uint32_t run_beside(struct ul_compile *compile, struct ul_plan *woven)
{
    struct ul_problem *problem = compile->program->problem;
    struct ul_effort effort = {.work_limit = UINT64_MAX};
    uint32_t second = 0, stream = 1, count = 0;
    for (uint32_t r = 1; r < problem->resource_count; r++) {
        const struct ul_plan_resource *row = &problem->resources[r];
        if (row->kind == UL_PLAN_COMPUTE)
            second = r;
        else if (row->stream >= stream)
            stream = row->stream + 1;
    }
    if (second == 0)
        second = ul_problem_add_resource(
            problem, &(struct ul_plan_resource){.kind = UL_PLAN_COMPUTE, .stream = stream});
    problem->resources[second].stream = stream;
    for (uint32_t s = 0; s < problem->step_count; s += 2) {
        struct ul_plan_step *step = &problem->steps[s];
        uint32_t ways = step->alternative_count + step->spare_count;
        struct ul_plan_alternative *alternatives =
            ul_arena_copy(&compile->keep, step->alternatives, ways * sizeof *alternatives);
        for (uint32_t a = 0; a < ways; a++)
            alternatives[a].resource = second;
        step->alternatives = alternatives;
    }
    ul_transfer_overlap(&compile->keep, problem, UINT64_MAX, &effort, woven);
    for (uint32_t p = 0; p < woven->position_count; p++)
        count += woven->positions[p].kind == UL_PLAN_RUN && woven->positions[p].stream == stream;
    return count;
}

static void plan_all(struct ul_compile *compile, bool is_beside)
{
    const struct ul_problem *problem = compile->program->problem;
    struct ul_plan_options planning = ul_compile_planning(compile);
    struct ul_plan plan;
    planning.budget_bytes = 0;
    require(ul_plan_without_budget(&compile->keep, problem, &planning, &plan, &compile->diag),
            compile);
    struct moves moves = {.arena = &compile->keep, .problem = problem, .plan = &plan};
    for (uint32_t v = 0; problem->region_count == 1 && v < problem->value_count; v++)
        add_value(&moves, v);
    compile->plan = plan;
    weave(&moves, &compile->plan);
    uint32_t beside = is_beside ? run_beside(compile, &compile->plan) : 0;
    ul_plan_options_resolve(&planning);
    require(ul_plan_complete(&compile->keep, problem, &planning, &compile->plan, &compile->diag),
            compile);
    ul_plan_judge(problem, 0, NULL, &compile->plan);
    require(ul_plan_check(&compile->scratch, problem, &compile->plan, &compile->diag), compile);
    ul_plan_drop_overhead(&compile->keep, problem, &compile->plan);
    ul_compile_describe(compile);
    ul_compile_put_json(compile);
    printf("%u transfers, %" PRIu64 " bytes in the buffer, %" PRIu64 " offloaded\n", moves.count,
           compile->plan.reserved_bytes[UL_PROGRAM_ARENA],
           compile->plan.reserved_bytes[UL_PROGRAM_OFFLOAD]);
    if (is_beside)
        printf("%u beside\n", beside);
}

int main(int argc, char **argv)
{
    struct ul_compile compile;
    bool is_beside = argc > 4 && strcmp(argv[4], "beside") == 0;
    ul_compile_init(&compile);
    for (int i = is_beside ? 5 : 4; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        const char *name = argv[i];
        if (value != NULL)
            *value++ = '\0';
        require(ul_compile_set(&compile, name, value), &compile);
    }
    compile.options.budget_bytes = (uint64_t)1 << 50;
    require(ul_compile_build(&compile, argv[1]), &compile);
    plan_all(&compile, is_beside);
    require(ul_file_write(argv[3], compile.json.data, compile.json.length, &compile.diag),
            &compile);
    const char *folder = ul_arena_printf(&compile.keep, "%s.src", argv[2]);
    require(ul_compile_emit(&compile, folder), &compile);

    require(ul_compile_make(&compile, folder, argv[2]), &compile);
    ul_compile_done(&compile);
    return 0;
}
