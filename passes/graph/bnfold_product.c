/* SPDX-License-Identifier: Apache-2.0 */
/* Factors per channel after a product, through its bias and Transposes (layer-scale):
 *
 *      Transpose(x W + b) * s  =  Transpose(x (W * s) + b * s)
 *
 * The weights take the place of the old ones, if nothing else reads them; a bias that something
 * else reads stays beside the new one, which is a vector. In f16 small numbers lose digits: factors
 * are folded where the largest weight of each column keeps all of its digits, or where the result
 * is added to something as large, which stays exact beside it. */
#include "ir/op_names.h"
#include "passes/graph/bnfold_internal.h"

#include <math.h>
#include <string.h>

/* The constant, if it is one number for each index of an axis of a tensor of that type. */
static const struct ul_tensor *find_factors(const struct ul_graph *graph, ul_value_id value,
                                            const struct ul_type *type, uint32_t *axis)
{
    const struct ul_tensor *tensor = ul_graph_get_constant(graph, value);
    uint32_t found = 0;
    if (tensor == NULL || tensor->type.rank > type->rank || tensor->type.dtype != type->dtype)
        return NULL;
    for (uint32_t d = 0; d < tensor->type.rank; d++) {
        uint32_t at = type->rank - tensor->type.rank + d;
        if (tensor->type.dims[d] == 1)
            continue;
        if (tensor->type.dims[d] != type->dims[at])
            return NULL;
        *axis = at;
        found++;
    }
    return found == 1 ? tensor : NULL;
}

static bool is_single(const struct ul_scaled_product *found, ul_value_id value)
{
    return value < found->known_count && found->uses[value] == 1;
}

/* An Add of a constant along the axis; says which of its inputs that is. */
static bool adds_bias(const struct ul_graph *graph, const struct ul_node *node, uint32_t axis,
                      uint32_t *constant)
{
    for (uint32_t i = 0; i < 2 && node->op == UL_OP_Add; i++) {
        uint32_t along = 0;
        const struct ul_type *type = &graph->values[node->outputs[0]].type;
        if (!ul_type_equal(&graph->values[node->inputs[1 - i]].type, type) ||
            find_factors(graph, node->inputs[i], type, &along) == NULL || along != axis)
            continue;
        *constant = i;
        return true;
    }
    return false;
}

/* Goes from the value that is multiplied back to the product. */
static bool find_product(const struct ul_graph *graph, ul_value_id value, uint32_t axis,
                         struct ul_scaled_product *found)
{
    const struct ul_node *node = ul_graph_maker(graph, value);
    uint32_t count, constant;
    if (node == NULL || !is_single(found, value))
        return false;
    const int64_t *perm = ul_node_get_ints(node, "perm", &count);
    if (node->op == UL_OP_Transpose && perm != NULL)
        return find_product(graph, node->inputs[0], (uint32_t)perm[axis], found);
    if (found->bias == UL_NONE && adds_bias(graph, node, axis, &constant)) {
        found->bias = graph->values[value].producer;
        found->bias_input = constant;
        return find_product(graph, node->inputs[1 - constant], axis, found);
    }
    found->product = graph->values[value].producer;
    if (node->op != UL_OP_MatMul || axis + 1 != graph->values[value].type.rank)
        return false;
    /* one number for all of them takes no bytes, and would not stay one */
    const struct ul_tensor *weight = ul_graph_get_constant(graph, node->inputs[1]);
    return weight != NULL && weight->data != NULL && weight->type.rank == 2 &&
           is_single(found, node->inputs[1]);
}

/* The largest of a column, times its factor. */
static double largest_of(const struct ul_tensor *weight, const struct ul_tensor *factors,
                         uint64_t column)
{
    uint64_t columns = (uint64_t)weight->type.dims[1], count = ul_type_elements(&weight->type);
    double largest = 0;
    for (uint64_t i = column; i < count; i += columns)
        largest = fmax(largest, fabs(ul_tensor_get_float(weight, i)));
    return largest * fabs(ul_tensor_get_float(factors, column));
}

/* Whether the largest number of each column keeps all digits in f16. */
static bool keeps_digits(const struct ul_tensor *weight, const struct ul_tensor *factors)
{
    for (uint64_t n = 0; n < (uint64_t)weight->type.dims[1]; n++) {
        double largest = largest_of(weight, factors, n);
        if (largest > 0 && largest < UL_BNFOLD_LEAST_F16)
            return false;
    }
    return true;
}

