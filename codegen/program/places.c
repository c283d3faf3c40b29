/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that steps read and write: base values of the graph, temporaries between two steps, and
 * the state of a run or a library. Each is a value of the planner's problem. */
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"
#include "ir/training.h"
#include "ir/view.h"
#include "runtime/lib/ul_call.h"

#include <string.h>

void ul_place_find_kept(struct ul_program_builder *builder)
{
    const struct ul_graph *graph = builder->graph;
    builder->is_kept = UL_NEW_ARRAY(builder->arena, bool, graph->value_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (node->op == UL_OP_NONE || node->output_count == 0 ||
            (graph->values[node->outputs[0]].flags & UL_VALUE_BACKWARD) == 0)
            continue;
        for (uint32_t i = 0; i < node->input_count; i++)
            if (node->inputs[i] != UL_NONE && graph->values[node->inputs[i]].view.base != UL_NONE)
                builder->is_kept[graph->values[node->inputs[i]].view.base] = true;
    }
}

static enum ul_plan_class class_of(const struct ul_program_builder *builder, ul_value_id value)
{
    const struct ul_graph *graph = builder->graph;
    uint32_t flags = graph->values[value].flags;
    if (graph->values[value].kind == UL_VALUE_WEIGHT)
        return (flags & UL_VALUE_OPTIMIZER) != 0 ? UL_PLAN_OPTIMIZER : UL_PLAN_WEIGHTS;
    if ((flags & UL_VALUE_GRADIENT) != 0)
        return UL_PLAN_GRADIENTS;
    if (graph->values[value].kind == UL_VALUE_INPUT)
        return UL_PLAN_INPUTS;
    if (ul_graph_is_output(graph, value))
        return UL_PLAN_OUTPUTS;
    return builder->is_kept[value] && (flags & UL_VALUE_BACKWARD) == 0 ? UL_PLAN_SAVED
                                                                       : UL_PLAN_ACTIVATIONS;
}

/* Whether runs of one root leave it to runs of another. */
static bool is_linked(const struct ul_program_builder *builder, ul_value_id value)
{
    return builder->linked != NULL && builder->linked[value];
}

static uint32_t space_of(const struct ul_program_builder *builder, ul_value_id value)
{
    const struct ul_program_options *options = builder->options;
    const struct ul_value *info = &builder->graph->values[value];
    enum ul_value_kind kind = info->kind;
    bool is_step = options->training != NULL && kind == UL_VALUE_INPUT &&
                   strcmp(info->name, UL_TRAINING_STEP) == 0;
    if (options->weights_rom && kind == UL_VALUE_WEIGHT)
        return UL_PROGRAM_ROM;
    if (is_linked(builder, value))
        return UL_PROGRAM_ARENA;          /* where the next run finds it */
    if (options->io_caller && !is_step && /* the runtime writes it, not the caller */
        (kind == UL_VALUE_INPUT || ul_graph_is_output(builder->graph, value)))
        return UL_PROGRAM_CALLER;
    return UL_PROGRAM_ARENA;
}

static uint32_t place_add(struct ul_program_builder *builder, enum ul_place_kind kind,
                          ul_value_id value, const struct ul_plan_value *planned)
{
    struct ul_program *program = builder->program;
    UL_GROW(builder->arena, program->places, program->place_count, program->place_capacity);
    program->places[program->place_count] = (struct ul_program_place){
        .kind = kind, .value = value, .output = UL_NONE, .next_form = UL_PLAN_NONE};
    uint32_t id = ul_problem_add_value(program->problem, planned);
    UL_ASSERT(id == program->place_count);
    return program->place_count++;
}

/* An output has the place of its donor. */
static uint32_t place_donate(struct ul_program_builder *builder, ul_value_id output)
{
    uint32_t id = ul_place_of(builder, builder->graph->values[output].donor);
    struct ul_program_place *place = &builder->program->places[id];
    builder->program->value_places[output] = id;
    if (place->kind == UL_PLACE_DONATED && is_linked(builder, output))
        return id; /* an output of another root overwrites it too */
    UL_ASSERT(place->kind == UL_PLACE_VALUE);
    place->kind = UL_PLACE_DONATED;
    place->output = output;
    return id;
}

