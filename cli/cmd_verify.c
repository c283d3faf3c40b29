/* SPDX-License-Identifier: Apache-2.0 */
/* ullage verify: compiles a model, runs it, and compares its outputs with ONNX's recorded
 * test_data_set folders where there are any; else, on random inputs, with onnxruntime, where
 * python3 has it; else with the same model compiled without passes and without reuse of memory.
 *
 * An operator may need an input at compile time (a shape, axes, k). Then that input is taken from
 * the data as a constant: first the small integer inputs, then all small ones. */
#define _XOPEN_SOURCE 700
#include "cli/cli.h"
#include "ir/op.h"
#include "ir/view.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SMALL_ELEMENTS = 4096,
    NOT_RUN = 127, /* exit code of a program that the system cannot run */
    ROOM = 1 << 16 /* bytes that any run may print or write */
};

/* ---- one attempt: a job of its own, with other constants ---- */

enum attempt { ATTEMPT_PLAIN, ATTEMPT_INTEGERS, ATTEMPT_SMALL, ATTEMPT_COUNT };

/* Norm errors between two ways in which the reference computes an output. */
struct noise {
    double optimised; /* with its optimisations */
    double moved;     /* with inputs moved by 1e-5 */
    double rounded;   /* with inputs moved by what f32 rounds */
};

/* A recorded tensor, which is an input of the program. */
struct recorded_input {
    const char *name; /* the input's name */
    const char *path; /* the file */
    const struct ul_tensor *tensor;
    uint32_t port;           /* index into the list of inputs */
    bool is_item;            /* the file holds a sequence with this tensor */
    bool fixed;              /* made constant in this attempt */
    struct ul_cli_edge edge; /* for --no-float */
};

struct ports {
    uint32_t count, capacity;
    struct ul_model_port *items;
};

struct verification {
    bool is_random;           /* the set holds random inputs and another runtime's outputs */
    struct ul_cli_job *outer; /* options and diag */
    const char *model;
    const char *work;     /* temporary folder */
    const char *set;      /* test data folder, or NULL */
    const char *set_name; /* its name in messages */
    struct ports
        ports; /* the model's inputs; for a sequence, its tensors where their number is known */
    uint32_t input_count, input_capacity;
    struct recorded_input *inputs; /* inputs of the set */
    const char *program;
    bool quantizes;       /* the model rounds to integers */
    struct noise noise;   /* the largest of those of the outputs */
    struct noise *noises; /* for each output */
    uint32_t noise_count;
    enum ul_dtype least;       /* the float type of fewest bits on which an output depends */
    enum ul_dtype *leasts;     /* for each output */
    struct ports outputs;      /* outputs of the program */
    struct ul_cli_edge *edges; /* for --no-float: for each output */
    const char *reference;     /* for the verdict */
};

static bool is_integer_like(enum ul_dtype dtype)
{
    return ul_dtype_get(dtype)->is_integer || dtype == UL_BOOL;
}

static bool fixes(enum attempt attempt, const struct ul_tensor *tensor)
{
    if (attempt == ATTEMPT_PLAIN || ul_type_elements(&tensor->type) > SMALL_ELEMENTS)
        return false;
    return tensor->type.rank <= 1 &&
           (attempt == ATTEMPT_SMALL || is_integer_like(tensor->type.dtype));
}

/* Gives the compile the set's shapes and constants. */
static void apply_inputs(struct verification *verification, struct ul_compile *compile,
                         enum attempt attempt)
{
    struct ul_compile_options *options = &compile->options;
    for (uint32_t i = 0; i < verification->input_count; i++) {
        struct recorded_input *input = &verification->inputs[i];
        const struct ul_type *type = &input->tensor->type;
        struct ul_named_size shape = {.name = input->name, .rank = type->rank};
        input->fixed = !input->is_item && fixes(attempt, input->tensor);
        for (uint32_t d = 0; d < type->rank; d++)
            shape.dims[d] = type->dims[d];
        if (input->fixed)
            ul_pairs_add(&compile->keep, &options->consts, input->name, input->path);
        else if (type->rank > 0 || input->is_item)
            ul_named_sizes_add(&compile->keep, &options->shapes, &shape);
    }
}

static bool quantizes(const struct ul_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if ((ul_op_get(graph->nodes[i].op)->flags & UL_OP_QUANTIZES) != 0)
            return true;
    }
    return false;
}

static enum ul_dtype lesser(enum ul_dtype a, enum ul_dtype b)
{
    if (a == UL_I8 || b == UL_I8)
        return UL_I8;
    if (a == UL_BF16 || b == UL_BF16)
        return UL_BF16;
    return a == UL_F16 || b == UL_F16 ? UL_F16 : UL_F32;
}

/* The least type of what a node computes; inputs and weights may be stored in smaller types. I8
 * stands for values computed from floats that were rounded to it: where the model allows that in a
 * product, this program or the reference may do it or not. */
static enum ul_dtype node_least(const struct ul_graph *graph, const struct ul_node *node)
{
    enum ul_dtype least = ul_node_get_int(node, "accuracy_level", 0) == 4 ? UL_I8 : UL_F32;
    for (uint32_t k = 0; node->op != UL_OP_NONE && k < node->output_count; k++) {
        if (node->outputs[k] == UL_NONE)
            continue;
        enum ul_dtype dtype = ul_value_edge_type(graph, node->outputs[k]).dtype;
        least = lesser(least, ul_dtype_get(dtype)->is_float ? dtype : UL_F32);
    }
    return least;
}

/* Finds the types on which each output depends; after nodes with graphs of their own, it depends on
 * the whole graph. */
static void find_leasts(struct verification *verification, const struct ul_graph *graph)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    const struct ul_block *root = ul_graph_only_root(graph);
    enum ul_dtype *of_value = UL_NEW_ARRAY(arena, enum ul_dtype, graph->value_count + 1);
    enum ul_dtype of_all = UL_F32;
    for (uint32_t i = 0; i < graph->node_count; i++)
        of_all = lesser(of_all, node_least(graph, &graph->nodes[i]));
    for (uint32_t i = 0; i < root->node_count; i++) {
        const struct ul_node *node = &graph->nodes[root->nodes[i]];
        enum ul_dtype least = node->block_count > 0 ? of_all : node_least(graph, node);
        for (uint32_t k = 0; k < node->input_count; k++)
            least = node->inputs[k] == UL_NONE ? least : lesser(least, of_value[node->inputs[k]]);
        for (uint32_t k = 0; k < node->output_count; k++) {
            if (node->outputs[k] != UL_NONE)
                of_value[node->outputs[k]] = least;
        }
    }
    verification->leasts = UL_NEW_ARRAY(arena, enum ul_dtype, root->output_count + 1);
    verification->least = UL_F32;
    for (uint32_t i = 0; i < root->output_count; i++) {
        verification->leasts[i] = lesser(UL_F32, of_value[root->outputs[i]]);
        verification->least = lesser(verification->least, verification->leasts[i]);
    }
}

