/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that `ullage profile` measures. Each is a graph in the text form of ir/, which goes
 * through passes, planner and code generator as a model does, so that measured code is what
 * compiled models run. */
#define _POSIX_C_SOURCE 200809L
#include "compile/compile_internal.h"
#include "compile/measure/measure.h"
#include "ir/text.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* One node on inputs of its own; its label is the kind of work that it measures. */
struct row {
    enum ul_work_kind kind;
    const char *op;
    const char *output;
    const char *inputs[2];
    const char *attributes;
};

static const struct row rows[] = {
    {UL_WORK_MATMUL_F32, "MatMul", "f32[192,192]", {"f32[192,192]", "f32[192,192]"}, ""},
    {UL_WORK_MATMUL_F32, "MatMul", "f32[64,384]", {"f32[64,256]", "f32[256,384]"}, ""},
    {UL_WORK_MATMUL_F32, "MatMul", "f32[256,64]", {"f32[256,512]", "f32[512,64]"}, ""},
    {UL_WORK_MATMUL_F32, "Conv", "f32[1,128,28,28]", {"f32[1,64,28,28]", "f32[128,64,1,1]"}, ""},
    {UL_WORK_MATMUL_F32,
     "Conv",
     "f32[1,64,28,28]",
     {"f32[1,64,28,28]", "f32[64,64,3,3]"},
     "pads=ints[1,1,1,1]"},
    {UL_WORK_MATMUL_F64, "MatMul", "f64[128,192]", {"f64[128,192]", "f64[192,192]"}, ""},
    {UL_WORK_MATMUL_F16, "MatMul", "f16[192,192]", {"f16[192,192]", "f16[192,192]"}, ""},
    {UL_WORK_MATMUL_INT8, "MatMulInteger", "i32[192,192]", {"u8[192,192]", "i8[192,192]"}, ""},
    {UL_WORK_WINDOW,
     "Conv",
     "f32[1,64,56,56]",
     {"f32[1,64,56,56]", "f32[64,1,3,3]"},
     "group=64, pads=ints[1,1,1,1]"},
    {UL_WORK_WINDOW,
     "Conv",
     "f32[1,32,48,48]",
     {"f32[1,32,48,48]", "f32[32,1,5,5]"},
     "group=32, pads=ints[2,2,2,2]"},
    {UL_WORK_VECTOR, "HardSwish", "f32[4096]", {"f32[4096]"}, ""},
    {UL_WORK_VECTOR, "Add", "f32[2048]", {"f32[2048]", "f32[2048]"}, ""},
    {UL_WORK_VECTOR, "Mul", "f32[64,64]", {"f32[64,64]", "f32[64,1]"}, ""},
    {UL_WORK_SPECIAL, "Exp", "f32[4096]", {"f32[4096]"}, ""},
    {UL_WORK_SPECIAL, "Tanh", "f32[4096]", {"f32[4096]"}, ""},
    {UL_WORK_SPECIAL, "Erf", "f32[4096]", {"f32[4096]"}, ""},
    {UL_WORK_SPECIAL, "Sigmoid", "f32[4096]", {"f32[4096]"}, ""},
    {UL_WORK_SCALAR, "Softmax", "f32[128,24]", {"f32[128,24]"}, "axis=1"},
    {UL_WORK_SCALAR, "ReduceMax", "f32[128,1]", {"f32[128,24]"}, "axes=ints[1]"},
    {UL_WORK_SCALAR, "ReduceMean", "f32[128,1]", {"f32[128,24]"}, "axes=ints[1]"},
    {UL_WORK_SCALAR, "LayerNormalization", "f32[128,24]", {"f32[128,24]", "f32[24]"}, "axis=1"},
    {UL_WORK_SCALAR, "ArgMax", "i64[128,1]", {"f32[128,24]"}, "axis=1"},
};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

