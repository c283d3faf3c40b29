/* SPDX-License-Identifier: 0BSD */
/* The program from start to end: check the processor, read the options, set up, run one mode. */
#define _XOPEN_SOURCE 700 /* readlink */
#include "ul_internal.h"

#include "ul_binding.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UL_WAIT_ROUNDS "2000" /* a few microseconds: see BENCHMARKS.md */
#define MARGIN_BYTES 65536    /* around the arena, to catch writes beyond its ends */

static void print_hash(const char *title, const unsigned char hash[32])
{
    printf("%s", title);
    for (int i = 0; i < 32; i++)
        printf("%02x", hash[i]);
    putchar('\n');
}

static int print_version(const struct ul_session *s)
{
    char shown[UL_SHOWN_BYTES];
    printf("%s, compiled by %s for target %s\n", ul_shown(shown, s->model->name),
           s->model->compiler, s->model->target);
    print_hash("model sha256:   ", s->model->model_sha256);
    print_hash("plan sha256:    ", s->model->plan_sha256);
    printf("reserved bytes: %" PRIu64 "\n", s->model->arena_bytes);
    printf("precision:      %s\n", ul_precision_text(s->model));
    if (s->model->device != NULL) {
        char text[UL_DEVICE_TEXT_BYTES];
        s->model->device->functions->describe(s->model, text);
        printf("built with:     %s\n", text);
    }
    return UL_EXIT_OK;
}

/* Runs --repeat times, on the same inputs except for what is carried from run to run. */
static int run_repeated(struct ul_session *s)
{
    uint64_t count = s->options->repeat;
    struct ul_saved inputs = {0};
    int status = count > 1 ? ul_inputs_save(s, &inputs) : UL_EXIT_OK;
    if (status == UL_EXIT_OK)
        status = ul_session_set_up(s);
    for (uint64_t i = 0; status == UL_EXIT_OK && i < count; i++) {
        if (i > 0)
            ul_inputs_restore(s, &inputs, false);
        status = ul_session_run(s, NULL, NULL);
    }
    ul_inputs_forget(&inputs);
    return status;
}

/* A data fault is no reason to withhold the outputs: they are written, and the exit code tells of
 * it. */
static int run_plain(struct ul_session *s)
{
    int status = ul_inputs_fill(s, false);
    if (status != UL_EXIT_OK)
        return status;
    int fault = run_repeated(s);
    if (fault != UL_EXIT_OK && fault != UL_EXIT_INVALID)
        return fault;
    status = ul_outputs_write(s);
    if (status == UL_EXIT_OK && s->options->print)
        ul_print_outputs(s, ul_results(s));
    return status != UL_EXIT_OK ? status : fault;
}

static int run_mode(struct ul_session *s)
{
    switch (s->options->mode) {
    case UL_MODE_RUN:
        return run_plain(s);
    case UL_MODE_TEST_DATA:
        return ul_test_data(s);
    case UL_MODE_BENCH:
        return ul_bench(s);
    case UL_MODE_MEMORY:
        return ul_memory(s);
    case UL_MODE_GUARD:
        return ul_guard(s);
    case UL_MODE_TRAIN:
        return ul_train(s);
    case UL_MODE_VERSION:
    case UL_MODE_HELP:
        break;
    }
    return UL_EXIT_INTERNAL;
}

/* What --memory reports for a device is its one allocation, which must be exactly the arena. */
static uint64_t margin_bytes(const struct ul_session *s)
{
    bool measures = s->options->mode == UL_MODE_MEMORY && s->model->device == NULL;
    return measures || s->options->mode == UL_MODE_GUARD ? MARGIN_BYTES : 0;
}

/* A library may print as well (oneDNN does where ONEDNN_VERBOSE is set): that goes to standard
   error where standard output takes a result. */
static void part_streams(struct ul_run_options *options)
{
    int own = options->takes_stdout ? dup(STDOUT_FILENO) : -1;
    options->results = own >= 0 ? fdopen(own, "wb") : NULL;
    if (options->results != NULL)
        (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    else if (own >= 0)
        (void)close(own);
}

/* False: what was written, now or before, was not stored. */
static bool flush_results(struct ul_run_options *options)
{
    bool flushed = fflush(stdout) == 0 && ferror(stdout) == 0;
    if (options->results == NULL)
        return flushed;
    bool failed = ferror(options->results) != 0;
    return fclose(options->results) == 0 && !failed;
}

static int run_options(struct ul_session *s, int argc, char **argv)
{
    struct ul_run_options options;
    int status = ul_options_parse(s, &options, argc, argv);
    s->options = &options;
    if (status == UL_EXIT_OK && options.mode == UL_MODE_VERSION) {
        status = print_version(s);
    } else if (status == UL_EXIT_OK && options.mode == UL_MODE_HELP) {
        ul_options_help(s, stdout);
    } else if (status == UL_EXIT_OK) {
        part_streams(&options);
        status = ul_sizes_open(s);
        if (status == UL_EXIT_OK)
            status = ul_session_open(s, margin_bytes(s));
        if (status == UL_EXIT_OK)
            status = run_mode(s);
        if (options.mode != UL_MODE_RUN && options.mode != UL_MODE_TRAIN && s->fault_count != 0)
            fprintf(stderr,
                    "%s: note: indexes in the inputs were out of range and were clamped; give "
                    "real inputs with --input\n",
                    s->program);
        ul_session_close(s);
        ul_sizes_close(s);
    }
    bool is_lost = !flush_results(&options);
    ul_options_done(&options);
    if (is_lost && status == UL_EXIT_OK)
        status = ul_error(s, UL_EXIT_IO, "cannot write to standard output");
    return status;
}

/* CUDA loads each kernel when it is first called, into memory of the device that --memory would see
   vanish while the model runs; so this loads all of them at once. The environment may say
   otherwise. */
static void load_eagerly(void)
{
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

/* Threads of OpenMP wait for each other busily for milliseconds, unless told otherwise: beside
   other work on the cores, each step then waits for a time slice of that work. GCC's runtime reads
   how long to wait when the program is loaded, so the program loads itself again. The environment
   may say otherwise. */
static void bound_waits(const struct ul_model *model, char **argv)
{
    static const char *const said[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"};
    char path[UL_PATH_BYTES];
    if (model->thread_count < 2)
        return;
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        if (getenv(said[i]) != NULL)
            return;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0 || setenv(said[1], UL_WAIT_ROUNDS, 1) != 0)
        return;
    path[length] = '\0'; /* not the link, whose name would become the process's */
    (void)execv(path, argv);
    (void)unsetenv(said[1]);
}

int ul_program_main(const struct ul_model *model, int argc, char **argv)
{
    struct ul_session s;
    const char *missing = ul_isa_missing(model->isa);
    memset(&s, 0, sizeof s);
    (void)signal(SIGXFSZ, SIG_IGN); /* a file that must not grow becomes an error of writing */
    if (model->device != NULL)
        load_eagerly();
    else
        bound_waits(model, argv);
    s.program = argc > 0 && argv[0] != NULL ? argv[0] : "program";
    s.model = model;
    if (missing != NULL)
        return ul_error(&s, UL_EXIT_UNSUPPORTED,
                        "this program was compiled for a processor with %s, which this one lacks; "
                        "compile it again with --march for this machine",
                        missing);
    return run_options(&s, argc, argv);
}
