/* SPDX-License-Identifier: Apache-2.0 */
/* --quantize-activations: turns a float32 network into one of integers, by data that it is run on.
 *
 * Method: the model is read and simplified as far as ONNX can express it (BatchNormalization goes
 * into weights). quantize_graph.c chooses the values that become integers. The graph with these
 * values as outputs is compiled and run on each sample, and their numbers are counted
 * (quantize_range.c). QuantizeLinear and DequantizeLinear are inserted, and the graph is written as
 * ONNX. From then on that file is the model: what is compiled is what is saved, bit for bit. Left
 * undone: sizes are those of the options, so a symbolic batch is a number in the file. */
#define _XOPEN_SOURCE 700
#include "compile/compile_internal.h"
#include "compile/quantize/quantize_graph.h"
#include "ir/op_names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OBSERVED "observed.onnx" /* in the folder: a model that outputs the values to count, */
#define QUANTIZED "quantized"    /* and a folder for the result */

struct quantizer {
    struct ul_compile *compile; /* the caller's; its folder and diag */
    struct ul_compile source;   /* of the float32 model */
    struct ul_quantize_data data;
    struct ul_quantize_choice choice;
    struct ul_counts **counts; /* by the first value of a group; NULL: not observed */
    const char *program;       /* computes the values; NULL: they are all inputs */
};

static const char *inside(struct quantizer *quantizer, const char *name)
{
    return ul_arena_printf(&quantizer->compile->keep, "%s/%s", quantizer->compile->quantized_folder,
                           name);
}

/* ---- the request ---- */

static enum ul_status check_options(struct ul_compile *compile)
{
    const struct ul_compile_options *options = &compile->options;
    const char *other = options->train                           ? "--train"
                        : options->plan != NULL                  ? "--plan"
                        : options->max_batch                     ? "--max-batch"
                        : options->max_dim != NULL               ? "--max-dim"
                        : options->precision != UL_PRECISION_F32 ? "--precision"
                                                                 : NULL;
    if (ul_compile_has_ranges(options) || ul_compile_has_sets(options))
        return ul_diag_set(
            &compile->diag, UL_USAGE,
            "--quantize-activations makes a model of fixed sizes: give each size one "
            "value");
    if (other == NULL)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_USAGE,
                       "--quantize-activations does not go with %s; save the quantized model with "
                       "--save-quantized and give it that",
                       other);
}

static bool is_quantizing(ul_op_id op)
{
    return op == UL_OP_QuantizeLinear || op == UL_OP_DequantizeLinear ||
           op == UL_OP_DynamicQuantizeLinear;
}

/* Called before passes compute with the integers of a quantized model. */
static enum ul_status check_floats(struct quantizer *quantizer)
{
    const struct ul_graph *graph = &quantizer->source.graph;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (is_quantizing(graph->nodes[i].op))
            return ul_diag_set(&quantizer->source.diag, UL_UNSUPPORTED,
                               "--quantize-activations: the model is quantized already, as %s "
                               "shows; compile it as it is",
                               ul_node_describe(graph, i, &quantizer->compile->keep));
    }
    return UL_OK;
}

static enum ul_status check_choice(struct quantizer *quantizer)
{
    if (quantizer->choice.anchor_count > 0)
        return UL_OK;
    return ul_diag_set(&quantizer->compile->diag, UL_UNSUPPORTED,
                       "--quantize-activations: the model has no Conv, ConvTranspose, Gemm or "
                       "MatMul of f32 with a constant weight, so nothing would become integers");
}

/* Reads the model as the file of the quantized one will have it, without the quantization. */
static enum ul_status read_model(struct quantizer *quantizer, const char *model_path)
{
    struct ul_compile *source = &quantizer->source, *asked = quantizer->compile;
    ul_options_copy(&source->options.base, &asked->options.base, sizeof source->options);
    enum ul_status status = ul_compile_load(source, model_path);
    if (status == UL_OK) {
        status = check_floats(quantizer);
        if (status == UL_OK)
            status = ul_compile_simplify(source);
        if (status != UL_OK)
            ul_diag_prefix(&source->diag, model_path);
    }
    if (status != UL_OK)
        asked->diag = source->diag;
    return status;
}

/* ---- the program that computes the values ---- */

