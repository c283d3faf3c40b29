/* SPDX-License-Identifier: 0BSD */
/*
 * A call in oneDNN's words: the compiler asks the library about the same descriptor that the
 * runtime makes a primitive from. For ul_dnnl.c and the compiler alone; needs oneDNN 2.x.
 *
 * Ownership: the caller destroys desc->attr, also when describing fails. Failures: false, where the
 * library takes no such descriptor.
 */
#ifndef UL_DNNL_DESC_H
#define UL_DNNL_DESC_H

#include "ul_call.h"

#include <dnnl.h>
#include <stdbool.h>

/* The call in the library's words. */
struct ul_dnnl_desc {
    dnnl_memory_desc_t src, weights, bias, dst;
    dnnl_memory_desc_t posts[UL_CALL_POSTS]; /* those that are read, by number of the
                                                post-operation */
    dnnl_primitive_attr_t attr;
    union {
        dnnl_convolution_desc_t convolution;
        dnnl_deconvolution_desc_t deconvolution;
        dnnl_matmul_desc_t matmul;
        dnnl_pooling_desc_t pooling;
        dnnl_pooling_v2_desc_t dilated_pooling;
    } op;
};

/* ---- layouts ---- */

/* The library's arrays of dims are longer than those of a call. */
static inline void ul_dnnl_copy_dims(dnnl_dims_t target, const int64_t *source, uint32_t count)
{
    memset(target, 0, sizeof(dnnl_dims_t));
    memcpy(target, source, count * sizeof *source);
}

static inline dnnl_data_type_t ul_dnnl_type(enum ul_call_type type)
{
    switch (type) {
    case UL_CALL_F32:
    case UL_CALL_F8E4M3FN: /* no element of a tensor */
    case UL_CALL_F8E5M2:
    case UL_CALL_F4E2M1:
        break;
    case UL_CALL_F16:
        return dnnl_f16;
    case UL_CALL_BF16:
        return dnnl_bf16;
    case UL_CALL_U8:
        return dnnl_u8;
    case UL_CALL_I8:
        return dnnl_s8;
    case UL_CALL_I32:
        return dnnl_s32;
    }
    return dnnl_f32;
}

static inline bool ul_dnnl_plain(dnnl_memory_desc_t *desc, const struct ul_call_tensor *tensor)
{
    dnnl_dims_t dims, strides;
    memset(desc, 0, sizeof *desc);
    ul_dnnl_copy_dims(dims, tensor->dims, tensor->rank);
    ul_dnnl_copy_dims(strides, tensor->strides, tensor->rank);
    return tensor->rank == 0 ||
           dnnl_memory_desc_init_by_strides(desc, (int)tensor->rank, dims,
                                            ul_dnnl_type(tensor->type), strides) == dnnl_success;
}

/* A tensor of a post-operation counts its axes from the last one of the result. */
static inline bool ul_dnnl_post(dnnl_memory_desc_t *desc, const struct ul_call_tensor *tensor,
                                uint32_t rank)
{
    struct ul_call_tensor full;
    uint32_t missing = rank - tensor->rank;
    int64_t outer = 1;
    if (tensor->rank > rank)
        return false;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        full.dims[missing + i] = tensor->dims[i];
        full.strides[missing + i] = tensor->strides[i];
        if (tensor->strides[i] * tensor->dims[i] > outer)
            outer = tensor->strides[i] * tensor->dims[i];
    }
    for (uint32_t i = 0; i < missing; i++) {
        full.dims[i] = 1;
        full.strides[i] = outer;
    }
    full.rank = rank;
    full.type = tensor->type;
    return ul_dnnl_plain(desc, &full);
}

/* Puts sums of weights after the tiles, by the axes that they run along. */
static inline void ul_dnnl_put_sums(dnnl_memory_desc_t *desc, const struct ul_pack *layout)
{
    int mask = 0;
    for (uint32_t d = 0; d < layout->rank; d++)
        mask |= layout->sum_strides[d] != 0 ? 1 << d : 0;
    desc->extra.flags = layout->sum_flags;
    if ((layout->sum_flags & dnnl_memory_extra_flag_compensation_conv_s8s8) != 0)
        desc->extra.compensation_mask = mask;
    if ((layout->sum_flags & dnnl_memory_extra_flag_compensation_conv_asymmetric_src) != 0)
        desc->extra.asymm_compensation_mask = mask;
    if ((layout->sum_flags & dnnl_memory_extra_flag_scale_adjust) != 0)
        desc->extra.scale_adjust = 1;
}

