/* ullage verify: compiles a model, runs it, and compares its outputs: with ONNX's recorded
 * test_data_set folders where there are any; else on random inputs with onnxruntime, where python3
 * has it; else with the same model compiled without passes and without reuse of memory.
 *
 * An operator may need an input at compile time (a shape, axes, k). Then that input is taken from
 * the data as a constant: first the small integer inputs, then all small ones. */
#define _XOPEN_SOURCE 700
#include "cli/cli.h"
#include "codegen/target.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 4096, SMALL_ELEMENTS = 4096 };

/* ---- one attempt: a job of its own with other constants ---- */

enum attempt { ATTEMPT_PLAIN, ATTEMPT_INTEGERS, ATTEMPT_SMALL, ATTEMPT_COUNT };

struct verification {
    bool is_random;           /* the set holds random inputs and another runtime's outputs */
    struct ul_cli_job *outer; /* options and diag */
    const char *model;
    const char *work;     /* temporary folder */
    const char *set;      /* test data folder, or NULL */
    const char *set_name; /* what it is called in messages */
    uint32_t input_count; /* input_K.pb files of the set */
    const struct ul_tensor **inputs;
    const char **names; /* of the model's inputs, by position */
    bool *fixed;        /* made constant in this attempt */
    const char *program;
    bool quantizes; /* the model rounds to integers */
};

static const char *set_file(struct verification *verification, const char *kind, uint32_t number)
{
    return ul_arena_printf(&verification->outer->keep, "%s/%s_%u.pb", verification->set, kind,
                           number);
}

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

static void copy_options(const struct ul_cli_options *from, struct ul_cli_options *to)
{
    struct ul_arena *arena = to->arena;
    *to = *from;
    to->arena = arena;
    /* Lists grow on their own from here. */
    struct ul_cli_list *lists[] = {&to->dims, &to->shapes, &to->consts, &to->no_passes};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct ul_cli_list whole = *lists[i];
        *lists[i] = (struct ul_cli_list){.count = 0};
        for (uint32_t k = 0; k < whole.count; k++)
            ul_cli_list_add(arena, lists[i], whole.items[k]);
    }
}

static const char *shape_option(struct ul_arena *arena, const char *name,
                                const struct ul_type *type)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_text_printf(&text, "%s=", name);
    for (uint32_t d = 0; d < type->rank; d++)
        ul_text_printf(&text, "%s%lld", d == 0 ? "" : ",", (long long)type->dims[d]);
    return text.data;
}

/* Tells the job of the set's shapes, and of what is constant. */
static void apply_inputs(struct verification *verification, struct ul_cli_job *job,
                         enum attempt attempt)
{
    for (uint32_t i = 0; i < verification->input_count; i++) {
        const struct ul_tensor *tensor = verification->inputs[i];
        const char *name = verification->names[i];
        verification->fixed[i] = fixes(attempt, tensor);
        if (verification->fixed[i])
            ul_cli_list_add(
                &job->keep, &job->options.consts,
                ul_arena_printf(&job->keep, "%s=%s", name, set_file(verification, "input", i)));
        else if (tensor->type.rank > 0)
            ul_cli_list_add(&job->keep, &job->options.shapes,
                            shape_option(&job->keep, name, &tensor->type));
    }
}

static bool quantizes(const struct ul_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].op == UL_OP_QuantizeLinear ||
            graph->nodes[i].op == UL_OP_DynamicQuantizeLinear)
            return true;
    }
    return false;
}

static enum ul_status build_attempt(struct verification *verification, enum attempt attempt,
                                    const char *program, struct ul_diag *diag)
{
    struct ul_cli_job job;
    ul_cli_job_init(&job);
    copy_options(&verification->outer->options, &job.options);
    apply_inputs(verification, &job, attempt);
    enum ul_status status = ul_cli_build(&job, verification->model);
    if (status == UL_OK)
        status = ul_cli_plan(&job);
    const char *directory = ul_arena_printf(&job.keep, "%s/source", verification->work);
    if (status == UL_OK)
        status = ul_cli_emit(&job, directory);
    if (status == UL_OK)
        status = ul_cli_make(&job, directory, program);
    *diag = job.diag;
    verification->quantizes = quantizes(&job.graph);
    ul_cli_remove_tree(directory);
    ul_cli_job_done(&job);
    return status;
}