static struct ul_cli_edge edge_of(const struct ul_graph *graph, ul_value_id id)
{
    const struct ul_value *value = &graph->values[id];
    return (struct ul_cli_edge){ul_value_edge_type(graph, id).dtype, value->edge_scale,
                                value->edge_zero};
}

/* Finds inputs and outputs of the program that are integers in place of the model's floats. */
static void find_edges(struct verification *verification, const struct ul_graph *graph)
{
    const struct ul_block *root = ul_graph_only_root(graph);
    verification->edges = UL_NEW_ARRAY(&verification->outer->compile.keep, struct ul_cli_edge,
                                       (uint64_t)root->output_count + 1);
    for (uint32_t i = 0; i < verification->input_count; i++) {
        for (uint32_t k = 0; k < root->input_count; k++) {
            if (strcmp(graph->values[root->inputs[k]].name, verification->inputs[i].name) == 0)
                verification->inputs[i].edge = edge_of(graph, root->inputs[k]);
        }
    }
    for (uint32_t i = 0; i < root->output_count; i++)
        verification->edges[i] = edge_of(graph, root->outputs[i]);
}

static void add_port(struct ul_arena *arena, struct ports *ports, const struct ul_model_port *port)
{
    struct ul_model_port own = *port;
    own.name = ul_arena_copy_string(arena, port->name);
    own.sequence = port->sequence == NULL ? NULL : ul_arena_copy_string(arena, port->sequence);
    UL_GROW(arena, ports->items, ports->count, ports->capacity);
    ports->items[ports->count++] = own;
}

/* Lists the program's outputs: the model's, then those for overwritten values. */
static void list_outputs(struct verification *verification, const struct ul_compile *compile)
{
    const struct ul_block *root = ul_graph_only_root(&compile->graph);
    const struct ul_onnx_model *model = &compile->model;
    verification->outputs.count = 0;
    for (uint32_t i = 0; i < root->output_count; i++) {
        struct ul_model_port port = {.kind = "tensor"};
        port.name = compile->graph.values[root->outputs[i]].name;
        add_port(&verification->outer->compile.keep, &verification->outputs,
                 i < model->output_count ? &model->outputs[i] : &port);
    }
}

static enum ul_status make_program(struct verification *verification, struct ul_compile *compile,
                                   const char *program)
{
    const char *directory = ul_arena_printf(&compile->keep, "%s/source", verification->work);
    UL_TRY(ul_compile_build(compile, verification->model));
    UL_TRY(ul_compile_plan(compile));
    enum ul_status status = ul_compile_emit(compile, directory);
    if (status == UL_OK)
        status = ul_compile_make(compile, directory, program);
    ul_tree_remove(directory);
    return status;
}

static enum ul_status build_attempt(struct verification *verification,
                                    const struct ul_compile_options *options, enum attempt attempt,
                                    const char *program, struct ul_diag *diag)
{
    struct ul_compile compile;
    ul_compile_init(&compile);
    compile.progress = ul_cli_progress;
    ul_options_copy(&compile.options.base, &options->base, sizeof compile.options);
    apply_inputs(verification, &compile, attempt);
    enum ul_status status = make_program(verification, &compile, program);
    *diag = compile.diag;
    verification->quantizes = options->no_float || quantizes(&compile.graph);
    if (status == UL_OK) {
        list_outputs(verification, &compile);
        find_leasts(verification, &compile.graph);
        find_edges(verification, &compile.graph);
    }
    ul_compile_done(&compile);
    return status;
}

/* ---- recorded data ---- */

/* Whether the options give this tensor of a sequence a shape or a value. */
static bool is_known(const struct ul_cli_job *job, const char *input)
{
    const struct ul_pairs *consts = &job->compile.options.consts;
    if (ul_named_sizes_find(&job->compile.options.shapes, input) != NULL)
        return true;
    for (uint32_t i = 0; i < consts->count; i++)
        if (strcmp(consts->items[i].name, input) == 0)
            return true;
    return false;
}

/* Lists the program's inputs: the model's, where a sequence is replaced by its tensors if the
 * options describe them, as in random data. */
static void list_ports(struct verification *verification)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    const struct ul_onnx_model *model = &verification->outer->compile.model;
    verification->ports.count = 0;
    for (uint32_t i = 0; i < model->input_count; i++) {
        const struct ul_model_port *port = &model->inputs[i];
        uint32_t before = verification->ports.count;
        struct ul_model_port item = {.kind = "tensor", .sequence = port->name};
        for (uint32_t k = 0; strcmp(port->kind, "sequence") == 0; k++) {
            item.name = ul_sequence_item_name(arena, port->name, k);
            if (!is_known(verification->outer, item.name))
                break;
            add_port(arena, &verification->ports, &item);
        }
        if (verification->ports.count == before)
            add_port(arena, &verification->ports, port);
    }
}

/* The program's name for a tensor of a file. */
static const char *tensor_name(struct ul_arena *arena, const struct ports *ports,
                               const struct ul_recorded *file, uint32_t item)
{
    const struct ul_model_port *port = &ports->items[file->port];
    if (strcmp(file->kind, "sequence") != 0)
        return port->name;
    return ul_sequence_item_name(arena, port->sequence != NULL ? port->sequence : port->name, item);
}

