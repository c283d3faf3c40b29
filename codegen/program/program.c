/* SPDX-License-Identifier: Apache-2.0 */
/* From a fused graph with views to a program: its steps, its functions, their places, its entry
 * points, and the planner's problem. */
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"
#include "ir/view.h"

#include <string.h>

uint32_t ul_program_call_align(const struct ul_program *program)
{
    uint32_t max = 1;
    for (uint32_t i = 0; i < program->call_count; i++) {
        if (program->calls[i].call->align_bytes > max)
            max = program->calls[i].call->align_bytes;
    }
    return max;
}

static void apply_whole(struct ul_program_builder *builder)
{
    const struct ul_program *unsplit = builder->options->unsplit,
                            *base = builder->options->baseline;
    if (unsplit != NULL) {
        builder->unsplit = UL_NEW(builder->arena, struct ul_unsplit);
        ul_unsplit_init(builder->unsplit, builder->arena, unsplit);
    }
    if (base != NULL)
        builder->program->problem->base_cost = ul_size_add_saturating(
            ul_problem_min_cost(base->problem), ul_problem_min_moving_cost(base->problem));
    if (builder->options->target->traits.has_streams)
        ul_problem_add_resource(
            builder->program->problem,
            &(struct ul_plan_resource){.kind = UL_PLAN_COMPUTE,
                                       .stream = 1,
                                       .latency_cost =
                                           (uint64_t)builder->options->profile->overhead_ns});
}

/* The printed text shows best whether a kernel holds a float: a scale that is known at compile time
 * leaves none. */
static bool holds_float(const struct ul_program_kernel *kernel)
{
    static const char *const words[] = {"float", "double", "_f32", "_f64", "_f16", "_bf16"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(kernel->text, words[i]) != NULL)
            return true;
    }
    return false;
}

/* Operators with integers at all ends may still compute places or factors in floats. */
static enum ul_status check_no_float(struct ul_program_builder *builder)
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

/* Has libraries take calls that others have answered. */
static void choose_others(struct ul_program_builder *builder)
{
    const struct ul_libraries *libraries = builder->options->libraries;
    for (uint32_t i = 0; libraries != NULL && i < libraries->count; i++) {
        const struct ul_target_library *library = &libraries->rows[i];
        if (library->choose != NULL)
            library->choose(library, builder->arena, builder->graph, builder->options,
                            builder->unsplit, &builder->calls);
    }
}

static enum ul_status build(struct ul_program_builder *builder)
{
    const struct ul_graph *graph = builder->graph;
    const struct ul_libraries *libraries = builder->options->libraries;
    builder->escapes = ul_graph_escapes(graph, builder->arena);
    builder->linked = ul_graph_find_linked(graph, builder->arena);
    ul_place_find_kept(builder);
    apply_whole(builder);
    UL_TRY(ul_calls_choose(builder->arena, graph, builder->escapes, libraries, builder->unsplit,
                           &builder->calls, builder->diag));
    bool may = builder->options->training != NULL && libraries != NULL;
    ul_calls_find_sums(builder->arena, graph, may ? libraries->max_sums_bytes : 0, &builder->calls);
    if (may && libraries->has_slopes)
        ul_calls_find_slopes(builder->arena, graph, &builder->calls);
    choose_others(builder);
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
 * takes at least one system call and two waits of threads for each other, or a call of CUDA. */
static void add_offload(struct ul_program *program)
{
    enum { LATENCY_NS = 10000 };
    const struct ul_program_options *options = &program->options;
    const struct ul_program_offload *offload = &options->offload;
    bool is_file = offload->file != NULL;
    double rate = ul_profile_transfer_rate(options->profile, is_file);
    const struct ul_plan_offload space = {.name = is_file ? "offload: file" : "offload: host",
                                          .capacity_bytes = offload->capacity_bytes,
                                          .bandwidth_mb =
                                              rate * 1e3 < 1 ? 1 : (uint64_t)(rate * 1e3),
                                          .latency_cost = LATENCY_NS,
                                          .duplex = options->target->traits.memory_is_separate};
    uint32_t id = ul_problem_add_offload(program->problem, &space);
    UL_ASSERT(id == UL_PROGRAM_OFFLOAD);
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
    program->problem->spaces[UL_PROGRAM_KEPT].is_overhead = true;
    program->problem->spaces[UL_PROGRAM_CODE].is_overhead = true;
    if (options->offload.exists)
        add_offload(program);
    if (options->bank_count > 0)
        ul_problem_set_banks(program->problem, options->banks, options->bank_count);
    uint32_t library_count = options->libraries != NULL ? options->libraries->count : 0;
    program->libraries = UL_NEW_ARRAY(arena, struct ul_program_library, library_count);
    memset(program->libraries, 0xFF, library_count * sizeof *program->libraries);
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
    struct ul_program_builder builder = {
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

bool ul_program_heeds(const struct ul_program *program, const char *option)
{
    for (; program != NULL; program = program->options.baseline)
        for (uint32_t i = 0; i < program->call_count; i++) {
            const char *without = program->calls[i].library->without;
            if (without != NULL && strcmp(without, option) == 0)
                return true;
        }
    return false;
}