/* ---- recorded data ---- */

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static enum ul_status read_inputs(struct verification *verification)
{
    struct ul_arena *arena = &verification->outer->keep;
    const struct ul_onnx_model *model = &verification->outer->model;
    verification->input_count = 0;
    while (verification->input_count < MAX_FILES &&
           is_file(set_file(verification, "input", verification->input_count)))
        verification->input_count++;
    uint32_t count = verification->input_count;
    if (count > model->input_count)
        return ul_diag_set(&verification->outer->diag, UL_INVALID,
                           "%s: holds %u inputs, the model has %u", verification->set, count,
                           model->input_count);
    verification->inputs = UL_NEW_ARRAY(arena, const struct ul_tensor *, count);
    verification->names = UL_NEW_ARRAY(arena, const char *, count);
    verification->fixed = UL_NEW_ARRAY(arena, bool, count);
    for (uint32_t i = 0; i < count; i++) {
        const char *name;
        UL_TRY(ul_frontend_read_tensor(arena, set_file(verification, "input", i),
                                       &verification->inputs[i], &name,
                                       &verification->outer->diag));
        verification->names[i] = model->inputs[i].name;
        for (uint32_t k = 0; k < model->input_count; k++) {
            if (name != NULL && strcmp(name, model->inputs[k].name) == 0)
                verification->names[i] = model->inputs[k].name;
        }
    }
    return UL_OK;
}

/* What a program printed into the file `path`, with the name of the temporary folder `folder`
 * replaced by what the user calls it. */
static void show_output(struct verification *verification, const char *path, const char *folder)
{
    struct ul_arena *arena = &verification->outer->keep;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_file file;
    if (ul_file_map(&file, arena, path, &diag) != UL_OK)
        return;
    const char *text =
        ul_arena_printf(arena, "%.*s", (int)file.size_bytes, (const char *)file.data);
    for (const char *hit; (hit = strstr(text, folder)) != NULL; text = hit + strlen(folder))
        printf("%.*s%s", (int)(hit - text), text, verification->set_name);
    printf("%s", text);
    ul_file_unmap(&file);
}

/* A folder of links to the set's files, numbered as the program's own inputs are. */
static enum ul_status link_data(struct verification *verification, const char *folder)
{
    struct ul_arena *arena = &verification->outer->keep;
    const struct ul_onnx_model *model = &verification->outer->model;
    uint32_t number = 0;
    if (mkdir(folder, 0777) != 0)
        return ul_diag_set(&verification->outer->diag, UL_IO, "%s: %s", folder, strerror(errno));
    for (uint32_t k = 0; k < model->input_count; k++) {
        for (uint32_t i = 0; i < verification->input_count; i++) {
            if (verification->fixed[i] || verification->names[i] != model->inputs[k].name)
                continue;
            char *real = realpath(set_file(verification, "input", i), NULL);
            if (real != NULL &&
                symlink(real, ul_arena_printf(arena, "%s/input_%u.pb", folder, number)) == 0)
                number++;
            free(real);
        }
    }
    for (uint32_t i = 0; i < MAX_FILES && is_file(set_file(verification, "output", i)); i++) {
        char *real = realpath(set_file(verification, "output", i), NULL);
        if (real == NULL ||
            symlink(real, ul_arena_printf(arena, "%s/output_%u.pb", folder, i)) != 0)
            number = 0;
        free(real);
    }
    return UL_OK;
}

/* What is stored in less than f32, or multiplied so; NULL: nothing. */
static const char *rounded(const struct ul_cli_options *options)
{
    const struct ul_target *target =
        options->target == NULL ? NULL : ul_target_find(options->target);
    if (options->precision != NULL && strcmp(options->precision, "fp32") != 0)
        return options->precision;
    return options->tf32 && target != NULL && target->is_device ? "tf32" : NULL;
}

/* What is no defect, for the end of a message. */
static const char *excuse(const struct verification *verification)
{
    if (!verification->quantizes || rounded(&verification->outer->options) == NULL)
        return "";
    return "\nThe model quantizes: a value that less than f32 moves over a boundary is a whole "
           "step "
           "of its\nintegers away. Look at the norm error, and give --norm X where that much is "
           "right";
}

