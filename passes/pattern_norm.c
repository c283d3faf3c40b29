/* Normalisation spelled out: LayerNormalization, RMSNormalization, Softmax. */
#include "ir/infer.h"
#include "passes/pattern_internal.h"

struct norm {
    ul_value_id x, scale, bias;
    bool is_centred; /* else the root mean square */
    double epsilon;
    uint32_t axis; /* the first of those that are reduced */
};

/* The axes of a reduction that keeps its dimensions, as bits. */
static bool reduced_axes(const struct ul_pattern *pattern, const struct ul_node *node,
                         uint32_t *mask)
{
    uint32_t rank = ul_pattern_type(pattern, node->inputs[0])->rank;
    const struct ul_tensor *axes =
        node->input_count == 2 ? ul_graph_get_constant(pattern->graph, node->inputs[1]) : NULL;
    *mask = 0;
    if (ul_node_get_int(node, "keepdims", 1) == 0 || axes == NULL)
        return false;
    for (uint64_t i = 0; i < ul_type_elements(&axes->type); i++) {
        int64_t axis = ul_tensor_get_int(axes, i);
        *mask |= 1u << (axis < 0 ? axis + (int64_t)rank : axis);
    }
    return *mask != 0;
}

/* The axes from *axis on. */
static bool is_trailing(uint32_t mask, uint32_t rank, uint32_t *axis)
{
    *axis = rank;
    while (*axis > 0 && (mask >> (*axis - 1) & 1u) != 0)
        --*axis;
    return *axis < rank && mask >> *axis << *axis == mask && (mask & ((1u << *axis) - 1)) == 0;
}

/* value = square root of what is returned, or UL_NONE. */
static ul_value_id root_of(struct ul_pattern *pattern, ul_value_id value)
{
    double exponent;
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Sqrt);
    if (node != NULL)
        return node->inputs[0];
    node = ul_pattern_match(pattern, value, UL_OP_Pow);
    bool fits = node != NULL && ul_pattern_by(pattern, node, 1, &exponent) &&
                ul_pattern_near(pattern, exponent, 0.5);
    return fits ? node->inputs[0] : UL_NONE;
}

/* value = 1 / square root of what is returned, or UL_NONE. */
static ul_value_id inverse_root_of(struct ul_pattern *pattern, ul_value_id value)
{
    double number;
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Reciprocal);
    if (node != NULL)
        return root_of(pattern, node->inputs[0]);
    node = ul_pattern_match(pattern, value, UL_OP_Div);
    if (node != NULL && ul_pattern_by(pattern, node, 0, &number) &&
        ul_pattern_near(pattern, number, 1))
        return root_of(pattern, node->inputs[1]);
    node = ul_pattern_match(pattern, value, UL_OP_Pow);
    bool fits = node != NULL && ul_pattern_by(pattern, node, 1, &number) &&
                ul_pattern_near(pattern, number, -0.5);
    return fits ? node->inputs[0] : UL_NONE;
}

/* value = centred * centred */
static bool is_square(struct ul_pattern *pattern, ul_value_id value, ul_value_id centred)
{
    double exponent;
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Mul);
    if (node != NULL)
        return node->inputs[0] == centred && node->inputs[1] == centred;
    node = ul_pattern_match(pattern, value, UL_OP_Pow);
    return node != NULL && node->inputs[0] == centred &&
           ul_pattern_by(pattern, node, 1, &exponent) && ul_pattern_near(pattern, exponent, 2);
}

/* variance = mean of centred^2 + epsilon, and centred = x - mean of x where that is a difference.
 */
static bool moments(struct ul_pattern *pattern, struct norm *norm, ul_value_id centred,
                    ul_value_id variance)
{
    ul_value_id mean;
    uint32_t mask, other;
    if (variance == UL_NONE || !ul_pattern_plus(pattern, variance, &mean, &norm->epsilon) ||
        norm->epsilon < 0)
        return false;
    const struct ul_node *node = ul_pattern_match(pattern, mean, UL_OP_ReduceMean);
    if (node == NULL || !reduced_axes(pattern, node, &mask) ||
        !is_square(pattern, node->inputs[0], centred) ||
        !is_trailing(mask, ul_pattern_type(pattern, centred)->rank, &norm->axis))
        return false;
    norm->x = centred;
    node = ul_pattern_maker(pattern, centred, UL_OP_Sub);
    const struct ul_node *first =
        node == NULL ? NULL : ul_pattern_maker(pattern, node->inputs[1], UL_OP_ReduceMean);
    norm->is_centred = first != NULL && first->inputs[0] == node->inputs[0] &&
                       reduced_axes(pattern, first, &other) && other == mask;
    if (norm->is_centred) {
        norm->x = node->inputs[0];
        ul_pattern_match(pattern, centred, UL_OP_Sub);
        ul_pattern_match(pattern, node->inputs[1], UL_OP_ReduceMean);
    }
    return true;
}

