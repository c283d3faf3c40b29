/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes and shapes of RNN, GRU and LSTM. */
#include "ir/infer.h"
#include "ir/op_names.h"
#include "ir/ops/rnn/rnn.h"

#include <string.h>

static const struct {
    const char *name;
    enum ul_rnn_kind kind;
    bool has_alpha, has_beta;
    double alpha, beta; /* used where the model gives none */
} functions[] = {
    {"Relu", UL_RNN_RELU, false, false, 0, 0},
    {"Tanh", UL_RNN_TANH, false, false, 0, 0},
    {"Sigmoid", UL_RNN_SIGMOID, false, false, 0, 0},
    {"Affine", UL_RNN_AFFINE, true, true, 1, 0},
    {"LeakyRelu", UL_RNN_LEAKY_RELU, true, false, 0.01, 0},
    {"ThresholdedRelu", UL_RNN_THRESHOLDED_RELU, true, false, 1, 0},
    {"ScaledTanh", UL_RNN_SCALED_TANH, true, true, 1, 1},
    {"HardSigmoid", UL_RNN_HARD_SIGMOID, true, true, 0.2, 0.5},
    {"Elu", UL_RNN_ELU, true, false, 1, 0},
    {"Softsign", UL_RNN_SOFTSIGN, false, false, 0, 0},
    {"Softplus", UL_RNN_SOFTPLUS, false, false, 0, 0},
};

static bool is_lstm(ul_op_id op)
{
    return op == UL_OP_LSTM || op == UL_OP_LSTMGradient;
}

static bool is_gru(ul_op_id op)
{
    return op == UL_OP_GRU || op == UL_OP_GRUGradient;
}

static uint32_t functions_of(ul_op_id op)
{
    return is_lstm(op) ? 3 : is_gru(op) ? 2 : 1;
}

static int64_t gates_of(ul_op_id op)
{
    return is_lstm(op) ? 4 : is_gru(op) ? 3 : 1;
}

/* Names match whatever their case, as in other runtimes. */
static bool same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        int x = *a >= 'A' && *a <= 'Z' ? *a + 32 : *a, y = *b >= 'A' && *b <= 'Z' ? *b + 32 : *b;
        if (x != y)
            return false;
    }
    return *a == *b;
}

/* Reads the function named `name`; its numbers are the next ones in activation_alpha and _beta. */
static bool read_function(struct ul_rnn_function *function, const struct ul_node *node,
                          const char *name, uint32_t *next_alpha, uint32_t *next_beta)
{
    const struct ul_attr *alpha = ul_node_find_attr(node, "activation_alpha");
    const struct ul_attr *beta = ul_node_find_attr(node, "activation_beta");
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (!same_name(functions[i].name, name))
            continue;
        *function =
            (struct ul_rnn_function){functions[i].kind, functions[i].alpha, functions[i].beta};
        if (functions[i].has_alpha && alpha != NULL && alpha->kind == UL_ATTR_FLOATS &&
            *next_alpha < alpha->count)
            function->alpha = alpha->floats[(*next_alpha)++];
        if (functions[i].has_beta && beta != NULL && beta->kind == UL_ATTR_FLOATS &&
            *next_beta < beta->count)
            function->beta = beta->floats[(*next_beta)++];
        return true;
    }
    return false;
}

static const char *read_functions(struct ul_rnn *rnn, const struct ul_node *node)
{
    static const char *const defaults[3][3] = {
        {"Tanh", NULL, NULL}, {"Sigmoid", "Tanh", NULL}, {"Sigmoid", "Tanh", "Tanh"}};
    uint32_t count = functions_of(node->op), next_alpha = 0, next_beta = 0;
    const struct ul_attr *names = ul_node_find_attr(node, "activations");
    if (names != NULL && (names->kind != UL_ATTR_STRINGS || names->count < count ||
                          (names->count != count && names->count < count * rnn->directions)))
        return "activations must name the functions of each direction";
    for (uint32_t d = 0; d < rnn->directions; d++) {
        for (uint32_t f = 0; f < count; f++) {
            const char *name = defaults[count - 1][f];
            if (names != NULL)
                name = names->strings[names->count == count ? f : d * count + f];
            if (!read_function(&rnn->functions[d][f], node, name, &next_alpha, &next_beta))
                return "activations names a function that is not known";
        }
    }
    return NULL;
}

static bool has_shape(const struct ul_type *type, uint32_t rank, int64_t a, int64_t b, int64_t c)
{
    const int64_t dims[] = {a, b, c};
    return type == NULL || ul_type_has_dims(type, rank, dims);
}

