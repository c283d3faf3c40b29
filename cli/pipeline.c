/* The pipeline as commands use it: load, passes, program, plan, check, emit, make. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"
#include "codegen/cpu/dnnl.h"
#include "codegen/emit/emit.h"
#include "codegen/target.h"
#include "ir/text.h"
#include "ir/view.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ul_cli_job_init(struct ul_cli_job *job)
{
    memset(job, 0, sizeof *job);
    ul_arena_init(&job->keep);
    ul_arena_init(&job->scratch);
    job->options.arena = &job->keep;
}

void ul_cli_job_done(struct ul_cli_job *job)
{
    if (job->library != NULL)
        ul_library_close(job->library);
    if (job->loaded)
        ul_model_done(&job->model);
    ul_arena_done(&job->scratch);
    ul_arena_done(&job->keep);
}

/* ---- options of the frontend ---- */

/* "NAME=VALUE", split at the last '=' (names may hold one). */
static enum ul_status split_pair(struct ul_cli_job *job, const char *option, const char *pair,
                                 const char **name, const char **value)
{
    const char *equals = strrchr(pair, '=');
    if (equals == NULL || equals == pair || equals[1] == '\0')
        return ul_diag_set(&job->diag, UL_USAGE, "--%s %s: expected NAME=VALUE", option, pair);
    char *copy = ul_arena_copy_string(&job->keep, pair);
    copy[equals - pair] = '\0';
    *name = copy;
    *value = copy + (equals - pair) + 1;
    return UL_OK;
}

static enum ul_status parse_dims(struct ul_cli_job *job, struct ul_frontend_options *options)
{
    const struct ul_cli_list *list = &job->options.dims;
    struct ul_frontend_dim *dims = UL_NEW_ARRAY(&job->keep, struct ul_frontend_dim, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        const char *value = NULL;
        char *end;
        UL_TRY(split_pair(job, "dim", list->items[i], &dims[i].name, &value));
        errno = 0;
        long long size = strtoll(value, &end, 10);
        if (*end != '\0' || errno != 0 || size < 0 || size > UL_LIMIT_DIM)
            return ul_diag_set(&job->diag, UL_USAGE, "--dim %s: expected NAME=N, N a size",
                               list->items[i]);
        dims[i].size = size;
    }
    options->dims = dims;
    options->dim_count = list->count;
    return UL_OK;
}

static enum ul_status parse_shape(struct ul_cli_job *job, const char *text,
                                  struct ul_frontend_shape *shape)
{
    const char *at = NULL;
    UL_TRY(split_pair(job, "shape", text, &shape->input, &at));
    while (*at != '\0') {
        char *end;
        errno = 0;
        long long size = strtoll(at, &end, 10);
        if (end == at || errno != 0 || size < 0 || size > UL_LIMIT_DIM ||
            (*end != ',' && *end != '\0') || shape->rank == UL_LIMIT_RANK)
            return ul_diag_set(&job->diag, UL_USAGE,
                               "--shape %s: expected INPUT=N,N,... with at most %d sizes", text,
                               UL_LIMIT_RANK);
        shape->dims[shape->rank++] = size;
        at = *end == ',' ? end + 1 : end;
    }
    return UL_OK;
}

static enum ul_status parse_shapes(struct ul_cli_job *job, struct ul_frontend_options *options)
{
    const struct ul_cli_list *list = &job->options.shapes;
    struct ul_frontend_shape *shapes =
        UL_NEW_ARRAY(&job->keep, struct ul_frontend_shape, list->count);
    for (uint32_t i = 0; i < list->count; i++)
        UL_TRY(parse_shape(job, list->items[i], &shapes[i]));
    options->shapes = shapes;
    options->shape_count = list->count;
    return UL_OK;
}

