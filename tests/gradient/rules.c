/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient rules against finite differences, in double and without a compiler: cases/<family>.txt,
 * a line each; blank lines and lines that begin with '#' count for nothing.
 *
 *   OP (INPUTS) {ATTRIBUTES} to N
 *   OP (INPUTS) {ATTRIBUTES}: refused, PART OF THE MESSAGE
 *
 * and cases/<case>.ir, a graph each, all of whose float inputs are parameters: for what has blocks.
 *
 * INPUTS as in ../ops_unit/case.h: a float input without a constant is a parameter of random
 * numbers, in [-1, 1) or in another range: "f64[2,3] in 0.5 2". The loss is the sum of all float
 * outputs times random numbers. The graph goes through the passes as a model does that is trained
 * by SGD with rate 1, so that a gradient is what the parameter lost; nodes are then evaluated one
 * by one by the interpreter of kernels. Each parameter is trained alone as well: that must give the
 * same. So must rules that make other operators for a device.
 *
 * usage: gradient_rules FILE...
 * exit: 0 all hold, 1 not */
#include "../ops_unit/case.h"
#include "ir/op_names.h"

#include "ir/build.h"
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/text.h"
#include "passes/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP 1e-5    /* of differences: their error is about its square */
#define LIMIT 1e-6   /* norm of the error over the norm of the gradient */
#define NOTHING 1e-9 /* what counts as no gradient at all */

enum { PARAMETERS = 16 };

struct rule_case {
    struct ul_arena arena, scratch;
    const char *op, *inputs, *attributes; /* NULL: none */
    uint32_t outputs;
    const char *refusal; /* or NULL */
    uint64_t random;
    struct ul_graph forward;    /* with its loss, the only output */
    struct ul_graph plain;      /* the same without blocks, to be evaluated */
    const ul_value_id *results; /* whose sum the loss is, where they are floats */
    uint32_t count;
    ul_value_id parameters[PARAMETERS];
    double *values[PARAMETERS];
    struct ul_text complaint;
};

static const char *const *files;
static int file_count;
static uint32_t failed, counted;

/* ---- Reading ---- */

static char *slice(struct rule_case *test, const char *from, const char *to)
{
    return ul_arena_printf(&test->arena, "%.*s", (int)(to - from), from);
}

static bool read_case(struct rule_case *test, const char *line)
{
    const char *open = strstr(line, " ("), *close = open == NULL ? NULL : strchr(open, ')');
    if (close == NULL)
        return false;
    test->op = slice(test, line, open);
    test->inputs = slice(test, open + 2, close);
    test->outputs = 1;
    const char *at = close + 1;
    if (strncmp(at, " {", 2) == 0) {
        const char *end = strchr(at, '}');
        if (end == NULL)
            return false;
        test->attributes = slice(test, at + 2, end);
        at = end + 1;
    }
    if (strncmp(at, " to ", 4) == 0) {
        char *end;
        test->outputs = (uint32_t)strtoul(at + 4, &end, 10);
        at = end;
    }
    if (strncmp(at, ": refused, ", 11) == 0) {
        test->refusal = at + 11;
        return true;
    }
    return *at == '\0';
}

/* Draws a number in [0, 1), the same on every machine. */
static double draw(struct rule_case *test)
{
    test->random = test->random * 6364136223846793005u + 1442695040888963407u;
    return (double)(test->random >> 11) / 9007199254740992.0;
}

static double *draw_many(struct rule_case *test, uint64_t count, double low, double high)
{
    double *values = UL_NEW_ARRAY(&test->arena, double, count + 1);
    for (uint64_t i = 0; i < count; i++)
        values[i] = low + (high - low) * draw(test);
    return values;
}

/* A constant of these numbers, in a type of floats. */
static const struct ul_tensor *tensor_of(struct ul_arena *arena, const struct ul_type *type,
                                         const double *values)
{
    uint64_t count = ul_type_elements(type), size = ul_dtype_get(type->dtype)->size_bytes;
    unsigned char *data = ul_arena_alloc(arena, ul_type_bytes(type) + 1);
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_float(data + i * size, type->dtype, values[i]);
    return ul_tensor_new(arena, type, data);
}

