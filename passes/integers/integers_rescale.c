/* SPDX-License-Identifier: Apache-2.0 */
/* QuantizeLinear of sums of scaled integers as one Rescale:
 *
 *      Q(sum of s_i (x_i - z_i))  =  round(sum of (s_i / sy) (x_i - z_i)) + zy
 *
 * Terms are what DequantizeLinear makes, and integers that were added up, cast and multiplied by
 * constants. Relu and Clip between them and the QuantizeLinear are ends of the range, since
 * rounding keeps the order of numbers. Where the scale is the same on both sides, nothing is left
 * to do. */
#include "ir/op_names.h"
#include "passes/integers/integers_internal.h"

#include <math.h>

enum { MAX_TERMS = 4 };
#define MAX_CONSTANT 134217728.0 /* steps of a sum: what integers_sums.c leaves room for */
#define MAX_PART 0.25            /* the most of a step of y that a sum's step may be */

struct term {
    ul_value_id x, zero;
    const struct ul_tensor *factor; /* f32 */
    double sign;
};

struct rescale {
    struct ul_integers *integers;
    struct ul_scaled y;
    int64_t low, high;
    uint32_t term_count;
    struct term terms[MAX_TERMS];
};

/* Integers of 8 and 16 bits. */
static bool find_range(enum ul_dtype dtype, struct rescale *rescale)
{
    return ul_dtype_get(dtype)->bits >= 8 && ul_dtype_range(dtype, &rescale->low, &rescale->high);
}

/* ---- The range ---- */

/* A bound in floats, as an integer of y; infinite ones stay ends of the type. */
static int64_t quantized(const struct rescale *rescale, double bound)
{
    double x = nearbyint((double)((float)bound / (float)ul_scaled_scale(&rescale->y, 0))) +
               (double)ul_scaled_zero(&rescale->y, 0);
    x = x < (double)rescale->low ? (double)rescale->low : x;
    return x > (double)rescale->high ? rescale->high : (int64_t)x;
}

static bool clamp(struct rescale *rescale, double low, double high)
{
    if (isnan(low) || isnan(high) || low > high)
        return false;
    int64_t min = quantized(rescale, low), max = quantized(rescale, high);
    rescale->low = min;
    rescale->high = max;
    return true;
}

static bool clamp_by_clip(struct rescale *rescale, const struct ul_node *node)
{
    double bounds[2] = {-(double)INFINITY, (double)INFINITY};
    for (uint32_t i = 1; i < 3; i++) {
        if (i < node->input_count && node->inputs[i] != UL_NONE &&
            !ul_graph_get_number(rescale->integers->graph, node->inputs[i], &bounds[i - 1]))
            return false;
    }
    return clamp(rescale, bounds[0], bounds[1]);
}

/* What Relu and Clip read, after their bounds were taken over. */
static ul_value_id peel(struct rescale *rescale, ul_value_id value)
{
    for (;;) {
        const struct ul_node *node = ul_integers_maker(rescale->integers, value);
        if (node == NULL || (node->op != UL_OP_Relu && node->op != UL_OP_Clip) ||
            !ul_integers_is_read_once(rescale->integers, value))
            return value;
        if (node->op == UL_OP_Relu ? !clamp(rescale, 0, (double)INFINITY)
                                   : !clamp_by_clip(rescale, node))
            return UL_NONE;
        value = node->inputs[0];
    }
}

/* ---- Terms ---- */

/* Cast(x) * factor, in f32; either way round. */
static bool find_sum(const struct rescale *rescale, const struct ul_node *node, struct term *term)
{
    const struct ul_graph *graph = rescale->integers->graph;
    for (uint32_t i = 0; i < 2; i++) {
        const struct ul_node *cast = ul_integers_maker(rescale->integers, node->inputs[i]);
        term->factor = ul_graph_get_constant(graph, node->inputs[1 - i]);
        if (cast == NULL || cast->op != UL_OP_Cast || term->factor == NULL ||
            term->factor->type.dtype != UL_F32 ||
            !ul_integers_is_read_once(rescale->integers, node->inputs[i]))
            continue;
        enum ul_dtype dtype = graph->values[cast->inputs[0]].type.dtype;
        term->x = cast->inputs[0];
        term->zero = UL_NONE;
        return dtype == UL_I32 || dtype == UL_I64;
    }
    return false;
}