static enum ul_status parse_consts(struct ul_cli_job *job, struct ul_frontend_options *options)
{
    const struct ul_cli_list *list = &job->options.consts;
    struct ul_frontend_const *consts =
        UL_NEW_ARRAY(&job->keep, struct ul_frontend_const, list->count);
    for (uint32_t i = 0; i < list->count; i++) {
        const char *path = NULL;
        UL_TRY(split_pair(job, "const", list->items[i], &consts[i].input, &path));
        UL_TRY(ul_cli_read_tensor(&job->keep, path, &consts[i].tensor, &job->diag));
    }
    options->consts = consts;
    options->const_count = list->count;
    return UL_OK;
}

/* ---- build ---- */

static bool word_is(const char *given, const char *word)
{
    return given != NULL && strcmp(given, word) == 0;
}

/* --threads, or as many as this machine has cores. */
static enum ul_status thread_count(struct ul_cli_job *job, uint32_t *count)
{
    enum { MAX_THREADS = 1024 };
    const char *given = job->options.threads;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *count = cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (uint32_t)cores;
    if (given == NULL)
        return UL_OK;
    char *end;
    errno = 0;
    long number = strtol(given, &end, 10);
    if (end == given || *end != '\0' || errno != 0 || number < 1 || number > MAX_THREADS)
        return ul_diag_set(&job->diag, UL_USAGE, "--threads %s: expected a number from 1 to %d",
                           given, MAX_THREADS);
    *count = (uint32_t)number;
    return UL_OK;
}

static const char *const conv_words[] = {
    [UL_CONV_BEST] = "best", [UL_CONV_DIRECT] = "direct", [UL_CONV_WINOGRAD] = "winograd"};

static enum ul_status conv_choice(struct ul_cli_job *job, enum ul_conv_choice *choice)
{
    *choice = UL_CONV_BEST;
    for (int i = 0; i <= (int)UL_CONV_WINOGRAD; i++) {
        *choice = (enum ul_conv_choice)i;
        if (job->options.conv == NULL || strcmp(job->options.conv, conv_words[i]) == 0)
            return UL_OK;
    }
    return ul_diag_set(&job->diag, UL_USAGE, "--conv %s: expected best, direct or winograd",
                       job->options.conv);
}

static const struct {
    const char *word;
    enum ul_dtype storage;
} precisions[] = {{"fp32", UL_F32}, {"fp16", UL_F16}, {"bf16", UL_BF16}};

/* How f32 is stored: --precision. */
static enum ul_status storage_of(struct ul_cli_job *job, enum ul_dtype *storage)
{
    *storage = UL_F32;
    if (job->options.precision == NULL)
        return UL_OK;
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        *storage = precisions[i].storage;
        if (strcmp(job->options.precision, precisions[i].word) == 0)
            return UL_OK;
    }
    return ul_diag_set(&job->diag, UL_USAGE, "--precision %s: expected fp32, fp16 or bf16",
                       ul_quote(&job->keep, job->options.precision));
}

static enum ul_status program_options(struct ul_cli_job *job, struct ul_program_options *options)
{
    const struct ul_cli_options *given = &job->options;
    bool weights = given->weights == NULL || word_is(given->weights, "arena") ||
                   word_is(given->weights, "rom") || word_is(given->weights, "file");
    bool io = given->io == NULL || word_is(given->io, "arena") || word_is(given->io, "caller");
    if (!weights)
        return ul_diag_set(&job->diag, UL_USAGE, "--weights %s: expected arena, rom or file",
                           given->weights);
    if (!io)
        return ul_diag_set(&job->diag, UL_USAGE, "--io %s: expected arena or caller", given->io);
    *options = (struct ul_program_options){.keep_inputs = given->keep_inputs,
                                           .weights_rom = word_is(given->weights, "rom"),
                                           .io_caller = word_is(given->io, "caller"),
                                           .target = ul_target_find(given->target),
                                           .isa = given->isa,
                                           .align_bytes = given->plan != NULL
                                                              ? job->plan_header.alignment_bytes
                                                              : given->planning.alignment_bytes,
                                           .profile = &job->profile};
    UL_TRY(ul_cli_apply_cuda(job, options));
    UL_TRY(conv_choice(job, &options->conv));
    UL_TRY(thread_count(job, &options->thread_count));
    if (given->isa != NULL)
        UL_TRY(ul_dnnl_check_isa(&job->keep, given->isa, &job->diag));
    if (options->target->open_library == NULL)
        return UL_OK;
    UL_TRY(options->target->open_library(&job->keep, options, &job->library, &job->diag));
    options->library = job->library;
    if (job->library->isa != NULL)
        options->isa = job->library->isa;
    return UL_OK;
}

