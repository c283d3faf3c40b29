/* The command line: one table of options for the parser and for --help. */
#include "ul_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum option {
    OPTION_INPUT,
    OPTION_RANDOM,
    OPTION_OUTPUT_DIR,
    OPTION_OUTPUT_NPZ,
    OPTION_OUTPUT,
    OPTION_PRINT,
    OPTION_REPEAT,
    OPTION_WEIGHTS,
    OPTION_THREADS,
    OPTION_DEVICE,
    OPTION_TUNE,
    OPTION_CHOICES,
    OPTION_TEST_DATA,
    OPTION_RTOL,
    OPTION_ATOL,
    OPTION_NORM,
    OPTION_NORM_LIMIT,
    OPTION_STEP_LIMIT,
    OPTION_BENCH,
    OPTION_PROFILE,
    OPTION_WARMUP,
    OPTION_DURATION,
    OPTION_ITERATIONS,
    OPTION_MEMORY,
    OPTION_GUARD,
    OPTION_JSON,
    OPTION_VERSION,
    OPTION_HELP
};

struct row {
    enum option option;
    const char *name;
    const char *value; /* NULL: takes none */
    const char *help;
};

static const struct row rows[] = {
    {OPTION_INPUT, "--input", "NAME=FILE",
     "an input: .npy, .npz (FILE.npz:KEY or the entry named NAME), ONNX .pb; - is a .npy on stdin"},
    {OPTION_RANDOM, "--random", "SEED",
     "inputs that are not given: floats in [-1,1), integers in 0..9"},
    {OPTION_OUTPUT_DIR, "--output-dir", "DIR", "every output to DIR/NAME.npy"},
    {OPTION_OUTPUT_NPZ, "--output-npz", "FILE", "all outputs to one .npz"},
    {OPTION_OUTPUT, "--output", "NAME=FILE", "one output to a .npy; - is stdout"},
    {OPTION_PRINT, "--print", NULL, "a short look at the outputs (the default without a file)"},
    {OPTION_REPEAT, "--repeat", "N",
     "run N times on the same inputs (default 1); outputs are those of the last run"},
    {OPTION_WEIGHTS, "--weights", "FILE",
     "weights from FILE (default: the program itself, else PROGRAM.weights)"},
    {OPTION_THREADS, "--threads", "N",
     "threads (default: OMP_NUM_THREADS, else the processors; at most those that were planned)"},
    {OPTION_DEVICE, "--device", "N", "run on device N (default: CUDA's first one, 0)"},
    {OPTION_TUNE, "--tune", "FILE",
     "measure which algorithms of libraries are fastest here, use them and write them to FILE"},
    {OPTION_CHOICES, "--choices", "FILE", "use the algorithms that --tune wrote to FILE"},
    {OPTION_TEST_DATA, "--test-data", "DIR",
     "run input_*.pb of DIR or its test_data_set_* and compare with output_*.pb"},
    {OPTION_RTOL, "--rtol", "X", "with --test-data: relative tolerance (default 1e-3)"},
    {OPTION_ATOL, "--atol", "X", "with --test-data: absolute tolerance (default 1e-7)"},
    {OPTION_NORM, "--norm", NULL,
     "with --test-data: an output is also right where its norm error is at most 1e-4 (of programs "
     "in bf16 3e-2, in fp16 or with --tf32 5e-3)"},
    {OPTION_NORM_LIMIT, "--norm-limit", "X[,X...]",
     "--norm with other limits than those: of each output, the last one of all behind it"},
    {OPTION_STEP_LIMIT, "--step-limit", "X",
     "with --test-data: up to this share of an output's integers of 8 or 16 bits may be 1 away, as "
     "where a sum in another order is quantized (default 0)"},
    {OPTION_BENCH, "--bench", NULL, "latency and throughput"},
    {OPTION_PROFILE, "--profile", NULL, "with --bench: the time of each step"},
    {OPTION_WARMUP, "--warmup", "SECONDS", "with --bench: before measuring (default 0.2)"},
    {OPTION_DURATION, "--duration", "SECONDS", "with --bench: at least this long (default 3)"},
    {OPTION_ITERATIONS, "--iterations", "N",
     "runs: with --bench at least this many, with --memory those of a device (default 3)"},
    {OPTION_MEMORY, "--memory", NULL, "bytes: predicted, reserved, really touched"},
    {OPTION_GUARD, "--guard", NULL, "find steps that read or write outside their values"},
    {OPTION_JSON, "--json", "FILE", "with --bench, --memory, --guard, --test-data: also as JSON"},
    {OPTION_VERSION, "--version", NULL, "model, plan, compiler"},
    {OPTION_HELP, "--help", NULL, "this text"},
};

