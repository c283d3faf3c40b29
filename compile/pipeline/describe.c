/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the plan for reports: steps and values by name, and the options that `check` needs to
 * build the same graph. */
#include "codegen/program/sized.h"
#include "compile/compile_internal.h"
#include "ir/op.h"
#include "ir/view.h"

#include <string.h>

/* Whether the option is recorded: not where it is the default, or the target cannot use it. */
static bool is_recorded(const struct ul_compile *compile, const struct ul_option *row)
{
    return row->record != UL_RECORD_NONE && ul_option_is_set(&compile->options.base, row) &&
           ul_option_fits(row, compile->program->options.target);
}

/* Constants are recorded by name: their bytes need not come from a file. */
static const char *recorded_value(struct ul_compile *compile, const struct ul_option *row,
                                  uint32_t index)
{
    const char *value = ul_option_value(&compile->options.base, row, index);
    if (row->record != UL_RECORD_NAME)
        return value;
    return ul_arena_printf(&compile->keep, "%.*s", (int)(strrchr(value, '=') - value), value);
}

static void describe_options(struct ul_compile *compile)
{
    const struct ul_options *options = &compile->options.base;
    uint32_t max = 0;
    for (uint32_t r = 0; r < options->table->count; r++)
        max += ul_option_value_count(options, &options->table->rows[r]);
    struct ul_report_option *list = UL_NEW_ARRAY(&compile->keep, struct ul_report_option, max);
    uint32_t count = 0;
    for (uint32_t r = 0; r < options->table->count; r++) {
        const struct ul_option *row = &options->table->rows[r];
        uint32_t values = is_recorded(compile, row) ? ul_option_value_count(options, row) : 0;
        for (uint32_t i = 0; i < values; i++)
            list[count++] = (struct ul_report_option){.name = row->name,
                                                      .value = recorded_value(compile, row, i)};
    }
    compile->report.facts.options = list;
    compile->report.facts.option_count = count;
}

/* Describes steps as the plan runs them; a step that runs in several ways is described by its last
 * run. */
static const struct ul_report_step *describe_steps(struct ul_compile *compile,
                                                   const struct ul_graph *graph,
                                                   const struct ul_program *program,
                                                   const struct ul_plan *plan)
{
    struct ul_report_step *steps =
        UL_NEW_ARRAY(&compile->keep, struct ul_report_step, program->step_count);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (plan->positions[p].kind != UL_PLAN_RUN)
            continue;
        const struct ul_program_step *step = ul_program_step_at(program, &plan->positions[p]);
        const struct ul_node *node = &graph->nodes[step->node];
        steps[plan->positions[p].step] = (struct ul_report_step){
            .name = step->name,
            .op = step->op,
            .node = node->name[0] != '\0' ? node->name
                                          : ul_node_describe(graph, step->node, &compile->keep),
            .source = node->source,
            .flop_count = step->work.flop_count,
            .moved_bytes = step->traffic.moved_bytes,
            .is_call = step->kind == UL_STEP_CALL};
    }
    return steps;
}

static const struct ul_report_value *describe_values(struct ul_compile *compile,
                                                     const struct ul_graph *graph,
                                                     const struct ul_program *program)
{
    uint32_t count = program->problem->value_count;
    struct ul_report_value *values = UL_NEW_ARRAY(&compile->keep, struct ul_report_value, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_value *planned = &program->problem->values[i];
        const struct ul_program_place *place = &program->places[i];
        int64_t size = (int64_t)planned->size_bytes;
        values[i] = (struct ul_report_value){
            .name = planned->name, .type = ul_type_make(UL_U8, 1, &size), .storage = UL_U8};
        if (place->kind == UL_PLACE_STATE || place->kind == UL_PLACE_OVERHEAD)
            continue;
        const struct ul_value *value = &graph->values[place->value];
        values[i].type = value->type;
        values[i].storage = ul_value_storage(graph, place->value);
        if (compile->options.precision == UL_PRECISION_F32)
            values[i].type.dtype = values[i].storage;
        values[i].kept = value->kept;
        values[i].is_too_large = value->kind == UL_VALUE_WEIGHT && value->kept == UL_KEPT_RANGE;
    }
    return values;
}