static enum ul_status run_passes(struct ul_cli_job *job, enum ul_dtype precision)
{
    struct ul_passes_options options = {
        .disabled = job->options.no_passes.items,
        .disabled_count = job->options.no_passes.count,
        .biases_alike = ul_target_find(job->options.target)->biases_alike,
        .filters_last = ul_target_find(job->options.target)->filters_last,
        .products_joined = ul_target_find(job->options.target)->products_joined,
        .channels_last = ul_target_find(job->options.target)->channels_last,
        .precision = precision,
        .print_after = job->options.print_after,
        .stop_after = job->options.stop_after};
    if (job->library != NULL) {
        options.is_call = ul_library_supports;
        options.library = job->library;
    }
    return ul_passes_run(&job->graph, &job->scratch, &options, &job->diag);
}

/* The last pass alone, where chains are to be computed in pieces. */
static enum ul_status run_split(struct ul_cli_job *job)
{
    struct ul_passes_options options = {.only = "split",
                                        .splits = job->options.splits.items,
                                        .split_count = job->options.splits.count,
                                        .print_after = job->options.print_after};
    if (job->options.splits.count == 0)
        return UL_OK;
    return ul_passes_run(&job->graph, &job->scratch, &options, &job->diag);
}

/* The program, and, where chains are split, that of the graph before: a piece must add up as the
 * whole does. */
static enum ul_status build_program(struct ul_cli_job *job, struct ul_program_options *options)
{
    struct ul_program *whole = NULL;
    if (job->options.splits.count > 0) {
        struct ul_graph *graph = UL_NEW(&job->keep, struct ul_graph);
        ul_graph_copy(graph, &job->keep, &job->graph);
        UL_TRY(ul_program_build(&job->keep, graph, options, &whole, &job->diag));
        UL_TRY(run_split(job));
    }
    options->whole = whole;
    return ul_program_build(&job->keep, &job->graph, options, &job->program, &job->diag);
}

static void print_graph(struct ul_cli_job *job)
{
    struct ul_text text;
    ul_text_init(&text, &job->keep);
    ul_graph_print(&text, &job->graph);
    fwrite(text.data, 1, text.length, stdout);
    fflush(stdout);
}

enum ul_status ul_cli_load(struct ul_cli_job *job, const char *model_path)
{
    struct ul_frontend_options frontend = {.dim_count = 0};
    UL_TRY(parse_dims(job, &frontend));
    UL_TRY(parse_shapes(job, &frontend));
    UL_TRY(parse_consts(job, &frontend));
    job->loaded = true;
    return ul_frontend_load(&job->graph, &job->keep, model_path, &frontend, &job->model,
                            &job->diag);
}

static enum ul_status build(struct ul_cli_job *job, const char *model_path)
{
    struct ul_program_options options;
    enum ul_dtype precision;
    if (job->options.plan != NULL)
        UL_TRY(ul_cli_read_plan(job));
    else
        UL_TRY(ul_cli_fit_target(job));
    UL_TRY(ul_cli_read_profile(job));
    UL_TRY(program_options(job, &options));
    UL_TRY(storage_of(job, &precision));
    ul_cli_progress("reading and simplifying the model");
    UL_TRY(ul_cli_load(job, model_path));
    enum ul_status status = run_passes(job, precision);
    if (status == UL_OK && word_is(job->options.stop_after, "split"))
        status = run_split(job);
    ul_cli_progress(NULL);
    if (status != UL_OK) {
        ul_diag_prefix(&job->diag, model_path);
        return status;
    }
    if (job->options.stop_after != NULL) {
        print_graph(job);
        return UL_OK;
    }
    status = build_program(job, &options);
    if (status != UL_OK)
        ul_diag_prefix(&job->diag, model_path);
    return status;
}