static enum ul_status read_input(struct verification *verification, const struct ul_recorded *file)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    const struct ul_model_port *port = &verification->ports.items[file->port];
    const struct ul_tensor **tensors;
    uint32_t count;
    if (strcmp(file->kind, "tensor") == 0 && strcmp(port->kind, "tensor") != 0)
        return ul_diag_set(&verification->outer->compile.diag, UL_INVALID,
                           "%s: holds a tensor, and the model's input is a %s", file->path,
                           port->kind);
    UL_TRY(ul_recorded_read(arena, file, &tensors, &count, &verification->outer->compile.diag));
    if (count == 0)
        return ul_diag_set(
            &verification->outer->compile.diag, UL_UNSUPPORTED,
            "%s: holds a sequence without a tensor, which a program has no input for", file->path);
    for (uint32_t k = 0; k < count; k++) {
        UL_GROW(arena, verification->inputs, verification->input_count,
                verification->input_capacity);
        verification->inputs[verification->input_count++] =
            (struct recorded_input){.name = tensor_name(arena, &verification->ports, file, k),
                                    .path = file->path,
                                    .tensor = tensors[k],
                                    .port = file->port,
                                    .is_item = strcmp(file->kind, "sequence") == 0};
    }
    return UL_OK;
}

static enum ul_status read_inputs(struct verification *verification)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    const struct ports *ports = &verification->ports;
    struct ul_recorded *files;
    uint32_t count;
    list_ports(verification);
    UL_TRY(ul_recorded_list(arena, verification->set, "input", ports->items, ports->count, &files,
                            &count, &verification->outer->compile.diag));
    verification->input_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (files[i].port != UL_NONE)
            UL_TRY(read_input(verification, &files[i]));
    }
    return UL_OK;
}

/* Shows what a program printed into the file `path`, with the name that the user knows in place of
 * the temporary folder `folder`. */
static void show_output(struct verification *verification, const char *path, const char *folder)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_file file;
    if (ul_file_map(&file, arena, path, &diag) != UL_OK)
        return;
    const char *text =
        ul_arena_printf(arena, "%.*s", (int)file.size_bytes, (const char *)file.data);
    for (const char *hit; (hit = strstr(text, folder)) != NULL; text = hit + strlen(folder))
        ul_cli_say(stdout, "%.*s%s", (int)(hit - text), text, verification->set_name);
    ul_cli_say(stdout, "%s", text);
    ul_file_unmap(&file);
}

/* Makes the file in the folder: a link, or, where the program has something else in place of the
 * file's tensor, a file: a tensor of a sequence, or the integers of a program without floats. */
static enum ul_status link_tensor(struct verification *verification, const char *source,
                                  const struct ul_tensor *tensor, bool is_item, const char *name,
                                  const struct ul_cli_edge *edge, const char *target)
{
    struct ul_diag *diag = &verification->outer->compile.diag;
    if (is_item || edge->scale != 0)
        return ul_cli_write_edge(tensor, source, name, edge, target, diag);
    char *real = realpath(source, NULL);
    bool is_made = real != NULL && symlink(real, target) == 0;
    free(real);
    return is_made ? UL_OK : ul_diag_set(diag, UL_IO, "%s: %s", source, strerror(errno));
}

/* Makes files for an output's tensors, from number *number on. */
static enum ul_status link_output(struct verification *verification, const char *folder,
                                  const struct ul_recorded *file, uint32_t *number)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    const struct ports *outputs = &verification->outputs;
    const struct ul_cli_edge *edges = &verification->edges[file->port];
    const struct ul_tensor *const none = NULL, *const *tensors = &none;
    uint32_t count = 1;
    bool is_items = strcmp(file->kind, "tensor") != 0;
    if (is_items || edges->scale != 0) {
        const struct ul_tensor **read;
        UL_TRY(ul_recorded_read(arena, file, &read, &count, &verification->outer->compile.diag));
        tensors = read;
    }
    if (count != file->width)
        return ul_diag_set(&verification->outer->compile.diag, UL_MISMATCH,
                           "%s: holds a sequence of %u tensors, the program makes %u", file->path,
                           (unsigned)count, (unsigned)file->width);
    for (uint32_t k = 0; k < count; k++)
        UL_TRY(link_tensor(
            verification, file->path, tensors[k], is_items, tensor_name(arena, outputs, file, k),
            &edges[k], ul_arena_printf(arena, "%s/output_%u.pb", folder, (unsigned)(*number)++)));
    return UL_OK;
}

static enum ul_status link_outputs(struct verification *verification, const char *folder)
{
    const struct ports *outputs = &verification->outputs;
    struct ul_recorded *files;
    uint32_t count, number = 0;
    UL_TRY(ul_recorded_list(&verification->outer->compile.keep, verification->set, "output",
                            outputs->items, outputs->count, &files, &count,
                            &verification->outer->compile.diag));
    for (uint32_t i = 0; i < count; i++) {
        if (files[i].port != UL_NONE)
            UL_TRY(link_output(verification, folder, &files[i], &number));
    }
    return UL_OK;
}

/* Makes a folder of links to the set's files, with the numbers of the program's own inputs and
 * outputs. */
static enum ul_status link_data(struct verification *verification, const char *folder)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    uint32_t number = 0;
    if (mkdir(folder, 0777) != 0)
        return ul_diag_set(&verification->outer->compile.diag, UL_IO, "%s: %s", folder,
                           strerror(errno));
    for (uint32_t p = 0; p < verification->ports.count; p++) {
        for (uint32_t i = 0; i < verification->input_count; i++) {
            const struct recorded_input *input = &verification->inputs[i];
            if (input->fixed || input->port != p)
                continue;
            UL_TRY(link_tensor(verification, input->path, input->tensor, input->is_item,
                               input->name, &input->edge,
                               ul_arena_printf(arena, "%s/input_%u.pb", folder, (unsigned)number)));
            number++;
        }
    }
    return link_outputs(verification, folder);
}

/* What an output of that type or the options store or multiply in less than f32; NULL: nothing. */
static const char *rounded_of(const struct verification *verification, enum ul_dtype least)
{
    const struct ul_compile_options *options = &verification->outer->compile.options;
    if (least == UL_I8)
        return "int8";
    if (options->precision == UL_PRECISION_BF16 || least == UL_BF16)
        return "bf16";
    if (options->precision == UL_PRECISION_F16 || least == UL_F16)
        return "fp16";
    return options->tf32 ? "tf32" : NULL;
}

static const char *rounded(const struct verification *verification)
{
    return rounded_of(verification, verification->least);
}

/* Ends a message with a reason why the difference may be no defect. */
static const char *excuse(const struct verification *verification)
{
    if (verification->outer->compile.options.quantize.count > 0)
        return "\n--quantize rounds weights to few bits, and the norm error is what that costs: "
               "give --norm X\nwhere that much is right";
    if (verification->outer->compile.options.no_float)
        return "\n--no-float rounds scales and the middle of two integers elsewhere, and layers "
               "carry "
               "such\nsteps on: give --steps N where that many are right";
    if (!verification->quantizes || rounded(verification) == NULL)
        return "";
    return "\nThe model quantizes: a value that less than f32 moves over a boundary is a whole "
           "step "
           "of its\nintegers away. Look at the norm error, and give --norm X where that much is "
           "right";
}