#define ROW_COUNT (sizeof rows / sizeof rows[0])

/* Options of the other kind of target are unknown ones. */
static bool is_known(const struct ul_session *s, const struct row *row)
{
    bool on_device = s->model->device != NULL;
    if (row->option == OPTION_THREADS)
        return !on_device;
    if (row->option == OPTION_DEVICE || row->option == OPTION_TUNE || row->option == OPTION_CHOICES)
        return on_device;
    return true;
}

/* Words to the right of what is explained, in lines of at most 80 columns. */
static void help_words(FILE *out, const char *text)
{
    enum { INDENT = 26, COLUMNS = 80 };
    int column = INDENT;
    while (*text != '\0') {
        int size = (int)strcspn(text, " ");
        if (column > INDENT && column + 1 + size > COLUMNS) {
            fprintf(out, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            column += fprintf(out, " ");
        }
        column += fprintf(out, "%.*s", size, text);
        text += size + (text[size] == ' ');
    }
    fprintf(out, "\n");
}

static void help_tensors(const struct ul_session *s, FILE *out, const char *title,
                         const struct ul_rt_tensor *tensors, uint32_t count)
{
    char shown[UL_SHOWN_BYTES], shape[UL_SHAPE_TEXT_BYTES];
    fprintf(out, "\n%s:\n", title);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t donated = tensors[i].donated;
        fprintf(out, "  %-24s  %s", ul_shown(shown, tensors[i].name),
                ul_shape_text(shape, tensors[i].type, tensors[i].rank, tensors[i].dims));
        if (donated == UL_DONATED_WEIGHT)
            fprintf(out, ", overwrites a weight");
        else if (donated != 0 && tensors == s->model->inputs)
            fprintf(out, ", state: becomes %s with each run",
                    ul_shown(shown, s->model->outputs[donated - 1].name));
        fprintf(out, "\n");
    }
}

void ul_options_help(const struct ul_session *s, FILE *out)
{
    char shown[UL_SHOWN_BYTES];
    fprintf(out,
            "%s runs the model '%s' in one buffer of %" PRIu64 " bytes.\n\n"
            "Usage: %s --input NAME=FILE ... --output-dir DIR\n\n",
            s->program, ul_shown(shown, s->model->name), s->model->arena_bytes, s->program);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        if (!is_known(s, &rows[i]))
            continue;
        snprintf(shown, sizeof shown, "%s %s", rows[i].name,
                 rows[i].value != NULL ? rows[i].value : "");
        fprintf(out, "  %-22s  ", shown);
        help_words(out, rows[i].help);
    }
    help_tensors(s, out, "Inputs", s->model->inputs, s->model->input_count);
    help_tensors(s, out, "Outputs", s->model->outputs, s->model->output_count);
    fputs("\nExit codes: 0 ok, 1 usage, 2 invalid file or data, 3 unsupported, 4 does not\n"
          "fit, 5 input or output failed, 6 verification failed, 70 internal error.\n",
          out);
}