/* A constant that is added to sums goes into these, rounded to their steps: where one of them is a
 * small part of a step of y. */
static bool add_constant(struct rescale *rescale, ul_value_id value)
{
    struct ul_graph *graph = rescale->integers->graph;
    const struct ul_tensor *constant = ul_graph_get_constant(graph, value);
    UL_ASSERT(rescale->term_count > 0);
    struct term *term = &rescale->terms[rescale->term_count - 1];
    if (constant == NULL || constant->type.dtype != UL_F32 || rescale->term_count != 1 ||
        graph->values[term->x].type.dtype != UL_I32)
        return false;
    struct ul_type type = constant->type;
    uint64_t count = ul_type_elements(&type), factors = ul_type_elements(&term->factor->type);
    if (count == 0 || (factors != 1 && factors != count) ||
        (factors > 1 &&
         (type.rank != term->factor->type.rank || type.dims[0] != term->factor->type.dims[0])))
        return false;
    type.dtype = UL_I32;
    unsigned char *data = ul_arena_alloc(graph->arena, ul_type_bytes(&type));
    for (uint64_t i = 0; i < count; i++) {
        double factor = ul_tensor_get_float(term->factor, factors == 1 ? 0 : i);
        double steps = nearbyint(term->sign * ul_tensor_get_float(constant, i) / factor);
        if (!(fabs(steps) < MAX_CONSTANT) ||
            !(fabs(factor) < MAX_PART * ul_scaled_scale(&rescale->y, 0)))
            return false;
        ul_element_put_int(data + i * sizeof(int32_t), UL_I32, (int64_t)steps);
    }
    const char *name = ul_arena_printf(graph->arena, "%s.constant", rescale->integers->build.name);
    const ul_value_id sum[2] = {
        term->x, ul_graph_add_weight(graph, name, ul_edit_tensor(graph, &type, data))};
    term->x = ul_integers_add(rescale->integers, UL_OP_Add, sum, 2, NULL);
    return true;
}

static bool is_within(enum ul_dtype dtype)
{
    struct rescale any;
    return find_range(dtype, &any);
}

static bool add_term(struct rescale *rescale, ul_value_id value, double sign)
{
    struct ul_integers *integers = rescale->integers;
    struct ul_scaled scaled;
    if (rescale->term_count == MAX_TERMS)
        return false;
    struct term *term = &rescale->terms[rescale->term_count];
    term->sign = sign;
    if (ul_integers_find(integers, value, &scaled)) {
        enum ul_dtype dtype = integers->graph->values[scaled.x].type.dtype;
        term->x = scaled.x;
        term->zero = ul_scaled_zero(&scaled, 0) == 0 ? UL_NONE : scaled.zero;
        term->factor = scaled.scales;
        rescale->term_count += scaled.count == 1;
        return scaled.count == 1 && is_within(dtype);
    }
    const struct ul_node *node = ul_integers_maker(integers, value);
    if (node == NULL || !ul_integers_is_read_once(integers, value))
        return false;
    if (node->op == UL_OP_Mul && find_sum(rescale, node, term)) {
        rescale->term_count++;
        return true;
    }
    const ul_value_id operands[2] = {node->inputs[0],
                                     node->input_count == 2 ? node->inputs[1] : UL_NONE};
    double second = node->op == UL_OP_Sub ? -sign : sign;
    if (node->op == UL_OP_Add && sign > 0 && rescale->term_count == 0 &&
        ul_graph_get_constant(integers->graph, operands[1]) != NULL)
        return add_term(rescale, operands[0], sign) && add_constant(rescale, operands[1]);
    return (node->op == UL_OP_Add || node->op == UL_OP_Sub) &&
           add_term(rescale, operands[0], sign) && add_term(rescale, operands[1], second);
}

/* ---- The node ---- */

static ul_value_id add_factor(const struct rescale *rescale, const struct term *term)
{
    struct ul_graph *graph = rescale->integers->graph;
    struct ul_type type = term->factor->type;
    uint64_t count = ul_type_elements(&type);
    double scale = ul_scaled_scale(&rescale->y, 0);
    unsigned char *data = ul_arena_alloc(graph->arena, count * sizeof(float));
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_float(data + i * sizeof(float), UL_F32,
                             term->sign * ul_tensor_get_float(term->factor, i) / scale);
    if (count == 1)
        type.rank = 0;
    return ul_graph_add_weight(
        graph, ul_arena_printf(graph->arena, "%s.factor", rescale->integers->build.name),
        ul_edit_tensor(graph, &type, data));
}