void ul_place_join(struct ul_program_builder *builder, ul_value_id value, ul_value_id with)
{
    struct ul_program *program = builder->program;
    UL_ASSERT(program->value_places[value] == UL_PLAN_NONE &&
              ul_value_bytes(builder->graph, value) == ul_value_bytes(builder->graph, with));
    program->value_places[value] = ul_place_of(builder, with);
}

static bool same_pack(const struct ul_pack *a, const struct ul_pack *b)
{
    return a == b || (a != NULL && b != NULL && memcmp(a, b, sizeof *a) == 0);
}

uint32_t ul_place_of(struct ul_program_builder *builder, ul_value_id base)
{
    return ul_place_of_form(builder, base, NULL);
}

uint32_t ul_place_of_form(struct ul_program_builder *builder, ul_value_id base,
                          const struct ul_pack *pack)
{
    const struct ul_graph *graph = builder->graph;
    struct ul_program *program = builder->program;
    UL_ASSERT(base < graph->value_count);
    const struct ul_value *info = &graph->values[base];
    uint32_t found = program->value_places[base], last = UL_PLAN_NONE;
    if (found != UL_PLAN_NONE && info->kind != UL_VALUE_WEIGHT)
        return found;
    for (; found != UL_PLAN_NONE; last = found, found = program->places[found].next_form) {
        if (same_pack(program->places[found].pack, pack))
            return found;
    }
    UL_ASSERT(info->view.base == base);
    if (info->link_root != UL_NONE) {
        uint32_t linked = ul_place_of(builder, ul_graph_linked(graph, base));
        program->value_places[base] = linked;
        return linked;
    }
    if (info->donor != UL_NONE)
        return place_donate(builder, base);
    struct ul_plan_value value =
        ul_plan_value_make(info->name, class_of(builder, base),
                           pack != NULL ? pack->size_bytes : ul_value_bytes(graph, base));
    value.space = space_of(builder, base);
    bool stays = is_linked(builder, base);
    value.persistent =
        stays || info->kind == UL_VALUE_WEIGHT || (info->flags & UL_VALUE_PERSISTENT) != 0;
    bool learns = value.class == UL_PLAN_WEIGHTS && pack == NULL && builder->options->training;
    value.stays = value.persistent && !learns && value.class != UL_PLAN_OPTIMIZER &&
                  value.class != UL_PLAN_GRADIENTS;
    /* A value without bytes is never copied across an edge of a block. */
    value.live_from_start = info->kind == UL_VALUE_INPUT || value.size_bytes == 0;
    value.live_to_end = ul_graph_is_output(graph, base) ||
                        (info->kind == UL_VALUE_INPUT && builder->options->keep_inputs);
    found = place_add(builder, UL_PLACE_VALUE, base, &value);
    program->places[found].pack = pack;
    if (last == UL_PLAN_NONE)
        program->value_places[base] = found;
    else
        program->places[last].next_form = found;
    return found;
}

/* Its bytes are counted when they are needed (footprint.c). */
static uint32_t add_beside(struct ul_program_builder *builder, const char *name, uint32_t space)
{
    struct ul_plan_value value = ul_plan_value_make(name, UL_PLAN_SCRATCH, 0);
    value.space = space;
    value.persistent = true;
    value.optional = true;
    return place_add(builder, UL_PLACE_OVERHEAD, UL_NONE, &value);
}

/* For the program's own state, through all runs. */
static uint32_t add_state(struct ul_program_builder *builder, const char *name, uint64_t size_bytes)
{
    struct ul_plan_value value = ul_plan_value_make(name, UL_PLAN_SCRATCH, size_bytes);
    value.persistent = true;
    value.stays = true;
    return place_add(builder, UL_PLACE_STATE, UL_NONE, &value);
}

struct ul_program_library *ul_program_library(const struct ul_program *program,
                                              const struct ul_target_library *library)
{
    const struct ul_libraries *libraries = program->options.libraries;
    UL_ASSERT(library >= libraries->rows && library < libraries->rows + libraries->count);
    return &program->libraries[library - libraries->rows];
}

