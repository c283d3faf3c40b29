/* Softmax of integers: with d = max - x, 0 to 255, e = exp(-sx d) is a table in fixed point, and
 *
 *      y = round(e / (sum of e) / sy) + zy
 *
 * a division of integers for each element. */
#include "passes/no_float_internal.h"

#include <math.h>

enum { TABLE_SIZE = 256, SUM_BITS = 30, MAX_BITS = 22, SCALE_BITS = 16 };

/* exp(-scale * d) for each d, in units of 2^-bits. */
static ul_value_id add_exponentials(struct ul_integers *integers, double scale, int bits)
{
    struct ul_graph *graph = integers->graph;
    double numbers[TABLE_SIZE];
    UL_ASSERT(bits > 0 && bits <= MAX_BITS);
    for (uint32_t d = 0; d < TABLE_SIZE; d++)
        numbers[d] = nearbyint(ldexp(exp(-scale * d), bits));
    return ul_edit_add_numbers(graph, ul_arena_printf(graph->arena, "%s.exp", integers->build.name),
                               UL_I32, numbers, TABLE_SIZE, 1);
}

static ul_value_id add_number(struct ul_integers *integers, enum ul_dtype dtype, double number)
{
    return ul_edit_add_numbers(integers->graph, integers->build.name, dtype, &number, 1, 0);
}

static ul_value_id add_reduced(struct ul_integers *integers, enum ul_op op, ul_value_id value,
                               int64_t axis)
{
    const ul_value_id inputs[2] = {value, ul_build_ints(integers->graph, "axes", 1, &axis)};
    return ul_integers_add(integers, op, inputs, 2, NULL);
}

static ul_value_id add_two(struct ul_integers *integers, enum ul_op op, ul_value_id a,
                           ul_value_id b)
{
    const ul_value_id inputs[2] = {a, b};
    return ul_integers_add(integers, op, inputs, 2, NULL);
}

bool ul_no_float_softmax(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node quantize = graph->nodes[id];
    const struct ul_node *node = ul_integers_maker(integers, quantize.inputs[0]);
    struct ul_scaled x, y;
    if (node == NULL || node->op != UL_OP_Softmax ||
        !ul_no_float_find(integers, node->inputs[0], &x) ||
        !ul_integers_result(integers, &quantize, &y))
        return false;
    const struct ul_type type = graph->values[x.x].type;
    int64_t axis = ul_node_get_int(node, "axis", -1);
    axis += axis < 0 ? (int64_t)type.rank : 0;
    int bits = SUM_BITS;
    for (int64_t n = type.dims[axis]; n > 1; n = (n + 1) / 2)
        bits--;
    bits = bits > MAX_BITS ? MAX_BITS : bits;
    if (!ul_integers_is_8bit(integers, x.x) || bits < SCALE_BITS)
        return false;
    ul_value_id top = add_reduced(integers, UL_OP_ReduceMax, x.x, axis);
    ul_value_id d = add_two(integers, UL_OP_Sub, ul_integers_cast(integers, top, UL_I32),
                            ul_integers_cast(integers, x.x, UL_I32));
    ul_value_id e = add_two(integers, UL_OP_Lookup, ul_integers_cast(integers, d, UL_U8),
                            add_exponentials(integers, ul_scaled_scale(&x, 0), bits));
    ul_value_id sum = add_reduced(integers, UL_OP_ReduceSum, e, axis);
    sum = ul_integers_cast(integers, sum, UL_I64);
    /* (e * m + sum / 2 * unit) / (sum * unit), m = unit / sy */
    double unit = 1 << SCALE_BITS;
    double m = nearbyint(unit / ul_scaled_scale(&y, 0));
    ul_value_id top_part = add_two(integers, UL_OP_Mul, ul_integers_cast(integers, e, UL_I64),
                                   add_number(integers, UL_I64, m));
    ul_value_id half = add_two(integers, UL_OP_Mul, sum, add_number(integers, UL_I64, unit / 2));
    ul_value_id whole = add_two(integers, UL_OP_Mul, sum, add_number(integers, UL_I64, unit));
    ul_value_id quotient =
        add_two(integers, UL_OP_Div, add_two(integers, UL_OP_Add, top_part, half), whole);
    const struct ul_type one = {.dtype = UL_F32};
    const double same = 1;
    ul_no_float_become_rescale(integers, id, quotient, &y, &one, &same);
    return true;
}
