/* Hooks of the matmul family. */
#ifndef UL_OPS_MATMUL_H
#define UL_OPS_MATMUL_H

#include "ir/geometry.h"
#include "ir/lower.h"
#include "ir/op.h"

/* matmul.c: opens the loops over the batch and the contraction of `a` and `b` summed in
 * `acc_dtype`, from each operand its zero-point subtracted where it is no UL_NONE (`a_zero`: a
 * scalar, or one for each row; `b_zero`: one for each column). Fills the index of the result's
 * element and returns the sum; close with ul_matmul_close. `column` is the n variable. */
struct ul_matmul_operands {
    ul_value_id a, b, a_zero, b_zero;
    enum ul_dtype acc_dtype;
};
ul_kx ul_matmul_open(struct ul_lower *lower, struct ul_matmul *matmul,
                     const struct ul_matmul_operands *operands, ul_kx index[UL_LIMIT_RANK]);
void ul_matmul_close(struct ul_lower *lower, const struct ul_matmul *matmul);

/* matmul_split.c */
ul_split_rule_fn ul_split_rule_matmul, ul_split_rule_gemm;

ul_infer_fn ul_infer_einsum;
ul_lower_fn ul_lower_einsum;
ul_infer_fn ul_infer_matmul, ul_infer_gemm, ul_infer_matmul_integer, ul_infer_qlinear_matmul;
ul_lower_fn ul_lower_matmul, ul_lower_gemm, ul_lower_matmul_integer, ul_lower_qlinear_matmul;

#endif
