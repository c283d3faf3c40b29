/* SPDX-License-Identifier: 0BSD */
/* The command line: one table of options for the parser and for --help. */
#include "ul_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is done with an option's value; those above OPTION_INPUT put it into the row's field. */
enum option {
    OPTION_TEXT,
    OPTION_FLAG,
    OPTION_REAL,
    OPTION_COUNT,
    OPTION_POSITIVE,
    OPTION_MODE, /* the field is the mode */
    OPTION_INPUT,
    OPTION_RANDOM,
    OPTION_SIZE,
    OPTION_OUTPUT,
    OPTION_THREADS,
    OPTION_DEVICE,
    OPTION_TEST_DATA,
    OPTION_NORM_LIMIT,
    OPTION_DATA,
    OPTION_LAST,
    OPTION_SEED,
    OPTION_VAL,
    OPTION_VAL_INPUT
};

/* The programs that have the option. */
enum audience { ALL, ON_HOST, ON_DEVICE, TRAINERS, OTHERS, OFFLOADERS, SIZED };

struct row {
    enum option option;
    enum audience audience;
    size_t field; /* of struct ul_run_options */
    const char *name;
    const char *value; /* NULL: takes none */
    const char *help;
};

#define FIELD(name) offsetof(struct ul_run_options, name)