/* A difference within this limit is no error, since the reference differs as much from itself. The
 * limit is twice what its optimisations change, or ten times what one rounding of its inputs
 * changes, since a program rounds in each step. It is at most a tenth, however much last bits
 * matter in an output. */
static double noise_limit(const struct noise *noise)
{
    return fmin(fmax(2 * noise->optimised, 10 * noise->rounded), 0.1);
}

/* The norm error at which an output is right whatever its elements are; 0: only elements count.
 * Near zero, where terms cancel, another order of summing differs by the size of the terms: there
 * the norm counts as well, and wherever less than f32 is stored or multiplied. The limits are those
 * of runtime/host/ul_test_data.c. Roundings to integers add up along a network: a model that
 * quantizes may be twice as far away as onnxruntime with optimisations is from itself without them.
 */
static double norm_limit(const struct verification *verification, enum ul_dtype least,
                         const struct noise *noise)
{
    const char *less = rounded_of(verification, least);
    if (ul_cli_is_said(verification->outer, "norm"))
        return verification->outer->options.norm;
    if (less == NULL && !verification->is_random)
        return 1e-4;
    if (less == NULL) /* a sum in another order may fall on the other side of a rounding */
        return !verification->quantizes ? fmax(1e-4, noise_limit(noise))
                                        : fmax(5e-3, 2 * fmax(noise->optimised, noise->moved));
    return strcmp(less, "bf16") == 0 || strcmp(less, "int8") == 0 ? 3e-2 : 5e-3;
}

/* The limit of one output; if the model quantizes, all outputs have that of the worst. */
static double output_limit(const struct verification *verification, uint32_t output)
{
    bool has_own = output < verification->noise_count && !verification->quantizes;
    return norm_limit(verification, verification->leasts[output],
                      has_own ? &verification->noises[output] : &verification->noise);
}

/* The limits as the program takes them, one for each output; NULL: only elements count. */
static const char *norm_option(const struct verification *verification)
{
    struct ul_text text;
    ul_text_init(&text, &verification->outer->compile.keep);
    ul_text_put(&text, "--norm-limit=");
    for (uint32_t i = 0; i < verification->outputs.count; i++)
        ul_text_printf(&text, "%s%g", i == 0 ? "" : ",", output_limit(verification, i));
    return norm_limit(verification, verification->least, &verification->noise) > 0 ? text.data
                                                                                   : NULL;
}

/* The fraction of an output's integers of 8 or 16 bits that may be some steps away, for a model
 * that quantizes what another runtime sums in another order. Integers of more bits are indexes.
 * Where the user gives a number of steps, all may be. */
static double step_limit(const struct verification *verification)
{
    if (ul_cli_is_said(verification->outer, "steps"))
        return verification->outer->options.steps > 0 ? 1 : 0;
    if (verification->outer->compile.options.no_float)
        return 0.2; /* the middle of two integers is rounded up */
    bool sums_alike = !verification->quantizes || !verification->is_random;
    return sums_alike || rounded(verification) != NULL ? 0 : 0.01;
}

/* How many steps that fraction may be away. */
static double step_count(const struct verification *verification)
{
    const struct ul_cli_job *job = verification->outer;
    return ul_cli_is_said(job, "steps") ? floor(job->options.steps) : 1;
}

static double rtol_of(const struct ul_cli_job *job)
{
    return ul_cli_is_said(job, "rtol") ? job->options.rtol : 1e-3;
}

static double atol_of(const struct ul_cli_job *job)
{
    return ul_cli_is_said(job, "atol") ? job->options.atol : 1e-7;
}

/* Explains how a program ended without an answer. `on` names its data. */
static enum ul_status explain_end(struct verification *verification, int code, const char *on,
                                  const char *hint)
{
    struct ul_diag *diag = &verification->outer->compile.diag;
    struct ul_arena *arena = &verification->outer->compile.keep;
    const char *ended = ul_process_end_text(arena, code);
    bool is_started = code >= 0 && code != NOT_RUN;
    UL_TRY(ul_process_check(
        arena, ul_arena_printf(arena, "%s: the program that was made of it", verification->model),
        code, ul_arena_printf(arena, "%s/printed", verification->work), ROOM, diag));
    if (!is_started)
        return ul_diag_set(diag, UL_IO,
                           "%s: cannot be run (%s); set TMPDIR to a folder whose programs can be",
                           verification->program, ended);
    return ul_diag_set(diag, code > 0 && code < 64 ? (enum ul_status)code : UL_MISMATCH,
                       "%s: the program failed on %s (%s)%s", verification->model, on, ended, hint);
}

static enum ul_status run_on_data(struct verification *verification)
{
    struct ul_cli_job *outer = verification->outer;
    const char *folder = ul_arena_printf(&outer->compile.keep, "%s/data", verification->work);
    UL_TRY(link_data(verification, folder));
    const char *rtol = ul_arena_printf(&outer->compile.keep, "%.17g", rtol_of(outer));
    const char *atol = ul_arena_printf(&outer->compile.keep, "%.17g", atol_of(outer));
    const char *norm = norm_option(verification);
    const char *steps =
        ul_arena_printf(&outer->compile.keep, "--step-limit=%g", step_limit(verification));
    const char *count =
        ul_arena_printf(&outer->compile.keep, "--steps=%.0f", fmax(step_count(verification), 1));
    const char *const argv[] = {verification->program,
                                "--test-data",
                                folder,
                                "--rtol",
                                rtol,
                                "--atol",
                                atol,
                                steps,
                                count,
                                norm,
                                NULL};
    const char *printed = ul_arena_printf(&outer->compile.keep, "%s/printed", verification->work);
    int code = ul_process_run(argv, printed);
    show_output(verification, printed, folder);
    ul_tree_remove(folder);
    if (code == UL_OK)
        return UL_OK;
    if (code == (int)UL_MISMATCH)
        return ul_diag_set(&outer->compile.diag, UL_MISMATCH, "%s: the outputs differ from %s%s",
                           verification->model, verification->set_name, excuse(verification));
    return explain_end(verification, code, verification->set_name, "");
}

