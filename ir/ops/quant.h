/* Hooks of the quant family, and quantisation as expressions.
 *
 * The rounding is the reference's: x / scale, to the nearest, ties to even, plus the zero-point,
 * saturated to the type.
 */
#ifndef UL_OPS_QUANT_H
#define UL_OPS_QUANT_H

#include "ir/lower.h"

/* quant.c: x (f32) / scale rounded, plus zero (of x's type, UL_NONE: none), as `dtype`. */
ul_kx ul_quantize(struct ul_kernel *kernel, ul_kx x, ul_kx scale, ul_kx zero,
                  enum ul_dtype dtype);
/* True for the types that scaled values may be kept in. */
bool ul_is_quantized(enum ul_dtype dtype);

ul_infer_fn ul_infer_quantize, ul_infer_dequantize, ul_infer_dynamic_quantize;
ul_map_fn ul_map_quantize, ul_map_dequantize;
ul_lower_fn ul_lower_dynamic_quantize;

#endif
