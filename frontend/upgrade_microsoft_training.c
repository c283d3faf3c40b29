/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of onnxruntime's training graphs that need more than a row of text. Most gradient
 * operators become the operator whose gradient they are, and its derivative (gradient.c). Where
 * only the result of the operator is given, not its operand, a row of ir/ops reads the result. */
#include "frontend/upgrade_microsoft.h"
#include "ir/op.h"
#include "ir/op_names.h"

#include <string.h>

/* ---- Losses ---- */

/* The scores from which a loss made its logarithms of probabilities; else these logarithms, whose
 * softmax is the same. */
static ul_value_id scores_of(const struct ul_graph *graph, ul_value_id log_prob)
{
    const struct ul_value *value = &graph->values[log_prob];
    if (value->kind != UL_VALUE_NODE || value->producer_output != 1 ||
        graph->nodes[value->producer].op != UL_OP_SoftmaxCrossEntropyLoss)
        return log_prob;
    return graph->nodes[value->producer].inputs[0];
}

/* The operators with "Internal" in their names have the attribute's number as an input. */
static bool read_ignored(struct ul_old_node *node, uint32_t input)
{
    if (!ul_old_has_input(node, input))
        return true;
    const struct ul_tensor *tensor = ul_old_tensor(node, node->inputs[input]);
    if (tensor == NULL)
        return ul_old_problem(node, "needs ignore_index as a constant; fix it with --const");
    ul_old_set_int(node, "ignore_index", ul_tensor_get_int(tensor, 0));
    return true;
}

void ul_microsoft_loss(struct ul_old_node *node)
{
    if (!read_ignored(node, 3))
        return;
    ul_old_remove_attr(node, "output_type");
    node->input_count = node->input_count > 3 ? 3 : node->input_count;
    ul_old_become(node, "SoftmaxCrossEntropyLoss");
}

void ul_microsoft_loss_grad(struct ul_old_node *node)
{
    bool reduces = strcmp(ul_old_string(node, "reduction", "mean"), "none") != 0;
    ul_value_id x = scores_of(node->builder->graph, node->inputs[1]), made[2];
    if (!read_ignored(node, 4))
        return;
    ul_old_remove_attr(node, "output_type");
    if (!ul_old_run(node, UL_WITH({"x", ul_row_value(x)}, {"reduces", ul_row_int(reduces)}),
                    "SoftmaxCrossEntropyLoss(x, targets, weights) {**}, "
                    "reduces ? Reshape(g, []) : g",
                    2, made))
        return;
    ul_node_id id = ul_old_emit_derivative(node, made[0], made[1], &x, 1, 0);
    ul_value_id dx = node->builder->graph->nodes[id].outputs[0];
    ul_old_finish(node, UL_WITH({"dx", ul_row_value(dx)}), "dx + more");
}

/* Normalizes by the statistics of the batch; returns these, and running ones. */
void ul_microsoft_batch_norm(struct ul_old_node *node)
{
    struct ul_type type;
    if (ul_old_int(node, "training_mode", 0) == 0)
        ul_old_become(node, "BatchNormalization");
    else if (ul_old_shape(node, 0, UINT32_MAX & ~3u, &type))
        ul_old_finish(node, NULL,
                      "rest = [0, 2..x.rank]; m = ReduceMean(x, rest); centred = x - m; "
                      "v = ReduceMean(centred * centred, rest); i = Reciprocal(Sqrt(v + epsilon)); "
                      "y = centred * (i * Unsqueeze(scale, rest)) + Unsqueeze(shift, rest); "
                      "y, mean * momentum + Reshape(m, [x.1]) * (1 - momentum), "
                      "variance * momentum + Reshape(v, [x.1]) * (1 - momentum), "
                      "Reshape(m, [x.1]), Reshape(i, [x.1])");
}

/* ---- Pooling ---- */

static void finish_pool(struct ul_old_node *node, const char *body, ul_value_id x)
{
    ul_old_finish(node, UL_WITH({"x", ul_row_value(x)}, {"g", ul_row_value(node->inputs[0])}),
                  body);
}

void ul_microsoft_max_pool_grad(struct ul_old_node *node)
{
    const struct ul_graph *graph = node->builder->graph;
    if (!ul_old_has_input(node, 0) || !ul_old_has_input(node, 1)) {
        ul_old_invalid(node, "inputs are missing");
        return;
    }
    const struct ul_value *taps = &graph->values[node->inputs[1]];
    if (taps->kind != UL_VALUE_NODE || taps->producer_output != 1 ||
        graph->nodes[taps->producer].op != UL_OP_MaxPool) {
        ul_old_problem(node, "takes indices that no MaxPool of the model gives");
        return;
    }
    ul_value_id x = graph->nodes[taps->producer].inputs[0];
    ul_old_remove_attr(node, "storage_order");
    finish_pool(node, "derivative(MaxPool(x) {**}, g, x)", x);
}

