/* SPDX-License-Identifier: Apache-2.0 */
/* What is a * x + b of one 8-bit value x, with numbers a and b for each channel: chains of Mul,
 * Div, Add and Sub of constants, Neg and BatchNormalization, and a Relu or Clip after them. Where
 * there is one number for all, it is a table (integers_table.c).
 *
 *      y = round((x - zx) * a sx / sy + b / sy) + zy
 *
 * as one Rescale, whose second term is b in units of a small part of a step of y. */
#include "ir/op_names.h"
#include "passes/integers/no_float_internal.h"

#include <math.h>
#include <string.h>

enum { OFFSET_BITS = 12, MAX_CHANNELS = 1 << 16 };

struct affine {
    struct ul_integers *integers;
    struct ul_scaled x, y;
    struct ul_type type; /* of a and b: rank 0, or what broadcasts to x */
    double *a, *b;
    double low, high; /* of the result */
};

/* The first of the numbers, `count` times. */
static double *spread(struct affine *affine, const double *numbers, uint64_t count)
{
    double *all = UL_NEW_ARRAY(affine->integers->pass->scratch, double, count);
    for (uint64_t i = 0; i < count; i++)
        all[i] = numbers[0];
    return all;
}

/* Whether numbers of that shape can be multiplied with those that are there. */
static bool take_shape(struct affine *affine, const struct ul_type *shape)
{
    struct ul_type type = {.dtype = UL_F32};
    uint32_t leading = 0;
    while (leading < shape->rank && shape->dims[leading] == 1)
        leading++;
    for (uint32_t d = leading; d < shape->rank; d++)
        type.dims[type.rank++] = shape->dims[d];
    uint64_t count = ul_type_elements(&type);
    if (count == 1)
        return true;
    if (affine->type.rank > 0)
        return ul_type_equal(&affine->type, &type);
    if (count == 0 || count > MAX_CHANNELS)
        return false;
    affine->type = type;
    affine->a = spread(affine, affine->a, count);
    affine->b = spread(affine, affine->b, count);
    return true;
}

static double number_of(const struct ul_tensor *tensor, uint64_t i)
{
    return ul_tensor_get_float(tensor, ul_type_elements(&tensor->type) == 1 ? 0 : i);
}

/* The other operand of an operator of two, one of which is constant; UL_NONE: neither is. */
static ul_value_id peel_two(struct affine *affine, const struct ul_node *node)
{
    const struct ul_graph *graph = affine->integers->graph;
    const struct ul_tensor *constant = ul_graph_get_constant(graph, node->inputs[1]);
    bool is_first = constant == NULL;
    if (is_first)
        constant = ul_graph_get_constant(graph, node->inputs[0]);
    if (constant == NULL || constant->type.dtype != UL_F32 || (is_first && node->op == UL_OP_Div) ||
        !take_shape(affine, &constant->type))
        return UL_NONE;
    for (uint64_t i = 0; i < ul_type_elements(&affine->type); i++) {
        double c = number_of(constant, i);
        if (node->op == UL_OP_Add || node->op == UL_OP_Sub)
            affine->b[i] +=
                node->op == UL_OP_Sub && !is_first ? -affine->a[i] * c : affine->a[i] * c;
        if (node->op == UL_OP_Sub && is_first)
            affine->a[i] = -affine->a[i];
        if (node->op == UL_OP_Mul)
            affine->a[i] *= c;
        if (node->op == UL_OP_Div)
            affine->a[i] /= c;
    }
    return node->inputs[is_first ? 1 : 0];
}

static ul_value_id peel_norm(struct affine *affine, const struct ul_node *node)
{
    const struct ul_graph *graph = affine->integers->graph;
    const struct ul_type *x = &graph->values[node->inputs[0]].type;
    const struct ul_tensor *of[4]; /* scale, bias, mean, variance */
    struct ul_type shape = {.dtype = UL_F32, .rank = x->rank - 1};
    double epsilon = ul_node_get_float(node, "epsilon", (double)1e-5F);
    if (x->rank < 2 || node->input_count != 5)
        return UL_NONE;
    for (uint32_t i = 0; i < 4; i++) {
        of[i] = ul_graph_get_constant(graph, node->inputs[i + 1]);
        if (of[i] == NULL || of[i]->type.dtype != UL_F32)
            return UL_NONE;
    }
    for (uint32_t d = 0; d < shape.rank; d++)
        shape.dims[d] = d == 0 ? x->dims[1] : 1;
    if (!take_shape(affine, &shape))
        return UL_NONE;
    for (uint64_t i = 0; i < ul_type_elements(&affine->type); i++) {
        double scale = number_of(of[0], i) / sqrt(number_of(of[3], i) + epsilon);
        affine->b[i] += affine->a[i] * (number_of(of[1], i) - scale * number_of(of[2], i));
        affine->a[i] *= scale;
    }
    return node->inputs[0];
}

static ul_value_id peel(struct affine *affine, const struct ul_node *node)
{
    switch ((int)node->op) {
    case UL_OP_Add:
    case UL_OP_Sub:
    case UL_OP_Mul:
    case UL_OP_Div:
        return peel_two(affine, node);
    case UL_OP_BatchNormalization:
        return peel_norm(affine, node);
    case UL_OP_Neg:
        for (uint64_t i = 0; i < ul_type_elements(&affine->type); i++)
            affine->a[i] = -affine->a[i];
        return node->inputs[0];
    default:
        return UL_NONE;
    }
}