static const char *check_shapes(const struct ul_rnn *rnn, const struct ul_type *const types[8])
{
    int64_t rows = rnn->gates * rnn->hidden, d = rnn->directions;
    int64_t first = rnn->batch_first ? rnn->batch : d, second = rnn->batch_first ? d : rnn->batch;
    if (!has_shape(types[UL_RNN_W], 3, d, rows, rnn->inputs))
        return "W must have the shape [directions, gates * hidden_size, input_size]";
    if (!has_shape(types[UL_RNN_R], 3, d, rows, rnn->hidden))
        return "R must have the shape [directions, gates * hidden_size, hidden_size]";
    if (!has_shape(types[UL_RNN_BIAS], 2, d, 2 * rows, 0))
        return "B must have the shape [directions, 2 * gates * hidden_size]";
    if (!has_shape(types[UL_RNN_LENGTHS], 1, rnn->batch, 0, 0))
        return "sequence_lens must have one number for each sequence of the batch";
    if (!has_shape(types[UL_RNN_INITIAL_H], 3, first, second, rnn->hidden) ||
        !has_shape(types[UL_RNN_INITIAL_C], 3, first, second, rnn->hidden))
        return "the initial states must have the shape [directions, batch, hidden_size]";
    if (!has_shape(types[UL_RNN_PEEPHOLE], 2, d, 3 * rnn->hidden, 0))
        return "P must have the shape [directions, 3 * hidden_size]";
    return NULL;
}

enum ul_dtype ul_rnn_factor_dtype(const struct ul_node *node, enum ul_dtype dtype)
{
    return (enum ul_dtype)ul_node_get_int(node, "round_to", (int64_t)dtype);
}

const char *ul_rnn_read(struct ul_rnn *rnn, const struct ul_node *node,
                        const struct ul_type *const types[8])
{
    const struct ul_type *x = types[UL_RNN_X], *r = types[UL_RNN_R];
    *rnn = (struct ul_rnn){.gates = gates_of(node->op),
                           .directions = 1,
                           .is_lstm = is_lstm(node->op),
                           .is_gru = is_gru(node->op)};
    if (x->rank != 3 || r->rank != 3)
        return "X and R must have rank 3";
    rnn->batch_first = ul_node_get_int(node, "layout", 0) != 0;
    rnn->steps = x->dims[rnn->batch_first ? 1 : 0];
    rnn->batch = x->dims[rnn->batch_first ? 0 : 1];
    rnn->inputs = x->dims[2];
    rnn->hidden = r->dims[2];
    if (ul_node_get_int(node, "hidden_size", rnn->hidden) != rnn->hidden)
        return "hidden_size differs from the shape of R";
    const char *direction = ul_node_get_string(node, "direction", "forward");
    if (strcmp(direction, "bidirectional") == 0)
        rnn->directions = 2;
    else if (strcmp(direction, "reverse") == 0)
        rnn->first_is_reverse = true;
    else if (strcmp(direction, "forward") != 0)
        return "direction must be forward, reverse or bidirectional";
    rnn->clip = ul_node_get_float(node, "clip", 0);
    const char *wrong = check_shapes(rnn, types);
    return wrong != NULL ? wrong : read_functions(rnn, node);
}

enum ul_status ul_infer_rnn(struct ul_infer *infer)
{
    const struct ul_type *types[8];
    struct ul_rnn rnn;
    const char *name = ul_op_get(infer->node->op)->name;
    for (uint32_t i = 0; i < 8; i++)
        types[i] = ul_infer_input(infer, i);
    enum ul_dtype dtype = types[0]->dtype;
    if (dtype != UL_F32 && dtype != UL_F64 && !ul_dtype_is_half(dtype))
        return ul_infer_unsupported(infer, "%s is computed in f16, bf16, f32 and f64, not in %s",
                                    name, ul_dtype_get(dtype)->name);
    for (uint32_t i = 1; i < 8; i++)
        if (types[i] != NULL && types[i]->dtype != (i == UL_RNN_LENGTHS ? UL_I32 : dtype))
            return ul_infer_invalid(infer, "input %u of %s has the wrong type", (unsigned)i, name);
    const char *wrong = ul_rnn_read(&rnn, infer->node, types);
    if (wrong != NULL)
        return ul_infer_invalid(infer, "%s", wrong);
    int64_t all[] = {rnn.steps, rnn.directions, rnn.batch, rnn.hidden};
    int64_t last[] = {rnn.directions, rnn.batch, rnn.hidden};
    if (rnn.batch_first) {
        all[0] = rnn.batch, all[1] = rnn.steps, all[2] = rnn.directions;
        last[0] = rnn.batch, last[1] = rnn.directions;
    }
    for (uint32_t o = 0; o < infer->node->output_count; o++)
        ul_infer_set(infer, o, dtype, o == 0 ? 4 : 3, o == 0 ? all : last);
    return UL_OK;
}