/* Blocked layouts have no constructor in the library's interface; its structure is public. */
static inline bool ul_dnnl_packed(dnnl_memory_desc_t *desc, const struct ul_pack *layout,
                                  enum ul_call_type type)
{
    memset(desc, 0, sizeof *desc);
    desc->ndims = (int)layout->rank;
    desc->data_type = ul_dnnl_type(type);
    desc->format_kind = dnnl_blocked;
    dnnl_blocking_desc_t *blocking = &desc->format_desc.blocking;
    blocking->inner_nblks = (int)layout->block_count;
    dnnl_dims_t block;
    for (uint32_t d = 0; d < layout->rank; d++)
        block[d] = 1;
    for (uint32_t b = 0; b < layout->block_count; b++) {
        blocking->inner_blks[b] = layout->blocks[b];
        blocking->inner_idxs[b] = (dnnl_dim_t)layout->block_dims[b];
        block[layout->block_dims[b]] *= layout->blocks[b];
    }
    for (uint32_t d = 0; d < layout->rank; d++) {
        desc->dims[d] = layout->dims[d];
        desc->padded_dims[d] = (layout->dims[d] + block[d] - 1) / block[d] * block[d];
        blocking->strides[d] = layout->strides[d];
    }
    ul_dnnl_put_sums(desc, layout);
    return layout->size_bytes == 0 || dnnl_memory_desc_get_size(desc) == layout->size_bytes;
}

/* The source or result as the primitive sees it: a dense copy where one was planned. */
static inline bool ul_dnnl_seen(dnnl_memory_desc_t *desc, enum ul_call_kind kind,
                                const struct ul_call_tensor *tensor, uint64_t copy_bytes)
{
    struct ul_call_tensor dense;
    if (copy_bytes == 0)
        return ul_dnnl_plain(desc, tensor);
    return (uint64_t)ul_call_dense(kind, tensor, &dense) * ul_call_element_bytes(tensor) <=
               copy_bytes &&
           ul_dnnl_plain(desc, &dense);
}

/* ---- the descriptor of a call ---- */

static inline dnnl_alg_kind_t ul_dnnl_algorithm(enum ul_post_kind kind)
{
    switch (kind) {
    case UL_POST_RELU:
        return dnnl_eltwise_relu;
    case UL_POST_CLIP:
        return dnnl_eltwise_clip;
    case UL_POST_GELU_ERF:
        return dnnl_eltwise_gelu_erf;
    case UL_POST_GELU_TANH:
        return dnnl_eltwise_gelu_tanh;
    case UL_POST_SWISH:
        return dnnl_eltwise_swish;
    case UL_POST_HARD_SWISH:
        return dnnl_eltwise_hardswish;
    case UL_POST_LOGISTIC:
        return dnnl_eltwise_logistic;
    case UL_POST_TANH:
        return dnnl_eltwise_tanh;
    case UL_POST_ELU:
        return dnnl_eltwise_elu;
    case UL_POST_LINEAR:
        return dnnl_eltwise_linear;
    case UL_POST_ROUND:
        return dnnl_eltwise_round;
    case UL_POST_ADD:
        return dnnl_binary_add;
    case UL_POST_SUB:
        return dnnl_binary_sub;
    case UL_POST_MUL:
        return dnnl_binary_mul;
    case UL_POST_DIV:
        return dnnl_binary_div;
    case UL_POST_MAX:
        return dnnl_binary_max;
    case UL_POST_MIN:
        return dnnl_binary_min;
    case UL_POST_SUM:
        break;
    }
    return dnnl_alg_kind_undef;
}

static inline bool ul_dnnl_append(struct ul_dnnl_desc *desc, dnnl_post_ops_t posts,
                                  const struct ul_call *call, uint32_t index)
{
    const struct ul_post *post = &call->posts[index];
    if (post->kind == UL_POST_SUM)
        return ul_call_is_integer(call)
                   ? dnnl_post_ops_append_sum_v3(posts, post->alpha, (int32_t)post->beta,
                                                 ul_dnnl_type(call->dst.type)) == dnnl_success
                   : dnnl_post_ops_append_sum(posts, 1.0f) == dnnl_success;
    if (post->kind < UL_POST_SUM)
        return dnnl_post_ops_append_eltwise(posts, 1.0f, ul_dnnl_algorithm(post->kind), post->alpha,
                                            post->beta) == dnnl_success;
    return ul_dnnl_post(&desc->posts[index], &post->tensor, call->dst.rank) &&
           dnnl_post_ops_append_binary(posts, ul_dnnl_algorithm(post->kind), &desc->posts[index]) ==
               dnnl_success;
}

