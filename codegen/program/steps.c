/* SPDX-License-Identifier: Apache-2.0 */
/* Adds a step to the program, and tells the planner's problem what it reads and writes, its
 * alternatives, and what must come before it. */
#include "codegen/program/program_internal.h"
#include "planner/model/plan.h"

#include <string.h>

/* ---- Alternatives ---- */

static double elements_of(const struct ul_graph *graph, ul_node_id node)
{
    return (double)ul_type_elements(&graph->values[graph->nodes[node].outputs[0]].type);
}

const struct ul_program_step *ul_program_step_at(const struct ul_program *program,
                                                 const struct ul_plan_position *position)
{
    UL_ASSERT(position->kind == UL_PLAN_RUN && position->step < program->step_count);
    const struct ul_program_step *step = &program->steps[position->step];
    UL_ASSERT(position->alternative <= step->alternative_count);
    return position->alternative == 0 ? step : &step->alternatives[position->alternative - 1];
}

uint32_t ul_program_region_at(const struct ul_program *program,
                              const struct ul_plan_position *position)
{
    return position->kind == UL_PLAN_RUN ? program->steps[position->step].region : position->region;
}

void ul_program_mark_run(const struct ul_program *program, const struct ul_plan *plan,
                         bool *kernels, bool *calls)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (plan->positions[p].kind != UL_PLAN_RUN)
            continue;
        const struct ul_program_step *step = ul_program_step_at(program, &plan->positions[p]);
        if (step->kind == UL_STEP_CALL)
            calls[step->kernel] = true;
        else if (step->kind == UL_STEP_KERNEL)
            kernels[step->kernel] = true;
        if (step->own != NULL)
            kernels[step->own->kernel] = true;
    }
}

/* A step's alternative by the same implementation, or the first of the same kind; where it has
 * none, one of no cost. */
static const struct ul_plan_alternative *way_by(const struct ul_program *program, uint32_t step,
                                                const struct ul_program_step *like)
{
    static const struct ul_plan_alternative none = {.cost = 0};
    const struct ul_plan_step *planned = &program->problem->steps[step];
    const struct ul_plan_alternative *found = &none;
    for (uint32_t a = planned->alternative_count; a-- > 0;) {
        const struct ul_plan_position at = {.step = step, .alternative = a};
        const struct ul_program_step *alternative = ul_program_step_at(program, &at);
        if (alternative->kind != like->kind)
            continue;
        found = &planned->alternatives[a];
        if (like->implementation != NULL &&
            strcmp(alternative->implementation, like->implementation) == 0)
            break;
    }
    return found;
}

/* A piece is not assumed to be faster than its share of the whole: that it stays in a smaller cache
 * says nothing about the pieces around it, and splits are not for the sake of time. */
static uint64_t piece_cost(const struct ul_program_builder *builder,
                           const struct ul_program_step *step, uint64_t cost)
{
    const struct ul_program *unsplit = builder->options->unsplit;
    uint32_t from = ul_node_is_piece(builder->graph, step->node)
                        ? ul_unsplit_step(builder->unsplit, builder->graph, step->node)
                        : UL_NONE;
    if (from == UL_NONE)
        return cost;
    double share = elements_of(builder->graph, step->node) /
                   elements_of(unsplit->graph, unsplit->steps[from].node);
    double min = (double)way_by(unsplit, from, step)->cost * share;
    uint64_t rounded = (uint64_t)min + 1;
    return cost > rounded ? cost : rounded;
}

static const struct ul_program_step *alternative_of(const struct ul_program_step *step,
                                                    uint32_t alternative)
{
    return alternative == 0 ? step : &step->alternatives[alternative - 1];
}