/* Another model may fail in any way with a plan's options; that it is another says more. It may
 * also be the same graph with other weights: then the plan serves. */
enum ul_status ul_cli_build(struct ul_cli_job *job, const char *model_path)
{
    enum ul_status status = build(job, model_path);
    return status != UL_OK && ul_cli_is_other_model(job) ? ul_cli_report_other_model(job) : status;
}

/* ---- plan ---- */

static void add_options(struct ul_cli_job *job, struct ul_report_option *out, uint32_t *count,
                        const char *name, const struct ul_cli_list *list)
{
    (void)job;
    for (uint32_t i = 0; i < list->count; i++)
        out[(*count)++] = (struct ul_report_option){.name = name, .value = list->items[i]};
}

/* What `check` needs to build the same graph; constants by their bytes' hash, not by path. */
static void describe_options(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    const struct ul_program_options *program = &job->program->options;
    uint32_t max = options->dims.count + options->shapes.count + options->consts.count +
                   options->no_passes.count + options->splits.count + 8 + UL_CLI_PROFILE_OPTIONS +
                   UL_CLI_CUDA_OPTIONS;
    struct ul_report_option *list = UL_NEW_ARRAY(&job->keep, struct ul_report_option, max);
    uint32_t count = 0;
    add_options(job, list, &count, "dim", &options->dims);
    add_options(job, list, &count, "shape", &options->shapes);
    for (uint32_t i = 0; i < options->consts.count; i++) {
        const char *pair = options->consts.items[i];
        const char *equals = strrchr(pair, '=');
        list[count++] = (struct ul_report_option){
            .name = "const",
            .value = ul_arena_printf(&job->keep, "%.*s", (int)(equals - pair), pair)};
    }
    add_options(job, list, &count, "no-pass", &options->no_passes);
    add_options(job, list, &count, "split", &options->splits);
    if (options->keep_inputs)
        list[count++] = (struct ul_report_option){.name = "keep-inputs", .value = ""};
    if (options->weights != NULL)
        list[count++] = (struct ul_report_option){.name = "weights", .value = options->weights};
    if (options->io != NULL)
        list[count++] = (struct ul_report_option){.name = "io", .value = options->io};
    if (options->remat != NULL)
        list[count++] = (struct ul_report_option){.name = "remat", .value = options->remat};
    if (program->target->has_threads) {
        list[count++] = (struct ul_report_option){
            .name = "threads",
            .value = ul_arena_printf(&job->keep, "%" PRIu32, program->thread_count)};
        if (program->isa != NULL)
            list[count++] = (struct ul_report_option){.name = "isa", .value = program->isa};
    }
    if (options->precision != NULL && strcmp(options->precision, "fp32") != 0)
        list[count++] = (struct ul_report_option){.name = "precision", .value = options->precision};
    if (program->target->open_library != NULL && !program->target->is_device &&
        program->conv != UL_CONV_BEST)
        list[count++] =
            (struct ul_report_option){.name = "conv", .value = conv_words[program->conv]};
    ul_cli_describe_cuda(job, list, &count);
    ul_cli_describe_profile(job, list, &count);
    job->report.options = list;
    job->report.option_count = count;
}