/* Scales of a product of integers: one per channel, or one. */
static inline bool ul_dnnl_scale(dnnl_primitive_attr_t attr, const struct ul_call *call,
                                 const float *scales)
{
    uint32_t channel = call->kind == UL_CALL_MATMUL ? call->dst.rank - 1 : 1;
    if (!ul_call_is_scaled(call))
        return true;
    if (call->scale_count == 0)
        return dnnl_primitive_attr_set_output_scales(attr, 1, 0, &call->scale) == dnnl_success;
    return dnnl_primitive_attr_set_output_scales(attr, call->scale_count, 1 << channel, scales) ==
           dnnl_success;
}

/* The zeros of a product of integers. */
static inline bool ul_dnnl_shift(dnnl_primitive_attr_t attr, const struct ul_call *call)
{
    const int32_t unknown = DNNL_RUNTIME_S32_VAL;
    const int32_t *zero = call->src_zero_kind == UL_ZERO_ARG ? &unknown : &call->src_zero;
    return (call->src_zero_kind == UL_ZERO_IS_0 ||
            dnnl_primitive_attr_set_zero_points(attr, DNNL_ARG_SRC, 1, 0, zero) == dnnl_success) &&
           (call->dst_zero == 0 || dnnl_primitive_attr_set_zero_points(
                                       attr, DNNL_ARG_DST, 1, 0, &call->dst_zero) == dnnl_success);
}

static inline bool ul_dnnl_make_attr(struct ul_dnnl_desc *desc, const struct ul_call *call,
                                     const float *scales)
{
    dnnl_post_ops_t posts = NULL;
    bool good = dnnl_primitive_attr_create(&desc->attr) == dnnl_success &&
                dnnl_primitive_attr_set_scratchpad_mode(desc->attr, dnnl_scratchpad_mode_user) ==
                    dnnl_success &&
                ul_dnnl_scale(desc->attr, call, scales) && ul_dnnl_shift(desc->attr, call) &&
                dnnl_post_ops_create(&posts) == dnnl_success;
    for (uint32_t i = 0; good && i < call->post_count - call->tail_count; i++)
        good = ul_dnnl_append(desc, posts, call, i);
    good = good && dnnl_primitive_attr_set_post_ops(desc->attr, posts) == dnnl_success;
    if (posts != NULL)
        dnnl_post_ops_destroy(posts);
    return good;
}

/* The numbers of a window, in arrays as long as the library's. */
struct ul_dnnl_window {
    dnnl_dims_t sizes, steps, dilations, pads_begin, pads_end;
    bool dilated;
};

static inline void ul_dnnl_find_window(struct ul_dnnl_window *window, const struct ul_call *call)
{
    uint32_t axes = call->src.rank > 2 ? call->src.rank - 2 : 0;
    if (axes > 3)
        axes = 3;
    ul_dnnl_copy_dims(window->sizes, call->window, axes);
    ul_dnnl_copy_dims(window->steps, call->steps, axes);
    ul_dnnl_copy_dims(window->dilations, call->dilations, axes);
    ul_dnnl_copy_dims(window->pads_begin, call->pads, axes);
    ul_dnnl_copy_dims(window->pads_end, call->pads + axes, axes);
    window->dilated = false;
    for (uint32_t i = 0; i < axes; i++) {
        if (window->dilations[i] > 0)
            window->dilations[i]--; /* the library counts the gaps */
        window->dilated = window->dilated || window->dilations[i] != 0;
    }
}

static inline bool ul_dnnl_make_pooling(struct ul_dnnl_desc *desc, enum ul_call_kind kind,
                                        const struct ul_dnnl_window *window)
{
    dnnl_alg_kind_t algorithm = kind == UL_CALL_MEAN_POOL ? dnnl_pooling_avg_exclude_padding
                                                          : dnnl_pooling_avg_include_padding;
    if (!window->dilated)
        return dnnl_pooling_forward_desc_init(&desc->op.pooling, dnnl_forward_inference, algorithm,
                                              &desc->src, &desc->dst, window->steps, window->sizes,
                                              window->pads_begin, window->pads_end) == dnnl_success;
    return dnnl_pooling_v2_forward_desc_init(&desc->op.dilated_pooling, dnnl_forward_inference,
                                             algorithm, &desc->src, &desc->dst, window->steps,
                                             window->sizes, window->dilations, window->pads_begin,
                                             window->pads_end) == dnnl_success;
}

