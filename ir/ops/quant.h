/* Quantisation as expressions.
 *
 * A value x is kept as round(x / scale) + zero, ties to even, saturated to the type.
 */
#ifndef UL_OPS_QUANT_H
#define UL_OPS_QUANT_H

#include "ir/ops/hooks.h"

/* The integers that scaled values are kept in: 4, 8 and 16 bits. Sets their range. */
bool ul_quant_range(enum ul_dtype dtype, int64_t *low, int64_t *high);
/* `x` (f32 or f64, in units of the scale already) rounded, plus `zero` (an i32, or UL_NONE),
 * saturated to `dtype`: an i32. */
ul_kx ul_quantize(struct ul_kernel *kernel, ul_kx x, ul_kx zero, enum ul_dtype dtype);
/* The only element of a scalar or of a tensor with one element. */
ul_kx ul_lower_load_scalar(struct ul_lower *lower, ul_value_id value);

#endif