/* Names what the attempt made constant: compile refuses without the option for it. */
static void put_fixed(const struct verification *verification)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    struct ul_text text;
    uint32_t count = 0;
    ul_text_init(&text, arena);
    for (uint32_t i = 0; i < verification->input_count; i++) {
        const struct recorded_input *input = &verification->inputs[i];
        if (!input->fixed)
            continue;
        count++;
        ul_text_printf(&text, " --const %s=", ul_word_quote(arena, input->name));
        ul_text_put(&text, verification->is_random ? "FILE" : ul_word_quote(arena, input->path));
    }
    if (count > 0)
        ul_cli_say(stdout,
                   "%u input%s made constant, since the program cannot be compiled otherwise; "
                   "compile and plan take the same:%s\n",
                   (unsigned)count, count == 1 ? " is" : "s are", text.data);
}

static enum ul_status verify_set(struct verification *verification)
{
    struct ul_cli_job *outer = verification->outer;
    struct ul_diag first = {.status = UL_OK};
    UL_TRY(read_inputs(verification));
    for (int attempt = ATTEMPT_PLAIN; attempt < ATTEMPT_COUNT; attempt++) {
        struct ul_diag diag = {.status = UL_OK};
        enum ul_status status = build_attempt(verification, &outer->compile.options,
                                              (enum attempt)attempt, verification->program, &diag);
        if (status == UL_OK) {
            put_fixed(verification);
            return run_on_data(verification);
        }
        bool is_model = status == UL_UNSUPPORTED || status == UL_INVALID || status == UL_USAGE;
        if (attempt == ATTEMPT_PLAIN || !is_model)
            first = diag;
        if (!is_model)
            break;
    }
    outer->compile.diag = first; /* the model's own error, not that of a guess */
    return first.status;
}

/* ---- which folders ---- */

static int is_set_name(const struct dirent *entry)
{
    return strncmp(entry->d_name, "test_data_set_", strlen("test_data_set_")) == 0;
}

/* `directory` is a set itself, or holds sets. */
static void find_sets(struct ul_arena *arena, const char *directory, struct ul_texts *sets)
{
    if (ul_file_exists(ul_arena_printf(arena, "%s/output_0.pb", directory))) {
        ul_texts_add(arena, sets, directory);
        return;
    }
    struct dirent **entries;
    int count = scandir(directory, &entries, is_set_name, alphasort);
    for (int i = 0; i < count; i++) {
        ul_texts_add(arena, sets, ul_arena_printf(arena, "%s/%s", directory, entries[i]->d_name));
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

static const char *directory_of(struct ul_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? "." : ul_arena_printf(arena, "%.*s", (int)(slash - path), path);
}

/* Whether all inputs can be written as tensors: recorded data also give the number of tensors of a
 * sequence. */
static bool takes_tensors(const struct ul_onnx_model *model, bool has_data)
{
    for (uint32_t i = 0; i < model->input_count; i++) {
        const char *kind = model->inputs[i].kind;
        if (strcmp(kind, "tensor") != 0 && !(has_data && strcmp(kind, "sequence") == 0))
            return false;
    }
    return true;
}

/* Reads the model's inputs with the sizes that are known. UL_UNSUPPORTED is ignored here where all
 * inputs are tensors, since the data may give what the options leave open; a model that breaks the
 * rules stays an error. */
static enum ul_status describe_model(struct ul_cli_job *job, const char *path, bool has_data)
{
    struct ul_compile *compile = &job->compile;
    enum ul_status status = ul_compile_load_settled(compile, path);
    bool is_described = compile->model.input_count > 0 && takes_tensors(&compile->model, has_data);
    bool may_be_cured = is_described && status == UL_UNSUPPORTED;
    if (status != UL_OK && !compile->model.has_open_dims && !may_be_cured)
        return status;
    compile->diag = (struct ul_diag){.status = UL_OK};
    return UL_OK;
}

/* ---- random inputs ---- */

struct difference {
    double max;
    uint64_t wrong; /* elements outside the tolerance */
    double norm;    /* norm of the difference divided by that of the wanted values */
    bool is_near;   /* right by its norm, or except for single steps */
};

/* Whether integers of the type are quantized values; an index has more bits. */
static bool is_quantized(const struct ul_dtype_info *dtype)
{
    return dtype->is_integer && dtype->size_bytes <= 2;
}

static struct difference difference(const struct ul_tensor *got, const struct ul_tensor *want,
                                    const struct verification *verification)
{
    const struct ul_cli_job *job = verification->outer;
    double rtol = rtol_of(job);
    double atol = atol_of(job);
    struct difference all = {.max = 0};
    double apart_squares = 0, want_squares = 0;
    bool exact = !ul_dtype_get(want->type.dtype)->is_float;
    for (uint64_t i = 0; i < ul_type_elements(&want->type); i++) {
        double a = exact ? (double)ul_tensor_get_int(got, i) : ul_tensor_get_float(got, i);
        double b = exact ? (double)ul_tensor_get_int(want, i) : ul_tensor_get_float(want, i);
        double apart = fabs(a - b);
        bool equal = (isnan(a) && isnan(b)) || (isinf(a) && a >= b && a <= b) ||
                     apart <= (exact ? 0 : atol + rtol * fabs(b));
        all.wrong += equal ? 0 : 1;
        all.max = apart > all.max ? apart : all.max;
        if (!equal || isfinite(apart)) { /* equal infinities and NaN add nothing */
            apart_squares += apart * apart;
            want_squares += b * b;
        }
    }
    all.norm = apart_squares <= 0 ? 0 : sqrt(apart_squares / want_squares); /* NaN stays */
    const struct ul_dtype_info *dtype = ul_dtype_get(want->type.dtype);
    double share = (double)all.wrong / (double)ul_type_elements(&want->type);
    all.is_near =
        exact ? is_quantized(dtype) && all.max <= step_count(verification) &&
                    share <= step_limit(verification)
              : all.norm <= norm_limit(verification, verification->least, &verification->noise);
    return all;
}

/* " step of 255": the unit of differences of quantized numbers. */
static const char *steps_text(struct ul_arena *arena, enum ul_dtype dtype, double steps)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    if (!is_quantized(info))
        return "";
    return ul_arena_printf(arena, " step%s of %u", steps <= 1 && steps >= 1 ? "" : "s",
                           (1u << info->bits) - 1);
}

static enum ul_status compare_file(struct verification *verification, const char *got_path,
                                   const char *want_path, const char *name)
{
    struct ul_cli_job *job = verification->outer;
    const struct ul_tensor *got;
    const struct ul_tensor *want;
    UL_TRY(ul_tensor_read_file(&job->compile.keep, got_path, &got, &job->compile.diag));
    UL_TRY(ul_tensor_read_file(&job->compile.keep, want_path, &want, &job->compile.diag));
    if (!ul_type_equal(&got->type, &want->type))
        return ul_diag_set(&job->compile.diag, UL_MISMATCH,
                           "%s: output %s has another type or shape", job->files.items[0], name);
    struct difference all = difference(got, want, verification);
    bool right = all.wrong == 0 || all.is_near;
    const struct ul_dtype_info *dtype = ul_dtype_get(want->type.dtype);
    ul_cli_say(stdout,
               "%s: largest difference %.3g%s, norm error %.3g, %llu of %llu elements outside the "
               "tolerance%s\n",
               name, all.max, steps_text(&job->compile.keep, want->type.dtype, all.max), all.norm,
               (unsigned long long)all.wrong, (unsigned long long)ul_type_elements(&want->type),
               all.wrong == 0 || !right ? ""
               : dtype->is_float        ? "; ok by norm"
                                        : "; ok by steps");
    if (right)
        return UL_OK;
    return ul_diag_set(&job->compile.diag, UL_MISMATCH,
                       "%s: output %s differs from the reference%s", job->files.items[0], name,
                       excuse(verification));
}

static int is_npy(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".npy") == 0;
}

