/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and LayerNormalization of integers: a division of integers for each element.
 *
 * Softmax: with d = max - x, 0 to 255, e = exp(-sx d) is a table in fixed point, and
 *
 *      y = round(e / (sum of e) / sy) + zy
 *
 * LayerNormalization does not change where x is moved or scaled, but for its epsilon. In a row of
 * n, with the sums S of x and Q of its squares, n^2 times the variance is A = n Q - S^2, exactly,
 * and
 *
 *      y = round((n x - S) / sqrt(A + n^2 epsilon / sx^2) * scale / sy + bias / sy) + zy
 */
#include "ir/op_names.h"
#include "passes/integers/no_float_internal.h"

#include <math.h>
#include <string.h>

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

static ul_value_id add_reduced(struct ul_integers *integers, ul_op_id op, ul_value_id value,
                               int64_t axis)
{
    const ul_value_id inputs[2] = {value, ul_build_ints(integers->graph, "axes", 1, &axis)};
    return ul_integers_add(integers, op, inputs, 2, NULL);
}

static ul_value_id add_two(struct ul_integers *integers, ul_op_id op, ul_value_id a, ul_value_id b)
{
    const ul_value_id inputs[2] = {a, b};
    return ul_integers_add(integers, op, inputs, 2, NULL);
}

/* Finds a node between Dequantize and the Quantize that --no-float can compute. */
static const struct ul_node *find_rows(const struct ul_integers *integers,
                                       const struct ul_node *quantize, ul_op_id op,
                                       struct ul_scaled *x, struct ul_scaled *y)
{
    const struct ul_node *node = ul_integers_maker(integers, quantize->inputs[0]);
    bool is_found = node != NULL && node->op == op && node->outputs[0] == quantize->inputs[0] &&
                    ul_no_float_find(integers, node->inputs[0], x) &&
                    ul_integers_result(integers, quantize, y) &&
                    ul_integers_is_8bit(integers, x->x);
    return is_found ? node : NULL;
}

