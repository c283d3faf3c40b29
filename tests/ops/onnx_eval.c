/* SPDX-License-Identifier: Apache-2.0 */
/* Runs ONNX node tests without a compiler: a test's inputs become constants, the whole graph folds
 * in the kernel interpreter, and the outputs are compared with the expected ones.
 *
 * usage: onnx_eval [options] FOLDER...        each holds model.onnx and test_data_set_0
 *        onnx_eval [options] --data DIR --table tests.tsv    every test of the table that DIR has;
 * those that are out of scope must be refused, if they do not pass
 *   --quiet          print failures and the summary only
 *   --dump           print the graph before it is evaluated
 * Prints "ok NAME", "FAIL NAME: reason", or "left NAME: reason" where a loop runs in the program
 * alone, for each test; exit 6 when one fails, or is left whose column "folded" says pass.
 */
#define _POSIX_C_SOURCE 200809L
#include "frontend/frontend.h"
#include "ir/op_names.h"
#ifdef ULLAGE_HAS_PASSES
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/text.h"
#include "passes/passes.h"
#endif

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_SECONDS = 60, REASON_BYTES = 2000 };
static const double RELATIVE = 1e-3;
static const double RELATIVE_BF16 = 1.0 / 128; /* one unit: some data was truncated, not rounded */
static const double ABSOLUTE = 1e-7;

struct test {
    const char *folder;
    double absolute; /* what may differ about 0 */
    bool is_out;     /* of scope */
    bool must_fold;
};

struct options {
    bool quiet, dump;
    const char *data, *table;
    uint32_t test_count, test_capacity;
    struct test *tests;
};

struct run {
    struct ul_arena arena;
    struct ul_arena scratch;
    struct ul_diag diag;
    struct ul_graph graph;
    struct ul_onnx_model model;
    const char *folder;
    double absolute;
    bool dump;
    bool has_loop; /* is left to the compiled program */
};

/* Debian's data stores bfloat16 as uint16, and gives CastLike's second input, which is only looked
 * at for its type, another shape than the model does. */
static const struct ul_tensor *adapt(struct ul_arena *arena, const struct ul_tensor *tensor,
                                     enum ul_dtype dtype, const struct ul_model_port *port)
{
    struct ul_type type = tensor->type;
    if (dtype == UL_BF16 && type.dtype == UL_U16)
        type.dtype = UL_BF16;
    if (port != NULL && port->rank != UL_RANK_UNKNOWN && port->rank != type.rank &&
        port->rank <= UL_LIMIT_RANK) {
        unsigned char zero[16] = {0};
        type.rank = port->rank;
        for (uint32_t i = 0; i < port->rank; i++)
            type.dims[i] = port->dims[i].size < 0 ? 1 : port->dims[i].size;
        return ul_tensor_new_splat(arena, &type, zero);
    }
    return ul_tensor_new(arena, &type, tensor->data);
}

struct consts {
    uint32_t count, capacity;
    struct ul_frontend_const *items;
};

/* The constants of a file: a tensor, or those of a sequence. */
static enum ul_status add_consts(struct run *run, const struct ul_recorded *file,
                                 struct consts *consts)
{
    const struct ul_model_port *port = &run->model.inputs[file->port];
    const struct ul_tensor **tensors;
    uint32_t count;
    bool is_tensor = strcmp(file->kind, "tensor") == 0;
    UL_TRY(ul_recorded_read(&run->arena, file, &tensors, &count, &run->diag));
    for (uint32_t k = 0; k < count; k++) {
        UL_GROW(&run->arena, consts->items, consts->count, consts->capacity);
        struct ul_frontend_const *constant = &consts->items[consts->count++];
        constant->input =
            is_tensor ? port->name : ul_sequence_item_name(&run->arena, port->name, k);
        constant->tensor = adapt(&run->arena, tensors[k], port->dtype, is_tensor ? port : NULL);
    }
    return UL_OK;
}

static const char *data_folder(struct run *run)
{
    return ul_arena_printf(&run->arena, "%s/test_data_set_0", run->folder);
}

