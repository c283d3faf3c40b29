/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of the matmul family share. */
#ifndef UL_OPS_MATMUL_H
#define UL_OPS_MATMUL_H

#include "ir/geometry.h"
#include "ir/ops/matmul/matmul.def"

/* matmul.c: opens the loops over the batch and the contraction of `a` and `b` summed in
 * `acc_dtype`, with each operand's zero-point subtracted where it is not UL_NONE (`a_zero`: a
 * scalar, or one for each row; `b_zero`: one for each column). Fills the index of the result's
 * element and returns the sum; close with ul_matmul_close. `column` is the n variable. */
struct ul_matmul_operands {
    ul_value_id a, b, a_zero, b_zero;
    enum ul_dtype acc_dtype;
};
ul_kx ul_matmul_open(struct ul_lower *lower, struct ul_matmul *matmul,
                     const struct ul_matmul_operands *operands, ul_kx index[UL_LIMIT_RANK]);
void ul_matmul_close(struct ul_lower *lower, const struct ul_matmul *matmul);

#endif