void ul_compile_describe_process(const struct ul_footprint *footprint, struct ul_saved *facts)
{
    facts->process_bytes = footprint->total_bytes;
    facts->process[UL_SAVED_BUFFER] = footprint->buffer_bytes;
    facts->process[UL_SAVED_LIBRARY] = footprint->library_bytes;
    facts->process[UL_SAVED_CODE] = footprint->code_bytes;
    facts->process[UL_SAVED_STACKS] = footprint->stack_bytes;
    facts->process[UL_SAVED_RUNTIME] = footprint->runtime_bytes;
    facts->process_of = footprint->is_of_device ? "device"
                        : footprint->is_whole   ? "program"
                                                : "caller";
    facts->process_peak_at_start = footprint->starts_larger;
    facts->has_process_lacks = footprint->is_of_device;
    facts->process_lacks = (footprint->lacks_context ? UL_LACKS_CONTEXT : 0) |
                           (footprint->lacks_library ? UL_LACKS_LIBRARIES : 0);
}

static void describe_flash(struct ul_compile *compile)
{
    _Static_assert((int)UL_REPORT_READ_ONLY == (int)UL_PROGRAM_ROM, "one numbering of spaces");
    struct ul_saved *facts = &compile->report.facts;
    facts->has_flash = compile->program->options.weights_rom;
    if (facts->has_flash)
        facts->flash = (struct ul_saved_flash){
            .weights = compile->plan.reserved_bytes[UL_REPORT_READ_ONLY],
            .code = ul_footprint_flash_bytes(&compile->keep, compile->program, &compile->plan)};
}

/* Gradients are as large as their parameters. */
static void describe_shared(struct ul_compile *compile)
{
    struct ul_saved_training *training = &compile->report.facts.training;
    training->shared_parameters = compile->training.shared_count;
    for (uint32_t i = 0; i < compile->training.shared_count; i++) {
        uint32_t value = compile->training.shared[i];
        uint64_t bytes = ul_value_bytes(&compile->graph, value);
        training->shared_bytes += bytes;
        if (bytes > training->shared_largest_bytes) {
            training->shared_largest_bytes = bytes;
            training->shared = compile->graph.values[value].name;
        }
    }
}

/* Whether it is a state of the parameter: its name begins with the parameter's. */
static bool is_state_of(const struct ul_value *state, const struct ul_value *parameter)
{
    size_t length = strlen(parameter->name);
    return state->kind == UL_VALUE_WEIGHT && (state->flags & UL_VALUE_OPTIMIZER) != 0 &&
           ul_training_find_owner(state->name) == length &&
           memcmp(state->name, parameter->name, length) == 0;
}

/* Counts parameters that keep 32 bits where others have fewer, in themselves or in their state. */
static void describe_wide(struct ul_compile *compile, ul_value_id parameter)
{
    struct ul_saved_training *training = &compile->report.facts.training;
    const struct ul_graph *graph = &compile->graph;
    const struct ul_value *value = &graph->values[parameter];
    bool is_wide = compile->training.master != UL_MASTER_F32 && value->storage == UL_DTYPE_NONE;
    bool has_codes = compile->training.state_bits != UL_STATE_8;
    uint64_t bytes = ul_value_bytes(graph, parameter);
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (!is_state_of(&graph->values[v], value))
            continue;
        bytes += ul_value_bytes(graph, v);
        has_codes = has_codes || graph->values[v].type.dtype == UL_U8;
    }
    if (!is_wide && has_codes)
        return;
    training->wide_tensors++;
    training->wide_parameters += ul_type_elements(&value->type);
    training->wide_bytes += bytes;
}

/* The bytes saved by storing kept gradients in 16 bits. */
static uint64_t rounded_bytes(const struct ul_graph *graph)
{
    uint64_t bytes = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_NODE && (value->flags & UL_VALUE_GRADIENT) != 0 &&
            value->storage != UL_DTYPE_NONE)
            bytes += ul_type_bytes(&value->type) - ul_value_bytes(graph, v);
    }
    return bytes;
}

/* Counts initializers of the model that are not trained, without weights that passes made. */
static void describe_others(struct ul_compile *compile)
{
    struct ul_saved_training *training = &compile->report.facts.training;
    for (uint32_t i = 0; i < compile->training.initializer_count; i++) {
        const struct ul_value *value = &compile->graph.values[compile->training.initializers[i]];
        if ((value->flags & UL_VALUE_TRAINED) != 0)
            continue;
        if ((value->flags & UL_VALUE_PERSISTENT) != 0)
            training->statistics++;
        else
            training->fixed += ul_type_elements(&value->type) != 1;
    }
}

