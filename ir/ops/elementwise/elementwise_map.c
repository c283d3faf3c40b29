/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators whose expression depends on more than their operands' numbers. */
#include "ir/kernel_build.h"
#include "ir/lower.h"
#include "ir/ops/elementwise/elementwise.def"

#include <math.h>
#include <string.h>

static const struct ul_node *node_of(const struct ul_lower *lower, ul_node_id node)
{
    return &lower->graph->nodes[node];
}

static ul_kx operand(struct ul_lower *lower, ul_node_id node, uint32_t input, const ul_kx *index)
{
    return ul_lower_load_broadcast(lower, node_of(lower, node)->inputs[input], index,
                                   ul_lower_output_type(lower, node, 0)->rank);
}

static ul_kx build(struct ul_lower *lower, ul_node_id node, const char *text, ul_kx a)
{
    return ul_expression_build(lower, node, text, &a, 1, ul_kx_dtype(lower->kernel, a));
}

/* ONNX allows integers in these; numpy computes them in double. */
static ul_kx build_as_float(struct ul_lower *lower, ul_node_id node, const char *text, ul_kx a)
{
    enum ul_dtype dtype = ul_kx_dtype(lower->kernel, a);
    if (ul_dtype_get(dtype)->is_float)
        return build(lower, node, text, a);
    return ul_kx_cast(lower->kernel, dtype,
                      build(lower, node, text, ul_kx_cast(lower->kernel, UL_F64, a)));
}

ul_kx ul_map_erf(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    (void)output;
    return build_as_float(lower, node, "erf(a)", operand(lower, node, 0, index));
}

ul_kx ul_map_shrink(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    (void)output;
    return build_as_float(lower, node,
                          "[lambd=0.5 bias=0] a < -lambd ? a + bias : a > lambd ? a - bias : 0",
                          operand(lower, node, 0, index));
}

ul_kx ul_map_gelu(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const char *approximate = ul_node_get_string(node_of(lower, node), "approximate", "none");
    (void)output;
    return build(lower, node,
                 strcmp(approximate, "tanh") == 0
                     ? "0.5 * a * (1 + tanh(0.79788456080286535588 * (a + 0.044715 * a * a * a)))"
                     : "0.5 * a * (1 + erf(a * 0.70710678118654752440))",
                 operand(lower, node, 0, index));
}

ul_kx ul_map_isinf(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = node_of(lower, node);
    bool positive = ul_node_get_int(info, "detect_positive", 1) != 0;
    bool negative = ul_node_get_int(info, "detect_negative", 1) != 0;
    ul_kx a = operand(lower, node, 0, index);
    (void)output;
    if (positive && negative)
        return build(lower, node, "isinf(a)", a);
    if (positive || negative)
        return build(lower, node, positive ? "a == inf" : "a == -inf", a);
    return ul_kx_int(lower->kernel, UL_BOOL, 0);
}

/* True when every element of input `input` is the number `value`. */
static bool is_number(const struct ul_lower *lower, ul_node_id node, uint32_t input, double value)
{
    double number;
    return ul_graph_get_number(lower->graph, node_of(lower, node)->inputs[input], &number) &&
           number >= value && number <= value;
}

ul_kx ul_map_pow(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx base = operand(lower, node, 0, index);
    (void)output;
    if (is_number(lower, node, 1, 2))
        return ul_kx_mul(kernel, base, base);
    if (is_number(lower, node, 1, 3))
        return ul_kx_mul(kernel, ul_kx_mul(kernel, base, base), base);
    ul_kx exponent = operand(lower, node, 1, index);
    enum ul_dtype dtype = ul_kx_dtype(kernel, base);
    bool float_base = ul_dtype_get(dtype)->is_float;
    bool float_exponent = ul_dtype_get(ul_kx_dtype(kernel, exponent))->is_float;
    if (float_base || !float_exponent)
        return ul_kx_binary(kernel, UL_KX_POW, base, ul_kx_cast(kernel, dtype, exponent));
    ul_kx power = ul_kx_binary(kernel, UL_KX_POW, ul_kx_cast(kernel, UL_F64, base),
                               ul_kx_cast(kernel, UL_F64, exponent));
    return ul_kx_cast(kernel, dtype, power);
}

ul_kx ul_map_mod(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    bool c_style = ul_node_get_int(node_of(lower, node), "fmod", 0) != 0;
    ul_kx a = operand(lower, node, 0, index);
    (void)output;
    return ul_kx_binary(lower->kernel, c_style ? UL_KX_FMOD : UL_KX_MOD, a,
                        operand(lower, node, 1, index));
}

/* Combines the inputs from the left, as numpy.maximum and friends would be applied. */
static ul_kx combine(struct ul_lower *lower, ul_node_id node, enum ul_kx_op op, const ul_kx *index)
{
    ul_kx result = operand(lower, node, 0, index);
    for (uint32_t i = 1; i < node_of(lower, node)->input_count; i++)
        result = ul_kx_binary(lower->kernel, op, result, operand(lower, node, i, index));
    return result;
}

ul_kx ul_map_max(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    (void)output;
    return combine(lower, node, UL_KX_MAX, index);
}

ul_kx ul_map_min(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    (void)output;
    return combine(lower, node, UL_KX_MIN, index);
}

ul_kx ul_map_sum(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    (void)output;
    return combine(lower, node, UL_KX_ADD, index);
}

ul_kx ul_map_mean(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    ul_kx sum = combine(lower, node, UL_KX_ADD, index);
    double count = (double)node_of(lower, node)->input_count;
    (void)output;
    return ul_kx_binary(lower->kernel, UL_KX_DIV, sum,
                        ul_kx_number(lower->kernel, ul_kx_dtype(lower->kernel, sum), count));
}

/* Uses selects, which become one instruction each and keep a NaN in `a`. */
ul_kx ul_map_clip(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx zeros[UL_LIMIT_RANK];
    ul_kx a = operand(lower, node, 0, index);
    (void)output;
    for (uint32_t d = 0; d < UL_LIMIT_RANK; d++)
        zeros[d] = ul_kx_index_const(kernel, 0);
    for (uint32_t i = 1; i < 3; i++) {
        if (!ul_lower_has_input(lower, node, i))
            continue;
        ul_kx bound = ul_lower_load(lower, node_of(lower, node)->inputs[i], zeros);
        ul_kx outside = i == 1 ? ul_kx_binary(kernel, UL_KX_LT, a, bound)
                               : ul_kx_binary(kernel, UL_KX_LT, bound, a);
        a = ul_kx_select(kernel, outside, bound, a);
    }
    return a;
}

ul_kx ul_map_bit_shift(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const char *direction = ul_node_get_string(node_of(lower, node), "direction", "");
    bool is_signed = ul_dtype_get(ul_lower_output_type(lower, node, output)->dtype)->is_signed;
    ul_kx a = operand(lower, node, 0, index), count = operand(lower, node, 1, index);
    if (is_signed)
        count = ul_kx_cast(lower->kernel, UL_U64, count);
    return ul_kx_binary(lower->kernel, strcmp(direction, "LEFT") == 0 ? UL_KX_SHL : UL_KX_SHR, a,
                        count);
}
