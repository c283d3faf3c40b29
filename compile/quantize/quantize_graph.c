/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the activations of a float32 network that become integers, for QuantizeLinear and
 * DequantizeLinear.
 *
 * Problem: integers pay off in sums of products, and between them; each conversion between integers
 * and floats costs time and accuracy. Method: products with constant weights (anchors) compute in
 * integers. Maps, pools and movements do so where their operands come from such nodes, and their
 * results go to such nodes or are results of the model: nodes between LayerNorm and Softmax stay in
 * floats. Nothing is rounded between a sum and the nodes that finish it: a bias, then Relu or Clip.
 * Operand and result of a movement, and all operands of a Concat, share one range, so that it runs
 * on the integers themselves. Weights are int8, symmetric, a scale for each output channel; a bias
 * is int32 in the steps of the sums; activations are uint8 with the integer of 0 where calibration
 * has it. Left undone: products of two activations (attention) and recurrent cells stay in
 * floats. */
#include "compile/quantize/quantize_graph.h"
#include "ir/op_names.h"

#include <math.h>
#include <string.h>

enum kind {
    STAYS,  /* in floats */
    ANCHOR, /* sums of products with a constant weight */
    MAP,    /* computes each element from integers, into a range of its own */
    MOVES,  /* passes integers on */
    ENDS    /* like a map, where it makes a result of the model */
};

static const struct {
    ul_op_id op;
    enum kind kind;
} kinds[] = {{UL_OP_Conv, ANCHOR},
             {UL_OP_ConvTranspose, ANCHOR},
             {UL_OP_Gemm, ANCHOR},
             {UL_OP_MatMul, ANCHOR},
             {UL_OP_Add, MAP},
             {UL_OP_Mul, MAP},
             {UL_OP_Relu, MAP},
             {UL_OP_Clip, MAP},
             {UL_OP_LeakyRelu, MAP},
             {UL_OP_Elu, MAP},
             {UL_OP_Sigmoid, MAP},
             {UL_OP_HardSigmoid, MAP},
             {UL_OP_HardSwish, MAP},
             {UL_OP_Tanh, MAP},
             {UL_OP_Gelu, MAP},
             {UL_OP_AveragePool, MAP},
             {UL_OP_GlobalAveragePool, MAP},
             {UL_OP_ReduceMean, MAP},
             {UL_OP_Resize, MOVES},
             {UL_OP_MaxPool, MOVES},
             {UL_OP_GlobalMaxPool, MOVES},
             {UL_OP_Concat, MOVES},
             {UL_OP_Pad, MOVES},
             {UL_OP_Reshape, MOVES},
             {UL_OP_Flatten, MOVES},
             {UL_OP_Squeeze, MOVES},
             {UL_OP_Unsqueeze, MOVES},
             {UL_OP_Transpose, MOVES},
             {UL_OP_Slice, MOVES},
             {UL_OP_Split, MOVES},
             {UL_OP_DepthToSpace, MOVES},
             {UL_OP_SpaceToDepth, MOVES},
             {UL_OP_Softmax, ENDS}};

struct chooser {
    struct ul_arena *arena;
    const struct ul_graph *graph;
    struct ul_quantize_choice *choice;
    enum kind *kinds; /* by node */
    uint32_t *uses;   /* by value */
};

static bool is_activation(const struct ul_graph *graph, ul_value_id value)
{
    if (value == UL_NONE)
        return false;
    const struct ul_value *v = &graph->values[value];
    return v->type.dtype == UL_F32 && (v->kind == UL_VALUE_NODE || v->kind == UL_VALUE_INPUT);
}

static const struct ul_tensor *float_weight(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_tensor *tensor = value == UL_NONE ? NULL : ul_graph_get_constant(graph, value);
    return tensor != NULL && tensor->type.dtype == UL_F32 ? tensor : NULL;
}

int ul_quantize_axis(const struct ul_node *node, const struct ul_type *weight)
{
    if (node->op == UL_OP_Conv)
        return 0;
    if (node->op == UL_OP_ConvTranspose)
        return ul_node_get_int(node, "group", 1) == 1 ? 1 : -1;
    if (node->op == UL_OP_Gemm)
        return ul_node_get_int(node, "transB", 0) != 0 ? 0 : 1;
    return weight->rank >= 2 ? (int)weight->rank - 1 : -1;
}

