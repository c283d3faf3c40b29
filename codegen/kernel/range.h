/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the values of an expression before anything runs: whole numbers between two
 * ends. It owns nothing; nothing fails, but no range may be found. */
#ifndef UL_RANGE_H
#define UL_RANGE_H

#include "ir/kernel.h"

struct ul_integer_range {
    int64_t low, high; /* both included; at most 2^31 away from 0 */
};

/* The range of elements stored as integers of 8 or 16 bits; false for other types. */
bool ul_range_stored(enum ul_dtype dtype, struct ul_integer_range *range);
/* The range of an expression made from such elements, constants, sums and differences of whole
 * numbers, and casts; floats only as far as they are exact. `operand`, or NULL, is the one whose
 * loaded element the expression transforms. False where nothing is known. */
bool ul_range_find(const struct ul_kernel *kernel, const struct ul_operand *operand, ul_kx x,
                   struct ul_integer_range *range);

/* Whether it is i32(min(max(round(x), low), high)) of an f32, with bounds that are whole numbers of
 * at most 2^22: ul_quantize_f32 of runtime/lib/ul_scalar.h computes that at once. */
bool ul_range_is_quantized(const struct ul_kernel *kernel, ul_kx x);

#endif
