/* SPDX-License-Identifier: Apache-2.0 */
/* What patterns ask of the graph while they look back from a node, and how they rewrite what they
 * have found. */
#include "ir/op_names.h"
#include "passes/patterns/pattern_internal.h"

#include <math.h>
#include <string.h>

void ul_pattern_begin(struct ul_pattern *pattern, ul_node_id root)
{
    UL_ASSERT(pattern->graph->nodes[root].op != UL_OP_NONE);
    pattern->root = root;
    pattern->member_count = 0;
    pattern->is_full = false;
}

const struct ul_type *ul_pattern_type(const struct ul_pattern *pattern, ul_value_id value)
{
    return &pattern->graph->values[value].type;
}

struct ul_node *ul_pattern_maker(const struct ul_pattern *pattern, ul_value_id value, ul_op_id op)
{
    const struct ul_graph *graph = pattern->graph;
    if (value == UL_NONE || graph->values[value].kind != UL_VALUE_NODE)
        return NULL;
    struct ul_node *node = &graph->nodes[graph->values[value].producer];
    bool fits = node->op == op && node->output_count == 1 &&
                node->parent == graph->nodes[pattern->root].parent;
    return fits ? node : NULL;
}

static void add_member(struct ul_pattern *pattern, ul_node_id id)
{
    for (uint32_t i = 0; i < pattern->member_count; i++)
        if (pattern->members[i] == id)
            return;
    if (id == pattern->root)
        return;
    pattern->is_full = pattern->is_full || pattern->member_count == UL_PATTERN_MEMBERS;
    if (!pattern->is_full)
        pattern->members[pattern->member_count++] = id;
}

struct ul_node *ul_pattern_match(struct ul_pattern *pattern, ul_value_id value, ul_op_id op)
{
    struct ul_node *node = ul_pattern_maker(pattern, value, op);
    if (node != NULL)
        add_member(pattern, pattern->graph->values[value].producer);
    return node;
}

uint32_t ul_pattern_uses(const struct ul_pattern *pattern, ul_value_id value)
{
    return value < pattern->use_count ? pattern->uses[value] : 0;
}

void ul_pattern_use(struct ul_pattern *pattern, ul_value_id value)
{
    if (value == UL_NONE)
        return;
    while (pattern->use_count <= value) {
        UL_GROW(pattern->pass->scratch, pattern->uses, pattern->use_count, pattern->use_capacity);
        pattern->uses[pattern->use_count++] = 0;
    }
    pattern->uses[value]++;
}

static uint32_t reads_of(const struct ul_node *node, ul_value_id value)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        count += node->inputs[i] == value;
    return count;
}

bool ul_pattern_is_closed(const struct ul_pattern *pattern, const ul_value_id *operands,
                          uint32_t operand_count)
{
    const struct ul_graph *graph = pattern->graph;
    if (pattern->is_full)
        return false;
    for (uint32_t m = 0; m < pattern->member_count; m++) {
        ul_value_id value = graph->nodes[pattern->members[m]].outputs[0];
        uint32_t reads = reads_of(&graph->nodes[pattern->root], value);
        for (uint32_t i = 0; i < pattern->member_count; i++)
            reads += reads_of(&graph->nodes[pattern->members[i]], value);
        if (reads != ul_pattern_uses(pattern, value))
            return false;
        for (uint32_t i = 0; i < operand_count; i++)
            if (operands[i] == value)
                return false;
    }
    return true;
}

static void forget_reads(struct ul_pattern *pattern, const struct ul_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] < pattern->use_count)
            pattern->uses[node->inputs[i]]--;
}

void ul_pattern_replace(struct ul_pattern *pattern, ul_op_id op, const ul_value_id *inputs,
                        uint32_t input_count)
{
    struct ul_graph *graph = pattern->graph;
    UL_ASSERT(!pattern->is_full && graph->nodes[pattern->root].output_count == 1);
    forget_reads(pattern, &graph->nodes[pattern->root]);
    for (uint32_t m = 0; m < pattern->member_count; m++) {
        forget_reads(pattern, &graph->nodes[pattern->members[m]]);
        ul_graph_remove_node(graph, pattern->members[m]);
    }
    pattern->member_count = 0;
    ul_node_become(graph, pattern->root, op, inputs, input_count);
    for (uint32_t i = 0; i < input_count; i++)
        ul_pattern_use(pattern, inputs[i]);
}

