/* SPDX-License-Identifier: Apache-2.0 */
/* Scales in fixed point: y = (sum of (x - zero) * m + half) >> shift, in 64 bits.
 *
 * All terms and channels of a node have one shift, chosen by the largest factor, whose m has 30
 * bits: rounding a smaller m costs the result no more than rounding the largest one does. */
#include "ir/op_names.h"
#include "passes/integers/no_float_internal.h"

#include <math.h>

enum {
    FACTOR_BITS = 30,      /* of m: sums of 32 bits and two terms stay in 63 */
    WIDE_FACTOR_BITS = 22, /* where sums have 64: those of 16-bit values stay below 2^40 */
    MAX_SHIFT = 62
};

bool ul_no_float_find(const struct ul_integers *integers, ul_value_id value, struct ul_scaled *x)
{
    return ul_integers_find(integers, value, x) && x->count == 1;
}

/* The largest factor of a Rescale; 0 where one is not constant. */
static double largest_factor(const struct ul_graph *graph, const struct ul_node *node)
{
    double largest = 0;
    for (uint32_t i = 2; i < node->input_count; i += 3) {
        const struct ul_tensor *factor = ul_graph_get_constant(graph, node->inputs[i]);
        if (factor == NULL || factor->type.dtype != UL_F32)
            return 0;
        uint64_t count = ul_type_elements(&factor->type);
        for (uint64_t k = 0; k < count; k++) {
            double size = fabs(ul_tensor_get_float(factor, k));
            largest = size > largest ? size : largest;
        }
    }
    return largest;
}

static ul_value_id fixed_factor(struct ul_integers *integers, ul_value_id value, int shift)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_tensor *factor = ul_graph_get_constant(graph, value);
    struct ul_type type = factor->type;
    uint64_t count = ul_type_elements(&type);
    type.dtype = UL_I32;
    unsigned char *data = ul_arena_alloc(graph->arena, ul_type_bytes(&type));
    for (uint64_t k = 0; k < count; k++) {
        double fixed = nearbyint(ldexp(ul_tensor_get_float(factor, k), shift));
        UL_ASSERT(fabs(fixed) <= 0x1p30);
        ul_element_put_int(data + k * sizeof(int32_t), UL_I32, (int64_t)fixed);
    }
    return ul_graph_add_weight(graph, graph->values[value].name,
                               ul_edit_tensor(graph, &type, data));
}

bool ul_no_float_fix(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    struct ul_node *node = &graph->nodes[id];
    double largest = largest_factor(graph, node);
    int exponent = 0, bits = FACTOR_BITS;
    UL_ASSERT(node->op == UL_OP_Rescale && ul_node_find_attr(node, "shift") == NULL);
    for (uint32_t i = 1; i < node->input_count; i += 3)
        if (graph->values[node->inputs[i]].type.dtype == UL_I64)
            bits = WIDE_FACTOR_BITS;
    (void)frexp(largest, &exponent);
    int shift = bits - exponent;
    shift = shift > MAX_SHIFT ? MAX_SHIFT : shift;
    if (!(largest > 0) || shift < 1)
        return false;
    for (uint32_t i = 2; i < node->input_count; i += 3) {
        ul_value_id factor = fixed_factor(integers, node->inputs[i], shift);
        node = &graph->nodes[id];
        node->inputs[i] = factor;
    }
    ul_node_set_int(graph, id, "shift", shift);
    return true;
}

void ul_no_float_become_rescale(struct ul_integers *integers, ul_node_id id, ul_value_id sum,
                                const struct ul_scaled *y, const struct ul_type *type,
                                const double *factors)
{
    ul_integers_become_rescale(integers, id, sum, y, type, factors);
    (void)ul_no_float_fix(integers, id);
}