/* Compares the outputs of two programs on the same random inputs. */
static enum ul_status compare_programs(struct verification *verification, const char *reference)
{
    struct ul_cli_job *job = verification->outer;
    const char *programs[2] = {verification->program, reference};
    const char *folders[2];
    for (int i = 0; i < 2; i++) {
        folders[i] = ul_arena_printf(&job->compile.keep, "%s/outputs%d", verification->work, i);
        const char *const argv[] = {programs[i], "--random", "1", "--output-dir", folders[i], NULL};
        if (mkdir(folders[i], 0777) != 0)
            return ul_diag_set(&job->compile.diag, UL_IO, "%s: %s", folders[i], strerror(errno));
        int code = ul_process_run(argv, NULL);
        if (code != 0)
            return explain_end(verification, code, "random inputs",
                               code == UL_INVALID
                                   ? "\nGive test data: ullage verify MODEL.onnx DIR; or have "
                                     "onnxruntime in python3: then smaller integers are tried too"
                                   : "");
    }
    struct dirent **entries;
    int count = scandir(folders[1], &entries, is_npy, alphasort);
    enum ul_status status =
        count >= 0 ? UL_OK
                   : ul_diag_set(&job->compile.diag, UL_IO, "%s: %s", folders[1], strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *name = ul_arena_copy_string(&job->compile.keep, entries[i]->d_name);
        free(entries[i]);
        if (status == UL_OK)
            status = compare_file(
                verification, ul_arena_printf(&job->compile.keep, "%s/%s", folders[0], name),
                ul_arena_printf(&job->compile.keep, "%s/%s", folders[1], name), name);
    }
    if (count >= 0)
        free(entries);
    return status;
}

/* Options for the same model on target c, without passes and without reuse of memory; integers
 * stay, since floats in their place round differently. */
static struct ul_compile_options plain_options(struct ul_compile *compile)
{
    const struct ul_compile_options *options = &compile->options;
    struct ul_compile_options plain = {.base = {.table = options->base.table},
                                       .target = "c",
                                       .dims = options->dims,
                                       .shapes = options->shapes,
                                       .consts = options->consts,
                                       .outputs = options->outputs,
                                       .pack = UL_PACK_NONE,
                                       .no_donate = true,
                                       .keep_defaults = options->keep_defaults,
                                       .no_float = options->no_float,
                                       .cflags = options->cflags};
    bool is_host =
        ul_target_find(options->target)->compiler == ul_target_find(plain.target)->compiler;
    plain.cc = is_host ? options->cc : NULL;
    plain.march = is_host ? options->march : NULL;
    for (uint32_t i = 0; i < ul_passes_count(); i++) {
        const char *name = ul_passes_get(i)->name;
        if (!ul_passes_get(i)->required && strcmp(name, "integers") != 0 &&
            strcmp(name, "no_float") != 0)
            ul_texts_add(&compile->keep, &plain.no_passes, ul_passes_get(i)->name);
    }
    return plain;
}

static enum ul_status verify_unplanned(struct verification *verification, const char *why)
{
    struct ul_cli_job *job = verification->outer;
    const char *reference = ul_arena_printf(&job->compile.keep, "%s/reference", verification->work);
    struct ul_compile_options plain = plain_options(&job->compile);
    ul_cli_say(
        stdout,
        "no test data, and %s: comparing with the model compiled for target c without passes "
        "and without reuse of memory\n",
        why);
    verification->is_random = true;
    verification->reference = "itself without passes and reuse of memory, on random inputs";
    UL_TRY(build_attempt(verification, &job->compile.options, ATTEMPT_PLAIN, verification->program,
                         &job->compile.diag));
    UL_TRY(build_attempt(verification, &plain, ATTEMPT_PLAIN, reference, &job->compile.diag));
    return compare_programs(verification, reference);
}

/* The script, installed next to the program or in the source tree. */
static const char *script_path(struct ul_arena *arena)
{
    const char *installed = ul_compile_installed_directory(arena);
    if (installed == NULL)
        return ULLAGE_SOURCE_DIR "/cli/verify_onnxruntime.py";
    return ul_arena_printf(arena, "%s/verify_onnxruntime.py", installed);
}

static void add_options(struct ul_arena *arena, struct ul_texts *argv,
                        const struct ul_options *options, const char *name)
{
    const struct ul_option *row = ul_option_find(options->table, name);
    for (uint32_t i = 0; i < ul_option_value_count(options, row); i++)
        ul_texts_add(arena, argv,
                     ul_arena_printf(arena, "--%s=%s", name, ul_option_value(options, row, i)));
}

/* Makes random inputs and onnxruntime's outputs by a script, which the compiler itself does not
 * need. */
