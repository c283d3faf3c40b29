/* SPDX-License-Identifier: Apache-2.0 */
/* From a fused graph with views to a program: its steps, its functions, the places that they work
 * on, its entry points, and all of it as the planner's problem. */
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"
#include "codegen/program/winograd.h"
#include "ir/view.h"

#include <string.h>

uint32_t ul_program_call_align(const struct ul_program *program)
{
    uint32_t max = 1;
    for (uint32_t i = 0; i < program->call_count; i++) {
        if (program->calls[i].align_bytes > max)
            max = program->calls[i].align_bytes;
    }
    return max;
}

static void apply_whole(struct ul_builder *builder)
{
    const struct ul_program *whole = builder->options->whole, *base = builder->options->base;
    if (whole != NULL) {
        builder->whole = UL_NEW(builder->arena, struct ul_whole);
        ul_whole_init(builder->whole, builder->arena, whole);
    }
    if (base != NULL)
        builder->program->problem->base_cost = ul_size_add_saturating(
            ul_problem_min_cost(base->problem), ul_problem_min_moving_cost(base->problem));
    if (builder->options->target->traits.has_streams)
        builder->program->problem->join_cost = (uint64_t)builder->options->profile->overhead_ns;
}

/* What is printed says best whether a kernel holds a float: a scale at compile time leaves none. */
static bool holds_float(const struct ul_program_kernel *kernel)
{
    static const char *const words[] = {"float", "double", "_f32", "_f64", "_f16", "_bf16"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(kernel->text, words[i]) != NULL)
            return true;
    }
    return false;
}

/* Operators with integers at all ends may still compute their places or factors in floats. */
static enum ul_status check_no_float(struct ul_builder *builder)
{
    const struct ul_program *program = builder->program;
    for (uint32_t i = 0; builder->options->no_float && i < program->problem->step_count; i++) {
        const struct ul_program_step *step = &program->steps[i];
        if (step->kind != UL_STEP_KERNEL || !holds_float(&program->kernels[step->kernel]))
            continue;
        return ul_diag_set(builder->diag, UL_UNSUPPORTED,
                           "%s computes in floats; --no-float has no form of it in integers: "
                           "quantize its inputs and its result, or compile without --no-float",
                           ul_node_describe(builder->graph, step->node, builder->arena));
    }
    return UL_OK;
}

/* Gives the most bytes of sums that a call may form beside a product, where a program trains. */
static uint64_t max_sums_bytes(const struct ul_program_options *options)
{
    bool may = options->training != NULL && options->library != NULL;
    return may ? options->library->max_sums_bytes : 0;
}

static enum ul_status build(struct ul_builder *builder)
{
    const struct ul_graph *graph = builder->graph;
    builder->escapes = ul_graph_escapes(graph, builder->arena);
    builder->linked = ul_graph_find_linked(graph, builder->arena);
    ul_place_find_kept(builder);
    apply_whole(builder);
    UL_TRY(ul_calls_choose(builder->arena, graph, builder->escapes, builder->options->library,
                           builder->whole, &builder->calls, builder->diag));
    ul_calls_find_sums(builder->arena, graph, max_sums_bytes(builder->options), &builder->calls);
    if (builder->options->training != NULL && builder->options->library != NULL &&
        builder->options->library->has_slopes)
        ul_calls_find_slopes(builder->arena, graph, &builder->calls);
    ul_winograd_choose(builder->arena, graph, builder->options, builder->whole, &builder->calls);
    for (uint32_t r = 0; r < graph->root_count; r++)
        for (uint32_t i = 0; i < graph->blocks[r].input_count; i++)
            (void)ul_place_of(builder, graph->blocks[r].inputs[i]);
    UL_TRY(ul_block_add_roots(builder));
    ul_place_mark_forms(builder);
    for (uint32_t r = 0; r < graph->root_count; r++)
        for (uint32_t i = 0; i < graph->blocks[r].output_count; i++)
            (void)ul_place_of(builder, graph->values[graph->blocks[r].outputs[i]].view.base);
    ul_place_add_states(builder);
    ul_entry_add_all(builder);
    UL_TRY(check_no_float(builder));
    return ul_donation_check(builder);
}

/* Memory of a device's host is behind a bus that carries both directions at a time. A transfer
 * takes so long at least: a call of the system and two of threads that wait for each other, or of
 * CUDA. */
static void add_offload(struct ul_program *program)
{
    enum { LATENCY_NS = 10000 };
    const struct ul_program_options *options = &program->options;
    const struct ul_program_offload *offload = &options->offload;
    bool is_file = offload->file != NULL;
    uint32_t id = ul_problem_add_space(
        program->problem, is_file ? "offload: file" : "offload: host", offload->capacity_bytes);
    struct ul_plan_space *space = &program->problem->spaces[id];
    double rate = ul_profile_transfer_rate(options->profile, is_file);
    UL_ASSERT(id == UL_PROGRAM_OFFLOAD);
    space->transfers = true;
    space->bandwidth_mb = rate * 1e3 < 1 ? 1 : (uint64_t)(rate * 1e3);
    space->latency_cost = LATENCY_NS;
    space->duplex = options->target->traits.memory_is_separate;
}

static struct ul_program *program_new(struct ul_arena *arena, const struct ul_graph *graph,
                                      const struct ul_program_options *options)
{
    struct ul_program *program = UL_NEW(arena, struct ul_program);
    program->graph = graph;
    program->options = *options;
    if (!options->target->traits.has_threads)
        program->options.thread_count = 1;
    program->problem = ul_problem_new(arena);
    ul_problem_add_space(program->problem, "read-only weights", 0);
    ul_problem_add_space(program->problem, "the caller's buffers", 0);
    ul_problem_add_space(program->problem, "kept by libraries", 0);
    ul_problem_add_space(program->problem, "code", 0);
    program->problem->spaces[UL_PROGRAM_KEPT].beside = true;
    program->problem->spaces[UL_PROGRAM_CODE].beside = true;
    if (options->offload.exists)
        add_offload(program);
    if (options->bank_count > 0)
        ul_problem_set_banks(program->problem, options->banks, options->bank_count);
    program->library_place = UL_PLAN_NONE;
    program->library_state = UL_PLAN_NONE;
    program->value_places = UL_NEW_ARRAY(arena, uint32_t, graph->value_count);
    memset(program->value_places, 0xFF, graph->value_count * sizeof *program->value_places);
    return program;
}

enum ul_status ul_program_build(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_program_options *options,
                                struct ul_program **program, struct ul_diag *diag)
{
    UL_ASSERT(options->target != NULL && options->profile != NULL);
    struct ul_program *built = program_new(arena, graph, options);
    struct ul_builder builder = {
        .arena = arena, .graph = graph, .options = &built->options, .program = built, .diag = diag};
    /* One region for the whole, up to two for a block. */
    uint64_t max_regions = 2 * (uint64_t)graph->block_count + 2;
    builder.tests = UL_NEW_ARRAY(arena, uint32_t, max_regions);
    memset(builder.tests, 0xFF, max_regions * sizeof *builder.tests);
    for (uint32_t i = 0; i < graph->value_count; i++) {
        if (graph->values[i].kind == UL_VALUE_WEIGHT)
            builder.weight_bytes += ul_value_bytes(graph, i);
    }
    ul_arena_init(&builder.scratch);
    enum ul_status status = build(&builder);
    ul_arena_done(&builder.scratch);
    if (status != UL_OK)
        return status;
    UL_ASSERT(built->place_count == built->problem->value_count);
    UL_ASSERT(built->region_count <= max_regions);
    *program = built;
    return UL_OK;
}