/* Except under a budget, a piece runs by the same alternative as the whole, and has its bits. */
static void mark_piece(const struct ul_program_builder *builder, const struct ul_program_step *step,
                       struct ul_plan_alternative *ways)
{
    const struct ul_program *unsplit = builder->options->unsplit;
    uint32_t best = 0, from = ul_node_is_piece(builder->graph, step->node)
                                  ? ul_unsplit_step(builder->unsplit, builder->graph, step->node)
                                  : UL_NONE;
    if (from == UL_NONE)
        return;
    for (uint32_t i = 1; i <= step->alternative_count; i++)
        if (ul_alternative_is_cheaper(way_by(unsplit, from, alternative_of(step, i)),
                                      way_by(unsplit, from, alternative_of(step, best))))
            best = i;
    for (uint32_t i = 0; i <= step->alternative_count; i++)
        ways[i].other_bits =
            ul_alternative_is_cheaper(way_by(unsplit, from, alternative_of(step, best)),
                                      way_by(unsplit, from, alternative_of(step, i)));
}

/* An alternative with other bits counts as no faster than the cheapest with the same bits: no
 * prediction is exact enough to say that it is. */
static void bound_costs(struct ul_plan_alternative *ways, uint32_t count)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (!ways[i].other_bits && ways[i].cost < least)
            least = ways[i].cost;
    for (uint32_t i = 0; i < count; i++)
        if (ways[i].other_bits && ways[i].cost < least)
            ways[i].cost = least;
}

/* The part of a step's traffic that its cost counts: without bytes in banks, which the planner
 * counts by the banks' rates. */
static struct ul_traffic counted_traffic(const struct ul_program_builder *builder,
                                         const struct ul_program_step *step)
{
    const struct ul_program *program = builder->program;
    struct ul_traffic traffic = step->traffic;
    for (uint32_t i = 0; builder->options->bank_count > 0 && i < step->arg_count; i++) {
        uint32_t place = step->args[i].place;
        if (place == UL_PLAN_NONE || program->problem->values[place].space != UL_PROGRAM_ARENA)
            continue;
        UL_ASSERT(traffic.moved_bytes >= step->moved[i]);
        traffic.moved_bytes -= step->moved[i];
        if (!builder->options->weights_rom)
            traffic.weight_bytes = 0; /* all of them are in banks */
    }
    return traffic;
}

static uint64_t step_cost(const struct ul_program_builder *builder,
                          const struct ul_program_step *step)
{
    if (step->is_spared)
        return 0;
    const struct ul_traffic traffic = counted_traffic(builder, step);
    uint64_t cost = ul_profile_cost(builder->options->profile, &step->work, &traffic, step->rounds);
    if (step->slowdown > 0)
        cost = (uint64_t)((double)cost * step->slowdown) + 1;
    return piece_cost(builder, step, cost);
}

/* ---- Reads and writes ---- */

struct lists {
    uint32_t *reads, *writes;
    uint32_t read_count, write_count;
};

/* Lists each place once. */
static void list_args(const struct ul_program_step *step, struct lists *lists)
{
    for (uint32_t i = 0; i < step->arg_count; i++) {
        uint32_t place = step->args[i].place;
        uint32_t *list = step->written[i] ? lists->writes : lists->reads;
        uint32_t *count = step->written[i] ? &lists->write_count : &lists->read_count;
        if (place != UL_PLAN_NONE && !ul_ids_have(list, *count, place))
            list[(*count)++] = place;
    }
}

/* A donated output shares its place with the input: it is updated. */
static uint32_t list_in_place(struct ul_program_builder *builder,
                              const struct ul_program_step *step, struct ul_plan_in_place *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < step->in_place_count; i++) {
        uint32_t output = ul_place_of(builder, step->in_place[i].output);
        uint32_t input = ul_place_of(builder, step->in_place[i].input);
        if (output != input)
            list[count++] = (struct ul_plan_in_place){.output = output, .input = input};
    }
    return count;
}