/* The tensor whose name stands in front of an '='. Names may contain '=': the longest wins. */
static int assign(const struct ul_session *s, const char *option, const char *text,
                  const struct ul_rt_tensor *tensors, uint32_t count, struct ul_assignment *result)
{
    size_t best = 0;
    char shown[UL_SHOWN_BYTES];
    result->text = text;
    result->file = NULL;
    for (uint32_t i = 0; i < count; i++) {
        size_t size = strlen(tensors[i].name);
        if (strncmp(text, tensors[i].name, size) != 0 || text[size] != '=' ||
            (result->file != NULL && size < best))
            continue;
        best = size;
        result->tensor = i;
        result->file = text + size + 1;
    }
    if (result->file != NULL && result->file[0] != '\0')
        return UL_EXIT_OK;
    ul_error(s, UL_EXIT_USAGE, "%s %s: %s; this model has:", option, ul_shown(shown, text),
             strchr(text, '=') == NULL || result->file != NULL ? "expected NAME=FILE"
                                                               : "no such name");
    for (uint32_t i = 0; i < count; i++)
        fprintf(stderr, "    %s\n", ul_shown(shown, tensors[i].name));
    return UL_EXIT_USAGE;
}

static int parse_real(const struct ul_session *s, const char *name, const char *text, double *value)
{
    char *end;
    char shown[UL_SHOWN_BYTES];
    *value = strtod(text, &end);
    if (end == text || *end != '\0' || !(*value >= 0.0) || isinf(*value))
        return ul_error(s, UL_EXIT_USAGE, "%s %s: expected a number of at least 0", name,
                        ul_shown(shown, text));
    return UL_EXIT_OK;
}

/* "X,X,..." */
static int check_reals(const struct ul_session *s, const char *name, const char *text)
{
    char piece[UL_SHOWN_BYTES];
    double value;
    int status = UL_EXIT_OK;
    do {
        size_t length = strcspn(text, ",");
        snprintf(piece, sizeof piece, "%.*s", (int)(length < sizeof piece ? length : sizeof piece),
                 text);
        status = parse_real(s, name, piece, &value);
        text += length;
    } while (status == UL_EXIT_OK && *text++ == ',');
    return status;
}

static int parse_count(const struct ul_session *s, const char *name, const char *text,
                       uint64_t *value)
{
    char *end;
    char shown[UL_SHOWN_BYTES];
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return ul_error(s, UL_EXIT_USAGE, "%s %s: expected a whole number of at least 0", name,
                        ul_shown(shown, text));
    *value = number;
    return UL_EXIT_OK;
}

static int parse_repeat(const struct ul_session *s, const char *name, const char *text,
                        uint64_t *repeat)
{
    int status = parse_count(s, name, text, repeat);
    if (status == UL_EXIT_OK && *repeat == 0)
        return ul_error(s, UL_EXIT_USAGE, "%s 0: expected at least 1", name);
    return status;
}

/* More threads than were planned would need scratch that the arena does not have. */
static int parse_threads(const struct ul_session *s, const char *value, uint32_t *threads)
{
    uint64_t count = 0, planned = s->model->thread_count != 0 ? s->model->thread_count : 1;
    int status = parse_count(s, "--threads", value, &count);
    if (status != UL_EXIT_OK)
        return status;
    if (count == 0 || count > planned)
        return ul_error(s, UL_EXIT_USAGE,
                        "--threads %" PRIu64 ": this program was planned for %" PRIu64
                        " thread%s; give 1 to %" PRIu64 ", or compile it with --threads %" PRIu64,
                        count, planned, planned == 1 ? "" : "s", planned, count != 0 ? count : 1);
    *threads = (uint32_t)count;
    return UL_EXIT_OK;
}

static int parse_device(const struct ul_session *s, const char *value, uint32_t *device)
{
    uint64_t number = 0;
    int status = parse_count(s, "--device", value, &number);
    if (status == UL_EXIT_OK && number >= UINT32_MAX)
        return ul_error(s, UL_EXIT_USAGE, "--device %s: there are not as many", value);
    *device = (uint32_t)number + 1;
    return status;
}

static int set_mode(const struct ul_session *s, struct ul_run_options *options, enum ul_mode mode)
{
    if (options->mode != UL_MODE_RUN && options->mode != mode)
        return ul_error(s, UL_EXIT_USAGE,
                        "--test-data, --bench, --memory and --guard exclude each other");
    options->mode = mode;
    return UL_EXIT_OK;
}