static void describe(struct ul_cli_job *job)
{
    const struct ul_program *program = job->program;
    struct ul_report_step *steps =
        UL_NEW_ARRAY(&job->keep, struct ul_report_step, program->step_count);
    struct ul_report_value *values =
        UL_NEW_ARRAY(&job->keep, struct ul_report_value, program->problem->value_count);
    for (uint32_t i = 0; i < program->step_count; i++) {
        const struct ul_program_step *step = &program->steps[i];
        const struct ul_node *node = &job->graph.nodes[step->node];
        steps[i] = (struct ul_report_step){
            .name = step->name,
            .op = step->op,
            .node = node->name[0] != '\0' ? node->name
                                          : ul_node_describe(&job->graph, step->node, &job->keep),
            .flop_count = step->work.flop_count,
            .moved_bytes = step->traffic.moved_bytes,
            .is_call = step->kind == UL_STEP_CALL};
    }
    for (uint32_t i = 0; i < program->problem->value_count; i++) {
        const struct ul_plan_value *planned = &program->problem->values[i];
        const struct ul_program_place *place = &program->places[i];
        int64_t size = (int64_t)planned->size_bytes;
        values[i] = (struct ul_report_value){
            .name = planned->name, .type = ul_type_make(UL_U8, 1, &size), .storage = UL_U8};
        if (place->kind == UL_PLACE_STATE)
            continue;
        values[i].type = job->graph.values[place->value].type;
        values[i].storage = ul_value_storage(&job->graph, place->value);
        values[i].is_too_large = (job->graph.values[place->value].flags & UL_VALUE_TOO_LARGE) != 0;
    }
    const char *slash = strrchr(job->model.path, '/');
    job->report.problem = program->problem;
    job->report.plan = &job->plan;
    job->report.model_name = slash != NULL ? slash + 1 : job->model.path;
    job->report.model_sha256 = job->model.sha256;
    job->report.target = job->options.target;
    job->report.library = job->library != NULL ? job->library->name : NULL;
    job->report.uncalled_count = program->uncalled_count;
    job->report.cudnn = ul_cli_cudnn(job);
    job->report.budget_bytes = job->options.planning.budget_bytes;
    job->report.steps = steps;
    job->report.values = values;
    describe_options(job);
}

static enum ul_status read_plan(struct ul_cli_job *job, const char *path)
{
    struct ul_file file;
    UL_TRY(ul_file_map(&file, &job->keep, path, &job->diag));
    enum ul_status status =
        ul_report_read_plan(&job->keep, (const char *)file.data, (size_t)file.size_bytes,
                            job->program->problem, &job->plan, &job->diag);
    ul_file_unmap(&file);
    if (status == UL_OK)
        status = ul_plan_check(&job->scratch, job->program->problem, &job->plan, &job->diag);
    if (status == UL_OK && job->plan.alignment_bytes < UL_PROGRAM_MIN_ALIGN_BYTES)
        status = ul_diag_set(
            &job->diag, UL_MISMATCH, "its alignment is %llu bytes; elements need up to %d",
            (unsigned long long)job->plan.alignment_bytes, UL_PROGRAM_MIN_ALIGN_BYTES);
    if (status == UL_OK && job->plan.alignment_bytes < ul_program_call_align(job->program))
        status = ul_diag_set(
            &job->diag, UL_MISMATCH, "its alignment is %llu bytes; library calls need %u (--align)",
            (unsigned long long)job->plan.alignment_bytes, ul_program_call_align(job->program));
    if (status != UL_OK && ul_cli_is_other_model(job))
        return ul_cli_report_other_model(job);
    if ((status == UL_MISMATCH || status == UL_INVALID) && ul_cli_plan_options(job) != NULL) {
        const char *why = ul_arena_copy_string(&job->keep, job->diag.text);
        job->diag = (struct ul_diag){0};
        status = ul_diag_set(&job->diag, UL_MISMATCH,
                             "%s (the plan was made with %s; give the same, or make another)", why,
                             ul_cli_plan_options(job));
    }
    if (status != UL_OK)
        ul_diag_prefix(&job->diag, path);
    else /* the budget is this command's, not the one that the plan was made for */
        ul_plan_judge(job->program->problem, job->options.planning.budget_bytes, &job->plan);
    return status;
}