/* An operator that only moves elements gives its result the range of its operand. */
static bool is_observed(const struct quantizer *quantizer, ul_value_id value)
{
    const struct ul_graph *graph = &quantizer->source.graph;
    const struct ul_quantize_choice *choice = &quantizer->choice;
    const struct ul_value *v = &graph->values[value];
    if (!choice->values[value] || v->kind != UL_VALUE_NODE)
        return false;
    const struct ul_node *node = &graph->nodes[v->producer];
    return !choice->nodes[v->producer] || node->input_count == 0 ||
           choice->groups[node->inputs[0]] != choice->groups[value];
}

/* Names of outputs must serve as names of files. */
static const char *output_name(struct quantizer *quantizer, ul_value_id value)
{
    return ul_arena_printf(&quantizer->compile->keep, "value_%u", (unsigned)value);
}

/* Writes it as an ONNX file; *any is false where only inputs are observed. */
static enum ul_status save_observed(struct quantizer *quantizer, const char *path, bool *any)
{
    struct ul_graph graph;
    ul_graph_copy(&graph, &quantizer->compile->keep, &quantizer->source.graph);
    ul_graph_only_root(&graph)->output_count = 0;
    *any = false;
    for (uint32_t v = 0; v < graph.value_count; v++) {
        if (!is_observed(quantizer, v))
            continue;
        graph.values[v].name = output_name(quantizer, v);
        ul_block_add_output(&graph, 0, v);
        *any = true;
    }
    return *any ? ul_frontend_save(&graph, path, &quantizer->compile->diag) : UL_OK;
}

static enum ul_status make_program(struct ul_compile *observed, const char *model,
                                   const char *directory, const char *program)
{
    UL_TRY(ul_compile_build(observed, model));
    UL_TRY(ul_compile_plan(observed));
    UL_TRY(ul_compile_emit(observed, directory));
    return ul_compile_make(observed, directory, program);
}

/* Builds for the requested target, if this machine can run it. */
static enum ul_status build_program(struct quantizer *quantizer)
{
    struct ul_compile *compile = quantizer->compile;
    const struct ul_compile_options *options = &compile->options;
    const char *model = inside(quantizer, OBSERVED);
    const char *program = inside(quantizer, "observe");
    bool any = false;
    struct ul_compile observed;
    UL_TRY(save_observed(quantizer, model, &any));
    if (!any)
        return UL_OK;
    ul_compile_init(&observed);
    observed.progress = compile->progress;
    observed.progress_context = compile->progress_context;
    const struct ul_target *target =
        options->target != NULL ? ul_target_find(options->target) : NULL;
    bool is_host = target == NULL || !target->traits.memory_is_separate;
    observed.options.target = is_host ? options->target : NULL;
    observed.options.cc = is_host ? options->cc : NULL;
    observed.options.cflags = is_host ? options->cflags : NULL;
    observed.options.runtime_dir = options->runtime_dir;
    enum ul_status status = make_program(&observed, model, inside(quantizer, "source"), program);
    if (status != UL_OK)
        compile->diag = observed.diag;
    ul_compile_done(&observed);
    quantizer->program = program;
    return status;
}

/* ---- counting values ---- */

static enum ul_status count(struct quantizer *quantizer, ul_value_id value,
                            const struct ul_tensor *tensor, uint64_t sample)
{
    const struct ul_graph *graph = &quantizer->source.graph;
    ul_value_id group = quantizer->choice.groups[value];
    struct ul_arena *arena = &quantizer->compile->keep;
    if (quantizer->counts[group] == NULL)
        quantizer->counts[group] = UL_NEW(arena, struct ul_counts);
    if (tensor->data == NULL ||
        ul_counts_add(quantizer->counts[group], tensor->data, ul_type_elements(&tensor->type)))
        return UL_OK;
    return ul_diag_set(&quantizer->compile->diag, UL_INVALID,
                       "%s: on sample %llu the value %s is infinite or no number; leave that "
                       "sample out",
                       quantizer->compile->options.quantize_activations, (unsigned long long)sample,
                       ul_quote(arena, graph->values[value].name));
}

static enum ul_status count_outputs(struct quantizer *quantizer, uint64_t sample)
{
    const struct ul_graph *graph = &quantizer->source.graph;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        struct ul_arena scratch;
        const struct ul_tensor *tensor = NULL;
        if (!is_observed(quantizer, v))
            continue;
        const char *file = inside(quantizer, ul_arena_printf(&quantizer->compile->keep, "%s.npy",
                                                             output_name(quantizer, v)));
        ul_arena_init(&scratch);
        enum ul_status status =
            ul_tensor_read_file(&scratch, file, &tensor, &quantizer->compile->diag);
        if (status == UL_OK)
            status = count(quantizer, v, tensor, sample);
        ul_arena_done(&scratch);
        UL_TRY(status);
    }
    return UL_OK;
}

