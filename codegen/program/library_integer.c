/* SPDX-License-Identifier: Apache-2.0 */
/* Products of integers as calls: sums in i32, and their conversion to another type.
 *
 *      ConvInteger -> Add (i32) -> Rescale             bias, scale, zero of the result, saturation
 *      ConvInteger -> Add -> Rescale (two terms)       the same, a residual added in its own scale
 *      ConvInteger -> Add -> Rescale -> Rescale        rounded and bounded in between
 *      MatMulInteger -> Cast -> Mul -> Add             scale, then post-operations on floats
 *
 * The library takes only i8 weights without zero points. The source's zero point is a number, or an
 * argument where it is known only when the program runs. Where ConvInteger pads with another value
 * (`pad_value`), that is a zero point that is not subtracted: see UL_ZERO_PADDING.
 *
 * Left undone: zero points of weights; residuals with another layout than the result. */
#include "codegen/program/library_internal.h"
#include "ir/op_names.h"

static bool is_zero(const struct ul_graph *graph, const struct ul_node *node, uint32_t input)
{
    double number;
    return node->input_count <= input || node->inputs[input] == UL_NONE ||
           (ul_graph_get_number(graph, node->inputs[input], &number) && number == 0);
}

static bool is_padded(const struct ul_call *call)
{
    bool padded = false;
    for (uint32_t i = 0; i < 6; i++)
        padded = padded || call->pads[i] > 0;
    return padded;
}

bool ul_describe_zeros(struct ul_describer *describer, const struct ul_node *node)
{
    enum { X_ZERO = 2, W_ZERO = 3 };
    const struct ul_graph *graph = describer->graph;
    struct ul_call *call = &describer->out->call;
    int64_t pad_value = ul_node_get_int(node, "pad_value", 0);
    double number = 0;
    if (!is_zero(graph, node, W_ZERO))
        return false;
    if (is_zero(graph, node, X_ZERO)) {
        if (pad_value != 0 && is_padded(call)) {
            call->src_zero_kind = UL_ZERO_PADDING;
            call->src_zero = (int32_t)pad_value;
        }
        return true;
    }
    if (ul_graph_get_number(graph, node->inputs[X_ZERO], &number)) {
        call->src_zero_kind = UL_ZERO_FIXED;
        call->src_zero = (int32_t)number;
        return true;
    }
    if (ul_type_elements(&graph->values[node->inputs[X_ZERO]].type) != 1)
        return false;
    call->src_zero_kind = UL_ZERO_ARG;
    describer->zero = node->inputs[X_ZERO];
    return true;
}

/* `depth`: Adds of sums that may follow each other. */
static bool stays_wide(const struct ul_graph *graph, ul_value_id sums, uint32_t depth)
{
    for (ul_node_id n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        bool reads = false;
        for (uint32_t i = 0; i < node->input_count; i++)
            reads = reads || node->inputs[i] == sums;
        if (reads && (node->op == UL_OP_Rescale ||
                      (node->op == UL_OP_Add &&
                       (depth == 0 || !stays_wide(graph, node->outputs[0], depth - 1)))))
            return false;
    }
    return true;
}

bool ul_describe_stays_wide(const struct ul_graph *graph, ul_value_id sums)
{
    enum { MAX_ADDS = 3 };
    return stays_wide(graph, sums, MAX_ADDS);
}

void ul_describe_last_args(struct ul_describer *describer)
{
    struct ul_group_call *out = describer->out;
    const ul_value_id last[] = {describer->zero, describer->scales};
    UL_ASSERT((out->call.src_zero_kind == UL_ZERO_ARG) == (describer->zero != UL_NONE));
    UL_ASSERT((out->call.scale_count > 0) == (describer->scales != UL_NONE));
    for (size_t i = 0; i < sizeof last / sizeof *last; i++) {
        UL_ASSERT(out->arg_count < UL_CALL_ARGS);
        if (last[i] != UL_NONE)
            out->args[out->arg_count++] = last[i];
    }
}