static const struct row rows[] = {
    {OPTION_DATA, TRAINERS, FIELD(train.data), "--data", "X.npy",
     "train on these samples, the model's first input"},
    {OPTION_TEXT, TRAINERS, FIELD(train.labels), "--labels", "Y.npy",
     "with --data: the labels of the samples"},
    {OPTION_POSITIVE, TRAINERS, FIELD(train.epochs), "--epochs", "N",
     "with --data: up to so many times through the samples"},
    {OPTION_POSITIVE, TRAINERS, FIELD(train.steps), "--steps", "N", "or up to so many steps"},
    {OPTION_REAL, TRAINERS, FIELD(train.learning_rate), "--lr", "X",
     "learning rate before schedules (default: as compiled)"},
    {OPTION_FLAG, TRAINERS, FIELD(train.in_order), "--no-shuffle", NULL,
     "take samples in the order of the file in each epoch"},
    {OPTION_LAST, TRAINERS, FIELD(train.pad), "--last", "drop|pad",
     "what becomes of an epoch's last samples where they do not fill a batch (default drop)"},
    {OPTION_SEED, TRAINERS, FIELD(train.seed), "--seed", "S",
     "of the order of samples and of dropout (default 0)"},
    {OPTION_VAL, TRAINERS, FIELD(train.val_data), "--val", "X.npy Y.npy",
     "samples and labels (where there are any) to evaluate after each epoch"},
    {OPTION_VAL_INPUT, TRAINERS, 0, "--val-input", "NAME=FILE.npy",
     "the same of another input; repeat for each one"},
    {OPTION_TEXT, TRAINERS, FIELD(train.metrics), "--metrics", "FILE.csv",
     "a row a step: step,epoch,loss,lr,samples_per_second; with a loss scale also "
     "loss_scale,skipped"},
    {OPTION_TEXT, TRAINERS, FIELD(train.init), "--init", "C.npz",
     "begin with the parameters of a checkpoint, or of a torch state_dict by numpy.savez, at step "
     "0"},
    {OPTION_TEXT, TRAINERS, FIELD(train.save), "--save", "C.npz",
     "write a checkpoint after each epoch, at the end, and where Ctrl-C, SIGTERM or SIGHUP ends "
     "it"},
    {OPTION_TEXT, TRAINERS, FIELD(train.resume), "--resume", "C.npz",
     "go on where a checkpoint was written"},
    {OPTION_INPUT, ALL, 0, "--input", "NAME=FILE",
     "an input: .npy, .npz (FILE.npz:KEY or the entry named NAME), ONNX .pb; - is a .npy on stdin"},
    {OPTION_RANDOM, ALL, 0, "--random", "SEED",
     "inputs that are not given: floats in [-1,1), integers in 0..9"},
    {OPTION_SIZE, SIZED, 0, "--size", "NAME=N",
     "a size of this run (default: what files of inputs have, else the largest); repeat for each "
     "one"},
    {OPTION_TEXT, ALL, FIELD(output_dir), "--output-dir", "DIR", "every output to DIR/NAME.npy"},
    {OPTION_TEXT, ALL, FIELD(output_npz), "--output-npz", "FILE", "all outputs to one .npz"},
    {OPTION_OUTPUT, ALL, 0, "--output", "NAME=FILE", "one output to a .npy; - is stdout"},
    {OPTION_FLAG, ALL, FIELD(print), "--print", NULL,
     "a short look at the outputs (the default without a file)"},
    {OPTION_POSITIVE, ALL, FIELD(repeat), "--repeat", "N",
     "run N times on the same inputs, but for state (default 1); outputs are those of the last "
     "run"},
    {OPTION_TEXT, ALL, FIELD(weights), "--weights", "FILE",
     "weights from FILE (default: the program itself, else PROGRAM.weights)"},
    {OPTION_TEXT, OFFLOADERS, FIELD(offload), "--offload", "FILE",
     "the file that values are offloaded to, which must not be there, or a folder for one "
     "(default: "
     "as compiled); the file is removed"},
    {OPTION_THREADS, ON_HOST, 0, "--threads", "N",
     "threads (default: OMP_NUM_THREADS, else the processors; at most those that were planned)"},
    {OPTION_DEVICE, ON_DEVICE, 0, "--device", "N",
     "run on device N (default: CUDA's first one, 0)"},
    {OPTION_TEXT, ON_DEVICE, FIELD(tune), "--tune", "FILE",
     "measure which algorithms of libraries are fastest here, use them and write them to FILE"},
    {OPTION_TEXT, ON_DEVICE, FIELD(choices), "--choices", "FILE",
     "use the algorithms that --tune wrote to FILE"},
    {OPTION_TEST_DATA, ALL, FIELD(test_data), "--test-data", "DIR",
     "run input_*.pb of DIR or its test_data_set_* and compare with output_*.pb"},
    {OPTION_REAL, ALL, FIELD(rtol), "--rtol", "X",
     "with --test-data: relative tolerance (default 1e-3)"},
    {OPTION_REAL, ALL, FIELD(atol), "--atol", "X",
     "with --test-data: absolute tolerance (default 1e-7)"},
    {OPTION_FLAG, ALL, FIELD(norm), "--norm", NULL,
     "with --test-data: an output is also right where its norm error is at most 1e-4 (of programs "
     "in bf16 3e-2, in fp16 or with --tf32 5e-3)"},
    {OPTION_NORM_LIMIT, ALL, FIELD(norm_limits), "--norm-limit", "X[,X...]",
     "--norm with other limits than those: of each output, the last one of all behind it"},
    {OPTION_REAL, ALL, FIELD(step_limit), "--step-limit", "X",
     "with --test-data: up to this share of an output's integers of 8 or 16 bits may be steps "
     "away, "
     "as where a sum in another order is quantized (default 0)"},
    {OPTION_COUNT, OTHERS, FIELD(steps), "--steps", "N", "--step-limit's steps (default 1)"},
    {OPTION_MODE, ALL, UL_MODE_BENCH, "--bench", NULL, "latency and throughput"},
    {OPTION_FLAG, ALL, FIELD(profile), "--profile", NULL,
     "with --bench: the slowest steps and their times"},
    {OPTION_REAL, ALL, FIELD(warmup_seconds), "--warmup", "SECONDS",
     "with --bench: before measuring (default 0.2)"},
    {OPTION_REAL, ALL, FIELD(duration_seconds), "--duration", "SECONDS",
     "with --bench: at least this long (default 3)"},
    {OPTION_COUNT, ALL, FIELD(iterations), "--iterations", "N",
     "runs: with --bench at least this many, with --memory those of a device (default 3)"},
    {OPTION_MODE, ALL, UL_MODE_MEMORY, "--memory", NULL,
     "bytes: predicted, reserved, really touched"},
    {OPTION_MODE, ALL, UL_MODE_GUARD, "--guard", NULL,
     "find steps that read or write outside their values"},
    {OPTION_TEXT, ALL, FIELD(json), "--json", "FILE",
     "with --bench, --memory, --guard, --test-data: also as JSON"},
    {OPTION_MODE, ALL, UL_MODE_VERSION, "--version", NULL, "model, plan, compiler"},
    {OPTION_MODE, ALL, UL_MODE_HELP, "--help", NULL, "this text"},
};

#define ROW_COUNT (sizeof rows / sizeof rows[0])

/* Options of other kinds of programs are unknown here. */
static bool is_known(const struct ul_session *s, const struct row *row)
{
    switch (row->audience) {
    case ALL:
        return true;
    case ON_HOST:
        return s->model->device == NULL;
    case ON_DEVICE:
        return s->model->device != NULL;
    case TRAINERS:
        return s->model->training != NULL;
    case OTHERS: /* for trainers it has another meaning */
        return s->model->training == NULL;
    case OFFLOADERS:
        return s->model->offload_file != NULL;
    case SIZED:
        return s->model->size_count != 0;
    }
    return false;
}

/* Prints words to the right of what they explain, in lines of at most 80 columns. */
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