static void put_rates(struct ul_text *text)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
        for (uint32_t k = 0; k < 2 && rows[i].inputs[k] != NULL; k++, value++)
            ul_text_printf(text, "input %%%u \"i%u\" %s\n", value, value, rows[i].inputs[k]);
    }
    uint32_t operand = 0;
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
        ul_text_printf(text, "%%%u \"o%u\" %s = %s n%u \"%s\" (%%%u", value + i, i, rows[i].output,
                       rows[i].op, i, ul_work_kind_name(rows[i].kind), operand++);
        if (rows[i].inputs[1] != NULL)
            ul_text_printf(text, ", %%%u", operand++);
        ul_text_put(text, ")");
        if (rows[i].attributes[0] != '\0')
            ul_text_printf(text, " {%s}", rows[i].attributes);
        ul_text_put(text, "\n");
    }
    for (uint32_t i = 0; i < ROW_COUNT; i++)
        ul_text_printf(text, "%s%%%u", i == 0 ? "return " : ", ", value + i);
    ul_text_put(text, "\n");
}

/* Sizes at which neighbours are not a multiple of 4096 bytes apart: a processor that compares only
 * the low bits of addresses would mistake every load for one of an earlier store. */
static const uint64_t memory_elements[] = {800, 6100, 47000, 190000, 750000, 2100000, 12000000};
enum { MEMORY_COUNT = sizeof memory_elements / sizeof *memory_elements, MEMORY_LENGTH = 6 };

enum { WEIGHTS_COUNT = 3 };

static void put_weights_inputs(struct ul_text *text, uint32_t first)
{
    for (uint32_t id = first; id < first + 3 * WEIGHTS_COUNT; id += 3) {
        ul_text_printf(text, "input %%%u \"v%u\" f32[1,2048]\n", id, id);
        ul_text_printf(text, "input %%%u \"v%u\" f32[2048,2048]\n", id + 1, id + 1);
    }
}

/* Writes products of rows with matrices of 16 MB, as nodes from `node` on. */
static void put_weights(struct ul_text *text, uint32_t first, uint32_t node)
{
    for (uint32_t id = first; id < first + 3 * WEIGHTS_COUNT; id += 3, node++)
        ul_text_printf(text, "%%%u \"v%u\" f32[1,2048] = MatMul n%u \"weights\" (%%%u, %%%u)\n",
                       id + 2, id + 2, node, id, id + 1);
}

/* Writes two inputs for each size, and steps that each add the two values before. Each reads two
 * values and writes one in place of the older, so that all three are as near as possible. */
static void put_memory(struct ul_text *text)
{
    enum { WHOLE = MEMORY_LENGTH + 2 };
    for (uint32_t i = 0; i < MEMORY_COUNT; i++) {
        for (uint32_t k = 0; k < 2; k++)
            ul_text_printf(text, "input %%%u \"v%u\" f32[%llu]\n", i * WHOLE + k, i * WHOLE + k,
                           (unsigned long long)memory_elements[i]);
    }
    put_weights_inputs(text, MEMORY_COUNT * WHOLE);
    for (uint32_t i = 0; i < MEMORY_COUNT; i++) {
        for (uint32_t k = 2; k < WHOLE; k++) {
            uint32_t id = i * WHOLE + k;
            ul_text_printf(text, "%%%u \"v%u\" f32[%llu] = Add n%u \"memory\" (%%%u, %%%u)\n", id,
                           id, (unsigned long long)memory_elements[i], i * MEMORY_LENGTH + k - 2,
                           id - 2, id - 1);
        }
    }
    put_weights(text, MEMORY_COUNT * WHOLE, MEMORY_COUNT * MEMORY_LENGTH);
    for (uint32_t i = 0; i < MEMORY_COUNT; i++)
        ul_text_printf(text, "%s%%%u", i == 0 ? "return " : ", ", (i + 1) * WHOLE - 1);
    for (uint32_t i = 0; i < WEIGHTS_COUNT; i++)
        ul_text_printf(text, ", %%%u", MEMORY_COUNT * WHOLE + i * 3 + 2);
    ul_text_put(text, "\n");
}

/* Writes a product of a row with a matrix of 4 MB, which shared caches hold, and then some
 * milliseconds of products of small matrices, each with the same one. */