bool ul_quantize_is_anchor(const struct ul_graph *graph, const struct ul_node *node)
{
    if (node->op != UL_OP_Conv && node->op != UL_OP_ConvTranspose && node->op != UL_OP_Gemm &&
        node->op != UL_OP_MatMul)
        return false;
    const struct ul_tensor *weight = float_weight(graph, node->inputs[1]);
    if (weight == NULL || !is_activation(graph, node->inputs[0]) ||
        ul_type_elements(&weight->type) == 0)
        return false;
    return node->op != UL_OP_Gemm ||
           (ul_node_get_int(node, "transA", 0) == 0 && ul_node_get_float(node, "alpha", 1) == 1 &&
            ul_node_get_float(node, "beta", 1) == 1);
}

/* Whether padding is possible in integers: copies, or zeros. */
static bool pads_with_zeros(const struct ul_graph *graph, const struct ul_node *node)
{
    double number = 0;
    if (strcmp(ul_node_get_string(node, "mode", "constant"), "constant") != 0)
        return true;
    if (node->input_count < 3 || node->inputs[2] == UL_NONE)
        return true;
    return ul_graph_get_number(graph, node->inputs[2], &number) && number == 0;
}

static enum kind kind_of(const struct ul_graph *graph, const struct ul_node *node)
{
    enum kind kind = STAYS;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        kind = kinds[i].op == node->op ? kinds[i].kind : kind;
    if (kind == ANCHOR)
        return ul_quantize_is_anchor(graph, node) ? ANCHOR : STAYS;
    if (kind == STAYS || !is_activation(graph, node->outputs[0]))
        return STAYS;
    if (node->op == UL_OP_Resize)
        return strcmp(ul_node_get_string(node, "mode", "nearest"), "nearest") == 0 ? MOVES : MAP;
    if (node->op == UL_OP_Pad && !pads_with_zeros(graph, node))
        return STAYS;
    return kind;
}

/* ---- nodes ---- */

/* Whether all operands of the node come from integers; inputs of the model can become integers. */
static bool reads_integers(const struct chooser *chooser, const struct ul_node *node)
{
    const struct ul_graph *graph = chooser->graph;
    bool any = false;
    for (uint32_t k = 0; k < node->input_count; k++) {
        if (!is_activation(graph, node->inputs[k]))
            continue;
        const struct ul_value *value = &graph->values[node->inputs[k]];
        if (value->kind == UL_VALUE_NODE && !chooser->choice->nodes[value->producer])
            return false;
        any = true;
    }
    return any;
}

static bool feeds_integers(const struct chooser *chooser, ul_node_id id)
{
    const struct ul_graph *graph = chooser->graph;
    const struct ul_block *root = ul_graph_only_root(graph);
    for (uint32_t k = 0; k < graph->nodes[id].output_count; k++) {
        ul_value_id value = graph->nodes[id].outputs[k];
        if (value != UL_NONE && ul_graph_is_output(graph, value))
            return true;
    }
    for (uint32_t i = 0; i < root->node_count && chooser->kinds[id] != ENDS; i++) {
        const struct ul_node *reader = &graph->nodes[root->nodes[i]];
        for (uint32_t k = 0; chooser->choice->nodes[root->nodes[i]] && k < reader->input_count;
             k++) {
            if (reader->inputs[k] != UL_NONE &&
                graph->values[reader->inputs[k]].kind == UL_VALUE_NODE &&
                graph->values[reader->inputs[k]].producer == id)
                return true;
        }
    }
    return false;
}

static void choose_nodes(struct chooser *chooser)
{
    const struct ul_graph *graph = chooser->graph;
    const struct ul_block *root = ul_graph_only_root(graph);
    for (uint32_t i = 0; i < root->node_count; i++) {
        ul_node_id id = root->nodes[i];
        chooser->kinds[id] = kind_of(graph, &graph->nodes[id]);
        chooser->choice->nodes[id] = chooser->kinds[id] != STAYS;
        chooser->choice->anchor_count += chooser->kinds[id] == ANCHOR;
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < root->node_count; i++) {
            ul_node_id id = root->nodes[i];
            if (!chooser->choice->nodes[id] || chooser->kinds[id] == ANCHOR ||
                (reads_integers(chooser, &graph->nodes[id]) && feeds_integers(chooser, id)))
                continue;
            chooser->choice->nodes[id] = false;
            changed = true;
        }
    }
}