static void help_training(const struct ul_session *s, FILE *out)
{
    const struct ul_rt_training *training = s->model->training;
    fprintf(out,
            "       %s --data X.npy%s --epochs N --save C.npz\n\n"
            "It trains by %s on batches of %" PRIu64 " samples; the loss is %s.\n"
            "Files of samples are .npy whose first dimension counts them.\n",
            s->program, training->labels != UL_TENSOR_NONE ? " --labels Y.npy" : "",
            training->optimizer, (uint64_t)training->sample_count * training->micro_batches,
            training->loss);
}

void ul_options_help(const struct ul_session *s, FILE *out)
{
    char shown[UL_SHOWN_BYTES], size[UL_SIZE_TEXT_BYTES];
    fprintf(out,
            "%s runs the model '%s' in one buffer of %s.\n\n"
            "Usage: %s --input NAME=FILE ... --output-dir DIR\n",
            s->program, ul_shown(shown, s->model->name), ul_size_text(size, s->model->arena_bytes),
            s->program);
    if (s->model->training != NULL)
        help_training(s, out);
    fputc('\n', out);
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
    if (s->model->training != NULL)
        fputs("In training: 6 a loss, or gradients at any scale of it, that are not finite, 130\n"
              "interrupted.\n",
              out);
}

/* The tensor whose name comes before an '='. Names may contain '=': the longest one wins. */
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

static int parse_positive(const struct ul_session *s, const char *name, const char *text,
                          uint64_t *value)
{
    int status = parse_count(s, name, text, value);
    if (status == UL_EXIT_OK && *value == 0)
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
    bool asks = mode == UL_MODE_VERSION || mode == UL_MODE_HELP;
    if (!asks && options->mode != UL_MODE_RUN && options->mode != mode)
        return ul_error(s, UL_EXIT_USAGE,
                        "--test-data, --bench, --memory, --guard and --data exclude each other");
    options->mode = mode;
    return UL_EXIT_OK;
}

/* One more input's file, by the option of that name. */
static int assign_input(const struct ul_session *s, const char *name, const char *value,
                        struct ul_assignment *inputs, uint32_t *count)
{
    struct ul_assignment *next = &inputs[*count];
    char shown[UL_SHOWN_BYTES];
    int status = assign(s, name, value, s->model->inputs, s->model->input_count, next);
    if (status != UL_EXIT_OK)
        return status;
    for (uint32_t i = 0; i < *count; i++)
        if (inputs[i].tensor == next->tensor)
            return ul_error(s, UL_EXIT_USAGE, "%s %s: given twice", name,
                            ul_shown(shown, s->model->inputs[next->tensor].name));
    (*count)++;
    return UL_EXIT_OK;
}

/* The seed goes into an f64 of the model's numbers. */
static int parse_seed(const struct ul_session *s, const char *text, uint64_t *seed)
{
    int status = parse_count(s, "--seed", text, seed);
    if (status == UL_EXIT_OK && *seed >= UINT64_C(1) << 53)
        return ul_error(s, UL_EXIT_USAGE, "--seed %s: expected a number below 2^53", text);
    return status;
}

static int parse_last(const struct ul_session *s, const char *text, bool *pad)
{
    char shown[UL_SHOWN_BYTES];
    *pad = strcmp(text, "pad") == 0;
    if (*pad || strcmp(text, "drop") == 0)
        return UL_EXIT_OK;
    return ul_error(s, UL_EXIT_USAGE, "--last %s: expected drop or pad", ul_shown(shown, text));
}

static int apply(const struct ul_session *s, struct ul_run_options *options, const struct row *row,
                 const char *value)
{
    void *field = (char *)options + row->field;
    switch (row->option) {
    case OPTION_TEXT:
    case OPTION_VAL: /* parse_labels takes the second value */
        *(const char **)field = value;
        return UL_EXIT_OK;
    case OPTION_FLAG:
        *(bool *)field = true;
        return UL_EXIT_OK;
    case OPTION_REAL:
        return parse_real(s, row->name, value, field);
    case OPTION_COUNT:
        return parse_count(s, row->name, value, field);
    case OPTION_POSITIVE:
        return parse_positive(s, row->name, value, field);
    case OPTION_MODE:
        return set_mode(s, options, (enum ul_mode)row->field);
    case OPTION_INPUT:
        return assign_input(s, row->name, value, options->inputs, &options->input_count);
    case OPTION_VAL_INPUT:
        return assign_input(s, row->name, value, options->val_inputs, &options->val_input_count);
    case OPTION_RANDOM:
        options->random = true;
        return parse_count(s, row->name, value, &options->seed);
    case OPTION_SIZE:
        options->sizes[options->size_count++] = value;
        return UL_EXIT_OK;
    case OPTION_OUTPUT:
        return assign(s, row->name, value, s->model->outputs, s->model->output_count,
                      &options->outputs[options->output_count++]);
    case OPTION_THREADS:
        return parse_threads(s, value, &options->threads);
    case OPTION_DEVICE:
        return parse_device(s, value, &options->device);
    case OPTION_TEST_DATA:
        *(const char **)field = value;
        return set_mode(s, options, UL_MODE_TEST_DATA);
    case OPTION_NORM_LIMIT:
        options->norm = true;
        *(const char **)field = value;
        return check_reals(s, row->name, value);
    case OPTION_DATA:
        *(const char **)field = value;
        return set_mode(s, options, UL_MODE_TRAIN);
    case OPTION_LAST:
        return parse_last(s, value, field);
    case OPTION_SEED:
        return parse_seed(s, value, field);
    }
    return UL_EXIT_INTERNAL;
}

