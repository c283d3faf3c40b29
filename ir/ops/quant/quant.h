/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisation as expressions.
 *
 * A value x is kept as round(x / scale) + zero, ties to even, saturated to the type.
 */
#ifndef UL_OPS_QUANT_H
#define UL_OPS_QUANT_H

#include "ir/ops/quant/quant.def"

/* `x` (f32, f64 or an i64, in units of the scale already) rounded, plus `zero` (an i32, or
 * UL_NONE), saturated to `dtype`: an i32. */
ul_kx ul_quantize(struct ul_kernel *kernel, ul_kx x, ul_kx zero, enum ul_dtype dtype);
/* The same, clamped to [low, high]. */
ul_kx ul_quantize_within(struct ul_kernel *kernel, ul_kx x, ul_kx zero, int64_t low, int64_t high);
/* Operand `input` of sums of integers and its zero-point, which may be absent: 8-bit integers of
 * one type, or of 16 bits where the node has the attribute `wide`. */
enum ul_status ul_quant_check_operand(const struct ul_infer *infer, uint32_t input,
                                      uint32_t zero) UL_MUST_CHECK;
/* What scales may be. Quantizers to 4 bits write some below 0, which keep the outermost number of a
 * block exactly; and 0 for a block of zeros, by which nothing can be quantized. */
enum ul_quant_scales { UL_SCALES_FINITE, UL_SCALES_NOT_ZERO, UL_SCALES_ABOVE_ZERO };
/* Checks scales that are known at compile time. Others are not checked: the model answers for
 * them. */
enum ul_status ul_quant_check_scales(const struct ul_infer *infer, uint32_t input,
                                     enum ul_quant_scales allowed) UL_MUST_CHECK;
/* The type of its sums. */
enum ul_dtype ul_quant_sum_dtype(const struct ul_node *node);
/* The only element of a scalar or of a tensor with one element. */
ul_kx ul_lower_load_scalar(struct ul_lower *lower, ul_value_id value);

#endif
