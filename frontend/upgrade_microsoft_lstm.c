/* SPDX-License-Identifier: Apache-2.0 */
/* DynamicQuantizeLSTM of com.microsoft, which onnxruntime's dynamic quantizer makes from an LSTM.
 *
 * The input of all steps is quantized at once and multiplied by W; in each step the hidden state is
 * quantized and multiplied by R. Sums are integers, and the weights stay as they are stored:
 *
 *     x = dynamic(X) * W + biases
 *     Scan over x, from h and c:  gates = x + dynamic(h) * R;  c, h = cell(gates, c)
 *
 * with one Scan for each direction. As in LSTM, the cell state is not clipped before its function.
 * After the end of a sequence that is shorter than the others, its state stays and its output is
 * 0. */
#include "frontend/upgrade_microsoft.h"
#include "ir/op_names.h"

#include <string.h>

enum { X, R = 2, H_0 = 5, C_0, PEEPHOLES, R_SCALE = 10, R_ZERO };
enum { FUNCTIONS = 3, DIRECTIONS = 2 };

struct activation {
    const char *op;
    double alpha, beta;
    bool has_alpha, has_beta;
};

struct lstm {
    int64_t directions, steps, batch, size;
    bool is_backward; /* the first direction */
    bool couples;     /* input_forget */
    double clip;      /* 0: none */
    struct activation functions[DIRECTIONS * FUNCTIONS];
    ul_value_id sums[3]; /* input times W: quantized input, scale, zero point */
    ul_value_id valid;   /* bool [steps, batch, 1], or UL_NONE */
};

/* The values of one direction. */
struct way {
    ul_value_id r, r_scale, r_zero, peepholes; /* peepholes: [3 * size], or UL_NONE */
    const struct activation *functions;
};

/* ---- Attributes and shapes ---- */

static const struct activation known[] = {{"Elu", 1, 0, true, false},
                                          {"HardSigmoid", 0.2, 0.5, true, true},
                                          {"LeakyRelu", 0.01, 0, true, false},
                                          {"Relu", 0, 0, false, false},
                                          {"Sigmoid", 0, 0, false, false},
                                          {"Softplus", 0, 0, false, false},
                                          {"Softsign", 0, 0, false, false},
                                          {"Tanh", 0, 0, false, false},
                                          {"ThresholdedRelu", 1, 0, true, false}};

/* Takes the next number of a list; each function takes those that it has. */
static void take_number(const struct ul_old_node *node, const char *name, uint32_t *next,
                        double *number)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    if (attr != NULL && attr->kind == UL_ATTR_FLOATS && *next < attr->count)
        *number = attr->floats[(*next)++];
}

static bool read_functions(struct ul_old_node *node, struct lstm *lstm)
{
    static const char *const defaults[FUNCTIONS] = {"Sigmoid", "Tanh", "Tanh"};
    const struct ul_attr *names = ul_old_attr(node, "activations");
    uint32_t alpha = 0, beta = 0, count = (uint32_t)lstm->directions * FUNCTIONS;
    bool given = names != NULL && names->kind == UL_ATTR_STRINGS && names->count > 0;
    if (given && names->count != count)
        return ul_old_invalid(node, "activations must name three functions for each direction");
    for (uint32_t i = 0; i < count; i++) {
        const char *name = given ? names->strings[i] : defaults[i % FUNCTIONS];
        struct activation *function = &lstm->functions[i];
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            if (strcmp(known[k].op, name) == 0)
                *function = known[k];
        }
        if (function->op == NULL)
            return ul_old_problem(node,
                                  "with this activation is not supported; export the model with "
                                  "Sigmoid and Tanh");
        if (function->has_alpha)
            take_number(node, "activation_alpha", &alpha, &function->alpha);
        if (function->has_beta)
            take_number(node, "activation_beta", &beta, &function->beta);
    }
    return true;
}