static int run_onnxruntime(struct verification *verification, const char *python,
                           const char *folder, const char *printed)
{
    struct ul_compile *compile = &verification->outer->compile;
    struct ul_arena *arena = &compile->keep;
    struct ul_texts argv = {.count = 0};
    ul_texts_add(arena, &argv, python);
    ul_texts_add(arena, &argv, script_path(arena));
    ul_texts_add(arena, &argv, verification->model);
    ul_texts_add(arena, &argv, folder);
    for (uint32_t i = 0; i < compile->model.dimension_count;
         i++) { /* and also what follows from --dim */
        const struct ul_model_dimension *dimension = &compile->model.dimensions[i];
        if (dimension->size >= 0)
            ul_texts_add(arena, &argv,
                         ul_arena_printf(arena, "--dim=%s=%lld", dimension->name,
                                         (long long)dimension->size));
    }
    add_options(arena, &argv, &compile->options.base, "shape");
    add_options(arena, &argv, &compile->options.base, "const");
    add_options(arena, &argv, &compile->options.base, "output");
    if (compile->options.keep_defaults)
        ul_texts_add(arena, &argv, "--keep-defaults");
    if (compile->options.precision == UL_PRECISION_F16)
        ul_texts_add(arena, &argv, "--precision=fp16");
    ul_texts_add(arena, &argv, NULL);
    return ul_process_run(argv.items, printed);
}

/* What the script printed, without the last end of line. */
static const char *said(struct ul_arena *arena, const char *path)
{
    struct ul_diag diag = {.status = UL_OK};
    struct ul_file file;
    if (ul_file_map(&file, arena, path, &diag) != UL_OK)
        return "";
    const char *text = (const char *)file.data;
    uint64_t end = file.size_bytes;
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r'))
        end--;
    const char *copy = ul_arena_printf(arena, "%.*s", (int)end, text);
    ul_file_unmap(&file);
    return copy;
}

enum script_code {
    NO_ONNXRUNTIME = 3,
    NO_SIZE = 4,
    NO_KERNELS = 5,
    NO_ROOM = 7,
    NOT_FOUND = NOT_RUN
};

/* Goes on where the script gave no reference, for `reason`. A Python that the user named must give
 * one. */
static enum ul_status verify_without(struct verification *verification, int code,
                                     const char *reason)
{
    struct ul_cli_job *job = verification->outer;
    const char *named = getenv("ULLAGE_PYTHON");
    if (code == NO_KERNELS)
        return verify_unplanned(
            verification,
            ul_arena_printf(&job->compile.keep, "no reference from onnxruntime (%s)", reason));
    if (named != NULL && (code == NO_ONNXRUNTIME || code == NOT_FOUND || code < 0))
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "ULLAGE_PYTHON=%s %s; unset it, or set it to nothing to compare with "
                           "the model compiled without passes and without reuse of memory",
                           named,
                           code == NO_ONNXRUNTIME ? "has no onnx and onnxruntime" : "does not run");
    if (code == NO_ONNXRUNTIME || code == NOT_FOUND)
        return verify_unplanned(verification, "no onnxruntime in python3");
    if (code == NO_SIZE)
        return ul_diag_set(&job->compile.diag, UL_USAGE, "%s: %s", verification->model, reason);
    if (code == NO_ROOM)
        return ul_diag_set(&job->compile.diag, UL_IO, "%s", reason);
    if (reason[0] == '\0')
        reason = ul_arena_printf(&job->compile.keep, "it ended by %s",
                                 ul_process_end_text(&job->compile.keep, code));
    return ul_diag_set(&job->compile.diag, UL_UNSUPPORTED,
                       "%s: onnxruntime gives no reference for random inputs: %s\n"
                       "Give test data instead: ullage verify MODEL.onnx DIR, DIR with input_K.pb "
                       "and output_K.pb; or an input that it depends on, by --const INPUT=FILE",
                       verification->model, reason);
}

/* Reads a number of the script's; 0 where there is none. */
static double read_error(const char **at)
{
    char *end;
    double number = strtod(*at, &end);
    *at = end;
    return isfinite(number) && number > 0 ? number : 0;
}

/* Reads the file that the script leaves, with a line for each output. */
static void read_noise(struct verification *verification, const char *folder)
{
    struct ul_arena *arena = &verification->outer->compile.keep;
    const char *at = said(arena, ul_arena_printf(arena, "%s/noise.txt", folder));
    struct noise *largest = &verification->noise;
    uint32_t capacity = 0;
    verification->noise_count = 0;
    for (at += strspn(at, "\n"); *at != '\0'; at += strspn(at, "\n")) {
        struct noise noise = {.optimised = read_error(&at)};
        noise.moved = read_error(&at);
        noise.rounded = read_error(&at);
        at += strcspn(at, "\n");
        UL_GROW(arena, verification->noises, verification->noise_count, capacity);
        verification->noises[verification->noise_count++] = noise;
        largest->optimised = fmax(largest->optimised, noise.optimised);
        largest->moved = fmax(largest->moved, noise.moved);
        largest->rounded = fmax(largest->rounded, noise.rounded);
    }
}

static enum ul_status verify_random(struct verification *verification)
{
    struct ul_cli_job *job = verification->outer;
    const char *named = getenv("ULLAGE_PYTHON");
    const char *folder = ul_arena_printf(&job->compile.keep, "%s/set", verification->work);
    const char *printed = ul_arena_printf(&job->compile.keep, "%s/printed", verification->work);
    if (named != NULL && named[0] == '\0')
        return verify_unplanned(verification, "ULLAGE_PYTHON is empty");
    if (mkdir(folder, 0777) != 0)
        return ul_diag_set(&job->compile.diag, UL_IO, "%s: %s", folder, strerror(errno));
    int code = run_onnxruntime(verification, named != NULL ? named : "python3", folder, printed);
    const char *text = said(&job->compile.keep, printed);
    /* The script prints a message unless the code is NO_ONNXRUNTIME: otherwise nothing ran it, it
     * was killed, or it cannot write. */
    bool is_cut = text[0] == '\0' && code != NO_ONNXRUNTIME;
    if (is_cut || code > NO_ROOM)
        UL_TRY(ul_process_check(&job->compile.keep, "the Python that runs onnxruntime", code,
                                printed, ROOM, &job->compile.diag));
    if (is_cut && code < UL_PROCESS_SIGNAL)
        code = NOT_FOUND;
    if (code != 0)
        return verify_without(verification, code, text);
    ul_cli_say(stdout, "no test data: comparing on random inputs with %s\n", text);
    read_noise(verification, folder);
    verification->reference = ul_arena_printf(&job->compile.keep, "%.*s, on random inputs",
                                              (int)strcspn(text, "\n"), text);
    verification->set_name = "random inputs";
    verification->set = folder;
    verification->is_random = true;
    return verify_set(verification);
}