enum ul_status ul_cli_plan(struct ul_cli_job *job)
{
    if (job->options.plan != NULL)
        UL_TRY(read_plan(job, job->options.plan));
    else
        UL_TRY(ul_cli_solve(job));
    describe(job);
    ul_text_init(&job->json, &job->keep);
    ul_report_put_json(&job->json, &job->report);
    ul_hash_hex(job->json.data, job->json.length, job->plan_sha256);
    return UL_OK;
}

/* ---- emit and make ---- */

/* The folder of installed data beside the program, or NULL. */
static const char *installed_directory(struct ul_arena *arena)
{
    char *self = ul_arena_alloc(arena, PATH_MAX);
    ssize_t length = readlink("/proc/self/exe", self, PATH_MAX - 1);
    if (length <= 0)
        return NULL;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    const char *installed = ul_arena_printf(arena, "%s/../share/ullage", self);
    return access(installed, R_OK) == 0 ? installed : NULL;
}

const char *ul_cli_data_file(struct ul_arena *arena, const char *name)
{
    const char *installed = installed_directory(arena);
    if (installed != NULL)
        return ul_arena_printf(arena, "%s/%s", installed, name);
    return ul_arena_printf(arena, "%s/cli/%s", ULLAGE_SOURCE_DIR, name);
}

static const char *runtime_directory(struct ul_arena *arena)
{
    const char *set = getenv("ULLAGE_RUNTIME");
    const char *installed = installed_directory(arena);
    if (set != NULL)
        return set;
    if (installed != NULL)
        return ul_arena_printf(arena, "%s/runtime", installed);
    return ULLAGE_SOURCE_DIR "/runtime";
}

static bool is_identifier(const char *name)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t length = strlen(name);
    return length > 0 && length < 64 && strchr(letters, name[0]) != NULL &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") ==
               length;
}

/* make drops a '-', '@' or '+' in front of a command, and then even its failure. */
static bool is_command(const char *words)
{
    return strchr("-@+", words[strspn(words, " \t")]) == NULL; /* finds the end of the text too */
}

/* A program for a named machine must not use what only this one has. */
static const char *march_choice(const struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    if (options->march != NULL)
        return strcmp(options->march, "none") == 0 ? NULL : options->march;
    return options->isa != NULL && job->library != NULL ? job->library->march : "native";
}

/* The command that compiles the program, for the Makefile. */
static enum ul_status compiler_choice(struct ul_cli_job *job, const char **compiler)
{
    const struct ul_cli_options *options = &job->options;
    bool is_device = job->program->options.target->is_device;
    const char *environment = getenv("CC");
    *compiler = options->cc != NULL                             ? options->cc
                : environment != NULL && environment[0] != '\0' ? environment
                                                                : "cc";
    if (is_device)
        *compiler = ul_cli_nvcc(job);
    if (is_command(*compiler))
        return UL_OK;
    return ul_diag_set(&job->diag, UL_USAGE, "--%s \"%s\" ($%s without it): expected a command",
                       is_device ? "nvcc" : "cc", *compiler, is_device ? "NVCC" : "CC");
}