static void describe_training(struct ul_compile *compile)
{
    struct ul_saved_training *training = &compile->report.facts.training;
    const struct ul_graph *graph = &compile->graph;
    *training = (struct ul_saved_training){.tensors = 0};
    for (uint32_t v = 0; compile->options.train && v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        bool is_float = value->type.dtype == UL_F32 || value->type.dtype == UL_F64;
        bool is_state = (value->flags & UL_VALUE_OPTIMIZER) != 0;
        if (value->kind != UL_VALUE_WEIGHT || !(is_float || is_state))
            continue;
        uint64_t bytes = ul_value_bytes(graph, v);
        if (is_state) {
            training->state_bytes += bytes;
        } else if ((value->flags & UL_VALUE_TRAINED) != 0) {
            training->tensors++;
            training->parameters += ul_type_elements(&value->type);
            training->parameter_bytes += bytes;
            describe_wide(compile, v);
        }
    }
    if (training->parameters > 0)
        training->bytes_per_parameter =
            (double)(training->parameter_bytes + training->state_bytes) /
            (double)training->parameters;
    describe_others(compile);
    ul_compile_describe_trained(compile);
    training->unreached = compile->training.unreached_count;
    if (training->unreached > 0)
        training->unreached_first = graph->values[compile->training.unreached[0]].name;
    training->loss_pieces = compile->training.piece_count;
    training->loss_piece_bytes = compile->training.piece_bytes;
    describe_shared(compile);
    compile->report.facts.has_training = training->tensors > 0;
    training->clips_twice =
        compile->training.clip_norm > 0 && compile->training.clip_mode == UL_CLIP_TWICE;
    uint64_t kept = training->parameter_bytes - rounded_bytes(graph);
    if (compile->training.clip_norm > 0 && !training->clips_twice)
        training->clip_kept_bytes = kept;
    if (compile->training.loss_scale > 0)
        training->scale_kept_bytes = kept;
}

void ul_compile_describe_alternative(struct ul_compile *compile, const struct ul_graph *graph,
                                     const struct ul_program *program, const struct ul_plan *plan,
                                     struct ul_report_alternative *alternative)
{
    UL_ASSERT(alternative->steps == NULL && program->graph == graph);
    alternative->problem = program->problem;
    alternative->steps = describe_steps(compile, graph, program, plan);
    alternative->values = describe_values(compile, graph, program);
}

/* Returns 0 where it is not known. */
static uint64_t find_opset(const struct ul_onnx_model *model)
{
    for (uint32_t i = 0; i < model->opset_count; i++)
        if (model->opsets[i].domain[0] == '\0' && model->opsets[i].version > 0)
            return (uint64_t)model->opsets[i].version;
    return 0;
}

/* The predicted time of a step: of all its runs, the last of which updates. */
static uint64_t step_cost(struct ul_compile *compile)
{
    const struct ul_plan *plan = &compile->plan;
    uint32_t parts = compile->options.train ? compile->training.micro_batches : 1;
    if (parts <= 1)
        return plan->cost;
    uint64_t cost = 0;
    bool *runs = UL_NEW_ARRAY(&compile->keep, bool, plan->position_count);
    ul_program_mark_entry(compile->program, plan, UL_PROGRAM_ACCUMULATE, &compile->keep, runs);
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        const struct ul_plan_step *step = &compile->program->problem->steps[at->step];
        if (runs[p] && at->substep == 0)
            cost += step->alternatives[at->alternative].cost;
    }
    return plan->cost + (parts - 1) * cost;
}

/* Whether a node widens the value from integers, now or originally. */
static bool is_quantized(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    return info->kind == UL_VALUE_NODE &&
           (ul_op_get(graph->nodes[info->producer].op)->flags & UL_OP_WIDENS) != 0;
}

static const char *why_in_floats(const struct ul_graph *graph, const struct ul_node *node)
{
    bool input = is_quantized(graph, node->inputs[0]);
    bool weights = is_quantized(graph, node->inputs[1]);
    if (input && weights)
        return "its scales have no form in sums of integers";
    return input     ? "its second operand is not quantized"
           : weights ? "its first operand is not quantized"
                     : "its operands are not quantized";
}