/* onnxruntime names the gradient of a value after the value: so the pooled value is found. */
void ul_microsoft_average_pool_grad(struct ul_old_node *node)
{
    struct ul_model_builder *builder = node->builder;
    if (!ul_old_has_input(node, 0) || node->output_count == 0) {
        ul_old_invalid(node, "has no input or no output");
        return;
    }
    size_t length = strlen(node->outputs[0]);
    const char *end = strstr(node->outputs[0], "_grad");
    for (const char *at = end; at != NULL; at = strstr(at + 1, "_grad"))
        end = at;
    const char *name = ul_arena_printf(
        builder->scratch, "%.*s", (int)(end == NULL ? length : (size_t)(end - node->outputs[0])),
        node->outputs[0]);
    ul_value_id of = ul_scope_find(builder->scope, name);
    struct ul_type type = {.rank = UL_RANK_UNKNOWN};
    if (end != NULL && of < UL_SEQUENCE_FIRST)
        type = ul_old_type(node, of);
    if (!ul_type_known(&type)) {
        ul_old_problem(node, "does not say the shape of what was pooled: its output has to be "
                             "called like that, with _grad behind it");
        return;
    }
    finish_pool(node, "derivative(AveragePool(x) {**}, g, x)", ul_old_emit_unknown(node, &type));
}

/* ---- Movements ---- */

/* The second result has the sizes of the operands; SplitTraining takes them. */
void ul_microsoft_concat_training(struct ul_old_node *node)
{
    int64_t axis = ul_old_int(node, "axis", 0);
    uint32_t outputs = node->output_count;
    int64_t *sizes = UL_NEW_ARRAY(node->builder->scratch, int64_t, node->input_count);
    bool wants_sizes = node->output_count > 1 && node->outputs[1][0] != '\0';
    for (uint32_t i = 0; wants_sizes && i < node->input_count; i++) {
        struct ul_type type;
        if (!ul_old_shape(node, i, UINT32_MAX, &type))
            return;
        int64_t at = axis < 0 ? axis + type.rank : axis;
        sizes[i] = at >= 0 && at < (int64_t)type.rank ? type.dims[at] : 0;
    }
    ul_value_id joined =
        wants_sizes ? ul_old_const(node, UL_I64, ul_row_ints(node->input_count, sizes)) : UL_NONE;
    node->output_count = 1;
    ul_old_become(node, "Concat");
    ul_old_emit_self(node);
    node->output_count = outputs;
    if (wants_sizes)
        ul_old_set_result(node, 1, joined);
}

void ul_microsoft_split_training(struct ul_old_node *node)
{
    ul_old_become(node, "Split");
}

/* The results are constants: the axes along which each of two shapes was repeated. */
void ul_microsoft_broadcast_axes(struct ul_old_node *node)
{
    const struct ul_tensor *shapes[2] = {ul_old_tensor(node, node->inputs[0]),
                                         ul_old_tensor(node, node->inputs[1])};
    if (shapes[0] == NULL || shapes[1] == NULL) {
        ul_old_problem(node, "needs shapes that are known at compile time");
        return;
    }
    uint64_t ranks[2] = {ul_type_elements(&shapes[0]->type), ul_type_elements(&shapes[1]->type)};
    uint64_t rank = ranks[0] > ranks[1] ? ranks[0] : ranks[1];
    int64_t axes[2][UL_LIMIT_RANK];
    uint32_t counts[2] = {0, 0};
    if (rank > UL_LIMIT_RANK) {
        ul_old_invalid(node, "the shapes have too many dimensions");
        return;
    }
    for (uint64_t d = rank; d-- > 0;) {
        int64_t sizes[2];
        for (uint32_t s = 0; s < 2; s++) {
            uint64_t skip = rank - ranks[s];
            sizes[s] = d < skip ? 1 : ul_tensor_get_int(shapes[s], d - skip);
        }
        for (uint32_t s = 0; s < 2; s++)
            if (sizes[s] == 1 && (sizes[1 - s] != 1 || d < rank - ranks[s]))
                axes[s][counts[s]++] = (int64_t)d;
    }
    for (uint32_t s = 0; s < 2; s++)
        ul_old_set_result(node, s, ul_old_const(node, UL_I64, ul_row_ints(counts[s], axes[s])));
    node->finished = true;
}

/* ---- Several tensors ---- */

void ul_microsoft_mixed_precision_scale(struct ul_old_node *node)
{
    for (uint32_t i = 1; i < node->input_count && i <= node->output_count; i++)
        ul_old_set_result(node, i - 1,
                          ul_old_make(node, UL_WITH({"x", ul_row_value(node->inputs[i])}),
                                      "Cast(Cast(x) {to=f32} * Reshape(scale, [])) {to=to}"));
    node->finished = true;
}

ul_value_id ul_microsoft_square_sum(struct ul_old_node *node, const ul_value_id *values,
                                    uint32_t count)
{
    ul_value_id sum = UL_NONE;
    for (uint32_t i = 0; i < count; i++)
        sum = ul_old_make(node, UL_WITH({"sum", ul_row_value(sum)}, {"x", ul_row_value(values[i])}),
                          "sum + ReduceSumSquare(Cast(x) {to=f32}) {keepdims=0}");
    return sum;
}

void ul_microsoft_reduce_all_l2(struct ul_old_node *node)
{
    ul_value_id sum = ul_microsoft_square_sum(node, node->inputs, node->input_count);
    ul_old_finish(node, UL_WITH({"sum", ul_row_value(sum)}), "Sqrt(sum)");
}

void ul_microsoft_pass_through(struct ul_old_node *node)
{
    for (uint32_t i = 0; i < node->output_count && i < node->input_count; i++)
        ul_old_set_result(node, i, ul_build_copy(ul_old_build(node), node->inputs[i]));
    node->finished = true;
}
