/* SPDX-License-Identifier: Apache-2.0 */
/* Inserts QuantizeLinear and DequantizeLinear where ul_quantize_choose has chosen. */
#include "compile/quantize/quantize_graph.h"
#include "ir/op_names.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { WEIGHT_STEPS = 127 };              /* on either side of 0 */
static const double BIAS_STEPS = 1 << 30; /* so that sums still have room */

struct inserter {
    struct ul_arena *arena; /* of the graph */
    struct ul_graph *graph;
    const struct ul_quantize_choice *choice;
    const struct ul_quantize_step *steps;
};

static ul_value_id add_weight(struct inserter *inserter, const char *name, const char *what,
                              enum ul_dtype dtype, uint32_t rank, const int64_t *dims,
                              const void *elements)
{
    struct ul_type type = ul_type_make(dtype, rank, dims);
    void *copy = ul_arena_copy(inserter->arena, elements, ul_type_bytes(&type));
    return ul_graph_add_weight(inserter->graph,
                               ul_arena_printf(inserter->arena, "%s_%s", name, what),
                               ul_tensor_new(inserter->arena, &type, copy));
}

/* Adds a node of three operands before position `at`, with an output of that type. */
static ul_node_id add_node(struct inserter *inserter, uint32_t at, ul_op_id op, const char *name,
                           const ul_value_id *operands, const struct ul_type *type)
{
    struct ul_graph *graph = inserter->graph;
    ul_node_id id = ul_graph_insert_node(
        graph, 0, at, op, ul_arena_printf(inserter->arena, "%s_%s", name, ul_op_get(op)->name), 3,
        1);
    memcpy(graph->nodes[id].inputs, operands, 3 * sizeof *operands);
    graph->values[graph->nodes[id].outputs[0]].type = *type;
    return id;
}

/* ---- activations ---- */

static uint32_t position_behind(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_block *root = ul_graph_only_root(graph);
    if (graph->values[value].kind != UL_VALUE_NODE)
        return 0;
    for (uint32_t i = 0; i < root->node_count; i++) {
        if (root->nodes[i] == graph->values[value].producer)
            return i + 1;
    }
    UL_ASSERT(false); /* a chosen value is made in the main block */
    return 0;
}

/* Readers in integers read the integers, and so do readers of results of such nodes: nothing keeps
 * the floats as well. Readers in floats of a result in floats stay as they are. */
static void redirect(struct inserter *inserter, ul_value_id value, ul_value_id with,
                     uint32_t known_count)
{
    struct ul_graph *graph = inserter->graph;
    struct ul_block *root = ul_graph_only_root(graph);
    const struct ul_value *source = &graph->values[value];
    bool all = source->kind == UL_VALUE_NODE && inserter->choice->nodes[source->producer];
    for (uint32_t n = 0; n < known_count; n++) {
        struct ul_node *node = &graph->nodes[n];
        for (uint32_t k = 0; node->op != UL_OP_NONE && k < node->input_count; k++) {
            if (node->inputs[k] == value && (all || inserter->choice->nodes[n]))
                node->inputs[k] = with;
        }
    }
    bool is_output = false;
    for (uint32_t i = 0; all && i < root->output_count; i++) {
        if (root->outputs[i] == value) {
            root->outputs[i] = with;
            is_output = true;
        }
    }
    if (is_output) {
        graph->values[with].name = source->name;
        graph->values[value].name = ul_arena_printf(inserter->arena, "%s_float", source->name);
    }
}

static void insert_activation(struct inserter *inserter, ul_value_id value, uint32_t known_count)
{
    struct ul_graph *graph = inserter->graph;
    struct ul_quantize_step steps = inserter->steps[inserter->choice->groups[value]];
    const char *name = graph->values[value].name;
    uint32_t at = position_behind(graph, value);
    struct ul_type type = graph->values[value].type, stored = type;
    ul_value_id scale = add_weight(inserter, name, "scale", UL_F32, 0, NULL, &steps.scale);
    ul_value_id zero = add_weight(inserter, name, "zero_point", UL_U8, 0, NULL, &steps.zero);
    stored.dtype = UL_U8;
    ul_node_id first = add_node(inserter, at, UL_OP_QuantizeLinear, name,
                                (ul_value_id[]){value, scale, zero}, &stored);
    ul_value_id integers = graph->nodes[first].outputs[0];
    ul_node_id second = add_node(inserter, at + 1, UL_OP_DequantizeLinear, name,
                                 (ul_value_id[]){integers, scale, zero}, &type);
    redirect(inserter, value, graph->nodes[second].outputs[0], known_count);
}

/* ---- weights ---- */

/* Elements of a channel come in `outer` runs of `inner` each. */
struct channels {
    uint64_t outer, count, inner;
};

static struct channels channels_of(const struct ul_type *type, int axis)
{
    struct channels channels = {1, 1, 1};
    for (uint32_t d = 0; d < type->rank; d++) {
        uint64_t size = (uint64_t)type->dims[d];
        if (axis >= 0 && d < (uint32_t)axis)
            channels.outer *= size;
        else if (axis >= 0 && d == (uint32_t)axis)
            channels.count = size;
        else
            channels.inner *= size;
    }
    return channels;
}

static double largest_of(const struct ul_tensor *weight, struct channels channels, uint64_t channel)
{
    double largest = 0;
    for (uint64_t o = 0; o < channels.outer; o++) {
        uint64_t begin = (o * channels.count + channel) * channels.inner;
        for (uint64_t i = begin; i < begin + channels.inner; i++)
            largest = fmax(largest, fabs(ul_tensor_get_float(weight, i)));
    }
    return largest;
}