static bool are_normal(const struct rescale *rescale)
{
    for (uint32_t i = 0; i < rescale->term_count; i++) {
        const struct ul_tensor *factor = rescale->terms[i].factor;
        uint64_t count = ul_type_elements(&factor->type);
        for (uint64_t k = 0; k < count; k++) {
            double scaled = ul_tensor_get_float(factor, k) / ul_scaled_scale(&rescale->y, 0);
            if (!isnormal((float)scaled))
                return false;
        }
    }
    return true;
}

/* Integers of y's own scale and type, over the whole range, stay as they are. */
static bool forward(struct rescale *rescale, ul_node_id id)
{
    struct ul_integers *integers = rescale->integers;
    const struct ul_graph *graph = integers->graph;
    const struct ul_node *node = &graph->nodes[id];
    struct ul_scaled x;
    struct rescale whole;
    enum ul_dtype dtype = graph->values[node->outputs[0]].type.dtype;
    bool is_ranged = find_range(dtype, &whole);
    UL_ASSERT(is_ranged);
    return ul_integers_find(integers, node->inputs[0], &x) && ul_scaled_same(&x, &rescale->y) &&
           graph->values[x.x].type.dtype == dtype && rescale->low == whole.low &&
           rescale->high == whole.high && node->outputs[0] < integers->rewrite.known_count &&
           ul_rewrite_forward(&integers->rewrite, node->outputs[0], x.x);
}

static void build(struct rescale *rescale, ul_node_id id)
{
    struct ul_integers *integers = rescale->integers;
    struct ul_graph *graph = integers->graph;
    struct rescale whole;
    enum ul_dtype dtype = graph->values[graph->nodes[id].outputs[0]].type.dtype;
    bool is_ranged = find_range(dtype, &whole);
    ul_value_id inputs[1 + 3 * MAX_TERMS];
    const double zero = (double)ul_scaled_zero(&rescale->y, 0);
    UL_ASSERT(is_ranged && rescale->term_count > 0);
    inputs[0] = ul_edit_add_numbers(
        graph, ul_arena_printf(graph->arena, "%s.zero", integers->build.name), dtype, &zero, 1, 0);
    for (uint32_t i = 0; i < rescale->term_count; i++) {
        inputs[1 + 3 * i] = rescale->terms[i].x;
        inputs[2 + 3 * i] = add_factor(rescale, &rescale->terms[i]);
        inputs[3 + 3 * i] = rescale->terms[i].zero;
    }
    const struct ul_node *maker = ul_integers_maker(integers, graph->nodes[id].inputs[0]);
    UL_ASSERT(maker != NULL);
    if (maker->op != UL_OP_DequantizeLinear) {
        graph->nodes[id].name = maker->name; /* the node stands for it from now on */
        graph->nodes[id].source = maker->source;
    }
    bool has_last_zero = inputs[3 * rescale->term_count] != UL_NONE;
    ul_integers_become(integers, id, UL_OP_Rescale, inputs, 3 * rescale->term_count + has_last_zero,
                       NULL);
    if (rescale->low > whole.low)
        ul_node_set_int(graph, id, "low", rescale->low);
    if (rescale->high < whole.high)
        ul_node_set_int(graph, id, "high", rescale->high);
}

bool ul_integers_rescale(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    struct rescale rescale = {.integers = integers};
    ul_value_id zero = node.input_count > 2 ? node.inputs[2] : UL_NONE;
    int64_t precision = ul_node_get_int(&node, "precision", 0);
    if (graph->values[node.inputs[0]].type.dtype != UL_F32 ||
        (precision != 0 && precision != UL_F32) ||
        !find_range(graph->values[node.outputs[0]].type.dtype, &rescale) ||
        !ul_integers_scale(integers, node.outputs[0], node.inputs[1], zero, 0, &rescale.y) ||
        rescale.y.count != 1)
        return false;
    if (forward(&rescale, id))
        return true;
    ul_value_id start = peel(&rescale, node.inputs[0]);
    if (start == UL_NONE || !add_term(&rescale, start, 1) || !are_normal(&rescale))
        return false;
    build(&rescale, id);
    return true;
}
