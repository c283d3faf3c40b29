/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the values of an expression before anything runs: whole numbers between two
 * ends. Owns nothing, nothing fails but to find a range. */
#ifndef UL_RANGE_H
#define UL_RANGE_H

#include "ir/kernel.h"

struct ul_range {
    int64_t low, high; /* both included; at most 2^31 away from 0 */
};

/* Of elements stored as integers of 8 or 16 bits; false for other types. */
bool ul_range_stored(enum ul_dtype dtype, struct ul_range *range);
/* Of an expression made of such elements, of constants, sums and differences of whole numbers, and
 * casts; floats only as far as they are exact. `operand`, or NULL: whose loaded element the
 * expression transforms. False where nothing is known. */
bool ul_range_find(const struct ul_kernel *kernel, const struct ul_operand *operand, ul_kx x,
                   struct ul_range *range);

/* Is it i32(min(max(round(x), low), high)) of an f32, with bounds that are whole numbers of at most
 * 2^22: what ul_quantize_f32 of runtime/lib/ul_scalar.h does at once? */
bool ul_range_is_quantized(const struct ul_kernel *kernel, ul_kx x);

#endif