/* The scale of the channel; it is widened for a bias that would leave int32 in units of the
 * sums. */
static float choose_scale(double largest, const struct ul_tensor *bias, uint64_t channel,
                          float input_scale)
{
    double scale = largest / WEIGHT_STEPS;
    if (bias != NULL)
        scale = fmax(scale,
                     fabs(ul_tensor_get_float(bias, channel)) / ((double)input_scale * BIAS_STEPS));
    return scale > FLT_MIN ? (float)scale : 1;
}

static void round_channel(const struct ul_tensor *weight, struct channels channels,
                          uint64_t channel, float scale, int8_t *integers)
{
    for (uint64_t o = 0; o < channels.outer; o++) {
        uint64_t begin = (o * channels.count + channel) * channels.inner;
        for (uint64_t i = begin; i < begin + channels.inner; i++) {
            double steps = rint(ul_tensor_get_float(weight, i) / (double)scale);
            integers[i] = (int8_t)fmin(fmax(steps, -WEIGHT_STEPS), WEIGHT_STEPS);
        }
    }
}

/* Replaces the operand by a DequantizeLinear of integers, which comes before all nodes. */
static void replace_operand(struct inserter *inserter, ul_node_id id, uint32_t operand,
                            enum ul_dtype dtype, const void *integers, const float *scales,
                            struct channels channels, int axis)
{
    struct ul_graph *graph = inserter->graph;
    const struct ul_value *value = &graph->values[graph->nodes[id].inputs[operand]];
    const char *name = value->name;
    struct ul_type type = value->type;
    int64_t count = (int64_t)channels.count;
    uint32_t rank = axis >= 0 ? 1 : 0;
    void *zeros = ul_arena_alloc(inserter->arena, channels.count * sizeof(int32_t));
    ul_value_id operands[3] = {
        add_weight(inserter, name, "quantized", dtype, type.rank, type.dims, integers),
        add_weight(inserter, name, "scale", UL_F32, rank, &count, scales),
        add_weight(inserter, name, "zero_point", dtype, rank, &count, zeros)};
    ul_node_id node = add_node(inserter, 0, UL_OP_DequantizeLinear, name, operands, &type);
    if (axis >= 0)
        ul_node_set_int(graph, node, "axis", axis);
    graph->nodes[id].inputs[operand] = graph->nodes[node].outputs[0];
}

/* The constant bias of an anchor, with a number for each channel, that can be added to its sums. */
static const struct ul_tensor *sum_bias(const struct ul_graph *graph, const struct ul_node *node,
                                        struct channels channels)
{
    if (node->input_count < 3 || node->inputs[2] == UL_NONE)
        return NULL;
    const struct ul_tensor *bias = ul_graph_get_constant(graph, node->inputs[2]);
    if (bias == NULL || bias->type.dtype != UL_F32 || bias->type.rank != 1 ||
        (uint64_t)bias->type.dims[0] != channels.count)
        return NULL;
    return bias;
}

static void insert_anchor(struct inserter *inserter, ul_node_id id, float input_scale)
{
    struct ul_graph *graph = inserter->graph;
    const struct ul_tensor *weight = ul_graph_get_constant(graph, graph->nodes[id].inputs[1]);
    int axis = ul_quantize_axis(&graph->nodes[id], &weight->type);
    struct channels channels = channels_of(&weight->type, axis);
    const struct ul_tensor *bias = sum_bias(graph, &graph->nodes[id], channels);
    struct ul_arena *arena = inserter->arena;
    float *scales = UL_NEW_ARRAY(arena, float, channels.count);
    float *bias_scales = UL_NEW_ARRAY(arena, float, channels.count);
    int8_t *integers = UL_NEW_ARRAY(arena, int8_t, ul_type_elements(&weight->type));
    int32_t *bias_integers = UL_NEW_ARRAY(arena, int32_t, channels.count);
    for (uint64_t c = 0; c < channels.count; c++) {
        scales[c] = choose_scale(largest_of(weight, channels, c), bias, c, input_scale);
        round_channel(weight, channels, c, scales[c], integers);
        bias_scales[c] = input_scale * scales[c];
        if (bias != NULL)
            bias_integers[c] = (int32_t)rint(ul_tensor_get_float(bias, c) / (double)bias_scales[c]);
    }
    replace_operand(inserter, id, 1, UL_I8, integers, scales, channels, axis);
    if (bias != NULL)
        replace_operand(inserter, id, 2, UL_I32, bias_integers, bias_scales, channels,
                        axis >= 0 ? 0 : -1);
}

void ul_quantize_insert(struct ul_arena *arena, struct ul_graph *graph,
                        const struct ul_quantize_choice *choice,
                        const struct ul_quantize_step *steps)
{
    struct inserter inserter = {.arena = arena, .graph = graph, .choice = choice, .steps = steps};
    uint32_t node_count = graph->node_count, value_count = graph->value_count;
    for (uint32_t n = 0; n < node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (choice->nodes[n] && ul_quantize_is_anchor(graph, node))
            insert_anchor(&inserter, n, steps[choice->groups[node->inputs[0]]].scale);
    }
    for (uint32_t v = 0; v < value_count; v++) {
        if (choice->values[v])
            insert_activation(&inserter, v, node_count);
    }
}
