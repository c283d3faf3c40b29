/* SPDX-License-Identifier: Apache-2.0 */
/* CausalConvWithState: a depthwise convolution that looks at what came before, in terms of Conv.
 *
 *     long = past, then x                  without a past, zeros: Conv's own padding
 *     y = activation(Conv(long))           one group a channel
 *     present = the last k - 1 of long
 */
#include "frontend/old_emit.h"
#include "ir/build.h"

#include <string.h>

enum { INPUT, WEIGHT, BIAS, PAST };

struct causal {
    int64_t batch, channels, length;
    int64_t kept; /* positions of a state: one less than the kernel has */
    bool has_past, is_silu;
};

static bool is_shape(const struct ul_type *type, int64_t a, int64_t b, int64_t c)
{
    return type->dims[0] == a && type->dims[1] == b && type->dims[2] == c;
}

static bool read_causal(struct ul_old_node *node, struct causal *causal)
{
    struct ul_type x, weight, past;
    const char *activation = ul_old_string(node, "activation", "none");
    if (!ul_old_has_input(node, INPUT) || !ul_old_has_input(node, WEIGHT)) {
        ul_old_invalid(node, "needs an input and a weight");
        return false;
    }
    if (!ul_old_shape(node, INPUT, 1u << 3, &x) || !ul_old_shape(node, WEIGHT, 1u << 3, &weight))
        return false;
    *causal = (struct causal){.batch = x.dims[0],
                              .channels = x.dims[1],
                              .length = x.dims[2],
                              .kept = weight.dims[2] - 1,
                              .has_past = ul_old_has_input(node, PAST),
                              .is_silu = strcmp(activation, "none") != 0};
    if (!is_shape(&weight, x.dims[1], 1, weight.dims[2]) || causal->kept < 0) {
        ul_old_invalid(node, "the weight's shape is not [channels, 1, k]");
        return false;
    }
    if (causal->is_silu && strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0) {
        ul_old_invalid(node, "activation is none of none, silu and swish");
        return false;
    }
    if (causal->has_past && !ul_old_shape(node, PAST, 1u << 3, &past))
        return false;
    if (causal->has_past && !is_shape(&past, x.dims[0], x.dims[1], causal->kept)) {
        ul_old_invalid(node, "past_state's shape is not [batch, channels, k - 1]");
        return false;
    }
    return true;
}

/* What a state is the end of: as long as the state at least. */
static ul_value_id with_zeros(struct ul_old_node *node, const struct causal *causal, ul_value_id x)
{
    const int64_t zeros[] = {causal->batch, causal->channels, causal->kept - causal->length};
    if (zeros[2] <= 0)
        return x;
    ul_value_id front = ul_old_const_zeros(node, ul_old_dtype(node, INPUT), 3, zeros);
    return ul_old_emit_concat(node, front, x, 2);
}

void ul_upgrade_causal_conv(struct ul_old_node *node)
{
    struct causal causal;
    if (!read_causal(node, &causal))
        return;
    struct ul_graph *graph = node->builder->graph;
    bool joins = causal.has_past && causal.kept > 0;
    ul_value_id x = node->inputs[INPUT];
    if (joins)
        x = ul_old_emit_concat(node, node->inputs[PAST], x, 2);
    ul_value_id inputs[] = {x, node->inputs[WEIGHT], ul_old_input(node, BIAS)};
    struct ul_int_attr group = {"group", causal.channels};
    ul_value_id y = ul_old_emit(node, "Conv", inputs[2] == UL_NONE ? 2 : 3, inputs, 1, &group);
    const int64_t pads[] = {joins ? 0 : causal.kept, 0};
    ul_node_set_ints(graph, graph->values[y].producer, "pads", pads, 2);
    ul_old_set_result(node, 0, causal.is_silu ? ul_old_emit_one(node, "Swish", y) : y);
    if (node->output_count > 1) {
        int64_t length = causal.length + (joins ? causal.kept : 0);
        length = length < causal.kept ? causal.kept : length;
        x = joins ? x : with_zeros(node, &causal, x);
        ul_old_set_result(node, 1, ul_old_emit_slice(node, x, 2, length - causal.kept, length));
    }
    node->finished = true;
}