static enum ul_status load(struct run *run)
{
    struct ul_arena *arena = &run->arena;
    const char *path = ul_arena_printf(arena, "%s/model.onnx", run->folder);
    struct ul_graph probe;
    struct ul_diag ignored = {0};
    /* The first load only says what the inputs are called. */
    (void)!ul_frontend_load(&probe, arena, path, NULL, &run->model, &ignored);
    struct consts consts = {0};
    struct ul_recorded *files;
    uint32_t count;
    UL_TRY(ul_recorded_list(arena, data_folder(run), "input", run->model.inputs,
                            run->model.input_count, &files, &count, &run->diag));
    for (uint32_t i = 0; i < count; i++) {
        if (files[i].port != UL_NONE)
            UL_TRY(add_consts(run, &files[i], &consts));
    }
    struct ul_frontend_options options = {.consts = consts.items, .const_count = consts.count};
    ul_model_done(&run->model);
    UL_TRY(ul_frontend_load(&run->graph, arena, path, &options, &run->model, &run->diag));
    run->graph.check_text = true;
    return UL_OK;
}

/* Control flow is left to the inference pass, which decides branches and types nested blocks; the
 * pass after it writes out gradients. */
static enum ul_status prepare(struct run *run)
{
#ifdef ULLAGE_HAS_PASSES
    struct ul_passes_options options = {.stop_after = "derive"};
    for (uint32_t i = 0; i < run->graph.node_count; i++) {
        ul_op_id op = run->graph.nodes[i].op;
        if (op == UL_OP_Derivative || (ul_op_get(op)->flags & UL_OP_CONTROL) != 0)
            return ul_passes_run(&run->graph, &run->scratch, &options, &run->diag);
    }
#else
    (void)run;
#endif
    return UL_OK;
}

static bool is_random(const struct ul_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if ((ul_op_get(graph->nodes[i].op)->flags & UL_OP_RANDOM) != 0)
            return true;
    }
    return false;
}

/* Anything that comes from random numbers is computed when the program runs. */
static enum ul_status evaluate(struct run *run)
{
    struct ul_graph *graph = &run->graph;
    UL_TRY(prepare(run));
    for (uint32_t i = 0; i < graph->blocks[0].node_count; i++) {
        ul_node_id node = graph->blocks[0].nodes[i];
        run->has_loop = (ul_op_get(graph->nodes[node].op)->flags & UL_OP_CONTROL) != 0;
        if (run->has_loop)
            return ul_diag_set(&run->diag, UL_MISMATCH, "%s runs when the program does",
                               ul_node_describe(graph, node, &run->scratch));
        UL_TRY(ul_node_infer(graph, node, &run->scratch, &run->diag));
        if (graph->nodes[node].output_count > 0 &&
            graph->values[graph->nodes[node].outputs[0]].tensor != NULL)
            continue;
        if (!ul_node_fold(graph, node, &run->scratch) && !is_random(graph))
            return ul_diag_set(&run->diag, UL_MISMATCH, "%s does not fold",
                               ul_node_describe(graph, node, &run->scratch));
    }
    return UL_OK;
}

static const char *type_text(struct run *run, const struct ul_type *type)
{
    struct ul_text text;
    ul_text_init(&text, &run->arena);
    ul_type_print(&text, type);
    return text.data;
}

static bool close_enough(double got, double want, double relative, double absolute)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return want == got;
    return fabs(got - want) <= absolute + relative * fabs(want);
}

static enum ul_status compare_data(struct run *run, uint32_t output, const struct ul_tensor *got,
                                   const struct ul_tensor *want)
{
    bool is_float = ul_dtype_get(want->type.dtype)->is_float;
    double relative = want->type.dtype == UL_BF16 ? RELATIVE_BF16 : RELATIVE;
    uint64_t wrong = 0;
    uint64_t first = 0;
    uint64_t count = ul_type_elements(&want->type);
    for (uint64_t i = 0; i < count; i++) {
        bool same = is_float ? close_enough(ul_tensor_get_float(got, i),
                                            ul_tensor_get_float(want, i), relative, run->absolute)
                             : ul_tensor_get_int(got, i) == ul_tensor_get_int(want, i);
        if (!same && wrong++ == 0)
            first = i;
    }
    if (wrong == 0)
        return UL_OK;
    double a = is_float ? ul_tensor_get_float(got, first) : (double)ul_tensor_get_int(got, first);
    double b = is_float ? ul_tensor_get_float(want, first) : (double)ul_tensor_get_int(want, first);
    return ul_diag_set(&run->diag, UL_MISMATCH,
                       "output %u %s: %llu of %llu elements differ, the first at %llu: %.9g, "
                       "expected %.9g",
                       (unsigned)output, type_text(run, &want->type), (unsigned long long)wrong,
                       (unsigned long long)count, (unsigned long long)first, a, b);
}