/* ---- values ---- */

/* Whether the node finishes the sums of the one before, so that nothing is rounded between them. */
static bool finishes(const struct ul_graph *graph, const struct ul_node *node, enum kind before)
{
    if (node->op == UL_OP_Relu || node->op == UL_OP_Clip)
        return before == ANCHOR || before == MAP;
    if (node->op != UL_OP_Add || before != ANCHOR)
        return false;
    return float_weight(graph, node->inputs[0]) != NULL ||
           float_weight(graph, node->inputs[1]) != NULL;
}

static void choose_values(struct chooser *chooser)
{
    const struct ul_graph *graph = chooser->graph;
    const struct ul_block *root = ul_graph_only_root(graph);
    bool *values = chooser->choice->values;
    for (uint32_t i = 0; i < root->node_count; i++) {
        ul_node_id id = root->nodes[i];
        const struct ul_node *node = &graph->nodes[id];
        for (uint32_t k = 0; chooser->choice->nodes[id] && k < node->input_count; k++) {
            ul_value_id value = node->inputs[k];
            if (!is_activation(graph, value))
                continue;
            ul_node_id before = graph->values[value].kind == UL_VALUE_NODE
                                    ? graph->values[value].producer
                                    : UL_NONE;
            bool finished = before != UL_NONE && chooser->choice->nodes[before] &&
                            chooser->uses[value] == 1 &&
                            finishes(graph, node, chooser->kinds[before]);
            values[value] = values[value] || !finished;
        }
    }
    for (uint32_t i = 0; i < root->output_count; i++) {
        const struct ul_value *value = &graph->values[root->outputs[i]];
        if (is_activation(graph, root->outputs[i]) && value->kind == UL_VALUE_NODE &&
            chooser->choice->nodes[value->producer])
            values[root->outputs[i]] = true;
    }
}

/* ---- shared ranges ---- */

static ul_value_id group_of(const ul_value_id *groups, ul_value_id value)
{
    while (groups[value] != value)
        value = groups[value];
    return value;
}

static void join(ul_value_id *groups, ul_value_id a, ul_value_id b)
{
    ul_value_id first = group_of(groups, a), second = group_of(groups, b);
    groups[first > second ? first : second] = first < second ? first : second;
}

static void choose_groups(struct chooser *chooser)
{
    const struct ul_graph *graph = chooser->graph;
    const struct ul_block *root = ul_graph_only_root(graph);
    ul_value_id *groups = chooser->choice->groups;
    for (uint32_t v = 0; v < graph->value_count; v++)
        groups[v] = v;
    for (uint32_t i = 0; i < root->node_count; i++) {
        ul_node_id id = root->nodes[i];
        const struct ul_node *node = &graph->nodes[id];
        if (!chooser->choice->nodes[id] || chooser->kinds[id] != MOVES)
            continue;
        for (uint32_t k = 0; k < node->input_count; k++) {
            if (is_activation(graph, node->inputs[k]))
                join(groups, node->inputs[k], node->outputs[0]);
        }
        for (uint32_t k = 1; k < node->output_count; k++) {
            if (is_activation(graph, node->outputs[k]))
                join(groups, node->outputs[0], node->outputs[k]);
        }
    }
    for (uint32_t v = 0; v < graph->value_count; v++)
        groups[v] = group_of(groups, v);
}

void ul_quantize_choose(struct ul_arena *arena, const struct ul_graph *graph,
                        struct ul_quantize_choice *choice)
{
    *choice = (struct ul_quantize_choice){.anchor_count = 0};
    choice->nodes = UL_NEW_ARRAY(arena, bool, graph->node_count);
    choice->values = UL_NEW_ARRAY(arena, bool, graph->value_count);
    choice->groups = UL_NEW_ARRAY(arena, ul_value_id, graph->value_count);
    struct chooser chooser = {.arena = arena, .graph = graph, .choice = choice};
    chooser.kinds = UL_NEW_ARRAY(arena, enum kind, graph->node_count);
    chooser.uses = ul_graph_count_uses(graph, arena);
    choose_nodes(&chooser);
    choose_values(&chooser);
    choose_groups(&chooser);
}