static inline bool ul_dnnl_make_op(struct ul_dnnl_desc *desc, const struct ul_call *call)
{
    const dnnl_memory_desc_t *bias = call->bias.rank != 0 ? &desc->bias : NULL;
    struct ul_dnnl_window window;
    ul_dnnl_find_window(&window, call);
    switch (call->kind) {
    case UL_CALL_CONVOLUTION:
        return dnnl_dilated_convolution_forward_desc_init(
                   &desc->op.convolution, dnnl_forward_inference, dnnl_convolution_direct,
                   &desc->src, &desc->weights, bias, &desc->dst, window.steps, window.dilations,
                   window.pads_begin, window.pads_end) == dnnl_success;
    case UL_CALL_DECONVOLUTION:
        return dnnl_dilated_deconvolution_forward_desc_init(
                   &desc->op.deconvolution, dnnl_forward_inference, dnnl_deconvolution_direct,
                   &desc->src, &desc->weights, bias, &desc->dst, window.steps, window.dilations,
                   window.pads_begin, window.pads_end) == dnnl_success;
    case UL_CALL_WEIGHT_GRADIENT:
        return dnnl_dilated_convolution_backward_weights_desc_init(
                   &desc->op.convolution, dnnl_convolution_direct, &desc->src, &desc->dst, NULL,
                   &desc->weights, window.steps, window.dilations, window.pads_begin,
                   window.pads_end) == dnnl_success;
    case UL_CALL_MATMUL:
        return dnnl_matmul_desc_init(&desc->op.matmul, &desc->src, &desc->weights, bias,
                                     &desc->dst) == dnnl_success;
    case UL_CALL_MEAN_POOL:
    case UL_CALL_PADDED_MEAN_POOL:
        return ul_dnnl_make_pooling(desc, call->kind, &window);
    case UL_CALL_ATTENTION: /* the library has none */
    case UL_CALL_ATTENTION_GRADIENT:
    case UL_CALL_NBITS:
        break;
    }
    return false;
}

/* The weights, or their gradient, as the primitive sees them: packed, in a copy, or as they lie.
 * `any`: the library may choose the layout. */
static inline bool ul_dnnl_filters(dnnl_memory_desc_t *desc, const struct ul_call *call, bool any)
{
    const struct ul_call_tensor *tensor = ul_call_filters(call);
    if (!any && (call->pack != NULL || ul_call_layout_bytes(call) != 0))
        return ul_dnnl_packed(desc, &call->layout, tensor->type);
    if (!ul_dnnl_plain(desc, tensor))
        return false;
    if (!any)
        return true;
    dnnl_memory_desc_t plain = *desc;
    return dnnl_memory_desc_init_by_tag(desc, plain.ndims, plain.dims, plain.data_type,
                                        dnnl_format_tag_any) == dnnl_success;
}

/* `any`: the library may choose the layout of the weights, or of their gradient. `scales`:
 * call->scale_count of them; a primitive's layouts and scratch do not depend on them. */
static inline bool ul_dnnl_describe(struct ul_dnnl_desc *desc, const struct ul_call *call, bool any,
                                    const float *scales)
{
    memset(desc, 0, sizeof *desc);
    bool good = ul_dnnl_seen(&desc->src, call->kind, &call->src, call->src_copy_bytes) &&
                ul_dnnl_plain(&desc->bias, &call->bias);
    if (call->kind == UL_CALL_WEIGHT_GRADIENT)
        good = good &&
               ul_dnnl_seen(&desc->weights, call->kind, &call->weights, call->weights_copy_bytes) &&
               ul_dnnl_filters(&desc->dst, call, any);
    else
        good = good && ul_dnnl_seen(&desc->dst, call->kind, &call->dst, call->dst_copy_bytes) &&
               ul_dnnl_filters(&desc->weights, call, any);
    return good && ul_dnnl_make_attr(desc, call, scales) && ul_dnnl_make_op(desc, call);
}

#endif