/* Whether it is a float of more than 16 bits, in the model as well. */
static bool is_precise(const struct ul_pattern *pattern, ul_value_id value)
{
    const struct ul_value *info = &pattern->graph->values[value];
    enum ul_dtype dtype = info->declared != UL_DTYPE_NONE ? info->declared : info->type.dtype;
    return !ul_dtype_is_half(dtype);
}

bool ul_pattern_near(const struct ul_pattern *pattern, double a, double b)
{
    const struct ul_node *root = &pattern->graph->nodes[pattern->root];
    bool is_half = !is_precise(pattern, root->outputs[0]);
    for (uint32_t i = 0; i < root->input_count; i++)
        is_half = is_half || (root->inputs[i] != UL_NONE && !is_precise(pattern, root->inputs[i]));
    double share = is_half ? 4e-3 : 1e-5;
    return fabs(a - b) <= share * fabs(b);
}

/* Operand `at` of a node with two is a number, and the other has the type of the result. */
static bool is_by(const struct ul_pattern *pattern, const struct ul_node *node, uint32_t at,
                  double *number)
{
    return node != NULL && ul_graph_get_number(pattern->graph, node->inputs[at], number) &&
           ul_type_equal(ul_pattern_type(pattern, node->inputs[1 - at]),
                         ul_pattern_type(pattern, node->outputs[0]));
}

bool ul_pattern_unscale(struct ul_pattern *pattern, ul_value_id *value, double *scale)
{
    const struct ul_node *node = ul_pattern_maker(pattern, *value, UL_OP_Mul);
    double number;
    for (uint32_t i = 0; i < 2; i++) {
        if (!is_by(pattern, node, i, &number))
            continue;
        ul_pattern_match(pattern, *value, UL_OP_Mul);
        *value = node->inputs[1 - i];
        *scale *= number;
        return true;
    }
    node = ul_pattern_maker(pattern, *value, UL_OP_Div);
    if (!is_by(pattern, node, 1, &number) || number == 0)
        return false;
    ul_pattern_match(pattern, *value, UL_OP_Div);
    *value = node->inputs[0];
    *scale /= number;
    return true;
}

static bool add_factor(const struct ul_pattern *pattern, struct ul_pattern_product *product,
                       const struct ul_type *type, ul_value_id value)
{
    if (product->count == UL_PATTERN_FACTORS ||
        !ul_type_equal(ul_pattern_type(pattern, value), type))
        return false;
    product->values[product->count++] = value;
    return true;
}

static bool factor(struct ul_pattern *pattern, ul_value_id value, const struct ul_type *type,
                   struct ul_pattern_product *product, uint32_t depth)
{
    double number;
    bool is_root = value == pattern->graph->nodes[pattern->root].outputs[0];
    if (depth == 0 || (!is_root && ul_pattern_uses(pattern, value) != 1))
        return add_factor(pattern, product, type, value);
    if (ul_pattern_unscale(pattern, &value, &product->number))
        return factor(pattern, value, type, product, depth - 1);
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Mul);
    if (node != NULL)
        return factor(pattern, node->inputs[0], type, product, depth - 1) &&
               factor(pattern, node->inputs[1], type, product, depth - 1);
    node = ul_pattern_match(pattern, value, UL_OP_Neg);
    if (node != NULL) {
        product->number = -product->number;
        return factor(pattern, node->inputs[0], type, product, depth - 1);
    }
    node = ul_pattern_maker(pattern, value, UL_OP_Pow);
    if (!is_by(pattern, node, 1, &number) || (number != 2 && number != 3))
        return add_factor(pattern, product, type, value);
    ul_pattern_match(pattern, value, UL_OP_Pow);
    for (double i = 0; i < number; i++)
        if (!add_factor(pattern, product, type, node->inputs[0]))
            return false;
    return true;
}

bool ul_pattern_factors(struct ul_pattern *pattern, ul_value_id value,
                        struct ul_pattern_product *product)
{
    *product = (struct ul_pattern_product){.number = 1};
    return factor(pattern, value, ul_pattern_type(pattern, value), product, UL_PATTERN_FACTORS);
}