/* The norm error at which an output is right whatever its elements are; 0: they alone count.
 * Recorded data is judged element by element. Against another runtime on random inputs, which sums
 * in another order, what is next to zero may differ: there the norm counts as well, and wherever
 * less than f32 is stored or multiplied. The limits are those of runtime/ul_test_data.c. */
static double norm_limit(const struct ul_cli_options *options, bool is_random)
{
    if (options->norm != NULL)
        return strtod(options->norm, NULL);
    if (rounded(options) == NULL)
        return is_random ? 1e-4 : 0;
    return strcmp(rounded(options), "bf16") == 0 ? 3e-2 : 5e-3;
}

static enum ul_status run_on_data(struct verification *verification)
{
    struct ul_cli_job *outer = verification->outer;
    const char *folder = ul_arena_printf(&outer->keep, "%s/data", verification->work);
    UL_TRY(link_data(verification, folder));
    const char *rtol = outer->options.rtol != NULL ? outer->options.rtol : "1e-3";
    const char *atol = outer->options.atol != NULL ? outer->options.atol : "1e-7";
    double limit = norm_limit(&outer->options, verification->is_random);
    const char *norm =
        limit > 0 ? ul_arena_printf(&outer->keep, "--norm-limit=%.17g", limit) : NULL;
    const char *const argv[] = {
        verification->program, "--test-data", folder, "--rtol", rtol, "--atol", atol, norm, NULL};
    const char *printed = ul_arena_printf(&outer->keep, "%s/printed", verification->work);
    int code = ul_cli_execute(argv, printed);
    show_output(verification, printed, folder);
    ul_cli_remove_tree(folder);
    if (code == UL_OK)
        return UL_OK;
    if (code == (int)UL_MISMATCH)
        return ul_diag_set(&outer->diag, UL_MISMATCH, "%s: the outputs differ from %s%s",
                           verification->model, verification->set_name, excuse(verification));
    return ul_diag_set(&outer->diag, code > 0 && code < 64 ? (enum ul_status)code : UL_MISMATCH,
                       "%s: the program failed on %s (exit code %d)", verification->model,
                       verification->set_name, code);
}

static enum ul_status verify_set(struct verification *verification)
{
    struct ul_cli_job *outer = verification->outer;
    struct ul_diag first = {.status = UL_OK};
    UL_TRY(read_inputs(verification));
    for (int attempt = ATTEMPT_PLAIN; attempt < ATTEMPT_COUNT; attempt++) {
        struct ul_diag diag = {.status = UL_OK};
        enum ul_status status =
            build_attempt(verification, (enum attempt)attempt, verification->program, &diag);
        if (status == UL_OK)
            return run_on_data(verification);
        bool is_model = status == UL_UNSUPPORTED || status == UL_INVALID || status == UL_USAGE;
        if (attempt == ATTEMPT_PLAIN || !is_model)
            first = diag;
        if (!is_model)
            break;
    }
    outer->diag = first; /* what the model says of itself, not of our guesses */
    return first.status;
}

/* ---- which folders ---- */

static int is_set_name(const struct dirent *entry)
{
    return strncmp(entry->d_name, "test_data_set_", strlen("test_data_set_")) == 0;
}

