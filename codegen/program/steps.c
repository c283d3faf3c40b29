/* A step joins the program, and the planner's problem learns what it reads and writes, in which
 * ways it may run, and what must come before it. */
#include "codegen/program/program_internal.h"

/* ---- Alternatives ---- */

static double elements_of(const struct ul_graph *graph, ul_node_id node)
{
    return (double)ul_type_elements(&graph->values[graph->nodes[node].outputs[0]].type);
}

/* A piece is not taken to be faster than its share of the whole: that it stays in a smaller cache
 * says nothing of the pieces around it, and splitting for the sake of time is not meant. */
static uint64_t piece_cost(const struct ul_builder *builder, const struct ul_program_step *step,
                           uint32_t alternative, uint64_t cost)
{
    const struct ul_program *whole = builder->options->whole;
    uint32_t from = ul_node_is_piece(builder->graph, step->node)
                        ? ul_whole_step(builder->whole, builder->graph, step->node)
                        : UL_NONE;
    if (from == UL_NONE || alternative >= whole->problem->steps[from].alternative_count)
        return cost;
    double share = elements_of(builder->graph, step->node) /
                   elements_of(whole->graph, whole->steps[from].node);
    double min = (double)whole->problem->steps[from].alternatives[alternative].cost * share;
    uint64_t rounded = (uint64_t)min + 1;
    return cost > rounded ? cost : rounded;
}

/* The step as it was made, "ullage" being our own lowering, and the same call with ever less
 * scratch are the planner's alternatives. */
static void plan_alternatives(struct ul_builder *builder, const struct ul_program_step *step,
                              uint32_t region, uint64_t scratch_bytes,
                              const struct ul_plan_substep *substep)
{
    struct ul_plan_alternative alternatives[UL_IMPLEMENTATIONS];
    struct ul_plan_substep substeps[UL_IMPLEMENTATIONS];
    uint32_t count = 1 + step->leaner_count;
    uint64_t full =
        ul_profile_cost(builder->options->profile, &step->work, &step->traffic, step->rounds);
    UL_ASSERT(count <= UL_IMPLEMENTATIONS);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_program_leaner *leaner = i > 0 ? &step->leaner[i - 1] : NULL;
        uint64_t cost = leaner != NULL ? (uint64_t)((double)full * leaner->slowdown) + 1 : full;
        substeps[i] = *substep;
        substeps[i].scratch_bytes = leaner != NULL ? leaner->scratch_bytes : scratch_bytes;
        alternatives[i] = (struct ul_plan_alternative){
            .name = step->implementation != NULL ? step->implementation : "ullage",
            .substeps = &substeps[i],
            .substep_count = 1,
            .cost = piece_cost(builder, step, i, cost)};
    }
    struct ul_plan_step planned = {.name = step->name,
                                   .region = region,
                                   .alternatives = alternatives,
                                   .alternative_count = count};
    ul_problem_add_step(builder->program->problem, &planned);
}

/* ---- What it reads and writes ---- */

struct lists {
    uint32_t *reads, *writes;
    uint32_t read_count, write_count;
};

/* Once per place. */
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

/* Where an output is donated, both lie in one place: it is updated. */
static uint32_t list_in_place(struct ul_builder *builder, const struct ul_program_step *step,
                              struct ul_plan_in_place *list)
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

/* What the step touches, or a kernel in its place does. */
static void plan_step(struct ul_builder *builder, const struct ul_program_step *step,
                      uint32_t region, uint64_t scratch_bytes)
{
    uint32_t max = step->arg_count + (step->own != NULL ? step->own->arg_count : 0) + 1;
    struct lists lists = {.reads = UL_NEW_ARRAY(builder->arena, uint32_t, max),
                          .writes = UL_NEW_ARRAY(builder->arena, uint32_t, max)};
    struct ul_plan_in_place *in_place =
        UL_NEW_ARRAY(builder->arena, struct ul_plan_in_place, step->in_place_count + 1);
    list_args(step, &lists);
    if (step->own != NULL)
        list_args(step->own, &lists);
    struct ul_plan_substep substep = {.reads = lists.reads,
                                      .writes = lists.writes,
                                      .read_count = lists.read_count,
                                      .write_count = lists.write_count,
                                      .in_place = in_place,
                                      .in_place_count = list_in_place(builder, step, in_place)};
    plan_alternatives(builder, step, region, scratch_bytes, &substep);
}

/* What stands in a loop comes after the test that may leave it. */
static void test_first(struct ul_builder *builder, uint32_t region)
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

void ul_step_init_args(struct ul_builder *builder, struct ul_program_step *step, uint32_t count)
{
    step->args = UL_NEW_ARRAY(builder->arena, struct ul_program_address, count);
    step->written = UL_NEW_ARRAY(builder->arena, bool, count);
    step->views = UL_NEW_ARRAY(builder->arena, ul_value_id, count);
}

const char *ul_step_name(const struct ul_builder *builder, const char *wanted)
{
    const char *name = wanted[0] != '\0' ? wanted : "step";
    return ul_arena_printf(builder->arena, "%s #%u", name, builder->program->step_count);
}

void ul_step_add(struct ul_builder *builder, struct ul_program_step *step, uint32_t region,
                 uint64_t scratch_bytes)
{
    struct ul_program *program = builder->program;
    UL_ASSERT(region < program->region_count);
    if (step->kind != UL_STEP_KERNEL && step->kind != UL_STEP_CALL)
        step->traffic.moved_bytes = ul_work_moved_bytes(builder->graph, step);
    UL_GROW(builder->arena, program->steps, program->step_count, program->step_capacity);
    step->region = region;
    step->rounds = ul_work_rounds(program, region);
    step->traffic.all_weight_bytes = builder->weight_bytes;
    program->steps[program->step_count++] = *step;
    plan_step(builder, step, region, scratch_bytes);
    test_first(builder, region);
    UL_ASSERT(program->step_count == program->problem->step_count);
}