static void make_parameter(struct rule_case *test, ul_value_id id, double low, double high)
{
    struct ul_value *value = &test->forward.values[id];
    assert_true(test->count < PARAMETERS);
    test->parameters[test->count] = id;
    test->values[test->count] = draw_many(test, ul_type_elements(&value->type), low, high);
    value->kind = UL_VALUE_WEIGHT;
    value->flags |= UL_VALUE_PERSISTENT | UL_VALUE_TRAINED;
    value->tensor = tensor_of(&test->arena, &value->type, test->values[test->count]);
    test->count++;
}

static bool is_float(const struct ul_value *value)
{
    return ul_dtype_get(value->type.dtype)->is_float;
}

/* The graph of the node, its inputs as parameters. */
static void read_graph(struct rule_case *test)
{
    struct ul_text plain;
    double low[PARAMETERS], high[PARAMETERS];
    uint32_t count = 0;
    ul_text_init(&plain, &test->arena);
    for (const char *at = test->inputs; *at != '\0';) {
        size_t length = strcspn(at, ";");
        const char *one = slice(test, at, at + length), *in = strstr(one, " in ");
        bool is_open = strchr(one, '=') == NULL && strchr(one, '[') != NULL;
        ul_text_printf(&plain, "%.*s;", in == NULL ? (int)length : (int)(in - one), one);
        if (is_open) {
            char *end;
            assert_true(count < PARAMETERS);
            low[count] = in == NULL ? -1 : strtod(in + 4, &end);
            high[count] = in == NULL ? 1 : strtod(end, &end);
            count++;
        }
        at += length + (at[length] == ';');
    }
    case_parse(&test->forward, &test->arena, test->op, plain.data, test->attributes, test->outputs);
    struct ul_block *block = &test->forward.blocks[0];
    assert_int_equal(block->input_count, count);
    for (uint32_t i = 0; i < count; i++)
        make_parameter(test, block->inputs[i], low[i], high[i]);
    block->input_count = 0;
    test->results = test->forward.nodes[0].outputs;
}

static bool read_file(struct rule_case *test, const char *text)
{
    struct ul_diag diag = {.status = UL_OK};
    if (ul_graph_parse(&test->forward, &test->arena, text, NULL, &diag) != UL_OK) {
        ul_text_put(&test->complaint, diag.text);
        return false;
    }
    struct ul_block *block = &test->forward.blocks[0];
    for (uint32_t i = 0; i < block->input_count; i++)
        make_parameter(test, block->inputs[i], -1, 1);
    block->input_count = 0;
    test->outputs = block->output_count;
    test->results =
        ul_arena_copy(&test->arena, block->outputs, block->output_count * sizeof *block->outputs);
    return true;
}

/* ---- The loss ---- */