/* `directory` is a set itself, or holds sets. */
static void find_sets(struct ul_arena *arena, const char *directory, struct ul_cli_list *sets)
{
    if (is_file(ul_arena_printf(arena, "%s/output_0.pb", directory))) {
        ul_cli_list_add(arena, sets, directory);
        return;
    }
    struct dirent **entries;
    int count = scandir(directory, &entries, is_set_name, alphasort);
    for (int i = 0; i < count; i++) {
        ul_cli_list_add(arena, sets,
                        ul_arena_printf(arena, "%s/%s", directory, entries[i]->d_name));
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

/* Reads what the file says of its inputs; that it may not compile as it is does not matter yet. */
static enum ul_status describe_model(struct ul_cli_job *job, const char *path)
{
    struct ul_frontend_options none = {.dim_count = 0};
    struct ul_diag diag = {.status = UL_OK};
    job->loaded = true;
    enum ul_status status =
        ul_frontend_load(&job->graph, &job->keep, path, &none, &job->model, &diag);
    if (status == UL_OK || status == UL_USAGE || job->model.input_count > 0)
        return UL_OK;
    job->diag = diag;
    return status;
}

/* ---- random inputs ---- */

struct difference {
    double max;
    uint64_t wrong; /* elements outside the tolerance */
    double norm;    /* of the difference over that of what is wanted */
    bool is_near;
};

static struct difference difference(const struct ul_tensor *got, const struct ul_tensor *want,
                                    const struct ul_cli_options *options)
{
    double rtol = options->rtol != NULL ? strtod(options->rtol, NULL) : 1e-3;
    double atol = options->atol != NULL ? strtod(options->atol, NULL) : 1e-7;
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
        if (!equal || isfinite(apart)) { /* infinities and NaN that are alike add nothing */
            apart_squares += apart * apart;
            want_squares += b * b;
        }
    }
    all.norm = apart_squares <= 0 ? 0 : sqrt(apart_squares / want_squares); /* NaN stays */
    all.is_near = !exact && all.norm <= norm_limit(options, true);
    return all;
}

static enum ul_status compare_file(struct verification *verification, const char *got_path,
                                   const char *want_path, const char *name)
{
    struct ul_cli_job *job = verification->outer;
    const struct ul_tensor *got;
    const struct ul_tensor *want;
    UL_TRY(ul_cli_read_tensor(&job->keep, got_path, &got, &job->diag));
    UL_TRY(ul_cli_read_tensor(&job->keep, want_path, &want, &job->diag));
    if (!ul_type_equal(&got->type, &want->type))
        return ul_diag_set(&job->diag, UL_MISMATCH, "%s: output %s has another type or shape",
                           job->options.files.items[0], name);
    struct difference all = difference(got, want, &job->options);
    bool right = all.wrong == 0 || all.is_near;
    printf("%s: largest difference %.3g, norm error %.3g, %llu of %llu elements outside the "
           "tolerance%s\n",
           name, all.max, all.norm, (unsigned long long)all.wrong,
           (unsigned long long)ul_type_elements(&want->type),
           all.wrong > 0 && right ? "; ok by norm" : "");
    if (right)
        return UL_OK;
    return ul_diag_set(&job->diag, UL_MISMATCH, "%s: output %s differs from the reference%s",
                       job->options.files.items[0], name, excuse(verification));
}

static int is_npy(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".npy") == 0;
}

/* The outputs of two programs on the same random inputs. */
static enum ul_status compare_programs(struct verification *verification, const char *reference)
{
    struct ul_cli_job *job = verification->outer;
    const char *programs[2] = {verification->program, reference};
    const char *folders[2];
    for (int i = 0; i < 2; i++) {
        folders[i] = ul_arena_printf(&job->keep, "%s/outputs%d", verification->work, i);
        const char *const argv[] = {programs[i], "--random", "1", "--output-dir", folders[i], NULL};
        int code = mkdir(folders[i], 0777) == 0 ? ul_cli_execute(argv, NULL) : -1;
        if (code != 0)
            return ul_diag_set(
                &job->diag, code > 0 && code < 64 ? (enum ul_status)code : UL_MISMATCH,
                "%s: the program failed on random inputs (exit code %d)%s", verification->model,
                code,
                code == UL_INVALID ? "\nGive test data: ullage verify MODEL.onnx DIR; or have "
                                     "onnxruntime in python3: then smaller integers are tried too"
                                   : "");
    }
    struct dirent **entries;
    int count = scandir(folders[1], &entries, is_npy, alphasort);
    enum ul_status status = UL_OK;
    for (int i = 0; i < count; i++) {
        const char *name = ul_arena_copy_string(&job->keep, entries[i]->d_name);
        free(entries[i]);
        if (status == UL_OK)
            status =
                compare_file(verification, ul_arena_printf(&job->keep, "%s/%s", folders[0], name),
                             ul_arena_printf(&job->keep, "%s/%s", folders[1], name), name);
    }
    if (count >= 0)
        free(entries);
    return status;
}