/* Notes products in floats, where others are sums of integers. */
static void describe_floats(struct ul_compile *compile)
{
    const struct ul_graph *graph = &compile->graph;
    uint32_t count = 0, integer_count = 0;
    struct ul_saved_float *floats =
        UL_NEW_ARRAY(&compile->keep, struct ul_saved_float, graph->node_count);
    for (uint32_t id = 0; id < graph->node_count; id++) {
        const struct ul_node *node = &graph->nodes[id];
        const struct ul_op_info *row = ul_op_get(node->op);
        if (node->op == UL_OP_NONE || (row->flags & UL_OP_MULTIPLIES) == 0 || node->input_count < 2)
            continue;
        const struct ul_value *result = &graph->values[node->outputs[0]];
        if (ul_dtype_get(result->type.dtype)->is_integer) {
            integer_count++;
            continue;
        }
        floats[count++] =
            (struct ul_saved_float){.node = node->name[0] != '\0' ? node->name : result->name,
                                    .op = row->name,
                                    .why = why_in_floats(graph, node)};
    }
    compile->report.facts.has_in_floats = integer_count > 0 && count > 0;
    compile->report.facts.in_floats = floats;
    compile->report.facts.float_count = integer_count > 0 ? count : 0;
}

static void describe_launches(struct ul_compile *compile)
{
    struct ul_program_launches launches;
    compile->report.facts.has_launches =
        compile->program->options.target->traits.memory_is_separate;
    if (!compile->report.facts.has_launches)
        return;
    ul_program_count_launches(compile->program, &compile->plan, &launches);
    compile->report.facts.launches = (struct ul_saved_launches){
        .count = launches.launch_count,
        .of_libraries = launches.call_count,
        .scalar_products = launches.scalar_count,
        .shared_ns = launches.shared_ns,
        .narrow_steps = launches.narrow_count,
        .idle_products = launches.idle_count,
        .identity_steps = launches.identity_count,
        .softmaxes = launches.weigh_count,
        .streams = launches.beside_count > 0 ? 2 : 0,
        .on_second_stream = launches.beside_count,
        .waits = launches.wait_count,
    };
}

static void describe_models(struct ul_compile *compile)
{
    struct ul_saved *facts = &compile->report.facts;
    facts->has_models = ul_compile_is_shared(compile);
    facts->model_count = facts->has_models ? compile->root_count : 0;
    facts->models = UL_NEW_ARRAY(&compile->keep, struct ul_saved_model, facts->model_count);
    for (uint32_t r = 0; r < facts->model_count; r++) {
        const struct ul_compile_root *root = &compile->roots[r];
        facts->models[r] = (struct ul_saved_model){.name = root->name,
                                                   .file = ul_file_name(root->path),
                                                   .sha256 = root->part->model.sha256};
    }
    compile->report.model_regions = compile->program->root_regions;
}

static void describe_sizes(struct ul_compile *compile)
{
    const struct ul_program_sized *sized = compile->program->sized;
    struct ul_saved *facts = &compile->report.facts;
    facts->has_sizes = sized != NULL;
    facts->least_reserved_bytes =
        sized != NULL && sized->layout != NULL ? sized->layout->least_bytes : 0;
    facts->size_count = sized != NULL ? sized->size_count : 0;
    facts->sizes = UL_NEW_ARRAY(&compile->keep, struct ul_saved_size, facts->size_count);
    for (uint32_t s = 0; s < facts->size_count; s++) {
        const struct ul_program_size *size = &sized->sizes[s];
        uint32_t *values = UL_NEW_ARRAY(&compile->keep, uint32_t, size->value_count);
        for (uint32_t v = 0; v < size->value_count; v++)
            values[v] = (uint32_t)size->values[v];
        facts->sizes[s] = (struct ul_saved_size){.name = size->name,
                                                 .low = (uint64_t)size->low,
                                                 .high = (uint64_t)size->high,
                                                 .step = (uint64_t)size->step,
                                                 .values = size->value_count > 0 ? values : NULL,
                                                 .values_count = size->value_count};
    }
}

/* The pieces of a range of sizes, where there are several. */
static void describe_pieces(struct ul_compile *compile)
{
    const struct ul_program_sized *sized = compile->program->sized;
    struct ul_saved *facts = &compile->report.facts;
    facts->piece_count = sized != NULL && compile->root_count > 0 ? compile->root_count : 0;
    facts->has_pieces = facts->piece_count > 0;
    facts->pieces = UL_NEW_ARRAY(&compile->keep, struct ul_saved_piece, facts->piece_count);
    for (uint32_t p = 0; p < facts->piece_count; p++) {
        struct ul_text text;
        ul_text_init(&text, &compile->keep);
        for (uint32_t s = 0; s < sized->size_count; s++)
            ul_text_printf(&text, "%s%s = %lld", s == 0 ? "" : ", ", sized->sizes[s].name,
                           (long long)sized->pieces[p][s].high);
        facts->pieces[p].sizes = text.data;
    }
}

