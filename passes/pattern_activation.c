/* Activations that multiply their input by a gate: Gelu, Swish, HardSwish, Mish. */
#include "passes/pattern_internal.h"

#include <math.h>

enum { CUBE = 3 };

/* The other factor, when `product` is x times something. */
static ul_value_id other_factor(const struct ul_pattern_product *product, ul_value_id x)
{
    if (product->count != 2 || (product->values[0] != x && product->values[1] != x))
        return UL_NONE;
    return product->values[product->values[0] == x ? 1 : 0];
}

/* value = 1 + f(inner): inner, or UL_NONE. */
static ul_value_id one_plus(struct ul_pattern *pattern, ul_value_id value, enum ul_op f)
{
    double one;
    ul_value_id rest;
    if (!ul_pattern_plus(pattern, value, &rest, &one) || !ul_pattern_near(pattern, one, 1))
        return UL_NONE;
    const struct ul_node *node = ul_pattern_match(pattern, rest, f);
    return node == NULL ? UL_NONE : node->inputs[0];
}

/* cubic = 0.044715 x^3 */
static bool is_cubic(struct ul_pattern *pattern, ul_value_id cubic, ul_value_id x, uint32_t power)
{
    struct ul_pattern_product product;
    if (!ul_pattern_factors(pattern, cubic, &product) || product.count != power ||
        !ul_pattern_near(pattern, product.number, 0.044715))
        return false;
    for (uint32_t i = 0; i < power; i++)
        if (product.values[i] != x)
            return false;
    return true;
}

/* inner = sqrt(2 / pi) (x + 0.044715 x^3), or with x taken out of the sum. */
static bool is_tanh_argument(struct ul_pattern *pattern, ul_value_id inner, ul_value_id x)
{
    struct ul_pattern_product product;
    if (!ul_pattern_factors(pattern, inner, &product) ||
        !ul_pattern_near(pattern, product.number, 0.79788456080286535588))
        return false;
    ul_value_id outside = other_factor(&product, x), rest;
    double one;
    if (outside != UL_NONE)
        return ul_pattern_plus(pattern, outside, &rest, &one) && ul_pattern_near(pattern, one, 1) &&
               is_cubic(pattern, rest, x, CUBE - 1);
    const struct ul_node *sum =
        product.count == 1 ? ul_pattern_match(pattern, product.values[0], UL_OP_Add) : NULL;
    if (sum == NULL || (sum->inputs[0] != x && sum->inputs[1] != x))
        return false;
    return is_cubic(pattern, sum->inputs[sum->inputs[0] == x ? 1 : 0], x, CUBE);
}

static bool gelu_of(struct ul_pattern *pattern, ul_value_id x, ul_value_id gate)
{
    double scale;
    ul_value_id inner = one_plus(pattern, gate, UL_OP_Erf);
    bool is_erf = inner != UL_NONE;
    if (is_erf && (!ul_pattern_is_scaled(pattern, inner, x, &scale) ||
                   !ul_pattern_near(pattern, scale, 0.70710678118654752440)))
        return false;
    if (!is_erf) {
        inner = one_plus(pattern, gate, UL_OP_Tanh);
        if (inner == UL_NONE || !is_tanh_argument(pattern, inner, x))
            return false;
    }
    if (!ul_pattern_is_closed(pattern, &x, 1))
        return false;
    ul_pattern_replace(pattern, UL_OP_Gelu, &x, 1);
    if (!is_erf)
        ul_node_set_string(pattern->graph, pattern->root, "approximate", "tanh");
    return true;
}

/* Offers x and its gate, either way round; what one try took is forgotten before the next. */
typedef bool gate_fn(struct ul_pattern *pattern, ul_value_id x, ul_value_id gate);

static bool each_way(struct ul_pattern *pattern, ul_node_id root, double number, gate_fn *try)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct ul_pattern_product product;
        ul_pattern_begin(pattern, root);
        if (!ul_pattern_factors(pattern, pattern->graph->nodes[root].outputs[0], &product) ||
            product.count != 2 || !ul_pattern_near(pattern, product.number, number))
            return false;
        if (try(pattern, product.values[i], product.values[1 - i]))
            return true;
    }
    return false;
}

/* x (1 + erf(x / sqrt 2)) / 2, or with tanh. */
bool ul_pattern_gelu(struct ul_pattern *pattern, ul_node_id root)
{
    return each_way(pattern, root, 0.5, gelu_of);
}