static enum ul_status verify_unplanned(struct verification *verification)
{
    struct ul_cli_job *job = verification->outer;
    const char *reference = ul_arena_printf(&job->keep, "%s/reference", verification->work);
    struct ul_cli_options saved = job->options;
    printf("no test data and no onnxruntime: comparing with the model compiled for target c "
           "without passes and without reuse of memory\n");
    UL_TRY(build_attempt(verification, ATTEMPT_PLAIN, verification->program, &job->diag));
    job->options.target = "c";
    job->options.precision = NULL;
    memset(job->options.given, 0, sizeof job->options.given); /* they are for the other target */
    job->options.planning.pack = UL_PACK_NONE;
    job->options.no_passes = (struct ul_cli_list){.count = 0};
    for (uint32_t i = 0; i < ul_passes_count(); i++) {
        if (!ul_passes_get(i)->required)
            ul_cli_list_add(&job->keep, &job->options.no_passes, ul_passes_get(i)->name);
    }
    UL_TRY(build_attempt(verification, ATTEMPT_PLAIN, reference, &job->diag));
    job->options = saved;
    return compare_programs(verification, reference);
}

/* Random inputs and onnxruntime's outputs by a script that is no part of the compiler's needs. */
static int run_onnxruntime(struct verification *verification, const char *folder,
                           const char *printed)
{
    struct ul_cli_job *job = verification->outer;
    const char *python = getenv("ULLAGE_PYTHON");
    const char *script = ul_cli_data_file(&job->keep, "verify_onnxruntime.py");
    const char **argv = UL_NEW_ARRAY(&job->keep, const char *,
                                     job->options.dims.count + job->options.shapes.count + 8);
    uint32_t count = 0;
    argv[count++] = python != NULL ? python : "python3";
    argv[count++] = script;
    argv[count++] = verification->model;
    argv[count++] = folder;
    for (uint32_t i = 0; i < job->options.dims.count; i++)
        argv[count++] = ul_arena_printf(&job->keep, "--dim=%s", job->options.dims.items[i]);
    for (uint32_t i = 0; i < job->options.shapes.count; i++)
        argv[count++] = ul_arena_printf(&job->keep, "--shape=%s", job->options.shapes.items[i]);
    return ul_cli_execute(argv, printed);
}

/* The last line that is not empty: of a Python program the one that says what is wrong. */
static const char *last_line(struct ul_arena *arena, const char *path)
{
    struct ul_diag diag = {.status = UL_OK};
    struct ul_file file;
    if (ul_file_map(&file, arena, path, &diag) != UL_OK)
        return "\"\"";
    const char *text = (const char *)file.data;
    uint64_t end = file.size_bytes;
    while (end > 0 && (text[end - 1] == '\n' || text[end - 1] == '\r'))
        end--;
    uint64_t start = end;
    while (start > 0 && text[start - 1] != '\n')
        start--;
    const char *line =
        ul_quote(arena, ul_arena_printf(arena, "%.*s", (int)(end - start), text + start));
    ul_file_unmap(&file);
    return line;
}

static enum ul_status verify_random(struct verification *verification)
{
    enum { NO_ONNXRUNTIME = 3, NO_SIZE = 4 }; /* the script's exit codes */
    struct ul_cli_job *job = verification->outer;
    const char *folder = ul_arena_printf(&job->keep, "%s/set", verification->work);
    if (mkdir(folder, 0777) != 0)
        return ul_diag_set(&job->diag, UL_IO, "%s: %s", folder, strerror(errno));
    const char *printed = ul_arena_printf(&job->keep, "%s/printed", verification->work);
    int code = run_onnxruntime(verification, folder, printed);
    if (code == NO_ONNXRUNTIME || code == 127)
        return verify_unplanned(verification);
    if (code == NO_SIZE)
        return ul_diag_set(&job->diag, UL_USAGE, "%s: %s", verification->model,
                           last_line(&job->keep, printed));
    if (code != 0)
        return ul_diag_set(&job->diag, UL_UNSUPPORTED,
                           "%s: onnxruntime gives no reference for random inputs: %s\n"
                           "Give test data instead: ullage verify MODEL.onnx DIR, DIR with "
                           "input_K.pb and output_K.pb",
                           verification->model, last_line(&job->keep, printed));
    printf("no test data: comparing with onnxruntime on random inputs\n");
    verification->set_name = "random inputs";
    verification->set = folder;
    verification->is_random = true;
    return verify_set(verification);
}

