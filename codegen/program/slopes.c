/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of GELU by tanh and of ReLU that the product before them may form too.
 *
 * Problem: the gradient of a layer after an activation is a product, and the activation's own
 * gradient multiplies it by its slopes: a pass over the product's result, and over the operand of
 * the GELU or the result of the ReLU. A library may do both in one call, but only the start of the
 * program shows whether it has an algorithm for that on the device.
 *
 *      dy = dz w^T              call: dy, or dx at once
 *      dx = dy * gelu'(x)       kernel: dx, where the call did not form it
 *
 * Method: both stay steps, with the kernel directly after the call, as in sums.c. dx has the place
 * of dy. To the planner the call writes it and reads x, and the kernel updates it. Nothing else
 * reads dy, so no plan grows: x and dy are both live at the kernel anyway. The graph alone decides
 * which call has which slopes, whatever the budget.
 *
 * A library reads slopes of a ReLU as bits, which the call writes into its scratch first. They take
 * at most half of it, or more scratch is added where no plan grows by it
 * (passes/training/library.c).
 *
 * Left undone: products with post-operations or added operands; batches of products. */
#include "codegen/program/library_internal.h"
#include "ir/op_names.h"

#include "ir/gradient.h"
#include "ir/op.h"
#include "ir/view.h"

#include <string.h>

struct finder {
    const struct ul_graph *graph;
    struct ul_calls *calls;
    uint32_t *reader_counts; /* by base: nodes that read it, and edges of blocks */
};

static void count_read(struct finder *finder, ul_value_id value)
{
    ul_value_id base = value == UL_NONE ? UL_NONE : finder->graph->values[value].view.base;
    if (base != UL_NONE)
        finder->reader_counts[base]++;
}

static void count_readers(struct ul_arena *arena, struct finder *finder)
{
    const struct ul_graph *graph = finder->graph;
    finder->reader_counts = UL_NEW_ARRAY(arena, uint32_t, graph->value_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        if (finder->calls->positions[n] == 0 || ul_node_is_view(graph, n))
            continue; /* it has no step, or does nothing */
        for (uint32_t i = 0; i < node->input_count; i++)
            count_read(finder, node->inputs[i]);
    }
    for (uint32_t b = 0; b < graph->block_count; b++)
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            count_read(finder, graph->blocks[b].outputs[i]);
}

/* The gradient of an activation: the activation, and the operand of its slopes. */
struct slopes {
    enum ul_call_slopes of;
    ul_value_id x;
};

static struct slopes read_slopes(const struct ul_node *node)
{
    enum { BY_TANH = 1, Y = 1, X = 2 };
    uint32_t form, count = node->input_count;
    const struct ul_op_info *row = node->op == UL_OP_Gradient ? ul_gradient_row(node, &form) : NULL;
    if (row == ul_op_get(UL_OP_Gelu) && form == BY_TANH && count == X + 1 &&
        node->inputs[Y] == UL_NONE && node->inputs[X] != UL_NONE)
        return (struct slopes){UL_SLOPES_OF_GELU, node->inputs[X]};
    if (row == ul_op_get(UL_OP_Relu) && count == Y + 1 && node->inputs[Y] != UL_NONE)
        return (struct slopes){UL_SLOPES_OF_RELU, node->inputs[Y]};
    return (struct slopes){UL_SLOPES_OF_NONE, UL_NONE};
}

/* Whether it is the only node of a step. */
static bool is_own_gradient(const struct finder *finder, ul_node_id id)
{
    const struct ul_node *node = &finder->graph->nodes[id];
    return read_slopes(node).of != UL_SLOPES_OF_NONE &&
           ul_graph_is_root(finder->graph, node->parent) && !ul_node_is_piece(finder->graph, id) &&
           finder->calls->by_node[id] == NULL && !finder->calls->is_behind[id];
}

/* Whether the value is dense in bytes that a node made, and no caller sees. */
static bool is_made(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_value *info = &graph->values[value];
    const struct ul_value *base = &graph->values[info->view.base];
    return base->kind == UL_VALUE_NODE && base->donor == UL_NONE &&
           !ul_graph_is_output(graph, info->view.base) &&
           ul_view_is_dense(&info->type, &info->view);
}

/* Whether it fills those bytes. */
static bool is_whole(const struct ul_graph *graph, ul_value_id value)
{
    const struct ul_view *view = &graph->values[value].view;
    return is_made(graph, value) && view->offset_bytes == 0 &&
           ul_value_bytes(graph, value) == ul_value_bytes(graph, view->base);
}

