/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites of com.microsoft's operators, by family; upgrade_microsoft.c has the table. The inputs
 * that the table asks for are present. */
#ifndef UL_FRONTEND_UPGRADE_MICROSOFT_H
#define UL_FRONTEND_UPGRADE_MICROSOFT_H

#include "frontend/old_emit.h"

/* upgrade_microsoft_fused.c: activations, products and convolutions with something behind them. */
ul_upgrade_fn ul_microsoft_bias_gelu, ul_microsoft_fast_gelu, ul_microsoft_quick_gelu,
    ul_microsoft_bias_add, ul_microsoft_fused_matmul, ul_microsoft_fused_conv,
    ul_microsoft_fused_gemm, ul_microsoft_cdist, ul_microsoft_grid_sample;
/* upgrade_microsoft_norm.c: normalisation with what stands in front of it. */
ul_upgrade_fn ul_microsoft_skip_layer_norm, ul_microsoft_skip_rms_norm, ul_microsoft_embed,
    ul_microsoft_quantized_embed;
/* upgrade_microsoft_qlinear.c: operators between DequantizeLinear and QuantizeLinear. */
ul_upgrade_fn ul_microsoft_qlinear_binary, ul_microsoft_qlinear_unary, ul_microsoft_qlinear_pool,
    ul_microsoft_qlinear_concat, ul_microsoft_qlinear_where, ul_microsoft_qlinear_mean,
    ul_microsoft_qlinear_conv, ul_microsoft_qgemm, ul_microsoft_nhwc_max_pool;
/* upgrade_microsoft_integer.c: products of integers that give floats. */
ul_upgrade_fn ul_microsoft_integer_to_float, ul_microsoft_dynamic_matmul;
/* input (u8 or i8) times weight, both with scales and zero points, and a bias, as floats; inputs
 * by their indices, UL_NONE where the operator has none. */
struct ul_microsoft_product {
    ul_value_id a, b, a_scale, b_scale, a_zero, b_zero, bias;
};
ul_value_id ul_microsoft_multiply(struct ul_old_node *node,
                                  const struct ul_microsoft_product *product);
/* upgrade_microsoft_lstm.c */
ul_upgrade_fn ul_microsoft_dynamic_lstm;
/* upgrade_microsoft_training.c: gradients. */
enum { UL_MICROSOFT_MAX_XS = 3 };
ul_upgrade_fn ul_microsoft_sigmoid_grad, ul_microsoft_tanh_grad, ul_microsoft_relu_grad,
    ul_microsoft_leaky_relu_grad, ul_microsoft_gelu_grad, ul_microsoft_fast_gelu_grad,
    ul_microsoft_quick_gelu_grad, ul_microsoft_div_grad, ul_microsoft_dropout_grad,
    ul_microsoft_softmax_grad, ul_microsoft_loss, ul_microsoft_loss_grad,
    ul_microsoft_layer_norm_grad, ul_microsoft_rms_norm_grad, ul_microsoft_batch_norm,
    ul_microsoft_batch_norm_grad, ul_microsoft_conv_grad, ul_microsoft_conv_transpose_grad,
    ul_microsoft_gather_grad, ul_microsoft_gather_nd_grad, ul_microsoft_gather_elements_grad,
    ul_microsoft_slice_grad, ul_microsoft_resize_grad, ul_microsoft_concat_training,
    ul_microsoft_split_training, ul_microsoft_broadcast_axes, ul_microsoft_reduce_sum_training,
    ul_microsoft_scale, ul_microsoft_mixed_precision_scale, ul_microsoft_reduce_all_l2,
    ul_microsoft_pass_through, ul_microsoft_zero_gradient;
ul_value_id ul_microsoft_square_sum(struct ul_old_node *node, const ul_value_id *values,
                                    uint32_t count);
/* upgrade_microsoft_optimizer.c: what overwrites what it reads. */
#define UL_MICROSOFT_CLIP_EPSILON ((double)1e-6f) /* added to the norm */
ul_upgrade_fn ul_microsoft_accumulate, ul_microsoft_accumulate_once, ul_microsoft_sgd,
    ul_microsoft_adamw, ul_microsoft_clip_norm;
/* upgrade_microsoft_attention.c, upgrade_microsoft_group.c */
ul_upgrade_fn ul_microsoft_attention, ul_microsoft_quantized_attention, ul_microsoft_multi_head,
    ul_microsoft_group_query, ul_microsoft_rotary;

/* upgrade_microsoft_attend.c: one Attention of ai.onnx, and the masks that go into it. */
struct ul_microsoft_attend {
    ul_value_id q, k, v; /* all [batch, length, heads * size], or [batch, heads, length, size] */
    bool is_split;       /* the latter */
    int64_t batch, queries;
    int64_t heads, groups; /* of q; of k and v */
    int64_t value_size;    /* of a head */
    ul_value_id mask;      /* added to the scores; UL_NONE: nothing is */
    ul_value_id lengths;   /* int64 [batch], keys that count; UL_NONE: all */
    ul_value_id past_k, past_v;
    bool is_causal;
    bool empty_is_zero;    /* a query that sees no key gives zeros, not NaN */
    double scale, softcap; /* 0: the default */
    int64_t scores_mode;   /* qk_matmul_output_mode, where has_scores */
    bool has_scores;
    ul_value_id y, present_k, present_v, scores; /* results */
};

void ul_microsoft_attend(struct ul_old_node *node, struct ul_microsoft_attend *attend);
/* The mask of input `index`, int32 in any of the forms that onnxruntime's CPU takes, as what is
 * added to scores of that type; `keys` with those of a past. UL_NONE after a problem. */
ul_value_id ul_microsoft_mask(struct ul_old_node *node, uint32_t index, enum ul_dtype dtype,
                              int64_t batch, int64_t queries, int64_t keys);
/* The sum of two masks, either of which may be UL_NONE. */
ul_value_id ul_microsoft_add_masks(struct ul_old_node *node, ul_value_id a, ul_value_id b);

#endif