static enum ul_status verify_all(struct verification *verification)
{
    struct ul_cli_job *job = verification->outer;
    struct ul_cli_list sets = {.count = 0};
    UL_TRY(describe_model(job, verification->model));
    for (uint32_t i = 1; i < job->options.files.count; i++) {
        uint32_t before = sets.count;
        find_sets(&job->keep, job->options.files.items[i], &sets);
        if (sets.count == before)
            return ul_diag_set(&job->diag, UL_IO, "%s: holds no test_data_set_* and no output_0.pb",
                               job->options.files.items[i]);
    }
    if (job->options.files.count == 1)
        find_sets(&job->keep, directory_of(&job->keep, verification->model), &sets);
    if (sets.count == 0)
        return verify_random(verification);
    for (uint32_t i = 0; i < sets.count; i++) {
        verification->set = sets.items[i];
        verification->set_name = sets.items[i];
        UL_TRY(verify_set(verification));
    }
    return UL_OK;
}

static enum ul_status check_tolerance(struct ul_cli_job *job, const char *name, const char *text)
{
    char *end;
    double number = text == NULL ? 0 : strtod(text, &end);
    if (text == NULL || (end != text && *end == '\0' && number >= 0 && isfinite(number)))
        return UL_OK;
    return ul_diag_set(&job->diag, UL_USAGE, "--%s %s: expected a number of at least 0", name,
                       ul_quote(&job->keep, text));
}

static enum ul_status verify(struct ul_cli_job *job)
{
    if (job->options.files.count < 1)
        return ul_diag_set(&job->diag, UL_USAGE, "give a model: ullage verify MODEL.onnx [DIR...]");
    UL_TRY(ul_cli_fit_target(job));
    UL_TRY(check_tolerance(job, "rtol", job->options.rtol));
    UL_TRY(check_tolerance(job, "atol", job->options.atol));
    UL_TRY(check_tolerance(job, "norm", job->options.norm));
    struct verification verification = {.outer = job, .model = job->options.files.items[0]};
    UL_TRY(ul_cli_temporary(&job->keep, &verification.work, &job->diag));
    verification.program = ul_arena_printf(&job->keep, "%s/program", verification.work);
    if (rounded(&job->options) != NULL && norm_limit(&job->options, true) > 0)
        printf("rounded to %s: outputs are right by their elements (--rtol, --atol) or by a norm "
               "error of at most %g\n",
               rounded(&job->options), norm_limit(&job->options, true));
    enum ul_status status = verify_all(&verification);
    ul_cli_remove_temporary(verification.work);
    return status;
}

static const enum ul_cli_option_id options[] = {
    UL_CLI_TARGET, UL_CLI_THREADS, UL_CLI_ISA,         UL_CLI_CONV,      UL_CLI_PRECISION,
    UL_CLI_DIM,    UL_CLI_SHAPE,   UL_CLI_CONST,       UL_CLI_BUDGET,    UL_CLI_ALIGN,
    UL_CLI_ORDER,  UL_CLI_PACK,    UL_CLI_KEEP_INPUTS, UL_CLI_WEIGHTS,   UL_CLI_IO,
    UL_CLI_CC,     UL_CLI_CFLAGS,  UL_CLI_MARCH,       UL_CLI_NO_PASS,   UL_CLI_SPLIT,
    UL_CLI_RTOL,   UL_CLI_ATOL,    UL_CLI_NORM,        UL_CLI_WORKSPACE, UL_CLI_WITH_CUDNN,
    UL_CLI_TF32,   UL_CLI_NVCC};

const struct ul_cli_command ul_command_verify = {
    .name = "verify",
    .arguments = "MODEL.onnx [DIR...] [options]",
    .summary = "Compiles and runs a model and compares its outputs with a reference.",
    .details =
        "DIR holds recorded data as ONNX's tests do: input_K.pb and output_K.pb, or folders "
        "of\nthem called test_data_set_*. Without DIR those beside the model are taken; "
        "without any,\nrandom inputs, and as the reference onnxruntime where python3 (or "
        "$ULLAGE_PYTHON) has\nit, else the model compiled without passes and without reuse "
        "of memory.\n\nAn element is right within atol + rtol * |wanted|; integers and bool "
        "must be equal. An\noutput is also right by its norm error, |got - wanted| / |wanted| "
        "over all of it: on\nrandom inputs where that is at most 1e-4; with --precision or "
        "--tf32, on any inputs, at\nmost 3e-2 (bf16) or 5e-3 (fp16, tf32). --norm X sets this "
        "limit, on any inputs; --norm 0\nleaves the elements alone to be judged.",
    .run = verify,
    .options = options,
    .option_count = sizeof options / sizeof *options};