/* Reports a failure in the program's own words, if it explained it. */
static enum ul_status say_failure(struct quantizer *quantizer, const char *printed, int code)
{
    struct ul_compile *compile = quantizer->compile;
    struct ul_diag quiet = {.status = UL_OK};
    struct ul_file file = {.data = NULL};
    const char *words = "";
    if (ul_file_map(&file, &compile->keep, printed, &quiet) == UL_OK) {
        size_t length = 0;
        while (length < file.size_bytes && file.data[length] != '\n' && length < 200)
            length++;
        words = ul_arena_printf(&compile->keep, "%.*s", (int)length, (const char *)file.data);
        ul_file_unmap(&file);
    }
    UL_TRY(ul_process_check(&compile->keep, "the program that runs the network", code, printed,
                            1 << 16, &compile->diag));
    return ul_diag_set(&compile->diag, code == (int)UL_IO ? UL_IO : UL_INVALID,
                       "%s: the network does not run on it (%s): %s",
                       compile->options.quantize_activations,
                       ul_process_end_text(&compile->keep, code), words);
}

static enum ul_status run_sample(struct quantizer *quantizer, uint64_t sample)
{
    struct ul_arena *arena = &quantizer->compile->keep;
    const struct ul_graph *graph = &quantizer->source.graph;
    const char **argv =
        UL_NEW_ARRAY(arena, const char *, 2 * (uint64_t)quantizer->data.input_count + 4);
    const char *printed = inside(quantizer, "printed");
    uint32_t argc = 0;
    if (quantizer->program == NULL)
        return UL_OK;
    argv[argc++] = quantizer->program;
    for (uint32_t i = 0; i < quantizer->data.input_count; i++) {
        const char *name = graph->values[ul_graph_only_root(graph)->inputs[i]].name;
        const char *file = inside(quantizer, ul_arena_printf(arena, "input_%u.npy", (unsigned)i));
        struct ul_arena scratch;
        ul_arena_init(&scratch);
        enum ul_status status = ul_quantize_write(&scratch, graph, &quantizer->data, i, sample,
                                                  file, &quantizer->compile->diag);
        ul_arena_done(&scratch);
        UL_TRY(status);
        argv[argc++] = "--input";
        argv[argc++] = ul_arena_printf(arena, "%s=%s", name, file);
    }
    argv[argc++] = "--output-dir";
    argv[argc++] = quantizer->compile->quantized_folder;
    int code = ul_process_run(argv, printed);
    if (code != 0)
        return say_failure(quantizer, printed, code);
    return count_outputs(quantizer, sample);
}

/* Counts inputs that are quantized, which needs no program. */
static enum ul_status count_inputs(struct quantizer *quantizer)
{
    const struct ul_graph *graph = &quantizer->source.graph;
    const struct ul_block *root = ul_graph_only_root(graph);
    for (uint32_t i = 0; i < root->input_count; i++) {
        if (quantizer->choice.values[root->inputs[i]])
            UL_TRY(count(quantizer, root->inputs[i], quantizer->data.tensors[i], 0));
    }
    return UL_OK;
}

static enum ul_status observe(struct quantizer *quantizer)
{
    struct ul_compile *compile = quantizer->compile;
    uint64_t total = quantizer->data.sample_count;
    quantizer->counts =
        UL_NEW_ARRAY(&compile->keep, struct ul_counts *, quantizer->source.graph.value_count);
    UL_TRY(build_program(quantizer));
    UL_TRY(count_inputs(quantizer));
    enum ul_status status = UL_OK;
    for (uint64_t i = 0; i < total && status == UL_OK; i++) {
        ul_compile_progress(compile,
                            ul_arena_printf(&compile->keep, "running sample %llu of %llu",
                                            (unsigned long long)i + 1, (unsigned long long)total));
        status = run_sample(quantizer, i);
    }
    ul_compile_progress(compile, NULL);
    return status;
}

/* ---- the whole ---- */