static ul_value_id add_node(struct rule_case *test, struct ul_build *build, ul_op_id op,
                            const ul_value_id *inputs, uint32_t count)
{
    struct ul_diag diag = {.status = UL_OK};
    ul_node_id node = ul_build_node(build, op, inputs, count, 1);
    if (op == UL_OP_ReduceSum)
        ul_node_set_int(&test->forward, node, "keepdims", 0);
    if (op == UL_OP_Cast)
        ul_node_set_int(&test->forward, node, "to", UL_F64);
    if (ul_node_infer(&test->forward, node, &test->scratch, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    return test->forward.nodes[node].outputs[0];
}

/* sum(output * random numbers) of every float output, plus a parameter of its own, so that there
 * is something to train where no gradient flows. */
static void add_loss(struct rule_case *test)
{
    struct ul_graph *graph = &test->forward;
    struct ul_build build = ul_build_last(graph, 0, "loss");
    const struct ul_type scalar = {.dtype = UL_F64};
    ul_value_id loss = ul_graph_add_value(graph, "other", UL_VALUE_INPUT, &scalar);
    make_parameter(test, loss, -1, 1);
    for (uint32_t i = 0; i < test->outputs; i++) {
        ul_value_id out = test->results[i];
        if (!is_float(&graph->values[out]))
            continue;
        if (graph->values[out].type.dtype != UL_F64)
            out = add_node(test, &build, UL_OP_Cast, &out, 1);
        const struct ul_type type = graph->values[out].type;
        const double *factors = draw_many(test, ul_type_elements(&type), -1, 1);
        ul_value_id pair[2] = {
            out, ul_graph_add_weight(graph, "factors", tensor_of(&test->arena, &type, factors))};
        ul_value_id product = add_node(test, &build, UL_OP_Mul, pair, 2);
        pair[0] = loss;
        pair[1] = add_node(test, &build, UL_OP_ReduceSum, &product, 1);
        loss = add_node(test, &build, UL_OP_Add, pair, 2);
    }
    graph->blocks[0].output_count = 1;
    graph->blocks[0].outputs[0] = loss;
}

/* ---- Evaluation ---- */

/* State counts as constant from here on. */
static void freeze(struct ul_graph *graph)
{
    for (uint32_t v = 0; v < graph->value_count; v++)
        graph->values[v].flags &= ~(uint32_t)UL_VALUE_PERSISTENT;
}

static bool evaluate(struct rule_case *test, struct ul_graph *graph, struct ul_arena *scratch)
{
    for (uint32_t p = 0; p < graph->blocks[0].node_count; p++) {
        ul_node_id node = graph->blocks[0].nodes[p];
        if (ul_node_fold(graph, node, scratch))
            continue;
        ul_text_printf(&test->complaint, "%s cannot be evaluated",
                       ul_node_describe(graph, node, scratch));
        return false;
    }
    return true;
}

/* The loss with one element of a parameter moved. */
static bool loss_at(struct rule_case *test, uint32_t parameter, uint64_t element, double by,
                    double *loss)
{
    struct ul_graph graph;
    struct ul_arena arena;
    ul_arena_init(&arena);
    ul_graph_copy(&graph, &arena, &test->plain);
    freeze(&graph);
    struct ul_value *value = &graph.values[test->parameters[parameter]];
    double *values = test->values[parameter], old = values[element];
    values[element] += by;
    value->tensor = tensor_of(&arena, &value->type, values);
    values[element] = old;
    bool done = evaluate(test, &graph, &arena);
    if (done)
        *loss = ul_tensor_get_float(graph.values[graph.blocks[0].outputs[0]].tensor, 0);
    ul_arena_done(&arena);
    return done;
}

static bool find_differences(struct rule_case *test, uint32_t parameter, double *differences)
{
    const struct ul_type *type = &test->forward.values[test->parameters[parameter]].type;
    for (uint64_t e = 0; e < ul_type_elements(type); e++) {
        double above, below;
        if (!loss_at(test, parameter, e, STEP, &above) ||
            !loss_at(test, parameter, e, -STEP, &below))
            return false;
        differences[e] = (above - below) / (2 * STEP);
    }
    return true;
}

/* ---- The joint graph ---- */

/* The traits that decide which nodes a rule makes. */
static const struct ul_target_traits device = {.name = "device", .sums_joined = true};

/* The graph that trains one parameter, or (PARAMETERS) all of them. */
static enum ul_status make_joint(struct rule_case *test, uint32_t only,
                                 const struct ul_target_traits *traits, struct ul_graph *joint,
                                 struct ul_arena *arena, struct ul_diag *diag)
{
    struct ul_training training = {.loss = UL_LOSS_OUTPUT, .optimizer = UL_OPTIMIZER_SGD};
    const struct ul_passes_options options = {
        .training = &training, .traits = traits, .start_at = "inline", .stop_before = "join"};
    struct ul_arena scratch;
    ul_graph_copy(joint, arena, &test->forward);
    joint->check_text = true;
    for (uint32_t i = 0; i + 1 < test->count; i++) /* the last one is the loss's own */
        if (only != PARAMETERS && only != i)
            joint->values[test->parameters[i]].flags &= ~(uint32_t)UL_VALUE_TRAINED;
    ul_arena_init(&scratch);
    enum ul_status status = ul_passes_run(joint, &scratch, &options, diag);
    ul_arena_done(&scratch);
    return status;
}

/* Step 0 at rate 1. */
static void set_step(struct ul_graph *graph, struct ul_arena *arena)
{
    static const double numbers[8] = {1, 1, 1, 1};
    for (uint32_t i = 0; i < graph->blocks[0].input_count; i++) {
        struct ul_value *value = &graph->values[graph->blocks[0].inputs[i]];
        value->kind = UL_VALUE_WEIGHT;
        value->tensor = tensor_of(arena, &value->type, numbers);
    }
    graph->blocks[0].input_count = 0;
}

/* Reads what the parameter lost, with zeros where nothing updates it. */
static void read_gradient(const struct rule_case *test, const struct ul_graph *joint,
                          uint32_t parameter, double *gradient)
{
    ul_value_id id = test->parameters[parameter];
    uint64_t count = ul_type_elements(&test->forward.values[id].type);
    const struct ul_tensor *after = test->forward.values[id].tensor;
    for (uint32_t i = 0; i < joint->blocks[0].output_count; i++) {
        const struct ul_value *value = &joint->values[joint->blocks[0].outputs[i]];
        if (value->donor == id)
            after = value->tensor;
    }
    for (uint64_t e = 0; e < count; e++)
        gradient[e] = test->values[parameter][e] - ul_tensor_get_float(after, e);
}

static void compare(struct rule_case *test, uint32_t parameter, const char *what,
                    const double *wanted, const double *got)
{
    uint64_t count = ul_type_elements(&test->forward.values[test->parameters[parameter]].type);
    double error = 0, norm = 0, worst = 0;
    uint64_t at = 0;
    for (uint64_t e = 0; e < count; e++) {
        double gap = fabs(wanted[e] - got[e]);
        error += gap * gap;
        norm += wanted[e] * wanted[e];
        if (!(gap <= worst)) {
            worst = gap;
            at = e;
        }
    }
    error = sqrt(error);
    norm = sqrt(norm);
    if (error <= LIMIT * norm || (norm < NOTHING && error < NOTHING))
        return;
    ul_text_printf(&test->complaint,
                   "%sinput %u (%s): error %.3g of %.3g; element %llu is %.9g, by differences %.9g",
                   test->complaint.length > 0 ? "\n" : "", (unsigned)parameter, what, error, norm,
                   (unsigned long long)at, got[at], wanted[at]);
}

static void check_joint(struct rule_case *test, uint32_t only,
                        const struct ul_target_traits *traits, double *const *differences)
{
    struct ul_graph joint;
    struct ul_arena arena;
    struct ul_diag diag = {.status = UL_OK};
    ul_arena_init(&arena);
    enum ul_status status = make_joint(test, only, traits, &joint, &arena, &diag);
    if (test->refusal != NULL && (status == UL_OK || strstr(diag.text, test->refusal) == NULL))
        ul_text_printf(&test->complaint, "it is not refused so, but: %s", diag.text);
    else if (test->refusal == NULL && status != UL_OK)
        ul_text_printf(&test->complaint, "%s%s", test->complaint.length > 0 ? "\n" : "", diag.text);
    if (test->refusal == NULL && status == UL_OK) {
        set_step(&joint, &arena);
        freeze(&joint);
        if (evaluate(test, &joint, &arena))
            for (uint32_t i = 0; i < test->count; i++) {
                uint64_t count = ul_type_elements(&joint.values[test->parameters[i]].type);
                double *gradient = UL_NEW_ARRAY(&arena, double, count + 1);
                if (only != PARAMETERS && only != i)
                    continue;
                read_gradient(test, &joint, i, gradient);
                compare(test, i, only == PARAMETERS ? "of all" : "alone", differences[i], gradient);
            }
    }
    ul_arena_done(&arena);
}

static void run_case(struct rule_case *test)
{
    struct ul_diag diag = {.status = UL_OK};
    const struct ul_passes_options infer = {.only = "infer"};
    double *differences[PARAMETERS] = {NULL};
    struct ul_training training = {.loss = UL_LOSS_OUTPUT};
    const struct ul_passes_options write_out = {.only = "inline", .training = &training};
    if (ul_passes_run(&test->forward, &test->scratch, &infer, &diag) != UL_OK) {
        ul_text_put(&test->complaint, diag.text);
        return;
    }
    add_loss(test);
    ul_graph_copy(&test->plain, &test->arena, &test->forward);
    if (ul_passes_run(&test->plain, &test->scratch, &write_out, &diag) != UL_OK)
        ul_text_put(&test->complaint, diag.text);
    for (uint32_t i = 0; test->refusal == NULL && i < test->count; i++) {
        const struct ul_type *type = &test->forward.values[test->parameters[i]].type;
        differences[i] = UL_NEW_ARRAY(&test->arena, double, ul_type_elements(type) + 1);
        if (!find_differences(test, i, differences[i]))
            return;
    }
    for (uint32_t t = 0; t < 2; t++) {
        const struct ul_target_traits *traits = t == 0 ? NULL : &device;
        check_joint(test, PARAMETERS, traits, differences);
        for (uint32_t i = 0; test->refusal == NULL && test->count > 2 && i + 1 < test->count; i++)
            check_joint(test, i, traits, differences);
    }
}

/* A line, or the text of a file. */
static void check_case(const char *path, uint32_t number, const char *text, bool is_graph)
{
    struct rule_case test = {.random = 1};
    ul_arena_init(&test.arena);
    ul_arena_init(&test.scratch);
    ul_text_init(&test.complaint, &test.arena);
    for (const char *at = text; *at != '\0'; at++) /* other cases, other numbers */
        test.random = test.random * 31 + (unsigned char)*at;
    bool is_read = is_graph ? read_file(&test, text) : read_case(&test, text);
    if (is_read && !is_graph)
        read_graph(&test);
    if (is_read)
        run_case(&test);
    else if (!is_graph)
        ul_text_put(&test.complaint, "no case");
    if (test.complaint.length > 0) {
        print_error("%s:%u: %s\n%s\n", path, (unsigned)number, is_graph ? "" : text,
                    test.complaint.data);
        failed++;
    }
    counted++;
    ul_arena_done(&test.scratch);
    ul_arena_done(&test.arena);
}

static void check_lines(struct ul_arena *arena, const char *path, const char *at, const char *end)
{
    for (uint32_t number = 1; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop == NULL ? end : stop;
        if (stop > at && *at != '#')
            check_case(path, number, ul_arena_printf(arena, "%.*s", (int)(stop - at), at), false);
        at = stop + 1;
    }
}

static void check_file(const char *path)
{
    struct ul_arena arena;
    struct ul_file file;
    struct ul_diag diag = {.status = UL_OK};
    ul_arena_init(&arena);
    if (ul_file_map(&file, &arena, path, &diag) != UL_OK)
        fail_msg("%s", diag.text);
    const char *at = (const char *)file.data, *end = at + file.size_bytes;
    if (strcmp(path + strlen(path) - 3, ".ir") == 0)
        check_case(path, 1, ul_arena_printf(&arena, "%.*s", (int)file.size_bytes, at), true);
    else
        check_lines(&arena, path, at, end);
    ul_file_unmap(&file);
    ul_arena_done(&arena);
}

static void all(void **state)
{
    (void)state;
    for (int i = 0; i < file_count; i++)
        check_file(files[i]);
    print_message("%u cases, %u failed\n", (unsigned)counted, (unsigned)failed);
    assert_int_equal(failed, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all)};
    files = (const char *const *)argv + 1;
    file_count = argc - 1;
    return file_count > 0 ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