static enum ul_status verify_all(struct verification *verification)
{
    struct ul_cli_job *job = verification->outer;
    struct ul_texts sets = {.count = 0};
    const char *empty = NULL;
    for (uint32_t i = 1; i < job->files.count; i++) {
        uint32_t before = sets.count;
        find_sets(&job->compile.keep, job->files.items[i], &sets);
        empty = sets.count == before ? job->files.items[i] : empty;
    }
    if (job->files.count == 1)
        find_sets(&job->compile.keep, directory_of(&job->compile.keep, verification->model), &sets);
    UL_TRY(describe_model(job, verification->model, sets.count > 0));
    if (empty != NULL)
        return ul_diag_set(&job->compile.diag, UL_IO,
                           "%s: holds no test_data_set_* and no output_0.pb", empty);
    if (sets.count == 0)
        return verify_random(verification);
    verification->reference = sets.count == 1
                                  ? sets.items[0]
                                  : ul_arena_printf(&job->compile.keep, "%s and %u more",
                                                    sets.items[0], (unsigned)(sets.count - 1));
    for (uint32_t i = 0; i < sets.count; i++) {
        verification->set = sets.items[i];
        verification->set_name = sets.items[i];
        UL_TRY(verify_set(verification));
    }
    return UL_OK;
}

/* Prints how much outputs may differ, where --help does not say it for all. */
static void put_limits(const struct verification *verification)
{
    const char *less = rounded(verification);
    double limit = norm_limit(verification, verification->least, &verification->noise);
    bool is_said = ul_cli_is_said(verification->outer, "norm");
    if (verification->outer->compile.options.no_float &&
        !ul_cli_is_said(verification->outer, "steps"))
        ul_cli_say(
            stdout,
            "without floats: integers are right where at most 1 of 5 is one step away, or with "
            "--steps N all N steps\n");
    else if (less == NULL && verification->quantizes && limit > 5e-3 && !is_said)
        ul_cli_say(
            stdout,
            "the model quantizes: outputs are right by a norm error of at most %.2g, twice what "
            "onnxruntime's optimisations, or inputs moved by 1e-5, change in it\n",
            limit);
    else if (less == NULL && !verification->quantizes && limit > 1e-4 && !is_said)
        ul_cli_say(
            stdout,
            "onnxruntime is as far from itself: outputs are right by a norm error of up to "
            "%.2g, twice what its optimisations, or ten times what a rounding of inputs, change "
            "in them\n",
            limit);
    if (less != NULL && limit > 0)
        ul_cli_say(
            stdout,
            "rounded to %s: outputs are right by their elements (--rtol, --atol) or by a norm "
            "error of at most %g\n",
            less, limit);
}

static enum ul_status verify(struct ul_cli_job *job)
{
    if (ul_compile_has_ranges(&job->compile.options) || ul_compile_has_sets(&job->compile.options))
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "verify compares one size at a time: give each size one value");
    if (job->files.count < 1)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "give a model: ullage verify MODEL.onnx [DIR...]");
    UL_TRY(ul_compile_fit(&job->compile));
    struct verification verification = {
        .outer = job, .model = job->files.items[0], .reference = "nothing"};
    UL_TRY(ul_temporary_make(&job->compile.keep, &verification.work, &job->compile.diag));
    verification.program = ul_arena_printf(&job->compile.keep, "%s/program", verification.work);
    enum ul_status status = verify_all(&verification);
    put_limits(&verification);
    ul_temporary_explain(verification.work, &job->compile.diag);
    ul_temporary_remove(verification.work);
    ul_cli_say(stdout, "verdict: %s: %s against %s\n",
               status == UL_OK         ? "same"
               : status == UL_MISMATCH ? "different"
                                       : "none",
               verification.model, verification.reference);
    return status;
}

static const struct ul_cli_example examples[] = {
    {"On random inputs, beside onnxruntime", "ullage verify model.onnx"},
    {"On recorded data, on target c", "ullage verify digits.onnx test_data_set_0 --target c"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_verify = {
    .name = "verify",
    .arguments = "MODEL.onnx [DIR...] [options]",
    .summary = "Compiles and runs a model and compares its outputs with a reference.",
    .details =
        "DIR holds recorded data in the form of ONNX's tests: input_K.pb and output_K.pb, or "
        "folders of them called test_data_set_*; a sequence has one file, which says what its "
        "tensors are. Without DIR the data next to the model are used. If there are none, inputs "
        "are random, and the reference is onnxruntime without its optimisations if python3 (or "
        "$ULLAGE_PYTHON) has it, else the model compiled without passes and without reuse of "
        "memory. The last line is the verdict: same, different or none.\n"
        "If the program cannot be compiled otherwise, small inputs (a shape, axes) become "
        "constants with the values of the data; verify says so, with the --const options that "
        "compile needs.\n"
        "An element is right within atol + rtol * |wanted|; integers and bool must be equal. With "
        "random inputs, where the model quantizes, 1 of 100 integers of 8 or 16 bits may be one "
        "step away: a sum in another order may fall on the other side of a rounding. With "
        "--no-float the reference's floats are compared as the program's integers, of which 1 of 5 "
        "may be one step away. --steps N lets all of them be N steps away, with any inputs: layers "
        "pass such steps on. An output is also right by its norm error, |got - wanted| / |wanted| "
        "over the whole output: if that is at most 1e-4 and no element is off by more than 1e-3 of "
        "the largest. With random inputs the limit may be twice the change that onnxruntime's "
        "optimisations make in the output, or ten times the change that rounded inputs make; for a "
        "model that quantizes 5e-3, or twice the change that the optimisations, or inputs moved by "
        "1e-5, make. In 16 bits (by the types that an output depends on, --precision or --tf32) it "
        "is at most 3e-2 (bf16) or 5e-3 (fp16, tf32), with any inputs, and 3e-2 where MatMulNBits "
        "may round to int8 (accuracy_level 4). --norm X sets this limit, with any inputs; with "
        "--norm 0 only the elements are judged. With --quantize the norm error is the cost of "
        "that.",
    .group = "models",
    .endings = "onnx",
    .examples = examples,
    .bit = UL_IN_VERIFY,
    .run = verify};