/* Lists results that a call before the step may have written. */
static void list_spared(const struct ul_program_step *step, struct lists *lists)
{
    for (uint32_t i = 0; step->is_spared && i < step->arg_count; i++) {
        uint32_t place = step->args[i].place;
        if (step->written[i] && !ul_ids_have(lists->reads, lists->read_count, place))
            lists->reads[lists->read_count++] = place;
    }
}

/* The bytes that the step moves for each place that it touches, in all rounds; scratch is written
 * and read. */
static const uint64_t *list_traffic(const struct ul_program_builder *builder,
                                    const struct ul_program_step *step, const struct lists *lists)
{
    uint32_t touched = lists->read_count + lists->write_count;
    if (builder->options->bank_count == 0)
        return NULL;
    uint64_t *moves = UL_NEW_ARRAY(builder->arena, uint64_t, (uint64_t)touched + 1);
    for (uint32_t i = 0; i < step->arg_count; i++) {
        const uint32_t *list = step->written[i] ? lists->writes : lists->reads;
        uint32_t at = 0, count = step->written[i] ? lists->write_count : lists->read_count;
        while (at < count && list[at] != step->args[i].place)
            at++;
        uint64_t bytes = ul_size_mul_saturating(step->moved[i], step->rounds);
        at += step->written[i] ? lists->read_count : 0;
        if (step->args[i].place != UL_PLAN_NONE)
            moves[at] = ul_size_add_saturating(moves[at], bytes);
    }
    moves[touched] =
        ul_size_mul_saturating(step->scratch_bytes, ul_size_mul_saturating(2, step->rounds));
    return moves;
}

static void list_library(const struct ul_program *program, const struct ul_program_call *call,
                         struct lists *lists)
{
    const struct ul_program_library *library = ul_program_library(program, call->library);
    if (library->place != UL_PLAN_NONE)
        lists->reads[lists->read_count++] = library->place;
    if (library->state_place != UL_PLAN_NONE)
        lists->reads[lists->read_count++] = library->state_place;
}

/* What the step touches, or a kernel in its place does. */
static struct ul_plan_substep plan_substep(struct ul_program_builder *builder,
                                           const struct ul_program_step *step)
{
    enum { BESIDE = 3 };
    uint32_t max = step->arg_count + (step->own != NULL ? step->own->arg_count : 0) + BESIDE +
                   builder->unread_count;
    struct lists lists = {.reads = UL_NEW_ARRAY(builder->arena, uint32_t, max),
                          .writes = UL_NEW_ARRAY(builder->arena, uint32_t, max)};
    struct ul_plan_in_place *in_place =
        UL_NEW_ARRAY(builder->arena, struct ul_plan_in_place, step->in_place_count + 1);
    list_args(step, &lists);
    list_spared(step, &lists);
    if (step->own != NULL)
        list_args(step->own, &lists);
    if (step->kept_place != UL_PLAN_NONE)
        lists.reads[lists.read_count++] = step->kept_place;
    if (step->kind == UL_STEP_CALL)
        list_library(builder->program, &builder->program->calls[step->kernel], &lists);
    for (uint32_t i = 0; i < builder->unread_count; i++)
        lists.reads[lists.read_count++] = builder->unread[i];
    return (struct ul_plan_substep){.reads = lists.reads,
                                    .writes = lists.writes,
                                    .read_count = lists.read_count,
                                    .write_count = lists.write_count,
                                    .in_place = in_place,
                                    .in_place_count = list_in_place(builder, step, in_place),
                                    .scratch_bytes = step->scratch_bytes,
                                    .traffic = list_traffic(builder, step, &lists)};
}

