/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a group of nodes as one call of a library: the anchor, then what follows it.
 *
 * Convolutions and pooling have the operators' own geometry (ir/geometry.h); weights are in the
 * library's order of axes, groups first:
 *
 *      Conv           [g * oc, ic, k ...]      [g, oc, ic, k ...]
 *      ConvTranspose  [g * ic, oc, k ...]      [g, oc, ic, k ...]
 *
 * Sums are f32, or i32 for 8-bit integers (library_integer.c). */
#include "codegen/program/library_internal.h"
#include "ir/op_names.h"

#include "ir/geometry.h"
#include "ir/view.h"

#include <string.h>

/* ---- convolution ---- */

/* The weights, or their gradient, by axes of the library; `w` is the stored tensor, whose axis
 * `grouped` counts all groups. */
static bool describe_weights(struct ul_describer *describer, const struct ul_conv *conv,
                             ul_value_id value, bool transposed, struct ul_call_tensor *weights)
{
    struct ul_call_tensor w;
    uint32_t at = 0;
    if (!ul_describe_numbers(describer->graph, value, &w) ||
        w.rank + (conv->groups > 1) > UL_CALL_RANK)
        return false;
    int64_t per_group = transposed ? conv->in_channels : conv->out_channels;
    if (conv->groups > 1) {
        weights->dims[at] = conv->groups;
        weights->strides[at++] = w.strides[0] * per_group;
    }
    uint32_t out = transposed ? 1 : 0;
    weights->dims[at] = conv->out_channels;
    weights->strides[at++] = w.strides[out];
    weights->dims[at] = conv->in_channels;
    weights->strides[at++] = w.strides[1 - out];
    for (uint32_t d = 2; d < w.rank; d++) {
        weights->dims[at] = w.dims[d];
        weights->strides[at++] = w.strides[d];
    }
    weights->rank = at;
    weights->type = w.type;
    return true;
}

static bool describe_conv_bias(struct ul_describer *describer, ul_value_id value)
{
    struct ul_group_call *out = describer->out;
    if (value == UL_NONE)
        return true;
    if (!ul_describe_tensor(describer->graph, value, &out->call.bias) || out->call.bias.rank != 1 ||
        (out->call.bias.dims[0] > 1 && out->call.bias.strides[0] != 1))
        return false;
    out->call.bias.strides[0] = 1;
    out->args[UL_CALL_BIAS] = value;
    return true;
}

/* Groups, steps, dilations, pads and products. */
static void describe_geometry(struct ul_group_call *out, const struct ul_conv *conv,
                              bool transposed)
{
    const int64_t channels[] = {conv->batch, conv->in_channels, conv->out_channels, conv->groups};
    out->call.group_count = (uint32_t)conv->groups;
    out->product_count = ul_describe_products(1, 4, channels);
    for (uint32_t d = 0; d < conv->spatial; d++) {
        int64_t reach = (conv->kernel[d] - 1) * conv->dilation[d] + 1;
        out->call.steps[d] = conv->stride[d];
        out->call.dilations[d] = conv->dilation[d];
        out->call.pads[d] = conv->pad_begin[d];
        out->call.pads[conv->spatial + d] =
            transposed
                ? (conv->in[d] - 1) * conv->stride[d] + reach - conv->pad_begin[d] - conv->out[d]
                : conv->pad_end[d];
        const int64_t window[] = {conv->kernel[d], transposed ? conv->in[d] : conv->out[d]};
        out->product_count = ul_describe_products(out->product_count, 2, window);
    }
}

/* Whether a transposed convolution maps one place to one: it is a convolution with exchanged
 * channels. */
static bool is_pointwise(const struct ul_conv *conv)
{
    bool one = true;
    for (uint32_t d = 0; d < conv->spatial; d++)
        one = one && conv->kernel[d] == 1 && conv->stride[d] == 1 && conv->pad_begin[d] == 0 &&
              conv->in[d] == conv->out[d];
    return one;
}

/* Kind, geometry and operands that convolutions of floats and of integers share. */
static bool describe_convolution(struct ul_describer *describer, const struct ul_node *node,
                                 bool transposed)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_group_call *out = describer->out;
    const struct ul_type *x = &graph->values[node->inputs[0]].type;
    const struct ul_type *w = &graph->values[node->inputs[1]].type;
    struct ul_conv conv;
    if ((transposed ? ul_conv_transpose_read(&conv, node, x, w)
                    : ul_conv_read(&conv, node, x, w)) != NULL)
        return false;
    out->call.kind =
        transposed && !is_pointwise(&conv) ? UL_CALL_DECONVOLUTION : UL_CALL_CONVOLUTION;
    describe_geometry(out, &conv, transposed);
    out->args[UL_CALL_SRC] = node->inputs[0];
    out->args[UL_CALL_WEIGHTS] = node->inputs[1];
    return describe_weights(describer, &conv, node->inputs[1], transposed, &out->call.weights);
}