bool ul_describe_is_conversion(const struct ul_describer *describer, const struct ul_node *node)
{
    const struct ul_graph *graph = describer->graph;
    enum ul_dtype dtype = graph->values[describer->result].type.dtype;
    bool sums = ul_call_is_integer(&describer->out->call) && dtype == UL_I32;
    return ((sums || ul_dtype_is_8bit(dtype)) && node->op == UL_OP_Rescale) ||
           (sums && node->op == UL_OP_Cast && node->output_count == 1 &&
            graph->values[node->outputs[0]].type.dtype == UL_F32);
}

/* The term of the call's value so far: sums, or the result of the Rescale before, to which its own
 * zero point has not been added yet. */
static bool describe_own_term(struct ul_describer *describer, const struct ul_node *node,
                              uint32_t first)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_call *call = &describer->out->call;
    double factor, zero = 0;
    if (graph->values[describer->result].type.dtype == UL_I32)
        return is_zero(graph, node, first + 2) &&
               ul_describe_factor(describer, node->inputs[first + 1]);
    if (!ul_graph_get_number(graph, node->inputs[first + 1], &factor) ||
        (!is_zero(graph, node, first + 2) &&
         !ul_graph_get_number(graph, node->inputs[first + 2], &zero)))
        return false;
    return ul_describe_linear(describer, factor, factor * (call->dst_zero - zero));
}

/* The residual. */
static bool describe_other_term(struct ul_describer *describer, const struct ul_node *node,
                                uint32_t first)
{
    const struct ul_graph *graph = describer->graph;
    const struct ul_value *result = &graph->values[describer->out->args[UL_CALL_DST]];
    ul_value_id x = node->inputs[first];
    double factor, zero = 0;
    if (!ul_graph_get_number(graph, node->inputs[first + 1], &factor) ||
        (!is_zero(graph, node, first + 2) &&
         !ul_graph_get_number(graph, node->inputs[first + 2], &zero)) ||
        graph->values[x].type.dtype != result->type.dtype || !ul_describe_is_residual(describer, x))
        return false;
    ul_describe_residual(describer, x);
    return ul_describe_post(describer, UL_POST_SUM, factor, zero);
}

/* The range of results, where it is not that of their type. A value that is not the call's last
 * result is rounded here, without its zero point. */
static bool describe_range(struct ul_describer *describer, const struct ul_node *node, double zero)
{
    const struct ul_group_call *out = describer->out;
    bool is_signed = describer->graph->values[node->outputs[0]].type.dtype == UL_I8;
    int64_t min = is_signed ? INT8_MIN : 0, max = is_signed ? INT8_MAX : UINT8_MAX;
    int64_t low = ul_node_get_int(node, "low", min), high = ul_node_get_int(node, "high", max);
    bool is_last = node->outputs[0] == out->args[UL_CALL_DST];
    if (is_last && low <= min && high >= max)
        return true;
    return ul_describe_post(describer, UL_POST_CLIP, (double)(low > min ? low : min) - zero,
                            (double)(high < max ? high : max) - zero) &&
           (is_last || ul_describe_post(describer, UL_POST_ROUND, 0, 0));
}

static bool describe_rescale(struct ul_describer *describer, const struct ul_node *node)
{
    enum { FIRST_TERM = 1, TERM_INPUTS = 3 }; /* x, factor, zero point */
    const struct ul_graph *graph = describer->graph;
    uint32_t own_count = 0;
    double zero;
    if (!ul_graph_get_number(graph, node->inputs[0], &zero) ||
        !ul_dtype_is_8bit(graph->values[node->outputs[0]].type.dtype))
        return false;
    for (uint32_t first = FIRST_TERM; first < node->input_count; first += TERM_INPUTS) {
        if (node->inputs[first] != describer->result)
            continue;
        if (own_count++ > 0 || !describe_own_term(describer, node, first))
            return false;
    }
    for (uint32_t first = FIRST_TERM; first < node->input_count; first += TERM_INPUTS) {
        if (node->inputs[first] != describer->result &&
            !describe_other_term(describer, node, first))
            return false;
    }
    describer->out->call.dst_zero = (int32_t)zero;
    return own_count == 1 && describe_range(describer, node, zero);
}

bool ul_describe_conversion(struct ul_describer *describer, const struct ul_node *node)
{
    UL_ASSERT(ul_describe_is_conversion(describer, node));
    return node->op == UL_OP_Cast || describe_rescale(describer, node);
}