bool ul_no_float_softmax(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node quantize = graph->nodes[id];
    struct ul_scaled x, y;
    const struct ul_node *node = find_rows(integers, &quantize, UL_OP_Softmax, &x, &y);
    if (node == NULL)
        return false;
    const struct ul_type type = graph->values[x.x].type;
    int64_t axis = ul_node_get_int(node, "axis", -1);
    axis += axis < 0 ? (int64_t)type.rank : 0;
    int bits = SUM_BITS;
    for (int64_t n = type.dims[axis]; n > 1; n = (n + 1) / 2)
        bits--;
    bits = bits > MAX_BITS ? MAX_BITS : bits;
    if (bits < SCALE_BITS)
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

/* ---- LayerNormalization ---- */

enum {
    MAX_ROW = 1 << 14, /* elements: sums of squares stay in 32 bits */
    ROOT_BITS = 12,    /* of a root after the point, at most; */
    MIN_ROOT_BITS = 4, /* at least */
    NORMAL_BITS = 16,  /* of a normalised element */
    BIAS_BITS = 12
};

/* Reads a constant that has the shape of a row, or its absence. */
static bool read_row(const struct ul_integers *integers, const struct ul_node *node, uint32_t input,
                     const struct ul_type *shape, const struct ul_tensor **row)
{
    *row = NULL;
    if (input >= node->input_count || node->inputs[input] == UL_NONE)
        return true;
    *row = ul_graph_get_constant(integers->graph, node->inputs[input]);
    if (*row == NULL || (*row)->type.dtype != UL_F32 ||
        ul_type_elements(&(*row)->type) != ul_type_elements(shape))
        return false;
    const struct ul_type *type = &(*row)->type;
    bool fits = true; /* else it is broadcast, or lies along other dimensions */
    for (uint32_t i = 1; i <= type->rank && i <= shape->rank; i++)
        fits = fits && type->dims[type->rank - i] == shape->dims[shape->rank - i];
    return fits;
}

struct rows {
    struct ul_scaled x, y;
    int64_t axis, count; /* of elements in a row */
    int bits;            /* of roots */
    double epsilon;      /* in units of n^2 */
};

/* Takes as many bits of the root as its square has room for. */
static bool set_bits(struct rows *rows)
{
    const double most = 0x1p61, n = (double)rows->count;
    double square = n * n * (0x1p14 + rows->epsilon);
    rows->bits = ROOT_BITS;
    while (rows->bits >= MIN_ROOT_BITS && ldexp(square, 2 * rows->bits) > most)
        rows->bits--;
    return rows->bits >= MIN_ROOT_BITS;
}

/* (n x - S) / sqrt(A + epsilon) in units of 2^-NORMAL_BITS, as an i32. */
static ul_value_id add_normalised(struct ul_integers *integers, const struct rows *rows)
{
    struct ul_graph *graph = integers->graph;
    const double n = (double)rows->count;
    int64_t axes[UL_LIMIT_RANK];
    uint32_t rank = graph->values[rows->x.x].type.rank, axis_count = rank - (uint32_t)rows->axis;
    for (uint32_t d = 0; d < axis_count; d++)
        axes[d] = rows->axis + d;
    ul_value_id over = ul_build_ints(graph, "axes", axis_count, axes);
    ul_value_id x = ul_integers_cast(integers, rows->x.x, UL_I32);
    ul_value_id sum = add_two(integers, UL_OP_ReduceSum, x, over);
    ul_value_id squares = add_two(integers, UL_OP_Mul, x, x);
    squares = add_two(integers, UL_OP_ReduceSum, squares, over);
    ul_value_id wide = ul_integers_cast(integers, sum, UL_I64);
    squares = ul_integers_cast(integers, squares, UL_I64);
    squares = add_two(integers, UL_OP_Mul, squares, add_number(integers, UL_I64, n));
    ul_value_id a = add_two(integers, UL_OP_Sub, squares, add_two(integers, UL_OP_Mul, wide, wide));
    a = add_two(integers, UL_OP_Mul, a, add_number(integers, UL_I64, ldexp(1, 2 * rows->bits)));
    double epsilon = nearbyint(ldexp(n * n * rows->epsilon, 2 * rows->bits));
    a = add_two(integers, UL_OP_Add, a, add_number(integers, UL_I64, epsilon < 1 ? 1 : epsilon));
    ul_value_id root = ul_integers_add(integers, UL_OP_IntegerSqrt, &a, 1, NULL);
    ul_value_id d = add_two(integers, UL_OP_Mul, x, add_number(integers, UL_I32, n));
    d = ul_integers_cast(integers, add_two(integers, UL_OP_Sub, d, sum), UL_I64);
    double unit = ldexp(1, NORMAL_BITS + rows->bits);
    d = add_two(integers, UL_OP_Mul, d, add_number(integers, UL_I64, unit));
    return ul_integers_cast(integers, add_two(integers, UL_OP_Div, d, root), UL_I32);
}

/* The bias in units of 2^-BIAS_BITS of a step of y; UL_NONE: it leaves 32 bits. */
static ul_value_id add_bias(struct ul_integers *integers, const struct rows *rows,
                            const struct ul_tensor *bias, const struct ul_type *type)
{
    struct ul_graph *graph = integers->graph;
    struct ul_type whole = *type;
    whole.dtype = UL_I32;
    unsigned char *data = ul_arena_alloc(graph->arena, ul_type_bytes(&whole));
    for (int64_t i = 0; i < rows->count; i++) {
        double step = ul_tensor_get_float(bias, (uint64_t)i) / ul_scaled_scale(&rows->y, 0);
        double number = nearbyint(ldexp(step, BIAS_BITS));
        if (!(fabs(number) < 0x1p30))
            return UL_NONE;
        ul_element_put_int(data + (size_t)i * sizeof(int32_t), UL_I32, (int64_t)number);
    }
    return ul_graph_add_weight(graph,
                               ul_arena_printf(graph->arena, "%s.bias", integers->build.name),
                               ul_edit_tensor(graph, &whole, data));
}

/* The Rescale's second term. */
static void add_term(struct ul_integers *integers, ul_node_id id, ul_value_id bias)
{
    struct ul_graph *graph = integers->graph;
    const double unit = ldexp(1, -BIAS_BITS);
    ul_value_id inputs[6];
    memcpy(inputs, graph->nodes[id].inputs, 3 * sizeof *inputs);
    inputs[3] = UL_NONE;
    inputs[4] = bias;
    inputs[5] = add_number(integers, UL_F32, unit);
    ul_integers_become(integers, id, UL_OP_Rescale, inputs, 6, NULL);
}

bool ul_no_float_layer_norm(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node quantize = graph->nodes[id];
    struct rows rows = {.count = 1};
    const struct ul_tensor *scale, *bias;
    const struct ul_node *node =
        find_rows(integers, &quantize, UL_OP_LayerNormalization, &rows.x, &rows.y);
    if (node == NULL)
        return false;
    const struct ul_type type = graph->values[rows.x.x].type;
    struct ul_type row = {.dtype = UL_F32};
    rows.axis = ul_node_get_int(node, "axis", -1);
    rows.axis += rows.axis < 0 ? (int64_t)type.rank : 0;
    for (uint32_t d = (uint32_t)rows.axis; d < type.rank; d++) {
        row.dims[row.rank++] = type.dims[d];
        rows.count *= type.dims[d] <= MAX_ROW ? type.dims[d] : 0;
        rows.count = rows.count <= MAX_ROW ? rows.count : 0;
    }
    double sx = ul_scaled_scale(&rows.x, 0);
    rows.epsilon = ul_node_get_float(node, "epsilon", 1e-5F) / sx / sx;
    if (rows.count == 0 || !read_row(integers, node, 1, &row, &scale) || scale == NULL ||
        !read_row(integers, node, 2, &row, &bias) || !set_bits(&rows))
        return false;
    ul_value_id term = bias == NULL ? UL_NONE : add_bias(integers, &rows, bias, &row);
    if (bias != NULL && term == UL_NONE)
        return false;
    double *factors = UL_NEW_ARRAY(integers->pass->scratch, double, (uint64_t)rows.count);
    for (int64_t i = 0; i < rows.count; i++)
        factors[i] = ldexp(ul_tensor_get_float(scale, (uint64_t)i) / ul_scaled_scale(&rows.y, 0),
                           -NORMAL_BITS);
    ul_integers_become_rescale(integers, id, add_normalised(integers, &rows), &rows.y, &row,
                               factors);
    if (term != UL_NONE)
        add_term(integers, id, term);
    return ul_no_float_fix(integers, id);
}