static bool read_lstm(struct ul_old_node *node, struct lstm *lstm)
{
    const struct ul_type x = ul_old_type(node, node->inputs[X]);
    const struct ul_type r = ul_old_type(node, node->inputs[R]);
    *lstm = (struct lstm){.directions = r.dims[0],
                          .steps = x.dims[0],
                          .batch = x.dims[1],
                          .size = r.dims[1],
                          .is_backward =
                              strcmp(ul_old_string(node, "direction", "forward"), "reverse") == 0,
                          .couples = ul_old_int(node, "input_forget", 0) != 0,
                          .clip = ul_old_float(node, "clip", 0),
                          .valid = UL_NONE};
    return read_functions(node, lstm);
}

/* ---- One step ---- */

/* Applies an activation; `clip` 0: x is not clipped. */
static ul_value_id activate(struct ul_old_node *node, double clip,
                            const struct activation *function, ul_value_id x)
{
    static const struct ul_row_item none = {.value = UL_NONE};
    const char *body = ul_arena_printf(
        node->builder->scratch, "x = clip > 0 ? Clip(x, -clip, clip) : x; %s(x) {alpha=a, beta=b}",
        function->op);
    return ul_old_make(node,
                       UL_WITH({"x", ul_row_value(x)}, {"clip", ul_row_float(clip)},
                               {"a", function->has_alpha ? ul_row_float(function->alpha) : none},
                               {"b", function->has_beta ? ul_row_float(function->beta) : none}),
                       body);
}

/* Makes gate `which`, in the order input, output, forget, cell, with its peephole at c. */
static ul_value_id take_gate(struct ul_old_node *node, const struct lstm *lstm,
                             const struct way *way, ul_value_id gates, int64_t which, ul_value_id c)
{
    int64_t begin = which * lstm->size;
    return ul_old_make(node,
                       UL_WITH({"gates", ul_row_value(gates)}, {"c", ul_row_value(c)},
                               {"begin", ul_row_int(begin)},
                               {"end", ul_row_int(begin + lstm->size)},
                               {"peepholes", ul_row_value(which == 3 ? UL_NONE : way->peepholes)}),
                       "gate = Slice(gates, [begin], [end], [1]); "
                       "gate + (peepholes ? Slice(peepholes, [begin], [end], [0]) * c : none)");
}

static ul_value_id add_argument(struct ul_old_node *node, const char *name)
{
    struct ul_model_builder *builder = node->builder;
    const char *full =
        ul_arena_printf(builder->graph->arena, "%s%s/%s", builder->prefix, node->name, name);
    ul_value_id value = ul_graph_add_value(builder->graph, full, UL_VALUE_ARGUMENT, NULL);
    ul_block_add_input(builder->graph, builder->block, value);
    return value;
}