static enum ul_status compare_output(struct run *run, uint32_t output, const struct ul_tensor *want)
{
    const struct ul_value *value = &run->graph.values[run->graph.blocks[0].outputs[output]];
    want = adapt(&run->arena, want, value->type.dtype, NULL);
    if (!ul_type_equal(&value->type, &want->type))
        return ul_diag_set(&run->diag, UL_MISMATCH, "output %u is %s, expected %s",
                           (unsigned)output, type_text(run, &value->type),
                           type_text(run, &want->type));
    if (value->tensor == NULL && is_random(&run->graph))
        return UL_OK;
    if (value->tensor == NULL)
        return ul_diag_set(&run->diag, UL_MISMATCH, "output %u has no value", (unsigned)output);
    return compare_data(run, output, value->tensor, want);
}

/* Each output beside its file, or beside its place in that of a sequence. */
static enum ul_status compare(struct run *run)
{
    struct ul_recorded *files;
    uint32_t count, compared = 0;
    uint32_t output_count = run->graph.blocks[0].output_count;
    UL_TRY(ul_recorded_list(&run->arena, data_folder(run), "output", run->model.outputs,
                            run->model.output_count, &files, &count, &run->diag));
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_tensor **tensors;
        uint32_t items;
        if (files[i].port == UL_NONE)
            continue;
        UL_TRY(ul_recorded_read(&run->arena, &files[i], &tensors, &items, &run->diag));
        compared += items;
        for (uint32_t k = 0; k < items && files[i].port + k < output_count; k++)
            UL_TRY(compare_output(run, files[i].port + k, tensors[k]));
    }
    if (compared != output_count)
        return ul_diag_set(&run->diag, UL_MISMATCH, "the data has %u outputs, the model %u",
                           (unsigned)compared, (unsigned)output_count);
    return UL_OK;
}

static enum ul_status run_test(struct run *run)
{
    UL_TRY(load(run));
    if (run->dump) {
        struct ul_text text;
        ul_text_init(&text, &run->arena);
        ul_graph_print(&text, &run->graph);
        fputs(text.data, stdout);
        fflush(stdout);
    }
    UL_TRY(evaluate(run));
    return compare(run);
}

enum outcome { FAILED, PASSED, LEFT };
enum { EXIT_LEFT = 100 };

/* Runs one test in a child, so that a crash is one failure; fills `reason` where it does not pass.
 */