static void put_held(struct ul_text *text)
{
    enum { LENGTH = 24, FIRST = 5 };
    ul_text_put(text, "input %0 \"v0\" f32[1,1024]\ninput %1 \"v1\" f32[1024,1024]\n");
    ul_text_put(text, "input %2 \"v2\" f32[192,192]\ninput %3 \"v3\" f32[192,192]\n");
    ul_text_put(text, "%4 \"v4\" f32[1,1024] = MatMul n0 \"held\" (%0, %1)\n");
    for (uint32_t i = 0; i < LENGTH; i++)
        ul_text_printf(text, "%%%u \"v%u\" f32[192,192] = MatMul n%u \"between\" (%%%u, %%2)\n",
                       FIRST + i, FIRST + i, i + 1, i == 0 ? 3 : FIRST + i - 1);
    ul_text_printf(text, "return %%4, %%%u\n", (uint32_t)FIRST + LENGTH - 1);
}

static void put_overhead(struct ul_text *text)
{
    enum { LENGTH = 256 };
    ul_text_put(text, "input %0 \"v0\" f32[1]\n");
    for (uint32_t i = 0; i < LENGTH; i++)
        ul_text_printf(text, "%%%u \"v%u\" f32[1] = %s n%u \"step\" (%%%u)\n", i + 1, i + 1,
                       i % 2 == 0 ? "Neg" : "Abs", i, i);
    ul_text_printf(text, "return %%%u\n", (uint32_t)LENGTH);
}

/* ---- through the pipeline ---- */

/* Several starts: the pages that a process gets are a matter of luck, and other processes come and
 * go. */
enum { STARTS = 5 };

static enum ul_status build(struct ul_compile *compile, enum ul_measure_program program)
{
    static void (*const writers[UL_MEASURE_PROGRAMS])(struct ul_text *) = {
        [UL_MEASURE_RATES] = put_rates,
        [UL_MEASURE_MEMORY] = put_memory,
        [UL_MEASURE_HELD] = put_held,
        [UL_MEASURE_OVERHEAD] = put_overhead,
    };
    static const char *const left_out[] = {"simplify", "cse", "fuse"};
    bool reuses = program == UL_MEASURE_MEMORY || program == UL_MEASURE_HELD;
    struct ul_plan_options planning = {.pack = reuses ? UL_PACK_GREEDY : UL_PACK_NONE,
                                       .order = UL_ORDER_FILE};
    struct ul_text text;
    struct ul_passes_options passes = {.disabled = left_out, .disabled_count = 3};
    struct ul_program_options options = {
        .target = ul_target_find("c"), .thread_count = 1, .profile = &compile->profile};
    ul_text_init(&text, &compile->keep);
    ul_text_put(&text, "graph \"profile\"\n");
    writers[program](&text);
    compile->profile = *ul_profile_find(UL_PROFILE_DEFAULT);
    UL_TRY(ul_graph_parse(&compile->graph, &compile->keep, text.data, NULL, &compile->diag));
    UL_TRY(ul_passes_run(&compile->graph, &compile->scratch, &passes, &compile->diag));
    UL_TRY(ul_program_build(&compile->keep, &compile->graph, &options, &compile->program,
                            &compile->diag));
    memset(compile->plan_sha256, '0', sizeof compile->plan_sha256 - 1);
    memset(compile->model.sha256, '0', sizeof compile->model.sha256 - 1);
    return ul_plan_solve(&compile->keep, compile->program->problem, &planning, &compile->plan,
                         &compile->diag);
}

static enum ul_status bad_result(struct ul_compile *compile, const char *what)
{
    return ul_diag_set(&compile->diag, UL_INTERNAL, "the program that measures %s", what);
}

/* Lists the program's steps, not measured yet; `arena` holds what is kept. */
static void list_steps(const struct ul_compile *compile, struct ul_arena *arena,
                       struct ul_measured *measured)
{
    const struct ul_program *program = compile->program;
    measured->run_ns = INFINITY;
    measured->step_count = program->step_count;
    measured->steps = UL_NEW_ARRAY(arena, struct ul_measured_step, program->step_count);
    for (uint32_t i = 0; i < program->step_count; i++) {
        const struct ul_program_step *step = &program->steps[i];
        struct ul_work *work = UL_NEW(arena, struct ul_work);
        *work = step->work;
        measured->steps[i] = (struct ul_measured_step){
            .label = ul_arena_copy_string(arena, compile->graph.nodes[step->node].name),
            .work = work,
            .moved_bytes = step->traffic.moved_bytes,
            .min_ns = INFINITY};
    }
}