static enum ul_status write_quantized(struct quantizer *quantizer, const char *path)
{
    struct ul_compile *source = &quantizer->source;
    uint32_t value_count = source->graph.value_count;
    struct ul_quantize_step *steps =
        UL_NEW_ARRAY(&source->keep, struct ul_quantize_step, value_count);
    for (uint32_t v = 0; v < value_count; v++) {
        if (quantizer->counts[v] != NULL)
            steps[v] =
                ul_counts_choose(quantizer->counts[v], quantizer->compile->options.calibration);
    }
    ul_quantize_insert(&source->keep, &source->graph, &quantizer->choice, steps);
    UL_TRY(ul_graph_verify(&source->graph, &quantizer->compile->diag));
    return ul_frontend_save(&source->graph, path, &quantizer->compile->diag);
}

static enum ul_status quantize(struct quantizer *quantizer, const char *model_path,
                               const char *path)
{
    struct ul_compile *compile = quantizer->compile;
    const char *data_path = compile->options.quantize_activations;
    struct ul_file file;
    ul_compile_progress(compile, "reading and simplifying the model");
    enum ul_status status = read_model(quantizer, model_path);
    ul_compile_progress(compile, NULL);
    UL_TRY(status);
    ul_quantize_choose(&compile->keep, &quantizer->source.graph, &quantizer->choice);
    UL_TRY(check_choice(quantizer));
    UL_TRY(ul_file_map(&file, &compile->keep, data_path, &compile->diag));
    status = ul_quantize_read(&compile->keep, &quantizer->source.graph, &file, data_path,
                              &quantizer->data, &compile->diag);
    if (status == UL_OK)
        status = observe(quantizer);
    ul_file_unmap(&file);
    UL_TRY(status);
    return write_quantized(quantizer, path);
}

/* Drops options that the file has taken up: it is the model from now on. */
static void forget(struct ul_compile *compile)
{
    static const char *const names[] = {"dim",    "shape",       "const",
                                        "output", "calibration", "quantize-activations"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ul_option_clear(&compile->options.base, ul_option_find(&ul_compile_option_table, names[i]));
}

/* The file has the model's name, which plans and programs show. */
static const char *quantized_name(struct ul_arena *arena, const struct ul_compile *compile)
{
    const char *name = ul_file_name(compile->quantized_from);
    return ul_arena_printf(arena, "%s/%s/%s", compile->quantized_folder, QUANTIZED,
                           strcmp(name, "-") == 0 ? "model.onnx" : name);
}

enum ul_status ul_compile_quantize(struct ul_compile *compile, const char *model_path,
                                   const char **quantized_path)
{
    struct quantizer quantizer = {.compile = compile};
    UL_ASSERT(!compile->loaded && compile->quantized_folder == NULL);
    *quantized_path = model_path;
    if (compile->options.quantize_activations == NULL) {
        if (compile->options.calibration == UL_CALIBRATION_MINMAX)
            return UL_OK;
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--calibration is for --quantize-activations DATA.npz");
    }
    UL_TRY(check_options(compile));
    UL_TRY(ul_temporary_make(&compile->keep, &compile->quantized_folder, &compile->diag));
    compile->quantized_from = model_path;
    const char *folder = inside(&quantizer, QUANTIZED);
    const char *path = quantized_name(&compile->keep, compile);
    if (mkdir(folder, 0777) != 0)
        return ul_diag_set(&compile->diag, UL_IO, "%s: cannot make the folder", folder);
    ul_compile_init(&quantizer.source);
    enum ul_status status = quantize(&quantizer, model_path, path);
    ul_compile_done(&quantizer.source);
    if (status != UL_OK)
        ul_temporary_explain(compile->quantized_folder, &compile->diag);
    UL_TRY(status);
    *quantized_path = path;
    forget(compile);
    return UL_OK;
}

/* Replaces the first `from` with `to`. */
static void rename_in(struct ul_diag *diag, const char *from, const char *to)
{
    char old[UL_LIMIT_DIAG_BYTES];
    memcpy(old, diag->text, sizeof old);
    const char *at = strstr(old, from);
    if (at == NULL)
        return;
    int length = snprintf(diag->text, sizeof diag->text, "%.*s%s%s", (int)(at - old), old, to,
                          at + strlen(from));
    if (length >= (int)sizeof diag->text)
        memcpy(diag->text + sizeof diag->text - 4, "...", 4);
}

void ul_compile_name_source(struct ul_compile *compile)
{
    if (compile->quantized_folder == NULL)
        return;
    struct ul_arena *arena = &compile->keep;
    rename_in(&compile->diag, quantized_name(arena, compile), compile->quantized_from);
    rename_in(&compile->diag, ul_arena_printf(arena, "%s/%s", compile->quantized_folder, OBSERVED),
              compile->quantized_from);
}