void ul_compile_describe(struct ul_compile *compile)
{
    struct ul_saved *facts = &compile->report.facts;
    compile->report.problem = compile->program->problem;
    compile->report.plan = &compile->plan;
    facts->model =
        ul_compile_is_shared(compile) ? compile->model.path : ul_file_name(compile->model.path);
    facts->model_sha256 = compile->model.sha256;
    facts->opset = find_opset(&compile->model);
    facts->target = compile->options.target;
    const struct ul_libraries *libraries = compile->program->options.libraries;
    facts->library = libraries != NULL ? libraries->name : NULL;
    facts->for_precision.uncalled_count = compile->program->uncalled_count;
    facts->cudnn = compile->cudnn;
    facts->budget_bytes = compile->options.budget_bytes;
    facts->budget_of = compile->options.budget_of == UL_BUDGET_ARENA ? "arena" : "process";
    struct ul_footprint footprint;
    ul_footprint_count(compile->program, &compile->plan, ul_compile_is_process(compile),
                       &footprint);
    ul_compile_describe_process(&footprint, facts);
    compile->report.overhead =
        ul_footprint_overhead(compile->program, ul_compile_is_process(compile));
    describe_flash(compile);
    describe_launches(compile);
    compile->report.steps =
        describe_steps(compile, &compile->graph, compile->program, &compile->plan);
    compile->report.values = describe_values(compile, &compile->graph, compile->program);
    describe_floats(compile);
    describe_models(compile);
    describe_sizes(compile);
    describe_pieces(compile);
    describe_options(compile);
    describe_training(compile);
    facts->step_cost = step_cost(compile);
}

/* ---- A case of a table ---- */

static bool begins_with(const struct ul_graph *graph, ul_value_id value, int64_t size)
{
    const struct ul_type *type = &graph->values[value].type;
    return type->rank > 0 && type->dims[0] == size;
}

/* The first dimension of the first input, where it can be the number of samples: where training has
 * them, or where all inputs and outputs begin with it; else 0. */
static int64_t sample_count(const struct ul_compile *compile)
{
    const struct ul_graph *graph = &compile->graph;
    if (graph->root_count > 1)
        return 0; /* each model has its own */
    const struct ul_block *root = ul_graph_only_root(graph);
    if (root->input_count == 0 || graph->values[root->inputs[0]].type.rank == 0)
        return 0;
    int64_t size = graph->values[root->inputs[0]].type.dims[0];
    bool all = true;
    for (uint32_t i = 0; i < root->input_count; i++)
        all = all && begins_with(graph, root->inputs[i], size);
    for (uint32_t i = 0; i < root->output_count; i++)
        all = all && begins_with(graph, root->outputs[i], size);
    return all || compile->options.train ? size : 0;
}

struct ul_saved_table_plan ul_compile_note(const struct ul_compile *compile)
{
    const struct ul_plan *plan = &compile->plan;
    struct ul_process_overhead overhead = ul_compile_overhead(compile, compile->program);
    uint32_t parts = compile->options.train ? compile->training.micro_batches : 1;
    struct ul_saved_table_plan result = {
        .status = plan->fits ? UL_OK : UL_NO_FIT,
        .is_planned = true,
        .reserved_bytes = plan->reserved_bytes[0],
        .process_bytes = compile->report.facts.process_bytes,
        .bounded_bytes = ul_plan_bounded_bytes(&overhead, plan),
        .bounds_buffer = compile->options.budget_of == UL_BUDGET_ARENA,
        .process_of = compile->report.facts.process_of,
        .budget_bytes = compile->options.budget_bytes,
        .cost = compile->report.facts.step_cost,
        .weight_elements = compile->weight_elements,
        .overhead = ul_plan_overhead(plan->cost, plan->base_cost),
        .sample_count = (uint64_t)sample_count(compile) * parts,
        .largest = compile->report.facts.max_batch.size + compile->report.facts.max_dim.size,
        .recomputed_steps = ul_report_recomputed(plan),
        .splits = compile->options.splits.count,
        .row_major = compile->options.row_major.count,
        .inside = compile->options.inside.count};
    if (plan->position_count > 0) {
        struct ul_report_step peak = ul_report_step_at(&compile->report, plan->peak_position);
        result.has_peak = true;
        result.peak =
            (struct ul_saved_table_peak){.node = peak.node, .op = peak.op, .source = peak.source};
    }
    return result;
}