/* Whether no number becomes infinite in f16. */
static bool stays_finite(const struct ul_tensor *weight, const struct ul_tensor *factors)
{
    for (uint64_t n = 0; n < (uint64_t)weight->type.dims[1]; n++)
        if (!(largest_of(weight, factors, n) <= UL_BNFOLD_MOST_F16))
            return false;
    return true;
}

static bool is_moderate(const struct ul_tensor *factors)
{
    for (uint64_t c = 0; c < ul_type_elements(&factors->type); c++)
        if (!(fabs(ul_tensor_get_float(factors, c)) <= 0x1p64))
            return false;
    return true;
}

/* Whether all that reads the value adds it to something of its shape that is no constant. */
static bool is_added(const struct ul_graph *graph, ul_value_id value)
{
    bool any = false;
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; node->op != UL_OP_NONE && i < node->input_count; i++) {
            if (node->inputs[i] != value)
                continue;
            ul_value_id other = node->op == UL_OP_Add ? node->inputs[1 - i] : UL_NONE;
            if (other == UL_NONE || ul_graph_get_constant(graph, other) != NULL ||
                !ul_type_equal(&graph->values[other].type, &graph->values[value].type))
                return false;
            any = true;
        }
    }
    return any;
}

bool ul_bnfold_find_product(const struct ul_pass *pass, ul_node_id id,
                            struct ul_scaled_product *found)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_node *node = &graph->nodes[id];
    uint32_t axis = 0;
    found->factors = NULL;
    found->bias = UL_NONE;
    if (node->op != UL_OP_Mul)
        return false;
    const struct ul_type *type = &graph->values[node->outputs[0]].type;
    for (uint32_t i = 0; i < 2 && found->factors == NULL; i++) {
        found->x = node->inputs[1 - i];
        if (ul_type_equal(&graph->values[found->x].type, type))
            found->factors = find_factors(graph, node->inputs[i], type, &axis);
    }
    if (found->factors == NULL || (type->dtype != UL_F32 && type->dtype != UL_F64) ||
        !is_moderate(found->factors) || !find_product(graph, found->x, axis, found))
        return false;
    const struct ul_tensor *weight =
        ul_graph_get_constant(graph, graph->nodes[found->product].inputs[1]);
    ul_value_id stored = graph->nodes[found->product].inputs[1];
    if (pass->options->precision != UL_F16 && graph->values[stored].declared != UL_F16)
        return true;
    return stays_finite(weight, found->factors) &&
           (keeps_digits(weight, found->factors) || is_added(graph, node->outputs[0]));
}

/* The elements of the last axis times its factors; the graph owns the numbers. */
static const struct ul_tensor *scaled(struct ul_graph *graph, const struct ul_tensor *old,
                                      const struct ul_tensor *factors)
{
    uint64_t count = ul_type_elements(&old->type), columns = ul_type_elements(&factors->type);
    size_t size_bytes = ul_dtype_get(old->type.dtype)->size_bytes;
    unsigned char *data = ul_arena_alloc(graph->arena, ul_type_bytes(&old->type));
    UL_ASSERT(columns > 0 && count % columns == 0);
    for (uint64_t i = 0; i < count; i++)
        ul_element_put_float(data + i * size_bytes, old->type.dtype,
                             ul_tensor_get_float(old, i) *
                                 ul_tensor_get_float(factors, i % columns));
    return ul_edit_tensor(graph, &old->type, data);
}

void ul_bnfold_scale_product(struct ul_graph *graph, const struct ul_scaled_product *found)
{
    ul_value_id weight = graph->nodes[found->product].inputs[1];
    graph->values[weight].tensor = scaled(graph, graph->values[weight].tensor, found->factors);
    if (found->bias == UL_NONE)
        return;
    struct ul_node *add = &graph->nodes[found->bias];
    ul_value_id bias = add->inputs[found->bias_input];
    const struct ul_tensor *tensor = scaled(graph, graph->values[bias].tensor, found->factors);
    if (is_single(found, bias)) {
        graph->values[bias].tensor = tensor;
        return;
    }
    const char *name = ul_arena_printf(graph->arena, "%s.bias", add->name);
    add->inputs[found->bias_input] = ul_graph_add_weight(graph, name, tensor);
}
