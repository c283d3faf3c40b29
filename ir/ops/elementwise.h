/* Hooks of the elementwise family. */
#ifndef UL_OPS_ELEMENTWISE_H
#define UL_OPS_ELEMENTWISE_H

#include "ir/kernel.h"
#include "ir/op.h"

/* elementwise.c: shape rules; all broadcast, and differ in the element types that they take. */

ul_infer_fn ul_infer_float;  /* floating-point; the output is of the same type */
ul_infer_fn ul_infer_signed; /* floating-point and signed integers */
ul_infer_fn ul_infer_number; /* floating-point and integers */
ul_infer_fn ul_infer_float_test;
ul_infer_fn ul_infer_gelu;
ul_infer_fn ul_infer_prelu;
ul_infer_fn ul_infer_arithmetic;
ul_infer_fn ul_infer_pow;
ul_infer_fn ul_infer_extremes;
ul_infer_fn ul_infer_float_sum;
ul_infer_fn ul_infer_clip;
ul_infer_fn ul_infer_bit_shift;
ul_infer_fn ul_infer_bitwise;
ul_infer_fn ul_infer_equal;
ul_infer_fn ul_infer_order;
ul_infer_fn ul_infer_logic;
ul_infer_fn ul_infer_where;

/* elementwise_map.c: what an expression text cannot say, since it depends on an attribute, an
 * optional input or the element type. */

ul_map_fn ul_map_erf;
ul_map_fn ul_map_isinf;
ul_map_fn ul_map_gelu;
ul_map_fn ul_map_shrink;
ul_map_fn ul_map_pow;
ul_map_fn ul_map_mod;
ul_map_fn ul_map_max;
ul_map_fn ul_map_min;
ul_map_fn ul_map_sum;
ul_map_fn ul_map_mean;
ul_map_fn ul_map_clip;
ul_map_fn ul_map_bit_shift;

/* cast.c */

ul_infer_fn ul_infer_cast;
ul_infer_fn ul_infer_cast_like;
ul_infer_fn ul_infer_bit_cast;
ul_map_fn ul_map_cast;
ul_map_fn ul_map_bit_cast;

/* `x`, in any compute type, as an element of `dtype` in the compute type of that: rounded,
 * wrapped (integers), saturated (floats to integers, and to 8-bit floats where asked). */
ul_kx ul_cast_build(struct ul_kernel *kernel, enum ul_dtype dtype, bool saturate, ul_kx x);

#endif