/* Emits the body of the Scan. */
static void emit_step(struct ul_old_node *node, const struct lstm *lstm, const struct way *way)
{
    struct ul_graph *graph = node->builder->graph;
    ul_value_id h = add_argument(node, "h"), c = add_argument(node, "c");
    ul_value_id x = add_argument(node, "x");
    ul_value_id valid = lstm->valid == UL_NONE ? UL_NONE : add_argument(node, "valid");
    ul_value_id gates = ul_old_make(
        node,
        UL_WITH({"h", ul_row_value(h)}, {"bias", ul_row_value(x)}, {"r", ul_row_value(way->r)},
                {"r_scale", ul_row_value(way->r_scale)}, {"r_zero", ul_row_value(way->r_zero)}),
        "q, s, z = DynamicQuantizeLinear(h); sums = MatMulInteger(q, r, z, r_zero); "
        "by = s * r_scale; Cast(sums) {to=f32} * by + bias");
    const struct activation *f = way->functions;
    ul_value_id in = activate(node, lstm->clip, &f[0], take_gate(node, lstm, way, gates, 0, c));
    ul_value_id cell = activate(node, lstm->clip, &f[1], take_gate(node, lstm, way, gates, 3, c));
    ul_value_id forget =
        lstm->couples ? UL_NONE
                      : activate(node, lstm->clip, &f[0], take_gate(node, lstm, way, gates, 2, c));
    ul_value_id next_c =
        ul_old_make(node,
                    UL_WITH({"c", ul_row_value(c)}, {"in", ul_row_value(in)},
                            {"cell", ul_row_value(cell)}, {"forget", ul_row_value(forget)}),
                    "(forget ? forget : 1:f32 - in) * c + in * cell");
    ul_value_id out =
        activate(node, lstm->clip, &f[0], take_gate(node, lstm, way, gates, 1, next_c));
    ul_value_id shown = activate(node, 0, &f[2], next_c);
    ul_value_id results[3]; /* a value may be an output of a block only once */
    if (!ul_old_run(node,
                    UL_WITH({"h", ul_row_value(h)}, {"c", ul_row_value(c)},
                            {"next_c", ul_row_value(next_c)}, {"out", ul_row_value(out)},
                            {"shown", ul_row_value(shown)}, {"valid", ul_row_value(valid)}),
                    "y = out * shown; valid ? Where(valid, y, h) : y, "
                    "valid ? Where(valid, next_c, c) : next_c, "
                    "valid ? Where(valid, y, 0) : Identity(y)",
                    3, results))
        return;
    for (uint32_t i = 0; i < 3; i++)
        ul_block_add_output(graph, node->builder->block, results[i]);
}

/* ---- A direction ---- */

static ul_value_id element_of(struct ul_old_node *node, uint32_t index, int64_t direction)
{
    return ul_old_make(
        node, UL_WITH({"x", ul_row_value(ul_old_input(node, index))}, {"d", ul_row_int(direction)}),
        "x ? Squeeze(Slice(x, [d], [d + 1], [0]), [0]) : none");
}

/* What all steps add to the gates: the input's part and both biases. */
static ul_value_id project(struct ul_old_node *node, const struct lstm *lstm, int64_t direction)
{
#define OF(x) x " = Squeeze(Slice(" x ", [d], [d + 1], [0]), [0]); "
    return ul_old_make(
        node,
        UL_WITH({"q", ul_row_value(lstm->sums[0])}, {"scale", ul_row_value(lstm->sums[1])},
                {"zero", ul_row_value(lstm->sums[2])}, {"d", ul_row_int(direction)}),
        OF("w") OF("w_scale")
            OF("w_zero") "both = bias ? Squeeze(Slice(bias, [d], [d + 1], [0]), [0]) : none; "
                         "bias = bias ? Slice(both, [0], [columns], [0])"
                         " + Slice(both, [columns], [2 * columns], [0]) : none; "
                         "sums = MatMulInteger(q, w, zero, w_zero); by = scale * w_scale; "
                         "Cast(sums) {to=f32} * by + bias");
#undef OF
}

static ul_value_id initial_state(struct ul_old_node *node, const struct lstm *lstm, uint32_t index,
                                 int64_t direction)
{
    const int64_t dims[] = {lstm->batch, lstm->size};
    return ul_old_has_input(node, index)
               ? element_of(node, index, direction)
               : ul_old_make(node, UL_WITH({"dims", ul_row_ints(2, dims)}), "Expand(0:f32, dims)");
}

static bool is_backward(const struct lstm *lstm, int64_t direction)
{
    return lstm->is_backward || direction == 1;
}

/* Turns sequences of different lengths around, each from its own end; so each step quantizes
 * together what onnxruntime quantizes together. Sequences of one length are turned by the Scan. */
static ul_value_id turn_steps(struct ul_old_node *node, const struct lstm *lstm, int64_t direction,
                              ul_value_id x)
{
    if (lstm->valid == UL_NONE || !is_backward(lstm, direction))
        return x;
    return ul_old_make(node, UL_WITH({"x", ul_row_value(x)}),
                       "ReverseSequence(x, Cast(lengths) {to=i64}) {batch_axis=1, time_axis=0}");
}