static int assign_input(const struct ul_session *s, struct ul_run_options *options,
                        const char *value)
{
    struct ul_assignment *next = &options->inputs[options->input_count];
    char shown[UL_SHOWN_BYTES];
    int status = assign(s, "--input", value, s->model->inputs, s->model->input_count, next);
    if (status != UL_EXIT_OK)
        return status;
    for (uint32_t i = 0; i < options->input_count; i++)
        if (options->inputs[i].tensor == next->tensor)
            return ul_error(s, UL_EXIT_USAGE, "--input %s: given twice",
                            ul_shown(shown, s->model->inputs[next->tensor].name));
    options->input_count++;
    return UL_EXIT_OK;
}

static int apply(const struct ul_session *s, struct ul_run_options *options, const struct row *row,
                 const char *value)
{
    switch (row->option) {
    case OPTION_INPUT:
        return assign_input(s, options, value);
    case OPTION_RANDOM:
        options->random = true;
        return parse_count(s, row->name, value, &options->seed);
    case OPTION_OUTPUT_DIR:
        options->output_dir = value;
        return UL_EXIT_OK;
    case OPTION_OUTPUT_NPZ:
        options->output_npz = value;
        return UL_EXIT_OK;
    case OPTION_OUTPUT:
        return assign(s, row->name, value, s->model->outputs, s->model->output_count,
                      &options->outputs[options->output_count++]);
    case OPTION_PRINT:
        options->print = true;
        return UL_EXIT_OK;
    case OPTION_REPEAT:
        return parse_repeat(s, row->name, value, &options->repeat);
    case OPTION_WEIGHTS:
        options->weights = value;
        return UL_EXIT_OK;
    case OPTION_THREADS:
        return parse_threads(s, value, &options->threads);
    case OPTION_DEVICE:
        return parse_device(s, value, &options->device);
    case OPTION_TUNE:
        options->tune = value;
        return UL_EXIT_OK;
    case OPTION_CHOICES:
        options->choices = value;
        return UL_EXIT_OK;
    case OPTION_TEST_DATA:
        options->test_data = value;
        return set_mode(s, options, UL_MODE_TEST_DATA);
    case OPTION_RTOL:
        return parse_real(s, row->name, value, &options->rtol);
    case OPTION_ATOL:
        return parse_real(s, row->name, value, &options->atol);
    case OPTION_NORM:
        options->norm = true;
        return UL_EXIT_OK;
    case OPTION_NORM_LIMIT:
        options->norm = true;
        options->norm_limits = value;
        return check_reals(s, row->name, value);
    case OPTION_STEP_LIMIT:
        return parse_real(s, row->name, value, &options->step_limit);
    case OPTION_BENCH:
        return set_mode(s, options, UL_MODE_BENCH);
    case OPTION_PROFILE:
        options->profile = true;
        return UL_EXIT_OK;
    case OPTION_WARMUP:
        return parse_real(s, row->name, value, &options->warmup_seconds);
    case OPTION_DURATION:
        return parse_real(s, row->name, value, &options->duration_seconds);
    case OPTION_ITERATIONS:
        return parse_count(s, row->name, value, &options->iterations);
    case OPTION_MEMORY:
        return set_mode(s, options, UL_MODE_MEMORY);
    case OPTION_GUARD:
        return set_mode(s, options, UL_MODE_GUARD);
    case OPTION_JSON:
        options->json = value;
        return UL_EXIT_OK;
    case OPTION_VERSION:
        options->mode = UL_MODE_VERSION;
        return UL_EXIT_OK;
    case OPTION_HELP:
        options->mode = UL_MODE_HELP;
        return UL_EXIT_OK;
    }
    return UL_EXIT_INTERNAL;
}