/* The step and its alternatives become the planner's alternatives; "ullage" is our own lowering. */
static void plan_step(struct ul_program_builder *builder, const struct ul_program_step *step)
{
    struct ul_plan_alternative alternatives[UL_STEP_ALTERNATIVES + UL_SPARES];
    struct ul_plan_substep substeps[UL_STEP_ALTERNATIVES + UL_SPARES];
    UL_ASSERT(step->alternative_count - step->spare_count < UL_STEP_ALTERNATIVES &&
              step->spare_count <= UL_SPARES);
    for (uint32_t i = 0; i <= step->alternative_count; i++) {
        const struct ul_program_step *alternative = alternative_of(step, i);
        substeps[i] = plan_substep(builder, alternative);
        alternatives[i] = (struct ul_plan_alternative){
            .name = alternative->implementation != NULL ? alternative->implementation : "ullage",
            .substeps = &substeps[i],
            .substep_count = 1,
            .cost = step_cost(builder, alternative),
            .other_bits = alternative->kind != step->kind};
    }
    mark_piece(builder, step, alternatives);
    bound_costs(alternatives, step->alternative_count + 1);
    struct ul_plan_step planned = {.name = step->name,
                                   .region = step->region,
                                   .alternatives = alternatives,
                                   .alternative_count =
                                       step->alternative_count - step->spare_count + 1,
                                   .spare_count = step->spare_count};
    ul_problem_add_step(builder->program->problem, &planned);
}

/* Steps in a loop come after the test that may leave it. */
static void test_first(struct ul_program_builder *builder, uint32_t region)
{
    struct ul_program *program = builder->program;
    uint32_t last = program->step_count - 1;
    for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent) {
        uint32_t test = builder->tests[r];
        if (test != UL_NONE && test != last)
            ul_problem_add_predecessor(program->problem, last, test);
    }
}

/* ---- The step ---- */

void ul_step_init_args(struct ul_program_builder *builder, struct ul_program_step *step,
                       uint32_t count)
{
    step->args = UL_NEW_ARRAY(builder->arena, struct ul_program_address, count);
    step->written = UL_NEW_ARRAY(builder->arena, bool, count);
    step->moved = UL_NEW_ARRAY(builder->arena, uint64_t, count);
    step->views = UL_NEW_ARRAY(builder->arena, ul_value_id, count);
}

const char *ul_step_name(const struct ul_program_builder *builder, const char *wanted)
{
    const char *name = wanted[0] != '\0' ? wanted : "step";
    return ul_arena_printf(builder->arena, "%s #%u", name, builder->program->step_count);
}

/* Completes the fields that all alternatives of a step share. */
static void others_complete(struct ul_program_builder *builder, struct ul_program_step *step)
{
    struct ul_program_step *others =
        ul_arena_copy(builder->arena, step->alternatives, step->alternative_count * sizeof *others);
    for (uint32_t i = 0; i < step->alternative_count; i++) {
        others[i].name = step->name;
        others[i].op = step->op;
        others[i].region = step->region;
        others[i].rounds = step->rounds;
        others[i].traffic.all_weight_bytes = step->traffic.all_weight_bytes;
        UL_ASSERT(others[i].node == step->node && others[i].alternative_count == 0);
    }
    step->alternatives = others;
}

void ul_step_add(struct ul_program_builder *builder, struct ul_program_step *step, uint32_t region)
{
    struct ul_program *program = builder->program;
    UL_ASSERT(region < program->region_count);
    if (step->kind != UL_STEP_KERNEL && step->kind != UL_STEP_CALL)
        for (uint32_t i = 0; i < step->arg_count; i++) {
            step->moved[i] = ul_work_moved_bytes(builder->graph, step, i);
            step->traffic.moved_bytes += step->moved[i];
        }
    UL_GROW(builder->arena, program->steps, program->step_count, program->step_capacity);
    step->region = region;
    step->rounds = ul_work_rounds(program, region);
    step->traffic.all_weight_bytes = builder->weight_bytes;
    others_complete(builder, step);
    program->steps[program->step_count++] = *step;
    plan_step(builder, step);
    builder->unread_count = 0;
    test_first(builder, region);
    UL_ASSERT(program->step_count == program->problem->step_count);
}