/* Emits the Scan; its outputs are h, c and the h of all steps. */
static ul_node_id emit_scan(struct ul_old_node *node, const struct lstm *lstm, int64_t direction)
{
    struct ul_model_builder *builder = node->builder;
    const int64_t backward = 1;
    struct way way = {.r = element_of(node, R, direction),
                      .r_scale = element_of(node, R_SCALE, direction),
                      .r_zero = element_of(node, R_ZERO, direction),
                      .peepholes = element_of(node, PEEPHOLES, direction),
                      .functions = &lstm->functions[direction * FUNCTIONS]};
    ul_value_id inputs[] = {
        initial_state(node, lstm, H_0, direction), initial_state(node, lstm, C_0, direction),
        turn_steps(node, lstm, direction, project(node, lstm, direction)), lstm->valid};
    uint32_t scanned = lstm->valid == UL_NONE ? 1 : 2;
    ul_node_id scan = ul_build_node(ul_old_build(node), UL_OP_Scan, inputs, 2 + scanned, 3);
    ul_node_set_int(builder->graph, scan, "num_scan_inputs", scanned);
    if (is_backward(lstm, direction) && lstm->valid == UL_NONE) {
        ul_node_set_ints(builder->graph, scan, "scan_input_directions", &backward, 1);
        ul_node_set_ints(builder->graph, scan, "scan_output_directions", &backward, 1);
    }
    ul_block_id here = builder->block;
    builder->block = ul_graph_add_block(builder->graph, scan);
    emit_step(node, lstm, &way);
    builder->block = here;
    /* Shapes are not inferred through a Scan here, and another LSTM may follow this one. */
    const int64_t dims[] = {lstm->steps, lstm->batch, lstm->size};
    for (uint32_t i = 0; i < 3; i++)
        builder->graph->values[builder->graph->nodes[scan].outputs[i]].type =
            ul_type_make(UL_F32, i == 2 ? 3 : 2, i == 2 ? dims : dims + 1);
    return scan;
}

/* For each step whether a sequence has it. */
static ul_value_id find_valid(struct ul_old_node *node, const struct lstm *lstm)
{
    return ul_old_make(
        node, UL_WITH({"steps", ul_row_int(lstm->steps)}, {"batch", ul_row_int(lstm->batch)}),
        "lengths ? Less(Reshape(Cast(" UL_ROW_RANGE(
            "steps") ") {to=i32}, [steps, 1, 1]), "
                     "Reshape(lengths, [1, batch, 1])) : none");
}

void ul_microsoft_dynamic_lstm(struct ul_old_node *node)
{
    struct lstm lstm;
    if (!read_lstm(node, &lstm))
        return;
    struct ul_graph *graph = node->builder->graph;
    (void)ul_old_run(node, NULL, "q, scale, zero = DynamicQuantizeLinear(x); q, scale, zero", 3,
                     lstm.sums);
    lstm.valid = find_valid(node, &lstm);
    ul_value_id results[3] = {UL_NONE, UL_NONE, UL_NONE};
    for (int64_t d = 0; d < lstm.directions; d++) {
        ul_node_id scan = emit_scan(node, &lstm, d);
        for (uint32_t i = 0; i < 3; i++) {
            /* the axis of directions: Y is [steps, directions, batch, size] */
            int64_t axis = i == 0;
            ul_value_id part = graph->nodes[scan].outputs[(i + 2) % 3];
            part = i == 0 ? turn_steps(node, &lstm, d, part) : part;
            results[i] =
                ul_old_make(node,
                            UL_WITH({"part", ul_row_value(part)}, {"axis", ul_row_int(axis)},
                                    {"before", ul_row_value(results[i])}),
                            "part = Unsqueeze(part, [axis]); "
                            "before ? Concat(before, part) {axis=axis} : part");
        }
    }
    for (uint32_t i = 0; i < 3; i++)
        ul_old_set_result(node, i, results[i]);
    node->finished = true;
}