/* A library has slopes only after a plain product of matrices. It takes them, like its result, in
 * rows of multiples of 8 elements. */
static bool may_have_slopes(const struct ul_call *call)
{
    enum { STEP = 8, ALIGN_BYTES = 16 };
    return call->kind == UL_CALL_MATMUL && call->dst.rank == 2 && call->dst.type != UL_CALL_F32 &&
           call->dst.type == call->src.type && call->dst.type <= UL_CALL_BF16 &&
           call->dst.strides[1] == 1 && call->dst.strides[0] == call->dst.dims[1] &&
           call->dst.dims[1] % STEP == 0 && call->bias.rank == 0 && call->post_count == 0 &&
           call->align_bytes >= ALIGN_BYTES && !ul_call_may_do_more(call);
}

/* Whether all three have the same layout: the incoming gradient, the operand of the slopes, and the
 * result. */
static bool are_alike(const struct ul_graph *graph, ul_value_id dy, ul_value_id x, ul_value_id dx)
{
    return is_whole(graph, dy) && is_made(graph, x) && is_whole(graph, dx) &&
           graph->values[dx].view.base == dx &&
           ul_type_same_dims(&graph->values[dy].type, &graph->values[x].type) &&
           ul_type_same_dims(&graph->values[dy].type, &graph->values[dx].type) &&
           ul_value_storage(graph, dy) == ul_value_storage(graph, x) &&
           ul_value_storage(graph, dy) == ul_value_storage(graph, dx);
}

/* Makes the call read the operand of the slopes, where there is room for the bits of a ReLU's. */
static bool give(struct ul_group_call *group, const struct slopes *slopes, bool has_room)
{
    struct ul_call *call = &group->call;
    uint64_t bytes = slopes->of == UL_SLOPES_OF_RELU
                         ? ul_call_mask_bytes(call->dst.dims[0], call->dst.dims[1])
                         : 0;
    bool is_within = bytes <= call->scratch_bytes / 2;
    UL_ASSERT(group->args[UL_CALL_BIAS] == UL_NONE);
    if (bytes > 0 && (call->scratch_bytes < UL_CALL_WORKSPACE_LOSS || (!is_within && !has_room)))
        return false; /* without a workspace scratch may have any place */
    call->scratch_bytes += is_within ? 0 : bytes;
    UL_ASSERT(bytes == 0 || call->scratch_bytes >= UL_CALL_WORKSPACE_LOSS + bytes);
    call->slopes_of = slopes->of;
    call->bias = call->dst;
    group->args[UL_CALL_BIAS] = slopes->x;
    return true;
}

/* Makes the product before the gradient multiply by the slopes, where it is a call that can. */
static void find_product(struct finder *finder, ul_node_id id)
{
    const struct ul_graph *graph = finder->graph;
    struct ul_calls *calls = finder->calls;
    const struct ul_node *node = &graph->nodes[id];
    struct slopes slopes = read_slopes(node);
    ul_value_id x = slopes.x, base = graph->values[node->inputs[0]].view.base;
    if (!are_alike(graph, node->inputs[0], x, node->outputs[0]) || finder->reader_counts[base] != 1)
        return;
    ul_node_id product = graph->values[base].producer;
    ul_node_id source = graph->values[graph->values[x].view.base].producer;
    struct ul_group_call *group = calls->by_node[product];
    if (group == NULL || !group->library->has_slopes || group->residual != UL_NONE ||
        !may_have_slopes(&group->call) ||
        !ul_graph_is_root(finder->graph, graph->nodes[product].parent) ||
        ul_node_is_piece(graph, product) || calls->is_behind[product] ||
        calls->spares[product] != UL_NONE || calls->positions[source] > calls->positions[product] ||
        !is_whole(graph, base) || graph->values[group->args[UL_CALL_DST]].view.base != base ||
        graph->values[x].view.offset_bytes % group->call.align_bytes != 0 ||
        !give(group, &slopes, ul_node_get_int(node, "ul_has_room", 0) != 0))
        return;
    calls->spares[product] = id;
    calls->is_spared[id] = calls->is_behind[id] = true;
}

void ul_calls_find_slopes(struct ul_arena *arena, const struct ul_graph *graph,
                          struct ul_calls *calls)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    struct finder finder = {.graph = graph, .calls = calls};
    ul_node_id *nodes = UL_NEW_ARRAY(arena, ul_node_id, block->node_count);
    count_readers(arena, &finder);
    for (uint32_t at = 0; at < block->node_count;)
        if (ul_group_next(graph, block, &at, nodes) == 1 && is_own_gradient(&finder, nodes[0]))
            find_product(&finder, nodes[0]);
}