enum ul_status ul_cli_emit(struct ul_cli_job *job, const char *directory)
{
    const struct ul_cli_options *options = &job->options;
    struct ul_emit_options emit = {.prefix = options->prefix != NULL ? options->prefix : "model",
                                   .model_sha256 = job->model.sha256,
                                   .plan_sha256 = job->plan_sha256,
                                   .runtime_dir = runtime_directory(&job->keep),
                                   .cflags = options->cflags != NULL ? options->cflags : "-O3",
                                   .march = march_choice(job),
                                   .onednn_cflags = ULLAGE_ONEDNN_CFLAGS,
                                   .onednn_libs = ULLAGE_ONEDNN_LIBS,
                                   .weights_beside = word_is(options->weights, "file")};
    if (!is_identifier(emit.prefix))
        return ul_diag_set(&job->diag, UL_USAGE, "--prefix %s: expected a C identifier",
                           emit.prefix);
    UL_TRY(compiler_choice(job, &emit.cc));
    if (mkdir(directory, 0777) != 0 && errno != EEXIST)
        return ul_diag_set(&job->diag, UL_IO, "%s: cannot make the folder: %s", directory,
                           strerror(errno));
    return job->program->options.target->emit(&job->keep, job->program, &job->plan, &emit,
                                              directory, &job->diag);
}

/* "RUNTIME=libul_runtime.a" where the runtime was compiled when ullage was, or NULL. Another C
 * compiler than the default one compiles it for itself. */
static const char *runtime_library(struct ul_cli_job *job)
{
    const char *installed = installed_directory(&job->keep);
    const char *library = NULL;
#ifdef ULLAGE_BUILT_RUNTIME
    library = ULLAGE_BUILT_RUNTIME;
#endif
    if (job->options.cc != NULL || getenv("CC") != NULL || getenv("ULLAGE_RUNTIME") != NULL)
        return NULL;
    if (installed != NULL)
        library = ul_arena_printf(&job->keep, "%s/libul_runtime.a", installed);
    if (library == NULL || access(library, R_OK) != 0)
        return NULL;
    return ul_arena_printf(&job->keep, "RUNTIME=%s", library);
}

static enum ul_status move_weights(struct ul_cli_job *job, const char *directory,
                                   const char *output)
{
    struct ul_file weights;
    const char *from = ul_arena_printf(&job->keep, "%s/weights.bin", directory);
    const char *to = ul_arena_printf(&job->keep, "%s.weights", output);
    UL_TRY(ul_file_map(&weights, &job->keep, from, &job->diag));
    enum ul_status status = ul_file_write(to, weights.data, weights.size_bytes, &job->diag);
    ul_file_unmap(&weights);
    return status;
}

enum ul_status ul_cli_make(struct ul_cli_job *job, const char *directory, const char *output)
{
    const char *const argv[] = {
        "make", "-s", "-j2", "-C", directory, "program", runtime_library(job), NULL};
    bool is_device = job->program->options.target->is_device;
    if (is_device && !ul_cli_has_nvcc(job))
        return ul_diag_set(&job->diag, UL_COMPILER,
                           "target %s needs the CUDA Toolkit's compiler, and there is no %s here; "
                           "--nvcc or $NVCC says where it is, --emit DIR needs none",
                           job->program->options.target->name, ul_cli_nvcc(job));
    ul_cli_progress(is_device ? "compiling the kernels with nvcc"
                              : "compiling the kernels with the C compiler");
    int code = ul_cli_execute(argv, NULL);
    ul_cli_progress(NULL);
    if (code != 0)
        return ul_diag_set(&job->diag, UL_COMPILER,
                           "%s failed (its messages are above); --emit DIR keeps the source, %s "
                           "and --cflags choose another compiler",
                           is_device ? ul_cli_nvcc(job) : "the C compiler",
                           is_device ? "--nvcc" : "--cc");
    struct ul_file program;
    const char *built = ul_arena_printf(&job->keep, "%s/program", directory);
    UL_TRY(ul_file_map(&program, &job->keep, built, &job->diag));
    enum ul_status status = ul_file_write(output, program.data, program.size_bytes, &job->diag);
    ul_file_unmap(&program);
    if (status == UL_OK && word_is(job->options.weights, "file"))
        status = move_weights(job, directory, output);
    UL_TRY(status);
    struct stat info;
    if (stat(output, &info) == 0 && S_ISREG(info.st_mode))
        chmod(output, info.st_mode | ((info.st_mode & 0444) >> 2));
    return UL_OK;
}