static bool is_standard(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* Standard input and standard output serve one purpose each. */
static int check_streams(const struct ul_session *s, const struct ul_run_options *options)
{
    int in_count = 0, out_count = options->print ? 1 : 0;
    for (uint32_t i = 0; i < options->input_count; i++)
        in_count += is_standard(options->inputs[i].file);
    for (uint32_t i = 0; i < options->output_count; i++)
        out_count += is_standard(options->outputs[i].file);
    out_count += is_standard(options->output_npz) + is_standard(options->json);
    if (in_count > 1)
        return ul_error(s, UL_EXIT_USAGE, "only one input can be standard input");
    if (out_count > 1)
        return ul_error(s, UL_EXIT_USAGE,
                        "only one output can be standard output (with --print, "
                        "that is the text)");
    return UL_EXIT_OK;
}

static int check(const struct ul_session *s, struct ul_run_options *options)
{
    bool outputs =
        options->output_dir != NULL || options->output_npz != NULL || options->output_count != 0;
    if (options->mode == UL_MODE_VERSION || options->mode == UL_MODE_HELP)
        return UL_EXIT_OK;
    if (options->mode != UL_MODE_RUN && (outputs || options->print))
        return ul_error(s, UL_EXIT_USAGE, "outputs are written in a plain run only");
    if (options->mode == UL_MODE_RUN && options->json != NULL)
        return ul_error(s, UL_EXIT_USAGE,
                        "--json goes with --bench, --memory, --guard or --test-data");
    if (options->mode == UL_MODE_TEST_DATA && (options->input_count != 0 || options->random))
        return ul_error(s, UL_EXIT_USAGE, "--test-data brings its own inputs");
    if (options->mode != UL_MODE_RUN && options->repeat != 1)
        return ul_error(s, UL_EXIT_USAGE, "--repeat goes with a plain run");
    if ((options->norm || options->step_limit > 0.0) && options->mode != UL_MODE_TEST_DATA)
        return ul_error(s, UL_EXIT_USAGE,
                        "--norm, --norm-limit and --step-limit go with --test-data");
    if (options->tune != NULL && options->choices != NULL)
        return ul_error(s, UL_EXIT_USAGE, "--tune and --choices exclude each other");
    if (options->profile && options->mode != UL_MODE_BENCH)
        return ul_error(s, UL_EXIT_USAGE, "--profile goes with --bench");
    if (options->mode == UL_MODE_RUN && !outputs)
        options->print = true;
    return check_streams(s, options);
}

/* "--name value" and "--name=value". */
static int parse_one(const struct ul_session *s, struct ul_run_options *options, char **argv,
                     int *at)
{
    const char *text = argv[*at];
    char shown[UL_SHOWN_BYTES];
    for (size_t i = 0; i < ROW_COUNT; i++) {
        size_t size = strlen(rows[i].name);
        const char *value = NULL;
        if (!is_known(s, &rows[i]) || strncmp(text, rows[i].name, size) != 0 ||
            (text[size] != '\0' && text[size] != '='))
            continue;
        if (text[size] == '=')
            value = text + size + 1;
        else if (rows[i].value != NULL && argv[*at + 1] != NULL)
            value = argv[++*at];
        if ((value == NULL) != (rows[i].value == NULL))
            return ul_error(s, UL_EXIT_USAGE, "%s %s", rows[i].name,
                            value == NULL ? "needs a value" : "takes no value");
        return apply(s, options, &rows[i], value);
    }
    return ul_error(s, UL_EXIT_USAGE, "unknown argument %s (see --help)", ul_shown(shown, text));
}

int ul_options_parse(const struct ul_session *s, struct ul_run_options *options, int argc,
                     char **argv)
{
    size_t room = (size_t)argc + 1;
    int status = UL_EXIT_OK;
    memset(options, 0, sizeof *options);
    options->rtol = 1e-3;
    options->atol = 1e-7;
    options->warmup_seconds = 0.2;
    options->duration_seconds = 3.0;
    options->iterations = 3;
    options->repeat = 1;
    options->inputs = calloc(room, sizeof *options->inputs);
    options->outputs = calloc(room, sizeof *options->outputs);
    if (options->inputs == NULL || options->outputs == NULL)
        return ul_out_of_memory(s, room * sizeof *options->inputs);
    for (int at = 1; status == UL_EXIT_OK && at < argc; at++)
        status = parse_one(s, options, argv, &at);
    return status == UL_EXIT_OK ? check(s, options) : status;
}

void ul_options_done(struct ul_run_options *options)
{
    free(options->inputs);
    free(options->outputs);
}