static bool describe_conv(struct ul_describer *describer, const struct ul_node *node)
{
    const struct ul_graph *graph = describer->graph;
    return graph->values[node->inputs[0]].type.dtype == UL_F32 &&
           describe_convolution(describer, node, node->op == UL_OP_ConvTranspose) &&
           ul_describe_tensor(graph, node->inputs[0], &describer->out->call.src) &&
           describe_conv_bias(describer, node->input_count > 2 ? node->inputs[2] : UL_NONE);
}

/* In a transposed one, results have different numbers of sources: no zero point can be subtracted
 * for all. */
static bool describe_conv_integer(struct ul_describer *describer, const struct ul_node *node)
{
    struct ul_call *call = &describer->out->call;
    return describe_convolution(describer, node, node->op == UL_OP_ConvTransposeInteger) &&
           ul_describe_numbers(describer->graph, node->inputs[0], &call->src) &&
           ul_call_is_integer(call) && ul_describe_zeros(describer, node) &&
           (call->kind == UL_CALL_CONVOLUTION || call->src_zero_kind == UL_ZERO_IS_0);
}

/* Nothing may follow it in the same call. */
static bool describe_weight_gradient(struct ul_describer *describer, const struct ul_node *node)
{
    const struct ul_graph *graph = describer->graph;
    struct ul_group_call *out = describer->out;
    const struct ul_type *x = &graph->values[node->inputs[0]].type;
    struct ul_conv conv;
    if (describer->node_count > 1 || x->dtype != UL_F32 ||
        ul_conv_read(&conv, node, x, &graph->values[node->outputs[0]].type) != NULL)
        return false;
    out->call.kind = UL_CALL_WEIGHT_GRADIENT;
    describe_geometry(out, &conv, false);
    out->args[UL_CALL_SRC] = node->inputs[0];
    out->args[UL_CALL_WEIGHTS] = node->inputs[1];
    if (!ul_describe_tensor(graph, node->inputs[0], &out->call.src) ||
        !ul_describe_tensor(graph, node->inputs[1], &out->call.weights))
        return false;
    ul_describe_finalize(&out->call.weights, out->call.kind);
    return describe_weights(describer, &conv, node->outputs[0], false, &out->call.dst);
}

/* ---- pooling ---- */

/* Only means: the maximum of a window is a kernel of ours. oneDNN's begins with the lowest finite
 * number and ignores NaN, so that windows of -infinity and NaN give other results. */

/* A window may extend past the padding (ceil_mode): the library gets more padding, which may not
 * count in a mean. */
static bool describe_window(struct ul_call *call, const struct ul_pool *pool)
{
    for (uint32_t d = 0; d < pool->count; d++) {
        int64_t reach = (pool->kernel[d] - 1) * pool->dilation[d] + 1;
        int64_t end =
            (pool->out[d] - 1) * pool->stride[d] + reach - pool->in[d] - pool->pad_begin[d];
        if (end > pool->pad_end[d] && call->kind == UL_CALL_PADDED_MEAN_POOL)
            return false;
        call->window[d] = pool->kernel[d];
        call->steps[d] = pool->stride[d];
        call->dilations[d] = pool->dilation[d];
        call->pads[d] = pool->pad_begin[d];
        call->pads[pool->count + d] = end > pool->pad_end[d] ? end : pool->pad_end[d];
    }
    return true;
}

static bool describe_pool(struct ul_describer *describer, const struct ul_node *node)
{
    const struct ul_type *x = &describer->graph->values[node->inputs[0]].type;
    struct ul_group_call *out = describer->out;
    struct ul_pool pool;
    bool counts_padding = ul_node_get_int(node, "count_include_pad", 0) != 0;
    if (x->dtype != UL_F32 || x->rank < 3 || x->rank > 5)
        return false;
    out->call.kind = node->op == UL_OP_AveragePool && counts_padding ? UL_CALL_PADDED_MEAN_POOL
                                                                     : UL_CALL_MEAN_POOL;
    if (node->op == UL_OP_GlobalAveragePool) {
        pool = (struct ul_pool){.count = x->rank - 2};
        for (uint32_t d = 0; d < pool.count; d++) {
            pool.in[d] = pool.kernel[d] = x->dims[2 + d];
            pool.out[d] = pool.stride[d] = pool.dilation[d] = 1;
        }
    } else if (ul_pool_read(node, x, &pool) != NULL) {
        return false;
    }
    out->args[UL_CALL_SRC] = node->inputs[0];
    out->product_count = ul_describe_products(1, 2, x->dims);
    out->product_count = ul_describe_products(out->product_count, pool.count, pool.kernel);
    out->product_count = ul_describe_products(out->product_count, pool.count, pool.out);
    return describe_window(&out->call, &pool) &&
           ul_describe_tensor(describer->graph, node->inputs[0], &out->call.src);
}