/* Takes the ends of the result from a Relu, and from a Clip in front of it. */
static ul_value_id peel_ends(struct affine *affine, ul_value_id value)
{
    const struct ul_graph *graph = affine->integers->graph;
    const struct ul_node *node = ul_integers_maker(affine->integers, value);
    double bounds[2] = {0, (double)INFINITY};
    if (node == NULL || (node->op != UL_OP_Relu && node->op != UL_OP_Clip))
        return value;
    for (uint32_t i = 0; i < 2 && node->op == UL_OP_Clip; i++) {
        bounds[i] = i == 0 ? -(double)INFINITY : (double)INFINITY;
        if (i + 1 < node->input_count && node->inputs[i + 1] != UL_NONE &&
            !ul_graph_get_number(graph, node->inputs[i + 1], &bounds[i]))
            return value;
    }
    if (!(bounds[0] <= bounds[1]))
        return value;
    affine->low = bounds[0];
    affine->high = bounds[1];
    return node->inputs[0];
}

static bool find(struct affine *affine, ul_value_id value)
{
    while (!ul_no_float_find(affine->integers, value, &affine->x)) {
        const struct ul_node *node = ul_integers_maker(affine->integers, value);
        value = node == NULL ? UL_NONE : peel(affine, node);
        if (value == UL_NONE)
            return false;
    }
    return ul_integers_is_8bit(affine->integers, affine->x.x);
}

/* ---- The Rescale ---- */

/* b in parts of a step of y; UL_NONE: it leaves 32 bits. */
static ul_value_id add_offsets(struct affine *affine)
{
    struct ul_graph *graph = affine->integers->graph;
    struct ul_type type = affine->type;
    uint64_t count = ul_type_elements(&type);
    double *offsets = UL_NEW_ARRAY(affine->integers->pass->scratch, double, count);
    type.dtype = UL_I32;
    for (uint64_t i = 0; i < count; i++) {
        offsets[i] = nearbyint(ldexp(affine->b[i] / ul_scaled_scale(&affine->y, 0), OFFSET_BITS));
        if (!(fabs(offsets[i]) < 0x1p30))
            return UL_NONE;
    }
    const char *name = ul_arena_printf(graph->arena, "%s.offset", affine->integers->build.name);
    return ul_edit_add_array(graph, name, &type, offsets);
}

/* An end in steps of y, where it is narrower than that of y's type. */
static void set_end(struct affine *affine, ul_node_id id, const char *name, double bound)
{
    struct ul_graph *graph = affine->integers->graph;
    int64_t low = 0, high = 0;
    bool is_ranged = ul_dtype_range(graph->values[affine->y.x].type.dtype, &low, &high);
    double end =
        nearbyint(bound / ul_scaled_scale(&affine->y, 0)) + (double)ul_scaled_zero(&affine->y, 0);
    UL_ASSERT(is_ranged && !isnan(end));
    if (isfinite(bound))
        ul_node_set_int(graph, id, name, (int64_t)fmax((double)low, fmin((double)high, end)));
}

static bool build(struct affine *affine, ul_node_id id)
{
    struct ul_integers *integers = affine->integers;
    struct ul_graph *graph = integers->graph;
    const double part = ldexp(1, -OFFSET_BITS);
    uint64_t count = ul_type_elements(&affine->type);
    double *factors = UL_NEW_ARRAY(integers->pass->scratch, double, count);
    double largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        factors[i] = affine->a[i] * ul_scaled_scale(&affine->x, 0) / ul_scaled_scale(&affine->y, 0);
        largest = fmax(largest, isfinite(factors[i]) ? fabs(factors[i]) : (double)INFINITY);
    }
    ul_value_id offsets = add_offsets(affine);
    if (!(largest < 0x1p20) || offsets == UL_NONE)
        return false;
    ul_value_id inputs[6];
    ul_integers_become_rescale(integers, id, affine->x.x, &affine->y, &affine->type, factors);
    memcpy(inputs, graph->nodes[id].inputs, 3 * sizeof *inputs);
    inputs[3] = affine->x.zero;
    inputs[4] = offsets;
    inputs[5] = ul_edit_add_numbers(
        graph, ul_arena_printf(graph->arena, "%s.part", integers->build.name), UL_F32, &part, 1, 0);
    ul_integers_become(integers, id, UL_OP_Rescale, inputs, 6, NULL);
    set_end(affine, id, "low", affine->low);
    set_end(affine, id, "high", affine->high);
    return ul_no_float_fix(integers, id);
}

bool ul_no_float_affine(struct ul_integers *integers, ul_node_id id)
{
    const struct ul_node quantize = integers->graph->nodes[id];
    double one = 1, none = 0;
    struct affine affine = {.integers = integers,
                            .type = {.dtype = UL_F32},
                            .a = &one,
                            .b = &none,
                            .low = -(double)INFINITY,
                            .high = (double)INFINITY};
    return ul_integers_result(integers, &quantize, &affine.y) &&
           ul_integers_is_8bit(integers, affine.y.x) &&
           find(&affine, peel_ends(&affine, quantize.inputs[0])) && build(&affine, id);
}