/* value = centred / sqrt(variance) */
static bool is_normal(struct ul_pattern *pattern, struct norm *norm, ul_value_id value)
{
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Div);
    if (node != NULL)
        return moments(pattern, norm, node->inputs[0], root_of(pattern, node->inputs[1]));
    node = ul_pattern_match(pattern, value, UL_OP_Mul);
    for (uint32_t i = 0; node != NULL && i < 2; i++) {
        ul_value_id variance = inverse_root_of(pattern, node->inputs[i]);
        if (variance != UL_NONE)
            return moments(pattern, norm, node->inputs[1 - i], variance);
    }
    return false;
}

/* Scale and bias lie along the axes that are reduced. */
static bool is_affine(const struct ul_pattern *pattern, const struct norm *norm, ul_value_id value)
{
    const struct ul_type *type = ul_pattern_type(pattern, norm->x);
    const struct ul_type *affine = ul_pattern_type(pattern, value);
    struct ul_type both;
    if (affine->dtype != type->dtype || !ul_broadcast(type, affine, &both) ||
        !ul_type_equal(&both, type))
        return false;
    for (uint32_t d = 0; d < affine->rank; d++)
        if (affine->dims[d] != 1 && d + type->rank - affine->rank < norm->axis)
            return false;
    return true;
}

/* value = normal, or normal * scale. Members are taken anew for each try. */
static bool is_scaled_normal(struct ul_pattern *pattern, struct norm *norm, ul_value_id value)
{
    ul_node_id root = pattern->root;
    norm->scale = UL_NONE;
    ul_pattern_begin(pattern, root);
    if (is_normal(pattern, norm, value))
        return true;
    for (uint32_t i = 0; i < 2; i++) {
        ul_pattern_begin(pattern, root);
        const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Mul);
        if (node == NULL)
            return false;
        norm->scale = node->inputs[1 - i];
        if (is_normal(pattern, norm, node->inputs[i]) && is_affine(pattern, norm, norm->scale))
            return true;
    }
    return false;
}

static bool become_norm(struct ul_pattern *pattern, const struct norm *norm)
{
    struct ul_graph *graph = pattern->graph;
    ul_value_id out = graph->nodes[pattern->root].outputs[0];
    ul_value_id inputs[3] = {norm->x, norm->scale, norm->bias};
    if (!ul_pattern_is_closed(pattern, inputs, 3) ||
        !ul_type_equal(ul_pattern_type(pattern, out), ul_pattern_type(pattern, norm->x)))
        return false;
    if (inputs[1] == UL_NONE)
        inputs[1] = ul_build_number(graph, "one", ul_pattern_type(pattern, norm->x)->dtype, 1, 1);
    ul_pattern_replace(pattern,
                       norm->is_centred ? UL_OP_LayerNormalization : UL_OP_RMSNormalization, inputs,
                       norm->bias == UL_NONE ? 2 : 3);
    ul_node_set_int(graph, pattern->root, "axis", norm->axis);
    ul_node_set_float(graph, pattern->root, "epsilon", norm->epsilon);
    return true;
}

bool ul_pattern_layer_norm(struct ul_pattern *pattern, ul_node_id root)
{
    const struct ul_node *node = &pattern->graph->nodes[root];
    struct norm norm = {.bias = UL_NONE};
    if (node->op != UL_OP_Add)
        return is_scaled_normal(pattern, &norm, node->outputs[0]) && become_norm(pattern, &norm);
    for (uint32_t i = 0; i < 2; i++) {
        norm.bias = node->inputs[1 - i];
        if (is_scaled_normal(pattern, &norm, node->inputs[i]) && norm.is_centred &&
            is_affine(pattern, &norm, norm.bias) && become_norm(pattern, &norm))
            return true;
    }
    return false;
}

/* exp(x - max) / sum of the same, over one axis; also without the maximum. */
bool ul_pattern_softmax(struct ul_pattern *pattern, ul_node_id root)
{
    const struct ul_node *node = &pattern->graph->nodes[root];
    uint32_t mask, other, axis = 0;
    ul_pattern_begin(pattern, root);
    const struct ul_node *exponential = ul_pattern_match(pattern, node->inputs[0], UL_OP_Exp);
    const struct ul_node *sum = ul_pattern_match(pattern, node->inputs[1], UL_OP_ReduceSum);
    if (exponential == NULL || sum == NULL || sum->inputs[0] != node->inputs[0] ||
        !reduced_axes(pattern, sum, &mask) || (mask & (mask - 1)) != 0)
        return false;
    while (mask >> axis != 1)
        axis++;
    ul_value_id x = exponential->inputs[0];
    const struct ul_node *shift = ul_pattern_maker(pattern, x, UL_OP_Sub);
    const struct ul_node *max =
        shift == NULL ? NULL : ul_pattern_maker(pattern, shift->inputs[1], UL_OP_ReduceMax);
    if (max != NULL && max->inputs[0] == shift->inputs[0] && reduced_axes(pattern, max, &other) &&
        other == mask) {
        ul_pattern_match(pattern, x, UL_OP_Sub);
        ul_pattern_match(pattern, shift->inputs[1], UL_OP_ReduceMax);
        x = shift->inputs[0];
    }
    if (!ul_pattern_is_closed(pattern, &x, 1))
        return false;
    ul_pattern_replace(pattern, UL_OP_Softmax, &x, 1);
    ul_node_set_int(pattern->graph, root, "axis", axis);
    return true;
}