/* ---- weights ---- */

/* Sorts the axes of a dense tensor, the outermost first; false where it is not dense. */
static bool sort_axes(const struct ul_call_tensor *tensor, uint32_t *order)
{
    int64_t count = 1;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        uint32_t at = d;
        for (; at > 0 && (tensor->strides[order[at - 1]] < tensor->strides[d] ||
                          (tensor->strides[order[at - 1]] == tensor->strides[d] &&
                           tensor->dims[order[at - 1]] < tensor->dims[d]));
             at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (uint32_t i = tensor->rank; i-- > 0;) {
        uint32_t d = order[i];
        if (tensor->dims[d] > 1 && tensor->strides[d] != count)
            return false;
        count *= tensor->dims[d];
    }
    return true;
}

static bool may_pack(const struct ul_graph *graph, ul_value_id value,
                     const struct ul_call_tensor *weights)
{
    uint32_t order[UL_CALL_RANK];
    const struct ul_value *info = &graph->values[value];
    const struct ul_value *base = &graph->values[info->view.base];
    return base->kind == UL_VALUE_WEIGHT && (base->flags & UL_VALUE_PERSISTENT) == 0 &&
           (base->type.dtype == UL_F32 || base->type.dtype == UL_I8) &&
           info->view.offset_bytes == 0 &&
           ul_type_elements(&base->type) == ul_type_elements(&info->type) &&
           sort_axes(weights, order);
}

bool ul_group_call_is_exact(const struct ul_group_call *group)
{
    const struct ul_call *call = &group->call;
    uint64_t results = 1;
    for (uint32_t d = 0; d < call->dst.rank; d++)
        results *= (uint64_t)call->dst.dims[d];
    uint64_t max_sum = ul_size_mul_saturating(group->product_count / results, 255 * 128);
    return call->dst.type != UL_CALL_I32 ||
           (call->kind != UL_CALL_DECONVOLUTION && call->bias.rank == 0 && call->post_count == 0 &&
            !ul_call_is_scaled(call) &&
            (max_sum <= (uint64_t)1 << 24 || group->library->is_exact == NULL ||
             group->library->is_exact(call)));
}

void ul_group_call_pack(const struct ul_group_call *call, struct ul_pack *pack)
{
    const struct ul_pack *layout = &call->call.layout;
    uint32_t order[UL_CALL_RANK];
    uint32_t place[UL_CALL_RANK];
    bool dense = sort_axes(&call->call.weights, order);
    UL_ASSERT(dense && call->may_pack);
    memset(pack, 0, sizeof *pack);
    pack->rank = layout->rank;
    pack->size_bytes = layout->size_bytes;
    pack->element_bytes = layout->element_bytes;
    pack->block_count = layout->block_count;
    pack->sum_count = layout->sum_count;
    pack->sum_flags = layout->sum_flags;
    pack->sums_offset_bytes = layout->sums_offset_bytes;
    memcpy(pack->sum_factors, layout->sum_factors, sizeof pack->sum_factors);
    for (uint32_t i = 0; i < layout->rank; i++) {
        pack->dims[i] = layout->dims[order[i]];
        pack->strides[i] = layout->strides[order[i]];
        pack->sum_strides[i] = layout->sum_strides[order[i]];
        place[order[i]] = i;
    }
    for (uint32_t b = 0; b < layout->block_count; b++) {
        pack->blocks[b] = layout->blocks[b];
        pack->block_dims[b] = place[layout->block_dims[b]];
    }
}

/* ---- addresses ---- */

/* The alignment that views give to addresses, with bases aligned as in the planner's default. */
static void find_alignment(const struct ul_graph *graph, struct ul_group_call *out)
{
    out->align_bytes = UL_PLAN_ALIGN_BYTES;
    for (uint32_t i = 0; i <= out->arg_count; i++) {
        ul_value_id id = i < out->arg_count ? out->args[i] : out->residual;
        if (id == UL_NONE)
            continue;
        const struct ul_view *view = &graph->values[id].view;
        while (view->offset_bytes % out->align_bytes != 0)
            out->align_bytes /= 2;
        out->at_edge = out->at_edge || graph->values[view->base].kind == UL_VALUE_INPUT ||
                       ul_graph_is_output(graph, view->base);
    }
}

/* ---- entry ---- */

static bool describe_anchor(struct ul_describer *describer, const struct ul_node *node)
{
    switch ((int)node->op) {
    case UL_OP_Conv:
    case UL_OP_ConvTranspose:
        return describe_conv(describer, node);
    case UL_OP_ConvInteger:
    case UL_OP_ConvTransposeInteger:
        return describe_conv_integer(describer, node);
    case UL_OP_ConvWeightGradient:
        return describe_weight_gradient(describer, node);
    case UL_OP_AveragePool:
    case UL_OP_GlobalAveragePool:
        return describe_pool(describer, node);
    case UL_OP_MatMul:
    case UL_OP_MatMulInteger:
        return ul_describe_matmul(describer, node);
    case UL_OP_Gemm:
        return ul_describe_gemm(describer, node);
    case UL_OP_Attention:
    case UL_OP_FusedAttention:
        return ul_describe_attention(describer, node);
    case UL_OP_AttentionGradient:
        return ul_describe_attention_gradient(describer, node);
    case UL_OP_MatMulNBits:
    case UL_OP_MatMulNBitsGradient:
        return ul_describe_nbits(describer, node);
    default:
        return false;
    }
}

/* Factors must have one type, and results that type or f32; integers times i8 may have any result
 * but 16 bits. */
static bool has_types(const struct ul_call *call)
{
    if (ul_call_is_integer(call))
        return call->weights.type == UL_CALL_I8 &&
               (call->dst.type == UL_CALL_F32 || call->dst.type >= UL_CALL_U8);
    bool alike = call->weights.rank == 0 || call->src.type == call->weights.type;
    return alike && call->src.type <= UL_CALL_BF16 &&
           (call->dst.type == call->src.type ||
            (call->dst.type == UL_CALL_F32 && call->weights.rank > 0));
}

static void finalize(struct ul_group_call *out)
{
    struct ul_call *call = &out->call;
    ul_describe_finalize(&call->src, call->kind);
    if (call->kind != UL_CALL_WEIGHT_GRADIENT) /* axes of weights have an order of their own */
        ul_describe_finalize(&call->dst, call->kind);
    for (uint32_t i = 0; i < call->post_count; i++) {
        if (call->posts[i].tensor.rank > 0)
            ul_describe_finalize(&call->posts[i].tensor, call->kind);
    }
}

bool ul_group_call_make(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t count,
                        const bool *escapes, bool sums, struct ul_group_call *call)
{
    uint32_t front = ul_describe_front(graph, nodes, count);
    const struct ul_node *anchor = &graph->nodes[nodes[front]];
    struct ul_describer describer = {.graph = graph,
                                     .nodes = nodes + front,
                                     .node_count = count - front,
                                     .escapes = escapes,
                                     .sums = sums,
                                     .out = call,
                                     .result = anchor->outputs[0],
                                     .zero = UL_NONE,
                                     .scales = UL_NONE};
    memset(call, 0, sizeof *call);
    for (uint32_t i = 0; i < UL_CALL_ARGS; i++)
        call->args[i] = UL_NONE;
    call->residual = UL_NONE;
    call->arg_count = UL_CALL_FIRST_POST;
    call->call.dilations[0] = call->call.dilations[1] = call->call.dilations[2] = 1;
    ul_value_id last = graph->nodes[nodes[count - 1]].outputs[0];
    call->args[UL_CALL_DST] = last;
    if (anchor->outputs[0] == UL_NONE || last == UL_NONE ||
        ul_node_get_int(anchor, UL_NBITS_LOADS, 0) != 0 || !describe_anchor(&describer, anchor) ||
        (front > 0 && !ul_describe_stored(&describer, nodes, front, anchor)))
        return false;
    bool is_product = call->call.kind == UL_CALL_MATMUL || call->call.kind == UL_CALL_NBITS;
    if (call->call.dst.rank == 0 && !ul_describe_numbers(graph, last, &call->call.dst))
        return false;
    if (!has_types(&call->call) || !ul_describe_posts(&describer) || describer.result != last)
        return false;
    ul_describe_last_args(&describer);
    if (front > 0)
        ul_describe_stored_end(&call->call);
    call->stays_wide = call->call.dst.type == UL_CALL_I32 && ul_describe_stays_wide(graph, last);
    call->may_pack =
        call->args[UL_CALL_WEIGHTS] != UL_NONE && call->call.kind != UL_CALL_WEIGHT_GRADIENT &&
        call->call.kind != UL_CALL_ATTENTION && call->call.kind != UL_CALL_ATTENTION_GRADIENT &&
        (call->call.kind == UL_CALL_NBITS ||
         may_pack(graph, call->args[UL_CALL_WEIGHTS], &call->call.weights));
    if (is_product)
        ul_describe_join_batch(&call->call);
    else
        finalize(call);
    uint32_t order[UL_CALL_RANK];
    if (sort_axes(&call->call.dst, order))
        ul_describe_tail(&call->call);
    find_alignment(graph, call);
    return true;
}