static enum outcome run_child(const struct options *options, const struct test *test, char *reason)
{
    int ends[2];
    if (pipe(ends) != 0) {
        perror("pipe");
        exit(UL_IO);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        alarm(CHILD_SECONDS);
        struct run run = {
            .folder = test->folder, .absolute = test->absolute, .dump = options->dump};
        enum ul_status status = run_test(&run);
        if (status != UL_OK && write(ends[1], run.diag.text, strlen(run.diag.text)) < 0)
            _exit(UL_IO);
        if (status == UL_USAGE && run.model.has_open_dims)
            status = UL_UNSUPPORTED; /* a sequence without tensors, which no option gives */
        _exit(status != UL_OK && run.has_loop ? EXIT_LEFT : (int)status);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t got = 0;
    while (length < REASON_BYTES - 1 &&
           (got = read(ends[0], reason + length, REASON_BYTES - 1 - length)) > 0)
        length += (size_t)got;
    reason[length] = '\0';
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return PASSED;
    if (WIFEXITED(status) && WEXITSTATUS(status) == UL_UNSUPPORTED && test->is_out)
        return PASSED;
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_LEFT)
        return LEFT;
    if (WIFSIGNALED(status))
        snprintf(reason, REASON_BYTES, "signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (length == 0)
        snprintf(reason, REASON_BYTES, "exit %d", WEXITSTATUS(status));
    return FAILED;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static struct test *add_test(struct options *options, struct ul_arena *arena, const char *folder)
{
    char *copy = ul_arena_copy_string(arena, folder);
    size_t length = strlen(copy);
    while (length > 1 && copy[length - 1] == '/')
        copy[--length] = '\0';
    UL_GROW(arena, options->tests, options->test_count, options->test_capacity);
    struct test *test = &options->tests[options->test_count++];
    *test = (struct test){.folder = copy, .absolute = ABSOLUTE};
    return test;
}

enum { NAME_COLUMN, SCOPE_COLUMN = 3, ATOL_COLUMN = 5, FOLDED_COLUMN = 7, COLUMNS };

/* The tests of tests.tsv, whose first line is the names of its columns. */
static void add_table(struct options *options, struct ul_arena *arena)
{
    FILE *file = fopen(options->table, "r");
    char line[4096];
    unsigned missing = 0;
    if (file == NULL || fgets(line, sizeof line, file) == NULL) {
        perror(options->table);
        exit(UL_IO);
    }
    while (fgets(line, sizeof line, file) != NULL) {
        const char *columns[COLUMNS];
        for (int i = 0; i < COLUMNS; i++)
            columns[i] = strtok(i == 0 ? line : NULL, "\t");
        if (columns[COLUMNS - 1] == NULL)
            continue;
        const char *folder = ul_arena_printf(arena, "%s/%s", options->data, columns[NAME_COLUMN]);
        if (access(folder, F_OK) != 0) {
            missing++;
            continue;
        }
        struct test *test = add_test(options, arena, folder);
        test->is_out = strcmp(columns[SCOPE_COLUMN], "out") == 0;
        test->must_fold = strcmp(columns[FOLDED_COLUMN], "pass") == 0;
        if (strcmp(columns[ATOL_COLUMN], "-") != 0)
            test->absolute = strtod(columns[ATOL_COLUMN], NULL);
    }
    fclose(file);
    if (missing > 0)
        printf("%u tests are left out: %s has them not\n", missing, options->data);
}

static void parse(struct options *options, struct ul_arena *arena, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--quiet") == 0)
            options->quiet = true;
        else if (strcmp(argv[i], "--dump") == 0)
            options->dump = true;
        else if (strcmp(argv[i], "--data") == 0)
            options->data = value, i++;
        else if (strcmp(argv[i], "--table") == 0)
            options->table = value, i++;
        else
            add_test(options, arena, argv[i]);
    }
}

/* UL_MISMATCH where one fails, or is left that must fold. Loops are not interpreted: what has one
 * is named, and run.sh runs it. */
static int run_all(const struct options *options)
{
    uint32_t counts[LEFT + 1] = {0};
    int result = UL_OK;
    for (uint32_t i = 0; i < options->test_count; i++) {
        char reason[REASON_BYTES];
        const struct test *test = &options->tests[i];
        const char *name = base_name(test->folder);
        enum outcome outcome = run_child(options, test, reason);
        counts[outcome]++;
        if (outcome == FAILED || (outcome == LEFT && test->must_fold))
            result = UL_MISMATCH;
        if (outcome != PASSED)
            printf("%s %s: %s\n", outcome == LEFT ? "left" : "FAIL", name, reason);
        else if (!options->quiet)
            printf("ok %s\n", name);
    }
    printf("%u of %u pass, %u are left to the compiled program\n", (unsigned)counts[PASSED],
           (unsigned)options->test_count, (unsigned)counts[LEFT]);
    return result;
}

int main(int argc, char **argv)
{
    struct ul_arena arena;
    struct options options = {0};
    ul_arena_init(&arena);
    parse(&options, &arena, argc, argv);
    if (options.table != NULL && options.data != NULL)
        add_table(&options, &arena);
    if (options.test_count == 0) {
        fputs("usage: onnx_eval [--quiet] [--dump] FOLDER... | --data DIR --table FILE\n", stderr);
        return UL_USAGE;
    }
    int result = run_all(&options);
    ul_arena_done(&arena);
    return result;
}