void ul_place_add_library(struct ul_program_builder *builder, uint32_t call)
{
    struct ul_program_call *added = &builder->program->calls[call];
    const struct ul_target_library *library = added->library;
    struct ul_program_library *has = ul_program_library(builder->program, library);
    if (library->own_code_bytes > 0 && has->place == UL_PLAN_NONE)
        has->place = add_beside(builder, library->name, UL_PROGRAM_CODE);
    if (library->kept_bytes == NULL || added->kept_place != UL_PLAN_NONE)
        return;
    if (has->place == UL_PLAN_NONE)
        has->place = add_beside(builder, library->name, UL_PROGRAM_KEPT);
    if (library->state_bytes > 0 && has->state_place == UL_PLAN_NONE) {
        has->state_place = add_state(builder, library->name, library->state_bytes);
        builder->program->problem->values[has->state_place].optional = true;
    }
    added->kept_place = add_beside(builder, added->call->implementation, UL_PROGRAM_KEPT);
}

uint32_t ul_place_of_code(struct ul_program_builder *builder, uint32_t kernel)
{
    struct ul_program_kernel *function = &builder->program->kernels[kernel];
    if (function->code_place == UL_PLAN_NONE)
        function->code_place = add_beside(builder, function->name, UL_PROGRAM_CODE);
    return function->code_place;
}

void ul_place_mark_forms(struct ul_program_builder *builder)
{
    const struct ul_program *program = builder->program;
    for (uint32_t i = 0; i < program->place_count; i++) {
        uint32_t next = program->places[i].next_form;
        if (next == UL_PLAN_NONE)
            continue;
        program->problem->values[i].optional = true;
        program->problem->values[next].optional = true;
    }
}

uint32_t ul_place_add_temporary(struct ul_program_builder *builder, ul_value_id like)
{
    const struct ul_graph *graph = builder->graph;
    struct ul_plan_value value = ul_plan_value_make(graph->values[like].name, UL_PLAN_ACTIVATIONS,
                                                    ul_value_bytes(graph, like));
    UL_ASSERT(value.size_bytes > 0);
    return place_add(builder, UL_PLACE_TEMPORARY, like, &value);
}

uint32_t ul_program_counter_bytes(const struct ul_program *program)
{
    bool counts = false;
    for (uint32_t i = 0; i < program->kernel_count; i++)
        counts = counts || program->kernels[i].printed.counter_words > 0;
    return counts ? UL_PROGRAM_COUNTER_WORDS * (uint32_t)sizeof(uint32_t) : 0;
}

/* Flags come before the words that count blocks. */
static uint64_t run_state_bytes(const struct ul_program *program)
{
    uint32_t counters = ul_program_counter_bytes(program), flags = program->flag_count;
    if (counters > 0)
        flags += (0u - flags) % sizeof(uint32_t);
    return (uint64_t)UL_PROGRAM_STATE_BYTES + flags + counters;
}

void ul_place_add_states(struct ul_program_builder *builder)
{
    struct ul_program *program = builder->program;
    bool is_separate = builder->options->target->traits.memory_is_separate;
    program->run_state = UL_PLAN_NONE;
    program->offload_state = UL_PLAN_NONE;
    program->bytes_state = UL_PLAN_NONE;
    if (builder->options->offsets_by_size)
        program->bytes_state = add_state(builder, "arena bytes", sizeof(uint64_t));
    program->bank_state = UL_PLAN_NONE;
    if (builder->options->bank_count > 0) {
        program->bank_state =
            add_state(builder, "banks",
                      UL_PROGRAM_BANK_MARK_BYTES +
                          (builder->options->bank_count - 1) * UL_PROGRAM_POINTER_BYTES);
        program->problem->values[program->bank_state].in_first_bank = true;
    }
    if (builder->options->offload.exists && !is_separate)
        program->offload_state = add_state(builder, "offload", UL_PROGRAM_POINTER_BYTES);
    if (is_separate)
        program->run_state = add_state(builder, "state of the run", run_state_bytes(program));
}

struct ul_program_address ul_place_address(uint32_t place, int64_t offset_bytes)
{
    return (struct ul_program_address){
        .place = place, .offset_bytes = offset_bytes, .loop = UL_PLAN_NONE};
}

struct ul_program_address ul_place_value_address(struct ul_program_builder *builder,
                                                 ul_value_id value)
{
    const struct ul_view *view = &builder->graph->values[value].view;
    UL_ASSERT(view->base != UL_NONE);
    return ul_place_address(ul_place_of(builder, view->base), view->offset_bytes);
}