static bool become(struct ul_pattern *pattern, enum ul_op op, ul_value_id x)
{
    if (!ul_pattern_is_closed(pattern, &x, 1))
        return false;
    ul_pattern_replace(pattern, op, &x, 1);
    return true;
}

static bool become_swish(struct ul_pattern *pattern, ul_value_id x, double alpha)
{
    if (!become(pattern, UL_OP_Swish, x))
        return false;
    if (alpha < 1 || alpha > 1)
        ul_node_set_float(pattern->graph, pattern->root, "alpha", alpha);
    return true;
}

/* value = clip(inner, 0, most): inner, or UL_NONE. */
static ul_value_id clipped(struct ul_pattern *pattern, ul_value_id value, double max)
{
    double low, high;
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Clip);
    bool fits = node != NULL && node->input_count == 3 &&
                ul_graph_get_number(pattern->graph, node->inputs[1], &low) &&
                ul_graph_get_number(pattern->graph, node->inputs[2], &high) &&
                !(low < 0 || low > 0) && ul_pattern_near(pattern, high, max);
    return fits ? node->inputs[0] : UL_NONE;
}

/* gate = clip(x + 3, 0, 6) */
static bool hard_swish_six(struct ul_pattern *pattern, ul_value_id x, ul_value_id gate)
{
    ul_value_id inner = clipped(pattern, gate, 6), rest;
    double three;
    return inner != UL_NONE && ul_pattern_plus(pattern, inner, &rest, &three) && rest == x &&
           ul_pattern_near(pattern, three, 3) && become(pattern, UL_OP_HardSwish, x);
}

static bool is_hard_sigmoid(struct ul_pattern *pattern, ul_value_id x, ul_value_id gate)
{
    const struct ul_node *node = ul_pattern_match(pattern, gate, UL_OP_HardSigmoid);
    if (node != NULL)
        return node->inputs[0] == x &&
               ul_pattern_near(pattern, ul_node_get_float(node, "alpha", 0.2), 1.0 / 6) &&
               ul_pattern_near(pattern, ul_node_get_float(node, "beta", 0.5), 0.5);
    ul_value_id inner = clipped(pattern, gate, 1), rest;
    double half, scale;
    return inner != UL_NONE && ul_pattern_plus(pattern, inner, &rest, &half) &&
           ul_pattern_near(pattern, half, 0.5) && ul_pattern_is_scaled(pattern, rest, x, &scale) &&
           ul_pattern_near(pattern, scale, 1.0 / 6);
}

/* A gate between 0 and 1. */
static bool gate_of(struct ul_pattern *pattern, ul_value_id x, ul_value_id gate)
{
    double alpha;
    const struct ul_node *node = ul_pattern_match(pattern, gate, UL_OP_Sigmoid);
    if (node != NULL)
        return ul_pattern_is_scaled(pattern, node->inputs[0], x, &alpha) &&
               become_swish(pattern, x, alpha);
    node = ul_pattern_match(pattern, gate, UL_OP_Tanh);
    if (node != NULL) {
        node = ul_pattern_match(pattern, node->inputs[0], UL_OP_Softplus);
        return node != NULL && node->inputs[0] == x && become(pattern, UL_OP_Mish, x);
    }
    return is_hard_sigmoid(pattern, x, gate) && become(pattern, UL_OP_HardSwish, x);
}

/* x / (1 + exp(-alpha x)) */
static bool divided(struct ul_pattern *pattern, ul_node_id root)
{
    const struct ul_node *node = &pattern->graph->nodes[root];
    ul_value_id x = node->inputs[0];
    double alpha;
    ul_pattern_begin(pattern, root);
    ul_value_id inner =
        node->op == UL_OP_Div ? one_plus(pattern, node->inputs[1], UL_OP_Exp) : UL_NONE;
    return inner != UL_NONE && ul_pattern_is_scaled(pattern, inner, x, &alpha) &&
           ul_type_equal(ul_pattern_type(pattern, x), ul_pattern_type(pattern, node->outputs[0])) &&
           become_swish(pattern, x, -alpha);
}

bool ul_pattern_gate(struct ul_pattern *pattern, ul_node_id root)
{
    return each_way(pattern, root, 1, gate_of) ||
           each_way(pattern, root, 1.0 / 6, hard_swish_six) || divided(pattern, root);
}