static bool is_standard(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

/* Standard input and standard output serve one purpose each. */
static int check_streams(const struct ul_session *s, struct ul_run_options *options)
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
    options->takes_stdout = out_count == 1;
    return UL_EXIT_OK;
}

/* Checks the options of training, where it is asked for. */
static int check_train(const struct ul_session *s, const struct ul_run_options *options)
{
    const struct ul_train_options *train = &options->train;
    if (train->given != NULL && options->mode != UL_MODE_TRAIN)
        return ul_error(s, UL_EXIT_USAGE, "%s goes with --data", train->given);
    if (options->mode != UL_MODE_TRAIN)
        return UL_EXIT_OK;
    bool labelled = s->model->training->labels != UL_TENSOR_NONE;
    if (options->random)
        return ul_error(s, UL_EXIT_USAGE, "--random and --data exclude each other");
    if (labelled && train->labels == NULL)
        return ul_error(s, UL_EXIT_USAGE, "--data needs --labels Y.npy: the loss is %s",
                        s->model->training->loss);
    if (!labelled && train->labels != NULL)
        return ul_error(s, UL_EXIT_USAGE,
                        "--labels: this model has none, its loss is one of its own outputs");
    if ((train->epochs != 0) == (train->steps != 0))
        return ul_error(s, UL_EXIT_USAGE, "--data needs either --epochs N or --steps N");
    if (train->val_data == NULL && options->val_input_count > 0)
        return ul_error(s, UL_EXIT_USAGE, "--val-input goes with --val");
    if (train->init != NULL && train->resume != NULL)
        return ul_error(s, UL_EXIT_USAGE, "--init and --resume exclude each other");
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
    if ((options->mode == UL_MODE_RUN || options->mode == UL_MODE_TRAIN) && options->json != NULL)
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
    int status = check_train(s, options);
    return status == UL_EXIT_OK ? check_streams(s, options) : status;
}

/* The second value of --val, where the model takes labels. */
static int parse_labels(const struct ul_session *s, struct ul_run_options *options, char **argv,
                        int *at, const char *value)
{
    const char *labels = argv[*at + 1];
    char shown[UL_SHOWN_BYTES];
    if (s->model->training->labels == UL_TENSOR_NONE)
        return UL_EXIT_OK;
    if (labels == NULL || strncmp(labels, "--", 2) == 0)
        return ul_error(s, UL_EXIT_USAGE, "--val %s: its labels are missing: --val X.npy Y.npy",
                        ul_shown(shown, value));
    options->train.val_labels = labels;
    ++*at;
    return UL_EXIT_OK;
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
        if (rows[i].audience == TRAINERS)
            options->train.given = rows[i].name;
        int status =
            rows[i].option == OPTION_VAL ? parse_labels(s, options, argv, at, value) : UL_EXIT_OK;
        return status == UL_EXIT_OK ? apply(s, options, &rows[i], value) : status;
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
    options->steps = 1;
    options->warmup_seconds = 0.2;
    options->duration_seconds = 3.0;
    options->iterations = 3;
    options->repeat = 1;
    options->train.learning_rate = -1.0;
    options->train.seed = UINT64_MAX;
    options->inputs = calloc(room, sizeof *options->inputs);
    options->val_inputs = calloc(room, sizeof *options->val_inputs);
    options->outputs = calloc(room, sizeof *options->outputs);
    options->sizes = calloc(room, sizeof *options->sizes);
    if (options->sizes == NULL || options->inputs == NULL || options->val_inputs == NULL ||
        options->outputs == NULL)
        return ul_out_of_memory(s, room * sizeof *options->inputs);
    for (int at = 1; status == UL_EXIT_OK && at < argc; at++)
        status = parse_one(s, options, argv, &at);
    return status == UL_EXIT_OK ? check(s, options) : status;
}

void ul_options_done(struct ul_run_options *options)
{
    free(options->inputs);
    free(options->val_inputs);
    free(options->outputs);
    free((void *)options->sizes);
}
