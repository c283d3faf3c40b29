/* SPDX-License-Identifier: Apache-2.0 */
/* Products of two 8-bit values, taken of their differences from their zero-points, and one
 * Rescale. */
#include "ir/op_names.h"
#include "passes/integers/no_float_internal.h"

/* x - zero as an i32. */
static ul_value_id add_difference(struct ul_integers *integers, const struct ul_scaled *x)
{
    struct ul_graph *graph = integers->graph;
    const double zero = (double)ul_scaled_zero(x, 0);
    ul_value_id wide = ul_integers_cast(integers, x->x, UL_I32);
    if (zero == 0)
        return wide;
    const char *name = ul_arena_printf(graph->arena, "%s.zero", integers->build.name);
    const ul_value_id terms[2] = {wide, ul_edit_add_numbers(graph, name, UL_I32, &zero, 1, 0)};
    return ul_integers_add(integers, UL_OP_Sub, terms, 2, NULL);
}

bool ul_no_float_product(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    const struct ul_node *product = ul_integers_maker(integers, node.inputs[0]);
    struct ul_scaled a, b, y;
    if (product == NULL || product->op != UL_OP_Mul ||
        !ul_no_float_find(integers, product->inputs[0], &a) ||
        !ul_no_float_find(integers, product->inputs[1], &b) ||
        !ul_integers_is_8bit(integers, a.x) || !ul_integers_is_8bit(integers, b.x) ||
        !ul_integers_result(integers, &node, &y))
        return false;
    const ul_value_id factors[2] = {add_difference(integers, &a), add_difference(integers, &b)};
    ul_value_id sum = ul_integers_add(integers, UL_OP_Mul, factors, 2, NULL);
    double factor = ul_scaled_scale(&a, 0) * ul_scaled_scale(&b, 0) / ul_scaled_scale(&y, 0);
    const struct ul_type one = {.dtype = UL_F32};
    ul_no_float_become_rescale(integers, id, sum, &y, &one, &factor);
    return true;
}