/* Takes times from the program's JSON where they are less than known ones. */
static enum ul_status collect_times(struct ul_compile *compile, const json_t *root,
                                    struct ul_measured *measured)
{
    const json_t *steps = json_object_get(root, "steps");
    const json_t *latency = json_object_get(root, "latency_seconds");
    double run_ns = 1e9 * json_number_value(json_object_get(latency, "min"));
    measured->run_ns = fmin(measured->run_ns, run_ns);
    for (uint32_t i = 0; i < measured->step_count; i++) {
        double step_ns = 0, mean_ns = 0;
        for (size_t k = 0; k < json_array_size(steps); k++) {
            const json_t *item = json_array_get(steps, k);
            const char *name = json_string_value(json_object_get(item, "name"));
            if (name == NULL || strcmp(name, compile->program->steps[i].name) != 0)
                continue;
            step_ns = 1e9 * json_number_value(json_object_get(item, "least_seconds"));
            mean_ns = 1e9 * json_number_value(json_object_get(item, "seconds"));
        }
        if (!(step_ns > 0) || !(run_ns > 0))
            return bad_result(compile, "left out a step");
        measured->steps[i].min_ns = fmin(measured->steps[i].min_ns, step_ns);
        measured->steps[i].mean_ns += mean_ns / STARTS;
    }
    return UL_OK;
}

static enum ul_status read_times(struct ul_compile *compile, const char *path,
                                 struct ul_measured *measured)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        return bad_result(compile, "wrote no result");
    enum ul_status status = collect_times(compile, root, measured);
    json_decref(root);
    return status;
}

static enum ul_status run(struct ul_compile *compile, const char *directory,
                          struct ul_measured *measured)
{
    struct ul_arena *arena = &compile->keep;
    const char *program = ul_arena_printf(arena, "%s/measure", directory);
    const char *result = ul_arena_printf(arena, "%s/times.json", directory);
    const char *log = ul_arena_printf(arena, "%s/log", directory);
    const char *source = ul_arena_printf(arena, "%s/source", directory);
    const char *const argv[] = {program,      "--bench", "--profile", "--warmup", "0.1",
                                "--duration", "1",       "--json",    result,     NULL};
    UL_TRY(ul_compile_emit(compile, source));
    UL_TRY(ul_compile_make(compile, source, program));
    for (int i = 0; i < STARTS; i++) {
        ul_compile_progress(compile, "measuring");
        int code = ul_process_run(argv, log);
        ul_compile_progress(compile, NULL);
        if (code != 0)
            UL_TRY(ul_process_check(arena, "the program that measures", code, log, 1 << 16,
                                    &compile->diag));
        if (code != 0)
            return bad_result(
                compile, ul_arena_printf(arena, "ended with %s", ul_process_end_text(arena, code)));
        UL_TRY(read_times(compile, result, measured));
    }
    return UL_OK;
}

/* This is a compile of its own, whose diag and result go to `compile`. */
enum ul_status ul_profile_measure(struct ul_compile *compile, enum ul_measure_program program,
                                  struct ul_measured *measured)
{
    struct ul_compile inner;
    const char *directory = NULL;
    const struct ul_compile_options *options = &compile->options;
    ul_compile_init(&inner);
    inner.progress = compile->progress;
    inner.progress_context = compile->progress_context;
    inner.options.cc = options->cc;
    inner.options.cflags = options->cflags;
    inner.options.march = options->march;
    enum ul_status status = build(&inner, program);
    if (status == UL_OK)
        status = ul_temporary_make(&inner.keep, &directory, &inner.diag);
    if (status == UL_OK) {
        list_steps(&inner, &compile->keep, measured);
        status = run(&inner, directory, measured);
    }
    if (directory != NULL) {
        ul_temporary_explain(directory, &inner.diag);
        ul_temporary_remove(directory);
    }
    if (status != UL_OK)
        ul_diag_set(&compile->diag, status, "%s", inner.diag.text);
    ul_compile_done(&inner);
    return status;
}
